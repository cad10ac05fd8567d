"""Any factor graph: heat-bath sweeps that read the tables.

Every factor remembers where in its table the replica stands, so a visit costs the states of the
variable times its degree and a change costs its degree, whatever the arity.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.sampling.choice import Index, choose, conditional_range, weigh_states
from icgi.sampling.streams import uniform

LARGE = 2**20  # entries from which a table is taken to be able to do anything, not read
SMALL, VISITS = 2**16, 2**24  # entries of tables that are always read; of larger ones, in all


class Tables(NamedTuple):
    """All tables one after the other, and for each variable the factors that touch it."""

    first: Index  # n+1  where each variable's states begin
    start: Index  # n+1  where each variable's touches begin
    factor: Index  # touches
    stride: Index  # touches: steps in the table from one state of the variable to the next
    begin: Index  # f+1  where each table begins
    scope_start: Index  # f+1
    scope: Index
    value: FloatArray  # log tables, a penalty for zeros
    zero: NDArray[np.int8]  # as long as `value`, or empty where the model has no zeros


class TableState(NamedTuple):
    """Replicas of a factor graph."""

    x: NDArray[np.int32]  # replicas × n
    at: Index  # replicas × f  entry of each table that the states select


class TableScratch(NamedTuple):
    """Weights of one variable's states, and what each would violate."""

    weight: FloatArray  # k
    broken: IntArray  # k


def tables(model: FactorGraph, soft: list[FloatArray]) -> Tables:
    """Arrange a model; `soft` are its tables with penalties for zeros."""
    touches = []  # (variable, factor, stride)
    for f, scope in enumerate(model.scopes):
        stride = 1
        for i in reversed(scope):
            touches.append((i, f, stride))
            stride *= int(model.cards[i])
    touches.sort()
    columns = np.array(touches, np.int64).reshape(-1, 3).T.copy()
    sizes = [0, *(table.size for table in soft)]
    zero = [np.isneginf(table).ravel() for table in model.log_tables]
    has_zeros = any(gone.any() for gone in zero)
    return Tables(
        np.concatenate([[0], np.cumsum(model.cards)]).astype(np.uint64),
        np.searchsorted(columns[0], np.arange(model.n_variables + 1)).astype(np.uint64),
        columns[1].astype(np.uint64),
        columns[2].astype(np.uint64),
        np.cumsum(sizes).astype(np.uint64),
        np.cumsum([0, *map(len, model.scopes)]).astype(np.uint64),
        np.array([i for scope in model.scopes for i in scope], np.uint64),
        np.concatenate([np.zeros(0), *(table.ravel() for table in soft)]),
        np.concatenate(zero).astype(np.int8) if has_zeros else np.zeros(0, np.int8),
    )


def state(model: Tables, x: NDArray[np.int32]) -> TableState:
    """Replicas in the given states, one row each."""
    made = TableState(np.ascontiguousarray(x), np.empty((len(x), len(model.begin) - 1), np.uint64))
    _refresh_all(model, made)
    return made


def scratch(model: Tables) -> TableScratch:
    """Buffers of one thread."""
    card = int(np.diff(model.first).max())
    return TableScratch(np.empty(card), np.empty(card, np.int64))


def reach(model: Tables) -> FloatArray:
    """Bound on how far p(x_i = x | rest) can vary with the rest, for all states."""
    high, low = np.zeros(int(model.first[-1])), np.zeros(int(model.first[-1]))
    _extremes(model, _readable(model), high, low)
    return conditional_range(model.first, high, low)


def _readable(model: Tables) -> int:
    """Size up to which tables are read: small ones all, larger ones while that is soon done."""
    sizes = np.diff(model.begin).astype(np.int64)
    large = np.sort(sizes[(sizes > SMALL) & (sizes <= LARGE)])
    visits = np.cumsum(large * np.log2(np.maximum(large, 2)))  # every entry for every variable
    beyond = large[visits > VISITS]
    return int(beyond[0]) - 1 if len(beyond) else LARGE


@kernel
def _extremes(model, readable, high, low):  # type: ignore[no-untyped-def]
    """Add every factor's largest and smallest entry for each state, relative to the best state."""
    n = len(model.first) - 1
    for i in range(n):
        begin, card = model.first[i], model.first[i + 1] - model.first[i]
        for q in range(model.start[i], model.start[i + 1]):
            f, stride = model.factor[q], model.stride[q]
            if model.begin[f + np.uint64(1)] - model.begin[f] > readable:
                low[begin : begin + card] = -np.inf
                continue
            most = np.full(card, -np.inf)
            least = np.full(card, np.inf)
            row = np.empty(card)
            for entry in range(model.begin[f], model.begin[f + 1]):
                if (entry - model.begin[f]) // stride % card != 0:
                    continue
                for x in range(card):
                    at = entry + x * stride
                    gone = len(model.zero) > 0 and model.zero[at] > 0
                    row[x] = -np.inf if gone else model.value[at]
                top = row.max()
                if top == -np.inf:
                    continue
                for x in range(card):
                    most[x] = max(most[x], row[x] - top)
                    least[x] = min(least[x], row[x] - top)
            for x in range(card):
                high[begin + x] += most[x]
                low[begin + x] += least[x]


@kernel
def refresh(model, state, r):  # type: ignore[no-untyped-def]
    """Find every factor's entry from the states."""
    x = state.x[r]
    at = state.at[r]
    at[:] = model.begin[:-1]
    for i in range(len(x)):
        for q in range(model.start[i], model.start[i + 1]):
            at[model.factor[q]] += model.stride[q] * np.uint64(x[i])


@kernel
def _refresh_all(model, state):  # type: ignore[no-untyped-def]
    for r in range(len(state.x)):
        refresh(model, state, r)


@kernel
def assign(model, state, r, i, value):  # type: ignore[no-untyped-def]
    """Set one variable and the entries of its factors."""
    change = np.uint64(value) - np.uint64(state.x[r, i])  # wraps, and so does the sum below
    state.x[r, i] = value
    for q in range(model.start[i], model.start[i + 1]):
        state.at[r, model.factor[q]] += model.stride[q] * change


@kernel
def weigh(model, state, r):  # type: ignore[no-untyped-def]
    """Log weight with penalties, and the number of violated factors."""
    total = 0.0
    broken = 0
    for f in range(state.at.shape[1]):
        total += model.value[state.at[r, f]]
        if len(model.zero):
            broken += model.zero[state.at[r, f]]
    return total, broken


@kernel
def count_broken(model, state, r, i, card, broken):  # type: ignore[no-untyped-def]
    """How many factors each state of a variable would violate; returns the fewest."""
    for y in range(card):
        broken[y] = 0
    x = np.uint64(state.x[r, i])
    for q in range(model.start[i], model.start[i + 1]):
        stride = model.stride[q]
        entry = state.at[r, model.factor[q]] - stride * x
        for y in range(card):
            broken[y] += model.zero[entry + y * stride]
    fewest = broken[0]
    for y in range(card):
        fewest = min(fewest, broken[y])
    return fewest


@kernel
def sweep(model, state, r, scale, hard, stream, scratch, local, record):  # type: ignore[no-untyped-def]
    """One heat-bath pass at weights λ θ; `hard` keeps to states that violate the fewest factors."""
    x, at = state.x[r], state.at[r]
    first, start, touched, strides = model.first, model.start, model.factor, model.stride
    value, weight, broken, source = model.value, scratch.weight, scratch.broken, stream.one
    hard = hard and len(model.zero) > 0
    for i in range(len(x)):
        low, card, present = first[i], first[i + 1] - first[i], np.uint64(x[i])
        fewest = count_broken(model, state, r, i, card, broken) if hard else 0
        for y in range(card):
            log_weight = 0.0
            for q in range(start[i], start[i + 1]):
                at_present = at[touched[q]]
                log_weight += value[at_present + (y - present) * strides[q]] - value[at_present]
            weight[y] = -np.inf if hard and broken[y] > fewest else log_weight
        total = weigh_states(weight, card, scale)
        drawn = choose(weight, card, total, uniform(source), local, low, record)
        if drawn != present:
            x[i] = drawn
            for q in range(start[i], start[i + 1]):
                at[touched[q]] += strides[q] * (drawn - present)
