"""Graphs of decisions: models that zeros take apart, however wide they are.

Variables are decided one after the other, from the root of an elimination order. Zeros then decide
others, factors lose variables that they no longer depend on, and what is left falls into parts,
each solved once (`decision_search`). What that takes is known only when it is done, so there is no
forecast: a search has a share of the time, and either ends or is given up.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icgi.clock import Deadline
from icgi.errors import EvidenceError
from icgi.exact.decision_search import DONE, EMPTY, flows, search
from icgi.exact.restrictions import restrictions
from icgi.inference import Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray, IntArray, starts
from icgi.model.ordering import Order
from icgi.model.wiring import Wiring, wiring

MOST_STATES = 60  # of a variable: what is left of them is a word of 64 bits
MOST_AXES = 62  # of a factor, likewise
# Whether the busiest variable is decided next, and the share of the time that is left: both ways
# briefly, then both with half of the rest.
TURNS = ((True, 0.05), (False, 0.05), (True, 0.5), (False, 1.0))


class Graph(NamedTuple):
    """Nodes before those that lead to them, the last one the whole model; edges, one a decision."""

    node_log: FloatArray  # log of the sum over all configurations of a part
    node_edge: IntArray  # its last edge
    edge_log: FloatArray
    edge_next: IntArray  # another edge of the same node, −1 for none
    edge_child: IntArray  # where an edge's nodes begin in `children`
    edge_item: IntArray  # where the variables that it decides begin in `items`
    children: IntArray
    items: IntArray


@dataclass(frozen=True, eq=False, slots=True)
class Decisions:
    """A model as a graph of decisions."""

    model: FactorGraph
    free: IntArray  # variables of the model by their numbers in the graph
    weight: FloatArray  # v k  log of the unary factors of each
    constant: float
    graph: Graph

    @property
    def size(self) -> int:
        """Number of decisions: edges of the graph."""
        return len(self.graph.edge_log)

    @property
    def log_z(self) -> float:
        """Logarithm of the sum over all configurations."""
        return self.constant + float(self.graph.node_log[-1])

    @property
    def table_bytes(self) -> float:
        """Memory that it takes."""
        return float(sum(array.nbytes for array in self.graph))

    def marginals(self) -> Marginals:
        """Marginals of all variables, by one pass from the root down."""
        model = self.model
        probs = np.zeros((model.n_variables, max(model.max_states, 1)))
        probs[model.cards == 1, 0] = 1.0
        found: FloatArray = np.zeros(self.weight.shape)
        flows(*tuple(self.graph), self.weight, found)
        probs[self.free, : found.shape[1]] = found / found.sum(1, keepdims=True)
        return Marginals(probs, Status.EXACT, self.log_z, stats={"decisions": float(self.size)})


def decide(
    model: FactorGraph, order: Order, deadline: Deadline, most_bytes: float
) -> Decisions | None:
    """Graph of decisions, those last that are eliminated first; None where it takes too much.

    Raises `EvidenceError` where no configuration is possible.
    """
    if model.max_states > MOST_STATES or max(map(len, model.scopes), default=0) > MOST_AXES:
        return None
    # Variables are numbered by their turn; those of one state are in no scope.
    turns = order.variables[::-1]
    free = turns[model.cards[turns] > 1]
    number = np.full(model.n_variables, -1, np.int64)
    number[free] = np.arange(len(free))
    w, weight, constant = _renumbered(model, number, free)
    found = restrictions(w)
    if found is None or deadline.passed:
        return None
    whole = found.whole
    if (
        min(constant, weight.max(1).min(initial=0.0), found.scale[whole].min(initial=0.0))
        == -np.inf
    ):
        raise EvidenceError(_IMPOSSIBLE)
    factor = np.repeat(np.arange(len(w.scope_start) - 1), np.diff(w.scope_start))
    by_variable = np.argsort(w.scope, kind="stable")
    inc_start = starts(np.bincount(w.scope, minlength=len(free)))
    inc_bit = np.arange(len(w.scope)) - w.scope_start[factor]
    for busiest, share in TURNS:
        with deadline.share(share).flag() as stop:
            status, *graph = search(
                w.cards, weight, w.scope_start, w.scope, found.stride, whole.copy(),
                found.first, found.second, found.scale, found.depends, found.weight, inc_start,
                factor[by_variable], by_variable, inc_bit[by_variable], float(most_bytes), busiest,
                stop,
            )  # fmt: skip
        if status == EMPTY:
            raise EvidenceError(_IMPOSSIBLE)
        if status == DONE:
            return Decisions(model, free, weight, constant, Graph(*graph))
        if deadline.passed:
            break
    return None


_IMPOSSIBLE = (
    "no configuration has non-zero probability; check the evidence against the zeros of the model"
)


def _renumbered(
    model: FactorGraph, number: IntArray, free: IntArray
) -> tuple[Wiring, FloatArray, float]:
    """Factors of two or more variables, log of the product of unary ones, sum of constants."""
    states = np.arange(max(model.max_states, 1))
    weight = np.where(states < model.cards[free, None], 0.0, -np.inf)
    constant = 0.0
    scopes, tables = [], []
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if len(scope) == 0:
            constant += float(table)
        elif len(scope) == 1:
            weight[number[scope[0]], : len(table)] += table
        else:
            scopes.append(tuple(number[list(scope)].tolist()))
            tables.append(table)
    cards = model.cards[free]
    return wiring(FactorGraph(cards, tuple(scopes), tuple(tables))), weight, constant
