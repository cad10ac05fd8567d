"""Any factor graph as pair tables: zeros floored, larger factors by an auxiliary variable each.

A factor of three or more variables becomes one variable whose states are the possible
configurations of all of them but the one with most states. Tables that forbid tie it to each of
these, and the factor's own table, as a matrix, to the last. A factor tree stays a tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icgi.clock import Deadline
from icgi.errors import UnsupportedModelError
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray, flattened
from icgi.model.reduce import absorb, all_states, propagate, restrict
from icgi.neural.arrange import distances
from icgi.neural.general_algebra import ABSENT
from icgi.neural.pace import check

FLOOR = 30.0  # log of how much less likely than anything possible the impossible is made
MOST_STATES = 64  # of one variable, auxiliaries included; a table of pairs then has 4096 entries
CORE_STATES = 4096  # configurations of the variables left at the end, all of which are summed
LEAST_VARIABLES = 3  # of a batch: putting a variable back looks at its three strongest neighbours
GAUGE_SWEEPS = 6
GAUGED_AT_ONCE = 2**20  # entries of padded tables
JOINS_NOTHING = 1e-9  # largest entry of a gauged table that is the sum of two fields

Float32Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class PairForm:
    """A model as unary and pair tables over its variables, in order, and then auxiliaries."""

    cards: IntArray  # n
    unary: tuple[FloatArray, ...]  # n
    pairs: dict[tuple[int, int], FloatArray]  # i < j
    alive: BoolArray  # states of the model's variables that are possible


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """A batch of pairwise models, padded to one size, and what is known of them.

    `estimate` and `reliability` are optional context: the log-probabilities that another method
    found for each state, less their mean over the variable's states, and the reliability of
    `neural.fast.Spins`, 0 for none.
    """

    tables: Tensor  # b n k n k
    unary: Tensor  # b n k    ABSENT for states that do not exist
    exists: Tensor  # b n k    1 for states that exist
    real: Tensor  # b n    0 for padding
    own: Tensor  # b n    1 for the model's variables, 0 for auxiliaries and padding
    adjacency: Tensor  # b n n
    distances: Tensor  # b n n
    estimate: Tensor  # b n k
    reliability: Tensor  # b n

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Tables":
        """Same batch elsewhere."""
        return Tables(*(getattr(self, f.name).to(device, dtype) for f in fields(self)))

    @staticmethod
    def joined(parts: "Sequence[Tables]") -> "Tables":
        """One batch of many that are padded to the same size."""
        return Tables(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Tables)))

    def __getitem__(self, index: Tensor | slice) -> "Tables":
        return Tables(*(getattr(self, f.name)[index] for f in fields(self)))

    def with_context(self, estimate: Tensor, reliability: Tensor) -> "Tables":
        """Same batch with context."""
        return replace(self, estimate=estimate, reliability=reliability)


def core_size(states: int, variables: int, core_states: int = CORE_STATES) -> int:
    """Most variables of so many states whose configurations number up to `core_states`."""
    size = LEAST_VARIABLES
    while states ** (size + 1) <= core_states:
        size += 1
    return min(size, variables)


def pair_form(
    model: FactorGraph,
    most_states: int = MOST_STATES,
    alive: BoolArray | None = None,
    deadline: Deadline | None = None,
) -> PairForm:
    """Pair tables of a model, equal to it up to factors e^−30 where it forbids.

    `alive` are the states that may have probability; those that arc consistency leaves, if absent.
    """
    alive = propagate(model, all_states(model)) if alive is None else alive
    reduced = restrict(model, alive)
    reduced = reduced if _pairs_alone(reduced) else _absorbed(reduced)
    check(deadline)
    floored, lowest = _floored(reduced)
    cards = [int(c) for c in reduced.cards]
    unary = [np.zeros(c) for c in cards]
    pairs: dict[tuple[int, int], FloatArray] = {}

    def add(i: int, j: int, table: FloatArray) -> None:
        if i > j:
            i, j, table = j, i, table.T
        pairs[i, j] = pairs.get((i, j), 0.0) + table

    for scope, raw, table in zip(reduced.scopes, reduced.log_tables, floored, strict=True):
        if len(scope) == 1:
            unary[scope[0]] = unary[scope[0]] + table
        elif len(scope) == 2:
            add(*scope, table)
        elif scope:
            check(deadline)
            digits, matrix, last = _split(scope, raw, most_states)
            new = len(cards)
            cards.append(len(matrix))
            unary.append(np.zeros(len(matrix)))
            add(new, last, np.maximum(matrix - raw.max(), lowest))
            for i, states in zip([i for i in scope if i != last], digits.T, strict=True):
                add(new, i, np.where(states[:, None] == np.arange(cards[i]), 0.0, lowest))
    largest = max(cards, default=0)
    if largest > most_states:
        raise UnsupportedModelError(
            f"icgi:fast takes variables of up to {most_states} states, one has {largest}; use "
            "the engine lbp or pt"
        )
    return PairForm(np.array(cards, dtype=np.int64), tuple(unary), pairs, alive)


def _absorbed(model: FactorGraph) -> FactorGraph:
    """Same model, factors absorbed into those that contain them; single variables stay apart."""
    single = [f for f, scope in enumerate(model.scopes) if len(scope) == 1]
    other = [f for f, scope in enumerate(model.scopes) if len(scope) > 1]
    tables = model.log_tables
    large = absorb(
        FactorGraph(
            model.cards, tuple(model.scopes[f] for f in other), tuple(tables[f] for f in other)
        )
    )
    return FactorGraph(
        model.cards,
        large.scopes + tuple(model.scopes[f] for f in single),
        large.log_tables + tuple(tables[f] for f in single),
    )


def _split(
    scope: tuple[int, ...], table: FloatArray, most: int
) -> tuple[IntArray, FloatArray, int]:
    """Possible configurations of all variables but the last (s, a − 1), their rows, the last."""
    axis = int(np.argmax(table.shape))
    matrix = np.moveaxis(table, axis, -1)
    shape = matrix.shape[:-1]
    matrix = matrix.reshape(-1, table.shape[axis])
    kept = np.flatnonzero((matrix > -np.inf).any(1))
    if len(kept) > most:
        raise UnsupportedModelError(
            f"icgi:fast takes factors that leave up to {most} configurations of all but one of "
            f"their variables, the factor on {scope} leaves {len(kept)}; use the engine lbp or pt"
        )
    return np.stack(np.unravel_index(kept, shape), 1), matrix[kept], scope[axis]


def _pairs_alone(model: FactorGraph) -> bool:
    """Whether no factor has more than two variables, and no two factors the same two."""
    flat = model.flat or flattened(model.scopes, model.log_tables)
    arity = np.diff(flat.scope_start)
    if arity.max(initial=0) > 2:
        return False
    ends = np.sort(flat.scope[np.repeat(arity == 2, arity)].reshape(-1, 2), 1)
    return len(np.unique(ends @ [model.n_variables, 1])) == len(ends)


def _floored(model: FactorGraph) -> tuple[tuple[FloatArray, ...], float]:
    """Log tables with largest entry 0, and the log that stands for zero in them."""
    flat = model.flat or flattened(model.scopes, model.log_tables)
    if not len(flat.values):
        return (), -FLOOR
    begin, sizes = flat.table_start[:-1], np.diff(flat.table_start)
    values = flat.values - np.repeat(np.maximum.reduceat(flat.values, begin), sizes)
    lowest = -FLOOR + float(values[values > -np.inf].min(initial=0.0))
    floored = replace(flat, values=np.maximum(values, lowest))
    return floored.parts(model.cards)[1], lowest


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """A batch of models as lists of edges: small enough to send and to store."""

    model: IntArray  # e    which model of the batch
    first: IntArray  # e
    second: IntArray  # e
    tables: Float32Array  # e k k    gauged
    unary: Float32Array  # b n k
    real: Float32Array  # b n
    own: Float32Array  # b n


def collate(
    forms: Sequence[PairForm],
    variables: int | None = None,
    states: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tables:
    """Padded batch of models without context, on the CPU."""
    return assemble(listed(forms, variables, states, dtype == torch.float64), dtype=dtype)


def listed(
    forms: Sequence[PairForm],
    variables: int | None = None,
    states: int | None = None,
    double: bool = False,
) -> Edges:
    """Gauged edges of models, padded to so many variables and states."""
    n = variables or max([LEAST_VARIABLES, *(len(f.cards) for f in forms)])
    k = states or max([2, *(int(f.cards.max(initial=1)) for f in forms)])
    unary = np.full((len(forms), n, k), ABSENT)
    unary[:, :, 0] = 0.0
    real, own = np.zeros((2, len(forms), n))
    for m, form in enumerate(forms):
        real[m, : len(form.cards)] = 1.0
        own[m, : len(form.alive)] = 1.0
        for i, u in enumerate(form.unary):
            unary[m, i, : len(u)] = u
    where = [(m, i, j) for m, form in enumerate(forms) for i, j in form.pairs]
    model, first, second = np.array(where, dtype=np.int64).reshape(-1, 3).T
    tables, rows, columns = gauge([t for form in forms for t in form.pairs.values()], k)
    np.add.at(unary, (model, first), rows)
    np.add.at(unary, (model, second), columns)
    joined = np.abs(tables).max((1, 2), initial=0.0) > JOINS_NOTHING
    model, first, second, tables = model[joined], first[joined], second[joined], tables[joined]
    kind = np.float64 if double else np.float32
    return Edges(
        model, first, second, tables.astype(kind), unary.astype(kind), real.astype(kind),
        own.astype(kind),
    )  # fmt: skip


def assemble(
    edges: Edges,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    deadline: Deadline | None = None,
) -> Tables:
    """Dense batch on a device from lists of edges."""
    unary, real, own, found = (
        torch.as_tensor(x).to(device, dtype)
        for x in (edges.unary, edges.real, edges.own, edges.tables)
    )
    m, i, j = (torch.as_tensor(x).to(device) for x in (edges.model, edges.first, edges.second))
    b, n, k = unary.shape
    tables = unary.new_zeros(b, n, n, k, k)
    tables[m, i, j] = found
    tables[m, j, i] = found.mT
    adjacency = unary.new_zeros(b, n, n)
    adjacency[m, i, j] = adjacency[m, j, i] = 1.0
    far = torch.cat([distances(part, deadline) for part in torch.split(adjacency, 4096)])
    return Tables(
        tables.transpose(2, 3).contiguous(),
        unary,
        (unary > 0.5 * ABSENT).to(dtype),
        real,
        own,
        adjacency,
        far,
        torch.zeros_like(unary),
        torch.zeros_like(real),
    )


def gauge(
    tables: Sequence[FloatArray], k: int, deadline: Deadline | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Tables (e k k) whose exponentials have rows and columns of mean one, and what these lost.

    For spins this is J s s' − log cosh J: fields then tell what a variable prefers by itself. Mean
    logs would not do: a state with many forbidden partners is not thereby unlikely.
    """
    count = len(tables)
    found = np.zeros((count, k, k)), np.zeros((count, k)), np.zeros((count, k))
    some = max(GAUGED_AT_ONCE // (k * k), 1)
    for first in range(0, count, some):
        check(deadline)
        part = slice(first, first + some)
        for whole, piece in zip(found, _gauge(tables[part], k), strict=True):
            whole[part] = piece
    return found


def _gauge(tables: Sequence[FloatArray], k: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    padded = np.full((len(tables), k, k), -np.inf)
    for e, table in enumerate(tables):
        padded[e, : table.shape[0], : table.shape[1]] = table
    row, column = _scaled(padded)
    # starting with columns gives the same in the end; the average of both favours neither
    column_first, row_second = _scaled(padded.swapaxes(1, 2))
    row, column = 0.5 * (row + row_second), 0.5 * (column + column_first)
    exists = padded > -np.inf
    left = np.where(exists, padded, 0.0) - (row[:, :, None] + column[:, None])
    return np.where(exists, left, 0.0), row, column


def _scaled(padded: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sinkhorn's iteration on logs: row and column potentials (e k), 0 where there is no state."""
    row, column = np.zeros(padded.shape[:2]), np.zeros(padded.shape[:2])
    for _ in range(GAUGE_SWEEPS):
        row = _log_mean_exp(padded - column[:, None])
        column = _log_mean_exp((padded - row[:, :, None]).swapaxes(1, 2))
    return row, column


def _log_mean_exp(x: FloatArray) -> FloatArray:
    top = x.max(2, initial=-1e6)
    total = np.exp(x - top[..., None]).sum(2)
    count = (x > -np.inf).sum(2).clip(1)
    return np.where(total > 0, np.log(total.clip(1e-300) / count) + top, 0.0)
