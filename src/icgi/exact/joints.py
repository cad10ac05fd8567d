"""Exact joint marginals of any variables, from the cliques of a bucket tree.

Variables that share a clique are read from it. For others a factor of ones is added over them, so
that a clique of the new tree holds them all; what that costs is forecast like everything else.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.exact import walks
from icgi.exact.forecast import Forecast, recosted
from icgi.exact.forecast import forecast as searched
from icgi.exact.kept import Kept, collected, forecast_kept
from icgi.inference import Budget, JointTables, Scope, Status
from icgi.model.graph import FactorGraph, FloatArray, assembled
from icgi.model.ordering import Order


def exact_joints(
    model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator, order: Order
) -> JointTables:
    """Joint marginals of scopes; `order` is one that fits the model as it is."""
    deadline = budget.deadline()
    order = recosted(model, order).order
    both = _both(model, forecast_kept(model, order, both=True), budget.until(deadline))
    tables: dict[Scope, FloatArray] = {}
    by_node = _by_node(both[0], scopes)
    for scope in by_node.pop(-1, []):
        together = joined(model, scope)
        order = searched(together, budget.until(deadline), rng).order
        held = _both(together, forecast_kept(together, order, both=True), budget.until(deadline))
        (node,) = _by_node(held[0], [scope])
        tables.update(_read(held, node, [scope], together))
    for node, inside in by_node.items():
        tables.update(_read(both, node, inside, model))
    return JointTables(tuple(tables[s] for s in scopes), Status.EXACT, both[0].log_total)


def joined(model: FactorGraph, scope: Scope) -> FactorGraph:
    """Model with one more factor, of ones, so that a clique holds all of the scope."""
    ones = np.zeros([int(model.cards[i]) for i in scope])
    ones.flags.writeable = False
    return assembled(
        model.cards, (*model.scopes, scope), (*model.log_tables, ones), model.names, model.states
    )


Both = tuple[Kept, NDArray[np.float64]]


def _both(model: FactorGraph, ahead: Forecast, budget: Budget) -> Both:
    """Messages in both directions; the second array holds those away from the root."""
    deadline = budget.deadline()
    kept = collected(model, ahead, budget)
    made = kept.made
    down = np.zeros_like(kept.store)
    buffer = np.empty(made.largest_clique)
    shift = np.empty(max(1, int(made.tree.size.max(initial=1))))
    with deadline.flag() as stop:
        walks.distribute(made.tree, kept.store, down, buffer, shift, stop)
        if stop[0]:
            ahead.refuse_beyond(Budget(seconds=0.0, table_bytes=budget.table_bytes))
    return kept, down


def _by_node(kept: Kept, scopes: Sequence[Scope]) -> dict[int, list[Scope]]:
    """Scopes by the node whose clique holds them; those that no clique holds under −1.

    A clique that holds a scope exists if and only if that of its first variable to go is one.
    """
    tree = kept.made.tree
    time = np.empty(len(kept.order), np.int64)
    time[kept.order] = np.arange(len(time))
    node_of = np.full(len(time), -1)
    node_of[tree.variable[tree.variable >= 0]] = np.flatnonzero(tree.variable >= 0)
    found: dict[int, list[Scope]] = {}
    for scope in dict.fromkeys(scopes):
        first, *others = sorted(time[list(scope)].tolist())
        node = int(node_of[first])
        clique = tree.sep[tree.sep_start[node] : tree.sep_start[node + 1]].tolist()
        found.setdefault(node if set(others) <= set(clique) else -1, []).append(scope)
    return found


def _read(
    both: Both, node: int, scopes: Sequence[Scope], model: FactorGraph
) -> dict[Scope, FloatArray]:
    """Joint marginals of scopes that lie in the clique of a node."""
    kept, down = both
    tree = kept.made.tree
    buffer = np.empty(int(tree.clique[node]))
    walks.clique_belief(tree, node, kept.store, down, buffer)
    times = [int(tree.variable[node])]
    times += tree.sep[tree.sep_start[node] : tree.sep_start[node + 1]].tolist()
    clique = [int(kept.order[t]) for t in times]
    # axes of one state are left out: numpy has at most 64 of them
    wide = [i for i in clique if model.cards[i] > 1]
    weights = np.exp(buffer).reshape([int(model.cards[i]) for i in wide])
    weights /= weights.sum()
    found = {}
    for scope in scopes:
        free = [i for i in scope if model.cards[i] > 1]
        gone = tuple(a for a, i in enumerate(wide) if i not in free)
        table = weights.sum(gone)
        left = [i for i in wide if i in free]
        table = np.transpose(table, [left.index(i) for i in free])
        found[scope] = np.ascontiguousarray(table.reshape([int(model.cards[i]) for i in scope]))
    return found
