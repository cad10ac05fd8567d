"""Pairwise models of any cardinality: heat-bath sweeps on incremental local fields.

f_i(x) = θ_i(x) + Σ_j θ_ij(x, x_j) is kept for every state, so a visit costs the states of a
variable and a change costs those of its neighbours. Zeros of the model are counted apart:
`value` holds a finite penalty in their place, `zero` says where they are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray
from icgi.sampling.choice import ONE, Index, choose, conditional_range, weigh_states
from icgi.sampling.streams import uniform


class Pairs(NamedTuple):
    """Fields and, for each variable's every edge, the table with the variable's states as rows."""

    first: Index  # n+1  where each variable's states begin
    unary: FloatArray  # states
    start: Index  # n+1  where each variable's edges begin
    neighbour: Index  # 2e
    table: Index  # 2e   where the edge's table begins in `value` and `zero`
    value: FloatArray
    zero: NDArray[np.int8]  # as long as `value`, or empty where the model has no zeros


class PairState(NamedTuple):
    """Replicas of a pairwise model."""

    x: NDArray[np.int32]  # replicas × n
    field: FloatArray  # replicas × states
    broken: NDArray[np.int32]  # replicas × states: edges that each state would violate


class PairScratch(NamedTuple):
    """Weights of one variable's states."""

    weight: FloatArray  # k


def pairs(model: FactorGraph, soft: list[FloatArray]) -> Pairs:
    """Arrange a pairwise model without unary zeros; `soft` are its tables with penalties."""
    n = model.n_variables
    first = np.concatenate([[0], np.cumsum(model.cards)]).astype(np.int64)
    unary = np.zeros(int(first[-1]))
    value: dict[tuple[int, int], FloatArray] = {}
    zero: dict[tuple[int, int], NDArray[np.bool_]] = {}
    for scope, table, hard in zip(model.scopes, soft, model.log_tables, strict=True):
        if len(scope) == 1:
            unary[first[scope[0]] : first[scope[0] + 1]] += table
        elif len(scope) == 2:
            turned = scope[0] > scope[1]
            key = (scope[1], scope[0]) if turned else (scope[0], scope[1])
            value[key] = value.get(key, 0.0) + (table.T if turned else table)
            gone = np.isneginf(hard.T if turned else hard)
            zero[key] = zero[key] | gone if key in zero else gone
    edges = [(i, j, value[i, j], zero[i, j]) for i, j in value]
    edges += [(j, i, table.T, gone.T) for i, j, table, gone in edges]
    edges.sort(key=lambda edge: edge[:2])
    sizes = np.array([table.size for _, _, table, _ in edges], np.int64)
    has_zeros = any(gone.any() for gone in zero.values())
    flat = [gone.ravel() for _, _, _, gone in edges]
    return Pairs(
        first.astype(np.uint64),
        unary,
        np.searchsorted([i for i, _, _, _ in edges], np.arange(n + 1)).astype(np.uint64),
        np.array([j for _, j, _, _ in edges], np.uint64),
        np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.uint64),
        np.concatenate([np.zeros(0)] + [table.ravel() for _, _, table, _ in edges]),
        np.concatenate(flat).astype(np.int8) if has_zeros else np.zeros(0, np.int8),
    )


def state(model: Pairs, x: NDArray[np.int32]) -> PairState:
    """Replicas in the given states, one row each."""
    shape = len(x), len(model.unary)
    broken = np.zeros(shape if len(model.zero) else (len(x), 0), np.int32)
    made = PairState(np.ascontiguousarray(x), np.empty(shape), broken)
    _refresh_all(model, made)
    return made


def scratch(model: Pairs) -> PairScratch:
    """Buffers of one thread."""
    return PairScratch(np.empty(int(np.diff(model.first).max())))


def reach(model: Pairs) -> FloatArray:
    """Bound on how far p(x_i = x | rest) can vary with the rest, for all states."""
    high, low = model.unary.copy(), model.unary.copy()
    _extremes(model, high, low)
    return conditional_range(model.first, high, low)


@kernel
def _extremes(model, high, low):  # type: ignore[no-untyped-def]
    """Add every edge's largest and smallest entry for each state, relative to the best state."""
    n = len(model.first) - 1
    for i in range(n):
        begin, card = model.first[i], model.first[i + 1] - model.first[i]
        for q in range(model.start[i], model.start[i + 1]):
            j = model.neighbour[q]
            other = model.first[j + ONE] - model.first[j]
            most = np.full(card, -np.inf)
            least = np.full(card, np.inf)
            row = np.empty(card)
            for y in range(other):
                for x in range(card):
                    at = model.table[q] + x * other + y
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
    """Rebuild a replica's fields from its states."""
    x = state.x[r]
    field = state.field[r]
    field[:] = model.unary
    state.broken[r, :] = 0
    for j in range(len(x)):
        for q in range(model.start[j], model.start[j + 1]):
            _add(model, state, r, q, np.uint64(x[j]))


@kernel
def _refresh_all(model, state):  # type: ignore[no-untyped-def]
    for r in range(len(state.x)):
        refresh(model, state, r)


@kernel
def _add(model, state, r, q, x):  # type: ignore[no-untyped-def]
    """Add row `x` of an edge's table to the field at its far end."""
    i = model.neighbour[q]
    low, card = model.first[i], model.first[i + ONE] - model.first[i]
    row = model.table[q] + x * card
    for y in range(card):
        state.field[r, low + y] += model.value[row + y]
    if len(model.zero):
        for y in range(card):
            state.broken[r, low + y] += model.zero[row + y]


@kernel
def assign(model, state, r, i, value):  # type: ignore[no-untyped-def]
    """Set one variable and the fields around it."""
    old, new = np.uint64(state.x[r, i]), np.uint64(value)
    if old == new:
        return
    state.x[r, i] = new
    first, neighbour, table = model.first, model.neighbour, model.table
    entry, zero, field, broken = model.value, model.zero, state.field[r], state.broken[r]
    for q in range(model.start[i], model.start[i + 1]):
        j = neighbour[q]
        low, card = first[j], first[j + ONE] - first[j]
        gain, loss = table[q] + new * card, table[q] + old * card
        for y in range(card):
            field[low + y] += entry[gain + y] - entry[loss + y]
        if len(zero):
            for y in range(card):
                broken[low + y] += zero[gain + y] - zero[loss + y]


@kernel
def weigh(model, state, r):  # type: ignore[no-untyped-def]
    """Log weight with penalties, Σ_i (f_i + θ_i)(x_i) / 2, and the number of violated edges."""
    x = state.x[r]
    total = 0.0
    broken = 0
    for i in range(len(x)):
        at = model.first[i] + np.uint64(x[i])
        total += state.field[r, at] + model.unary[at]
        if len(model.zero):
            broken += state.broken[r, at]
    return 0.5 * total, broken // 2


@kernel
def sweep(model, state, r, scale, hard, stream, scratch, local, record):  # type: ignore[no-untyped-def]
    """One heat-bath pass at weights λ θ; `hard` keeps to states that violate the fewest edges."""
    x, field, broken = state.x[r], state.field[r], state.broken[r]
    first, weight, source = model.first, scratch.weight, stream.one
    hard = hard and len(model.zero) > 0
    for i in range(len(x)):
        low, card = first[i], first[i + 1] - first[i]
        if hard:
            fewest = broken[low]
            for y in range(card):
                fewest = min(fewest, broken[low + y])
            for y in range(card):
                weight[y] = field[low + y] if broken[low + y] == fewest else -np.inf
        else:
            for y in range(card):
                weight[y] = field[low + y]
        total = weigh_states(weight, card, scale)
        drawn = choose(weight, card, total, uniform(source), local, low, record)
        if drawn != np.uint64(x[i]):
            assign(model, state, r, i, drawn)
