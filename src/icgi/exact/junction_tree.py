"""Exact marginals by one collect and one distribute pass over a bucket tree."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.arrays import ManyMarginals, PairwiseBatch
from icgi.errors import BudgetError, EvidenceError
from icgi.exact import logpasses, passes
from icgi.exact.forecast import Forecast, along, forecast, recosted
from icgi.exact.joints import exact_joints
from icgi.exact.tree import LARGE, Plan, fill_store, plan
from icgi.inference import Budget, JointTables, Marginals, Scope, Status
from icgi.model.graph import BoolArray, FactorGraph, FloatArray
from icgi.model.ordering import Order
from icgi.units import readable_seconds

THREADED = 2**17  # cliques above this many entries are cut in two halves, one per thread
Stop = NDArray[np.uint8]
HALVES = 2  # always two, whatever the machine, so that answers do not depend on it


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """All marginals and log Z, exact to rounding, in memory that is known before it is taken.

    Tables are kept in linear space with largest entry one. A check on every message proves that
    nothing was lost to underflow; where it fails, the passes run again on logarithms.
    """

    search_share: float = 0.1  # SEARCH_SHARE of the budget's seconds, for the search of an order
    arithmetic: Literal["auto", "linear", "log"] = "auto"

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Search an order, check memory and time, then collect and distribute."""
        deadline = budget.deadline()
        ahead = self.forecast(model, budget, rng)
        return self.along(ahead)(model, budget.until(deadline), rng)

    def forecast(self, model: FactorGraph, budget: Budget, rng: Generator) -> Forecast:
        """Cost of this engine on a model, along the order that it would take."""
        return forecast(model, budget, rng, self.search_share)

    def along(self, ahead: Forecast) -> "AlongForecast":
        """Same engine for the model of a forecast, without another search."""
        return AlongForecast(ahead, self.arithmetic)

    def arrays(
        self, batch: PairwiseBatch, budget: Budget, rng: Generator, threads: int | None = None
    ) -> ManyMarginals | None:
        """Answers to a batch of arrays along one order; None where one by one is better."""
        from icgi.exact.together import together

        if not len(batch) or not batch.ordinary or self.arithmetic == "log":
            return None
        deadline = budget.deadline()
        ahead = self.forecast(batch.model(0), budget, rng)
        return together(batch, ahead, budget.until(deadline), threads)

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Exact joint marginals of any variables, whether they share a clique or not."""
        deadline = budget.deadline()
        order = self.forecast(model, budget, rng).order
        return exact_joints(model, scopes, budget.until(deadline), rng, order)

    def prepared(self, model: FactorGraph, budget: Budget, rng: Generator) -> "AlongOrder":
        """Same engine with the order searched once, for many evidences on one model."""
        return AlongOrder(self.forecast(model, budget, rng).order, self.arithmetic)


@dataclass(frozen=True, slots=True, eq=False)
class AlongForecast:
    """The junction tree as it was forecast, for the model of that forecast only."""

    ahead: Forecast
    arithmetic: Literal["auto", "linear", "log"] = "auto"

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Collect and distribute, unless the forecast exceeds the budget."""
        return run(model, self.ahead, budget, self.arithmetic)


@dataclass(frozen=True, slots=True, eq=False)
class AlongOrder:
    """The junction tree along a given order of the same variables."""

    order: Order
    arithmetic: Literal["auto", "linear", "log"] = "auto"

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Collect and distribute; the cost is that of the order on this (conditioned) model."""
        deadline = budget.deadline()
        ahead = recosted(model, self.order)
        return run(model, ahead, budget.until(deadline), self.arithmetic)

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Exact joint marginals of any variables, read from the tree of the given order."""
        return exact_joints(model, scopes, budget, rng, self.order)


def solve(model: FactorGraph, order: Order, budget: Budget, arithmetic: str = "auto") -> Marginals:
    """Exact marginals along a given elimination order."""
    deadline = budget.deadline()
    ahead = along(model, order)
    return run(model, ahead, budget.until(deadline), arithmetic)


def run(model: FactorGraph, ahead: Forecast, budget: Budget, arithmetic: str = "auto") -> Marginals:
    """Exact marginals as forecast; `BudgetError` where that is beyond the budget."""
    ahead.refuse_beyond(budget)
    deadline = budget.deadline()
    made = ahead.plan or plan(model, ahead.order.variables)
    with deadline.flag() as stop:
        found = None if arithmetic == "log" else _linear(model, made, stop)
        if found is None and arithmetic != "linear" and not stop[0]:
            ahead = ahead.logarithms
            ahead.refuse_beyond(replace(budget, seconds=math.inf))
            found = _logarithmic(model, made, stop)
    if found is None and (stop[0] or deadline.passed):
        raise BudgetError(
            f"exact inference did not end within the {readable_seconds(budget.seconds)} that were "
            f"left for it; the forecast was {readable_seconds(ahead.seconds)}: give more seconds, "
            "or use an approximate engine (ttve, pt, gbp, lbp)"
        )
    if found is None:
        raise EvidenceError("the numbers left the range of linear arithmetic; use arithmetic=auto")
    mass, log_z = found
    mass /= mass.sum(1, keepdims=True)
    probs = np.empty_like(mass)
    probs[ahead.order.variables] = mass
    return Marginals(
        probs,
        Status.EXACT,
        log_z,
        stats={
            "width": ahead.order.width,
            "log2_largest_table": ahead.order.log2_table,
            "table_entries": made.clique_entries,
            "bytes": ahead.table_bytes,
        },
    )


def _linear(model: FactorGraph, made: Plan, stop: Stop) -> tuple[FloatArray, float] | None:
    """Run both passes in linear space; None where digits may have been lost, or stopped."""
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
                if not _collect_large(tree, first, store, inverse, log_scale, pool, stop):
                    return None
            elif not passes.collect_small(tree, first, last, store, inverse, log_scale, stop):
                return None
        _open_roots(made, store, inverse)
        for first, last in reversed(spans):
            if large[first]:
                if not _distribute_large(tree, first, store, inverse, scratch, mass, pool, stop):
                    return None
            elif not passes.distribute_small(
                tree, first, last, store, inverse, scratch[0], mass, stop
            ):
                return None
    return mass, shift + float(log_scale.sum())


def _collect_large(tree, node, store, inverse, log_scale, pool, stop) -> bool:  # type: ignore[no-untyped-def]
    ranges = _cut(passes.outer_blocks(tree, node), tree.clique[node])
    run = lambda r: passes.sweep_collect(tree, node, store, inverse, *r, stop)  # noqa: E731
    top = max(pool.map(run, ranges) if len(ranges) > 1 else map(run, ranges))
    if stop[0] or not top > passes.TINY:
        return False
    inverse[node] = 1.0 / top
    log_scale[node] = np.log(top)
    return True


def _distribute_large(tree, node, store, inverse, scratch, mass, pool, stop) -> bool:  # type: ignore[no-untyped-def]
    ranges = _cut(passes.outer_blocks(tree, node), tree.clique[node])
    parts = np.zeros((len(ranges), mass.shape[1]))

    def run(part: int) -> None:
        passes.sweep_distribute(
            tree, node, store, inverse, *ranges[part], scratch[part], parts[part], stop
        )

    for _ in pool.map(run, range(len(ranges))) if len(ranges) > 1 else map(run, range(1)):
        pass
    if stop[0]:
        return False
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
    """A root has no message from above: its scalar one is set to one."""
    tree = made.tree
    roots = np.flatnonzero((np.diff(tree.sep_start) == 0) & (tree.variable >= 0))
    store[tree.message[roots]] = 1.0
    inverse[roots] = 1.0


def _logarithmic(model: FactorGraph, made: Plan, stop: Stop) -> tuple[FloatArray, float] | None:
    """Run both passes on logarithms: slower, for numbers beyond 10^±150; None if stopped."""
    store, shift = fill_store(model, made, log=True)
    mass = np.zeros((model.n_variables, max(model.max_states, 1)))
    scratch = np.empty(made.scratch_entries)
    log_z = logpasses.run(made.tree, store, scratch, made.largest_clique, mass, stop)
    if stop[0]:
        return None
    if log_z == -np.inf or shift == -np.inf:
        raise EvidenceError(
            "no configuration has non-zero probability; check the evidence against the zeros of "
            "the model"
        )
    return mass, shift + float(log_z)
