"""Exact marginals by one collect and one distribute pass over a bucket tree."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.random import Generator

from icgi.errors import BudgetError, EvidenceError
from icgi.exact import logpasses, passes
from icgi.exact.tree import LARGE, Plan, fill_store, plan
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import BoolArray, FactorGraph, FloatArray
from icgi.model.ordering import Order, cost, find_order

THREADED = 2**17  # cliques above this many entries are cut in two halves, one per thread
HALVES = 2  # always two, whatever the machine, so that answers do not depend on it


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """All marginals and log Z, exact to rounding, in memory that is known before it is taken.

    Tables are kept in linear space with largest entry one. A check on every message proves that
    nothing was lost to underflow; where it fails, the passes run again on logarithms.
    """

    search_share: float = 0.1  # share of the budget's seconds that the order search may take
    arithmetic: Literal["auto", "linear", "log"] = "auto"

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Search an order, check the memory, then collect and distribute."""
        order = find_order(model, rng, seconds=self.search_share * budget.seconds)
        return solve(model, order, budget, self.arithmetic)

    def prepared(self, model: FactorGraph, budget: Budget, rng: Generator) -> "AlongOrder":
        """Same engine with the order searched once, for many evidences on one model."""
        order = find_order(model, rng, seconds=self.search_share * budget.seconds)
        return AlongOrder(order, self.arithmetic)


@dataclass(frozen=True, slots=True, eq=False)
class AlongOrder:
    """The junction tree along a given order of the same variables."""

    order: Order
    arithmetic: Literal["auto", "linear", "log"] = "auto"

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Collect and distribute; the cost is that of the order on this (conditioned) model."""
        order = cost(model, self.order.variables, self.order.heuristic)
        return solve(model, order, budget, self.arithmetic)


def solve(model: FactorGraph, order: Order, budget: Budget, arithmetic: str = "auto") -> Marginals:
    """Exact marginals along a given elimination order."""
    check_memory(order, 8 * order.message_entries, budget)
    made = plan(model, order.variables)
    check_memory(order, made.bytes_needed, budget)
    found = None if arithmetic == "log" else _linear(model, made)
    if found is None and arithmetic != "linear":
        check_memory(order, made.bytes_needed + 16 * made.largest_clique, budget)
        found = _logarithmic(model, made)
    if found is None:
        raise EvidenceError("the numbers left the range of linear arithmetic; use arithmetic=auto")
    mass, log_z = found
    probs = np.empty_like(mass)
    probs[order.variables] = mass / mass.sum(1, keepdims=True)
    return Marginals(
        probs,
        Status.EXACT,
        log_z,
        stats={
            "width": order.width,
            "log2_largest_table": order.log2_table,
            "table_entries": made.clique_entries,
            "bytes": made.bytes_needed,
        },
    )


def check_memory(order: Order, needed: float, budget: Budget) -> None:
    """Raise `BudgetError` when exact inference along this order needs more than the budget."""
    if needed > budget.table_bytes:
        raise BudgetError(
            f"exact inference needs {readable_bytes(needed)} for its tables (induced width "
            f"{order.width}, largest table 2^{order.log2_table:.1f} entries), the budget is "
            f"{readable_bytes(budget.table_bytes)}; raise --memory, or use an approximate engine "
            "(ttve, pt, gbp, lbp)"
        )


def readable_bytes(count: float) -> str:
    """Format a number of bytes as a person says it: 3.4 GB, 10^23 GB."""
    if count >= 1e300:
        return "more than 10^290 GB"
    if count >= 1e15:
        return f"10^{np.log10(count / 1e9):.0f} GB"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def _linear(model: FactorGraph, made: Plan) -> tuple[FloatArray, float] | None:
    """Run both passes in linear space; None where a check says that digits may have been lost."""
    tree = made.tree
    store, shift = fill_store(model, made, log=False)
    count = len(tree.nodes)
    inverse, log_scale = np.ones(count), np.zeros(count)
    mass = np.zeros((model.n_variables, max(model.max_states, 1)))
    scratch = np.empty((HALVES, made.scratch_entries))
    large = (tree.clique > LARGE) & (tree.size > 1)  # a lone variable of many states is not swept
    spans = _spans(large)
    with ThreadPoolExecutor(HALVES) as pool:
        for first, last in spans:
            if large[first]:
                if not _collect_large(tree, first, store, inverse, log_scale, pool):
                    return None
            elif not passes.collect_small(tree, first, last, store, inverse, log_scale):
                return None
        _open_roots(made, store, inverse)
        for first, last in reversed(spans):
            if large[first]:
                if not _distribute_large(tree, first, store, inverse, scratch, mass, pool):
                    return None
            elif not passes.distribute_small(tree, first, last, store, inverse, scratch[0], mass):
                return None
    return mass, shift + float(log_scale.sum())


def _collect_large(tree, node, store, inverse, log_scale, pool) -> bool:  # type: ignore[no-untyped-def]
    ranges = _cut(passes.outer_blocks(tree, node), tree.clique[node])
    run = lambda r: passes.sweep_collect(tree, node, store, inverse, *r)  # noqa: E731
    top = max(pool.map(run, ranges) if len(ranges) > 1 else map(run, ranges))
    if not top > passes.TINY:
        return False
    inverse[node] = 1.0 / top
    log_scale[node] = np.log(top)
    return True


def _distribute_large(tree, node, store, inverse, scratch, mass, pool) -> bool:  # type: ignore[no-untyped-def]
    ranges = _cut(passes.outer_blocks(tree, node), tree.clique[node])
    parts = np.zeros((len(ranges), mass.shape[1]))

    def run(part: int) -> None:
        passes.sweep_distribute(
            tree, node, store, inverse, *ranges[part], scratch[part], parts[part]
        )

    for _ in pool.map(run, range(len(ranges))) if len(ranges) > 1 else map(run, range(1)):
        pass
    if len(ranges) > 1:
        _add(scratch[0], scratch[1], _children_entries(tree, node))
    total = parts.sum(0)
    mass[tree.variable[node]] = total
    return bool(total.sum() > passes.TINY) and passes.hand_down_all(
        tree, node, scratch[0], store, inverse
    )


def _add(target: FloatArray, other: FloatArray, count: int) -> None:
    np.add(target[:count], other[:count], out=target[:count])


def _children_entries(tree, node) -> int:  # type: ignore[no-untyped-def]
    children = tree.op_child[tree.op_start[node] : tree.op_start[node + 1]]
    return int(tree.size[children[children >= 0]].sum())


def _cut(blocks: int, entries: int) -> list[tuple[int, int]]:
    if entries <= THREADED or blocks < HALVES:
        return [(0, blocks)]
    edges = [blocks * part // HALVES for part in range(HALVES + 1)]
    return list(pairwise(edges))


def _spans(large: BoolArray) -> list[tuple[int, int]]:
    """Runs of small nodes, each handled by one compiled call; large nodes alone."""
    spans, begin = [], 0
    for node in np.flatnonzero(large).tolist():
        if node > begin:
            spans.append((begin, node))
        spans.append((node, node + 1))
        begin = node + 1
    if len(large) > begin:
        spans.append((begin, len(large)))
    return spans


def _open_roots(made: Plan, store: FloatArray, inverse: FloatArray) -> None:
    """A root hears nothing from above: its scalar message becomes one."""
    tree = made.tree
    roots = np.flatnonzero((np.diff(tree.sep_start) == 0) & (tree.variable >= 0))
    store[tree.message[roots]] = 1.0
    inverse[roots] = 1.0


def _logarithmic(model: FactorGraph, made: Plan) -> tuple[FloatArray, float]:
    """Run both passes on logarithms: slower, for models whose numbers span more than 10^±150."""
    store, shift = fill_store(model, made, log=True)
    mass = np.zeros((model.n_variables, max(model.max_states, 1)))
    scratch = np.empty(made.scratch_entries)
    log_z = logpasses.run(made.tree, store, scratch, made.largest_clique, mass)
    if log_z == -np.inf or shift == -np.inf:
        raise EvidenceError(
            "no configuration has non-zero probability; check the evidence against the zeros of "
            "the model"
        )
    return mass, shift + float(log_z)
