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
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.random import Generator

from icgi.approx.cycles import cycles
from icgi.approx.fixed_point import Outcome, check_settings, deadline, fixed_point
from icgi.approx.join_graph import join_graph, mini_buckets
from icgi.approx.region_sweeps import (
    State,
    advance,
    consistency,
    initial_state,
    kikuchi,
    read_marginals,
    refresh,
    restart,
)
from icgi.approx.region_tables import Tables, compile_regions
from icgi.approx.regions import RegionGraph, region_graph
from icgi.approx.support import supported
from icgi.errors import IcgiError
from icgi.inference import Budget, Marginals, Status
from icgi.model.condition import lift
from icgi.model.graph import FactorGraph, FloatArray

Algorithm: TypeAlias = Literal["auto", "parent-to-child", "double-loop"]
Choice: TypeAlias = Literal["factors", "loops", "clusters", "join-graph"]

WINDOW = 50  # sweeps after which progress is judged
PROGRESS = 0.8  # of the residual, in two windows, or the next remedy is tried


@dataclass(frozen=True, slots=True)
class GeneralisedBP:
    """Kikuchi's approximation on regions by the cluster variation method; `log_z` is Kikuchi's.

    Regions are the factors, or cycles up to a length, or clusters of up to ibound + 1 variables;
    with a junction tree of clusters the answer is exact. In a join graph the same clusters agree
    along its arcs only, instead of on all their intersections: iterative join-graph propagation.
    Converged means that all regions agree on the regions below them, and that no undamped update
    would move a belief, by more than the tolerance.
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
        until = deadline(budget)
        part = supported(model)
        graph, stats = self.region_graph(part.model)
        tables = compile_regions(part.model, graph, budget, self._advice())
        state = initial_state(tables)
        run = _Run(graph, tables, state, self, budget.sweeps(), until)
        outcome = run.exact() if graph.junction_tree else run.approximate()
        refresh(tables, state)
        disagreement, log_z = consistency(tables, state), kikuchi(tables, state)
        status = _status(graph, outcome, disagreement, self.tolerance)
        stats |= {
            "sweeps": outcome.sweeps,
            "residual": outcome.residual,
            "consistency": disagreement,
            "kikuchi_log_z": log_z,  # also where it is not stationary
            "damping": run.damping,
            "double_loop": run.double,
            "largest_region_entries": int(np.diff(tables.entry_start).max(initial=0)),
        }
        found = Marginals(
            variable_marginals(part.model, graph, tables, state),
            status,
            log_z if status is not Status.BUDGET_SPENT else None,
            stats=stats,
        )
        return lift(found, part.alive)

    def region_graph(self, model: FactorGraph) -> tuple[RegionGraph, dict[str, float]]:
        """Regions of these settings, and how many there are."""
        stats: dict[str, float] = {}
        if self.regions == "loops":
            found = cycles(model, self.loop)
            stats = {
                "loops": len(found.regions),
                "loops_found": found.found,
                "loops_cut": found.cut,  # the search was ended early
            }
            graph = region_graph(model, found.regions)
        elif self.regions == "clusters":
            graph = region_graph(model, mini_buckets(model, self.ibound).clusters)
        elif self.regions == "join-graph":
            graph = join_graph(model, self.ibound)
        else:
            graph = region_graph(model, [])
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
        return "raise --memory, or use --engine lbp"


def _status(graph: RegionGraph, outcome: Outcome, gap: float, tolerance: float) -> Status:
    if not outcome.converged or not gap <= tolerance:
        return Status.BUDGET_SPENT
    return Status.EXACT if graph.junction_tree and gap <= 1e-9 else Status.CONVERGED


@dataclass(slots=True, eq=False)
class _Run:
    """One call of the engine: which remedy is on, and what is left of the budget."""

    graph: RegionGraph
    tables: Tables
    state: State
    settings: GeneralisedBP
    sweeps: int
    until: float
    damping: float = 0.0
    double: bool = False

    def exact(self) -> Outcome:
        """Collect and distribute along a junction tree; a third sweep finds nothing to change."""
        return self._go(self.tables.counting, self.sweeps)

    def approximate(self) -> Outcome:
        """Single loop with as much damping as it takes, double loop where that is not enough."""
        damped, convex = single_loop(self.graph, self.tables), double_loop(self.graph, self.tables)
        given, done, residual = self.settings.damping, 0, math.inf
        remedies = {
            "auto": [(damped, given, False), (convex, given, False), (convex, 0.0, True)],
            "parent-to-child": [(damped, given, False), (convex, given, False)],
            "double-loop": [(convex, 0.0, True)],
        }[self.settings.algorithm]
        for remaining, remedy in zip(range(len(remedies))[::-1], remedies, strict=True):
            kept, self.damping, self.double = remedy
            if done:
                restart(self.tables, self.state)
            best, stalled = math.inf, 0
            while stalled < 2 or not remaining:
                outcome = self._go(kept, min(WINDOW, self.sweeps - done))
                done += outcome.sweeps
                residual = outcome.residual if outcome.sweeps else residual
                if outcome.converged or outcome.sweeps < WINDOW or done == self.sweeps:
                    return replace(outcome, sweeps=done, residual=residual)
                stalled = 0 if outcome.residual < PROGRESS * best else stalled + 1
                best = min(best, outcome.residual)
        raise AssertionError("the last remedy ends with the budget")

    def _go(self, kept: FloatArray, sweeps: int) -> Outcome:
        def some(count: int) -> tuple[int, float]:
            made, residual = advance(
                self.tables, self.state, kept, self.damping, self.double,
                self.settings.tolerance, count,
            )  # fmt: skip
            return int(made), float(residual)

        return fixed_point(some, sweeps, self.until, self.settings.tolerance)


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
    n = model.n_variables
    choice = np.zeros(n, np.int64)  # inner region, or −1 − the maximal region
    size = np.full(n, len(graph.outer) + model.n_variables + 1)
    stride = np.ones(n, np.int64)
    numbered = [(b, r) for b, r in enumerate(graph.inner)]
    numbered += [(-1 - a, r) for a, r in enumerate(graph.outer)]
    for number, region in numbered:
        step = 1
        for i in reversed(region):
            if len(region) < size[i]:
                choice[i], size[i], stride[i] = number, len(region), step
            step *= int(model.cards[i])
    probs = np.zeros((n, model.max_states))
    read_marginals(t, s, model.cards, choice, stride, probs)
    return probs
