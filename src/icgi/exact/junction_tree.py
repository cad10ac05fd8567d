"""Exact marginals by one collect and one distribute pass over a bucket tree."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.arrays import ManyMarginals, PairwiseBatch
from icgi.errors import BudgetError, EvidenceError, IcgiError
from icgi.exact import logpasses, passes
from icgi.exact.axes import HALVES
from icgi.exact.contractions import pair_collect, pair_finish, pair_tell
from icgi.exact.forecast import Forecast, along, forecast, recosted
from icgi.exact.joints import exact_joints
from icgi.exact.sweeps import (
    THREADED,
    finish_distribute,
    sweep_collect,
    sweep_distribute,
)
from icgi.exact.tree import LARGE, Plan, fill_store, plan
from icgi.inference import Budget, JointTables, Marginals, Scope, Status
from icgi.kernels import brief
from icgi.model.condition import Evidence
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ordering import Order
from icgi.units import readable_seconds

Stop = NDArray[np.uint8]
STEPS_PER_ENTRY = 8.0  # of a clique, in the innermost loops of both passes


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """All marginals and log Z, exact to rounding, in memory that is known before it is taken.

    Tables are kept in linear space with largest entry one. A check on every message proves that
    nothing was lost to underflow; where it fails, the passes run again on logarithms.
    """

    search_share: float = 0.1  # SEARCH_SHARE of the budget's seconds, for the search of an order
    arithmetic: Literal["auto", "linear", "log"] = "auto"
    threads: int = 2  # of the passes; the largest cliques are cut in two halves, whatever is given

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise IcgiError(f"jt:threads={self.threads} is no number of threads; give 1 or 2")

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
        return AlongForecast(ahead, self.arithmetic, self.threads)

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
        order = self.forecast(model, budget, rng).order
        return AlongOrder(order, self.arithmetic, self.threads)


@dataclass(frozen=True, slots=True, eq=False)
class AlongForecast:
    """The junction tree as it was forecast, for the model of that forecast only."""

    ahead: Forecast
    arithmetic: Literal["auto", "linear", "log"] = "auto"
    threads: int = 2

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Collect and distribute, unless the forecast exceeds the budget."""
        return run(model, self.ahead, budget, self.arithmetic, self.threads)


@dataclass(frozen=True, slots=True, eq=False)
class AlongOrder:
    """The junction tree along a given order of the same variables."""

    order: Order
    arithmetic: Literal["auto", "linear", "log"] = "auto"
    threads: int = 2

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Collect and distribute; the cost is that of the order on this (conditioned) model."""
        deadline = budget.deadline()
        ahead = recosted(model, self.order)
        return run(model, ahead, budget.until(deadline), self.arithmetic, self.threads)

    def evidences(
        self,
        model: FactorGraph,
        evidences: Sequence[Evidence],
        budget: Budget,
        threads: int | None = None,
    ) -> list[Marginals | None] | None:
        """Answers to many evidences in one compiled run; None where one by one is the way."""
        from icgi.exact.evidences import many_evidences

        if self.arithmetic == "log":
            return None
        return many_evidences(model, evidences, self.order, budget, threads)

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


def run(
    model: FactorGraph,
    ahead: Forecast,
    budget: Budget,
    arithmetic: str = "auto",
    threads: int = 2,
) -> Marginals:
    """Exact marginals as forecast; `BudgetError` where that is beyond the budget."""
    ahead.refuse_beyond(budget)
    deadline = budget.deadline()
    made = ahead.plan or plan(model, ahead.order.variables)
    with deadline.flag() as stop:
        found = None if arithmetic == "log" else _linear(model, made, threads, stop)
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
        stats=ahead.stats(made),
    )


def _linear(
    model: FactorGraph, made: Plan, threads: int, stop: Stop
) -> tuple[FloatArray, float] | None:
    """Run both passes in linear space; None where digits may have been lost, or stopped."""
    store, shift = fill_store(model, made, log=False)
    mass = np.zeros((model.n_variables, max(model.max_states, 1)))
    log_z = both_passes(made, store, mass, threads, stop)
    return None if math.isnan(log_z) else (mass, shift + log_z)


def both_passes(made: Plan, store: FloatArray, mass: FloatArray, threads: int, stop: Stop) -> float:
    """Collect and distribute in a filled store; log Z, or NaN where digits may have been lost."""
    tree = made.tree
    swept = (tree.clique > LARGE) & (tree.size > 1) & (tree.variable >= 0)  # see `tree.swept`
    alone = swept & (~tree.paired | (tree.clique > THREADED))
    if alone.any():
        return _in_parts(made, np.flatnonzero(alone), store, mass, threads, stop)
    with brief(STEPS_PER_ENTRY * made.clique_entries):
        return float(passes.solve(tree, store, made.scratch_entries, mass, stop))


def _in_parts(
    made: Plan, alone: IntArray, store: FloatArray, mass: FloatArray, threads: int, stop: Stop
) -> float:
    """`passes.solve` where some cliques are swept, or contracted in two halves; NaN likewise."""
    tree, count = made.tree, len(made.tree.nodes)
    inverse, log_scale = np.ones(count), np.zeros(count)
    spans = _spans(alone.tolist(), count)
    with ThreadPoolExecutor(HALVES) as pool:
        side_by_side = pool.map if threads > 1 else map
        for first, last, large in spans:
            if large:
                parts = HALVES if tree.clique[first] > THREADED else 1
                if tree.paired[first]:
                    work = partial(pair_collect, tree, first, store, inverse, stop, parts)
                else:
                    work = partial(sweep_collect, tree, first, store, inverse, parts, stop)
                top = max(side_by_side(work, range(parts)) if parts > 1 else [work(0)])
                done = passes.finish_collect(first, top, 0.0, inverse, log_scale)
            else:
                done = passes.collect(tree, first, last, store, inverse, log_scale, stop)
            if not done or stop[0]:
                return math.nan
        passes.open_roots(tree, store, inverse)
        scratch = np.empty((HALVES, made.scratch_entries))
        for first, last, large in reversed(spans):
            if large and tree.paired[first]:
                given = (tree, first, store, inverse, scratch[0], stop)
                for larger in (False, True):
                    list(side_by_side(partial(pair_tell, *given, larger, HALVES), range(HALVES)))
                done = not stop[0] and pair_finish(tree, first, store, inverse, scratch[0], mass)
            elif large:
                parts = HALVES if tree.clique[first] > THREADED else 1
                masses = np.empty((parts, tree.clique[first] // tree.size[first]))
                found = np.empty((parts, tree.op_start[first + 1] - tree.op_start[first], 2))
                work = partial(
                    sweep_distribute,
                    tree,
                    first,
                    store,
                    inverse,
                    parts,
                    scratch,
                    masses,
                    found,
                    stop,
                )
                list(side_by_side(work, range(parts)) if parts > 1 else [work(0)])
                done = not stop[0] and finish_distribute(
                    tree, first, store, inverse, scratch, masses, found, mass
                )
            else:
                done = passes.distribute(tree, first, last, store, inverse, scratch[0], mass, stop)
            if not done:
                return math.nan
    return float(log_scale.sum())


def _spans(alone: list[int], count: int) -> list[tuple[int, int, bool]]:
    """Runs of nodes that one compiled call handles, and nodes that have calls of their own."""
    spans, begin = [], 0
    for node in alone:
        if node > begin:
            spans.append((begin, node, False))
        spans.append((node, node + 1, True))
        begin = node + 1
    if count > begin:
        spans.append((begin, count, False))
    return spans


def _logarithmic(model: FactorGraph, made: Plan, stop: Stop) -> tuple[FloatArray, float] | None:
    """Run both passes on logarithms: slower, for numbers beyond 10^±150; None if stopped."""
    store, shift = fill_store(model, made, log=True)
    mass = np.zeros((model.n_variables, max(model.max_states, 1)))
    scratch = np.empty(int(made.tree.size.max(initial=1)))
    log_z = logpasses.run(made.tree, store, scratch, made.largest_clique, mass, stop)
    if stop[0]:
        return None
    if log_z == -np.inf or shift == -np.inf:
        raise EvidenceError(
            "no configuration has non-zero probability; check the evidence against the zeros of "
            "the model"
        )
    return mass, shift + float(log_z)
