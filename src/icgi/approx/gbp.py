"""Generalised belief propagation: beliefs over regions that agree wherever regions overlap.

The cluster variation method approximates log Z by the largest value (in practice a stationary one)
of

    Σ_α Σ_x b_α(x) (θ_α(x) − log b_α(x)) − Σ_β c_β Σ_x b_β(x) log b_β(x),   Σ_{x_α∖x_β} b_α = b_β,

over maximal regions α and their intersections β with counting numbers c_β (Kikuchi 1951). In a
join graph the β are the labels of its arcs, with c = −1 (`join_graph.py`). With multipliers λ_αβ
of the constraints, b_α ∝ exp(θ_α + Σ_β λ_αβ), and inner regions are solved one after the other
(`region_sweeps.py`; Heskes, Albers, Kappen 2003, section 5). The part c − κ of a counting number
that would make the problem non-convex is linearised at an anchor b̂: moved along after every update
it damps the single loop, parent to child; held until the rest has converged it is the double loop,
which cannot cycle.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
from numpy.random import Generator

from icgi.approx.cycles import cycles
from icgi.approx.factor_joints import over_all_states
from icgi.approx.fixed_point import Outcome, Stop, after, check_settings, fixed_point
from icgi.approx.join_graph import join_graph, mini_buckets
from icgi.approx.lbp import LoopyBP
from icgi.approx.reading import NEVER, TimeSpent, from_fields, patient
from icgi.approx.region_joints import region_joints
from icgi.approx.region_sweeps import (
    State,
    advance,
    consistency,
    initial_state,
    kikuchi,
    read_marginals,
    refresh,
    restart,
    smallest_regions,
)
from icgi.approx.region_tables import Tables, compile_regions
from icgi.approx.regions import RegionGraph, region_graph
from icgi.approx.support import supported
from icgi.clock import Deadline
from icgi.errors import BudgetError, IcgiError
from icgi.inference import Budget, JointTables, Marginals, Scope, Status
from icgi.model.condition import lift
from icgi.model.graph import FactorGraph, FloatArray, starts

Algorithm: TypeAlias = Literal["auto", "parent-to-child", "double-loop"]
Choice: TypeAlias = Literal["factors", "loops", "clusters", "join-graph"]

WINDOW = 50  # sweeps after which progress is judged
BUILDING = 0.5  # share of the time that regions and their tables may take
PROGRESS = 0.8  # of the residual, in two windows, or the next remedy is tried


@dataclass(frozen=True, slots=True)
class GeneralisedBP:
    """Kikuchi's approximation on regions by the cluster variation method; `log_z` is Kikuchi's.

    Regions are the factors, or cycles up to a length, or clusters of up to ibound + 1 variables;
    with a junction tree of clusters the answer is exact. In a join graph the same clusters agree
    along its arcs only, instead of on all their intersections: iterative join-graph propagation.
    At rest means that all regions agree on the regions below them, and that no undamped update
    would move a belief, by more than the tolerance. Where the time does not allow for building the
    regions and some sweeps over them, the answer is what loopy belief propagation finds.
    """

    regions: Choice = "loops"
    loop: int = 4  # longest cycle that is a region, in variables
    ibound: int = 4  # clusters have up to ibound + 1 variables
    algorithm: Algorithm = "auto"  # auto: parent-to-child, and the double loop where it stalls
    damping: float = 0.3  # share of the old messages, geometrically; raised when progress stalls
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_settings(self.damping)
        if self.loop < 3 or self.ibound < 1:
            raise IcgiError(
                f"loop={self.loop}, ibound={self.ibound}: a cycle has at least 3 variables, and "
                "ibound is at least 1"
            )

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Build the regions, sweep until they agree or the budget is spent."""
        deadline = budget.deadline()
        try:
            part = supported(model, patient([model], deadline))
        except TimeSpent:
            return from_fields(model)
        try:
            run, stats = self._ready(part.model, budget, deadline)
        except TimeSpent:
            return lift(_without_regions(part.model, budget.until(deadline), rng), part.alive)
        return lift(self._answer(part.model, run, stats), part.alive)

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Beliefs of regions, each scope from the smallest region that holds its variables."""
        deadline = budget.deadline()
        try:
            part = supported(model, patient([model], deadline))
            run, stats = self._ready(part.model, budget, deadline)
        except TimeSpent as error:
            raise BudgetError("gbp: no time for the regions; give more seconds") from error
        answer = self._answer(part.model, run, stats)
        found = region_joints(part.model, run.graph, run.tables, run.state, scopes)
        tables = over_all_states(found, scopes, part.alive, model.cards)
        return JointTables(tables, answer.status, answer.log_z)

    def _ready(
        self, model: FactorGraph, budget: Budget, deadline: Deadline
    ) -> "tuple[_Run, dict[str, float]]":
        """Regions and their tables, before the first sweep; raises `TimeSpent`."""
        building = deadline.share(BUILDING)
        graph, stats = self.region_graph(model, building, budget.table_bytes)
        tables = compile_regions(model, graph, budget, self._advice(), building)
        return _Run(graph, tables, initial_state(tables), self, budget.sweeps(), deadline), stats

    def _answer(self, model: FactorGraph, run: "_Run", stats: dict[str, float]) -> Marginals:
        graph, tables, state = run.graph, run.tables, run.state
        outcome = run.exact() if graph.junction_tree else run.approximate()
        with (after(run.deadline) if outcome.at_rest else run.deadline).flag() as stop:
            refresh(tables, state, stop)
            disagreement = consistency(tables, state, stop)
            log_z = kikuchi(tables, state, stop)
        status = _status(graph, outcome, disagreement, self.tolerance, tables.plain)
        stats |= {
            "sweeps": outcome.sweeps,
            "residual": outcome.residual,
            "consistency": disagreement,
            "damping": run.damping,
            "double_loop": run.double,
            "largest_region_entries": int(np.diff(tables.entry_start).max(initial=0)),
        }
        if math.isfinite(log_z):
            stats["kikuchi_log_z"] = log_z  # also where it is not stationary
        known = status is not Status.BUDGET_SPENT and math.isfinite(log_z)
        probs = variable_marginals(model, graph, tables, state)
        return Marginals(probs, status, log_z if known else None, stats=stats)

    def region_graph(
        self, model: FactorGraph, deadline: Deadline = NEVER, table_bytes: float = math.inf
    ) -> tuple[RegionGraph, dict[str, float]]:
        """Regions of these settings, and how many there are; raises `TimeSpent` at the deadline."""
        stats: dict[str, float] = {}
        if self.regions == "loops":
            found = cycles(model, self.loop, deadline, table_bytes)
            stats = {
                "loops": len(found.regions),
                "loops_found": found.found,
                "loops_cut": found.cut,  # the search was ended early
            }
            graph = region_graph(model, found.regions, deadline, table_bytes)
        elif self.regions == "clusters":
            clusters = mini_buckets(model, self.ibound, deadline).clusters
            graph = region_graph(model, clusters, deadline, table_bytes)
        elif self.regions == "join-graph":
            graph = join_graph(model, self.ibound, deadline)
        else:
            graph = region_graph(model, [], deadline, table_bytes)
        stats |= {
            "regions": len(graph.outer) + len(graph.inner),
            "maximal_regions": len(graph.outer),
            "junction_tree": graph.junction_tree,
        }
        return graph, stats

    def _advice(self) -> str:
        if self.regions in ("clusters", "join-graph") and self.ibound > 1:
            return f"use ibound below {self.ibound}"
        if self.regions == "loops" and self.loop > 3:
            return f"use loop below {self.loop}, or regions=factors"
        return "give a larger memory budget, or use lbp"


def _status(
    graph: RegionGraph, outcome: Outcome, gap: float, tolerance: float, plain: bool
) -> Status:
    if not outcome.at_rest or not gap <= tolerance:
        return Status.BUDGET_SPENT
    return Status.EXACT if graph.junction_tree and plain and gap <= 1e-9 else Status.AT_REST


def _without_regions(model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
    """Best answer where there is no time for regions: that of loopy belief propagation."""
    found = LoopyBP(restarts=0)(model, budget, rng)
    if found.status is Status.EXACT:
        return found
    stats = {**found.stats, "regions": 0.0}
    return replace(found, status=Status.BUDGET_SPENT, log_z=None, stats=stats)


@dataclass(slots=True, eq=False)
class _Run:
    """One call of the engine: which remedy is on, and what is left of the budget."""

    graph: RegionGraph
    tables: Tables
    state: State
    settings: GeneralisedBP
    sweeps: int
    deadline: Deadline
    damping: float = 0.0
    double: bool = False

    def exact(self) -> Outcome:
        """Collect and distribute along a junction tree; a third sweep finds nothing to change."""
        return self._go(self.tables.counting, self.sweeps)

    def approximate(self) -> Outcome:
        """Single loop with as much damping as it takes, double loop where that is not enough."""
        given, done, residual = self.settings.damping, 0, math.inf
        remedies = {
            "auto": [
                (single_loop, given, False),
                (double_loop, given, False),
                (double_loop, 0.0, True),
            ],
            "parent-to-child": [(single_loop, given, False), (double_loop, given, False)],
            "double-loop": [(double_loop, 0.0, True)],
        }[self.settings.algorithm]
        for remaining, remedy in zip(range(len(remedies))[::-1], remedies, strict=True):
            kept_by, self.damping, self.double = remedy
            kept = kept_by(self.graph, self.tables)
            if done:
                restart(self.tables, self.state)
            best, stalled = math.inf, 0
            while stalled < 2 or not remaining:
                outcome = self._go(kept, min(WINDOW, self.sweeps - done))
                done += outcome.sweeps
                residual = outcome.residual if outcome.sweeps else residual
                if outcome.at_rest or outcome.sweeps < WINDOW or done == self.sweeps:
                    return replace(outcome, sweeps=done, residual=residual)
                stalled = 0 if outcome.residual < PROGRESS * best else stalled + 1
                best = min(best, outcome.residual)
        raise AssertionError("the last remedy ends with the budget")

    def _go(self, kept: FloatArray, sweeps: int) -> Outcome:
        def some(count: int, stop: Stop) -> tuple[int, float]:
            made, residual = advance(
                self.tables, self.state, kept, self.damping, self.double,
                self.settings.tolerance, count, stop,
            )  # fmt: skip
            return int(made), float(residual)

        return fixed_point(some, sweeps, self.deadline, self.settings.tolerance)


def single_loop(graph: RegionGraph, t: Tables) -> FloatArray:
    """κ of the single loop: of negative c as much as the entropies of the parents make up for.

    Σ_β A_αβ ≤ 1 and κ_β = −Σ_α A_αβ keep the free energy convex where regions agree (Heskes 2006);
    here every parent gives in proportion to need, A_αβ ∝ |c_β| / n_β.
    """
    counts = np.diff(t.link_start)
    need = np.repeat(np.maximum(-t.counting, 0.0) / np.maximum(counts, 1), counts)  # l
    asked = np.bincount(t.link_outer, need, len(t.entry_start) - 1)  # a
    given = need / np.maximum(asked, 1.0)[t.link_outer]
    region = np.repeat(np.arange(len(counts)), counts)
    share = np.bincount(region, given, len(counts))
    return _hand_down(graph, t.counting, np.maximum(t.counting, -share), 1.0 - counts)


def double_loop(graph: RegionGraph, t: Tables) -> FloatArray:
    """κ ≥ 0 of the double loop: what is left is convex in every belief, its updates converge."""
    convex = np.maximum(t.counting, 0.0)
    return _hand_down(graph, t.counting, convex, np.zeros(len(convex)))


def _hand_down(
    graph: RegionGraph, counting: FloatArray, kept: FloatArray, least: FloatArray
) -> FloatArray:
    """κ with conditional entropies linearised in place of joint ones, wherever κ ≥ least allows.

    H(β) − H(γ) for γ ⊂ β is concave as well, and its tangent leaves the belief of γ free to move.
    """
    kept = kept.copy()
    for b in sorted(range(len(kept)), key=lambda b: -len(graph.inner[b])):
        linear = kept[b] - counting[b]
        for c in graph.children[b]:
            if linear > 0:
                kept[c] = max(kept[c] - linear / len(graph.children[b]), min(least[c], kept[c]))
    return kept


def variable_marginals(model: FactorGraph, graph: RegionGraph, t: Tables, s: State) -> FloatArray:
    """Marginals of all variables, each from the smallest region that contains it."""
    regions = [*graph.inner, *graph.outer]
    start = starts(np.fromiter(map(len, regions), np.int64, len(regions)))
    scope = np.fromiter(chain.from_iterable(regions), np.int64, int(start[-1]))
    choice, stride = smallest_regions(start, scope, len(graph.inner), model.cards)
    probs = np.zeros((model.n_variables, model.max_states))
    read_marginals(t, s, model.cards, choice, stride, probs)
    return probs
