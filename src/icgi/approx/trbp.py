"""Tree-reweighted belief propagation: a convex free energy that bounds log Z from above."""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.random import Generator

from icgi.approx.core import (
    Core,
    State,
    compile_models,
    initial_state,
    packs,
    probabilities,
    reweight,
)
from icgi.approx.fixed_point import check_settings, deadline
from icgi.approx.messages import NUMBER, Schedule, informations, log_partitions, sweep
from icgi.approx.support import supported
from icgi.inference import Budget, Marginals, Status
from icgi.model.condition import lift
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.reduce import absorb

TREES = 16  # forests at least: their share is the appearance probability of a factor


@dataclass(frozen=True, slots=True)
class TreeReweightedBP:
    """Belief propagation with each factor weighted by its share ρ_f of a set of spanning trees.

    log Z ≤ max_b Σ_f ⟨θ_f⟩ + Σ_i H_i − Σ_f ρ_f I_f (Wainwright, Jaakkola, Willsky 2005), I_f being
    the (multi-)information of a factor's belief. For factors of more than two variables a tree is
    an acyclic set of factors, acyclic as a factor graph: the entropy of each such forest is exact
    and log Z is convex, so the bound holds for any arity; factors within another one's scope are
    first multiplied into it. `log_z` is the bound, given where messages are at rest.
    """

    damping: float = 0.0  # share of the old message, geometrically; flooding needs about 0.5
    schedule: Schedule = "sequential"
    optimise: int = 0  # steps of conditional gradient that lower the bound over ρ
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_settings(self.damping, self.optimise, self.schedule in NUMBER)

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Draw forests until every factor is covered, then sweep until messages are at rest."""
        until = deadline(budget)
        packs([model], budget)
        part = supported(model)
        core = compile_models([_merged(part.model)])
        core = reweight(core, appearance(core, rng))
        core, state, stats = self._tightened(core, budget, until)
        converged = bool(state.residual[0] <= self.tolerance)
        probs = probabilities(core, state.belief, part.model.max_states)
        bound = float(log_partitions(core, state)[0])
        stats |= {
            "residual": float(state.residual[0]),
            "reweighted_log_z": bound,  # no bound unless messages are at rest
            "upper_bound": float(converged),
            "smallest_appearance": float(core.rho.min(initial=1.0)),
        }
        status = Status.CONVERGED if converged else Status.BUDGET_SPENT
        answer = Marginals(probs, status, bound if converged else None, stats=stats)
        return lift(answer, part.alive)

    def _tightened(
        self, core: Core, budget: Budget, until: float
    ) -> tuple[Core, State, dict[str, float]]:
        """Fixed point at the given ρ, then at every ρ along the way that lowers the bound."""
        state = initial_state(core)
        self._sweep(core, state, budget.iterations, until)
        spent, step, accepted = int(state.sweeps[0]), 0.5, 0
        bound = log_partitions(core, state)[0]
        for _ in range(self.optimise):
            if state.residual[0] > self.tolerance or spent >= budget.iterations:
                break
            tree = forest(core, np.argsort(-informations(core, state), kind="stable"))
            moved = reweight(core, core.rho + step * (tree - core.rho))
            trial = initial_state(moved, state.messages.copy())
            self._sweep(moved, trial, budget.iterations - spent, until)
            spent += int(trial.sweeps[0])
            lower = log_partitions(moved, trial)[0]
            if trial.residual[0] <= self.tolerance and lower < bound:
                core, state, bound, accepted = moved, trial, lower, accepted + 1
            else:
                step /= 2
        return core, state, {"sweeps": float(spent), "optimised": float(accepted)}

    def _sweep(self, core: Core, state: State, iterations: int, until: float) -> None:
        limit = np.array([iterations])
        sweep(core, state, self.schedule, self.damping, self.tolerance, limit, until)


def appearance(core: Core, rng: Generator) -> FloatArray:
    """Share of forests that contain each factor; drawn until every factor is in one of them.

    Each forest takes the factors that earlier ones left out first, in random order: that covers
    all of them soon and evens the shares out, whereas forests at random leave some very rare.
    """
    count = np.zeros(len(core.rho))
    trees = 0
    while trees < TREES or (count == 0).any():
        order = rng.permutation(len(count))
        count += forest(core, order[np.argsort(count[order], kind="stable")])
        trees += 1
    return np.asarray(count / trees)


def forest(core: Core, order: IntArray) -> FloatArray:
    """One for each factor that closes no cycle with those before it, else zero."""
    taken = np.zeros(len(order))
    _grow(core.edge_start, core.variable, np.arange(len(core.ratio_start) - 1), order, taken)
    return taken


def _merged(model: FactorGraph) -> FactorGraph:
    """Multiply factors into those whose scope contains theirs; unary factors stay as they are."""
    wide = [f for f, scope in enumerate(model.scopes) if len(scope) > 1]
    kinds = {frozenset(model.scopes[f]) for f in wide}
    if len(kinds) == len(wide) and max(map(len, kinds), default=2) == 2:
        return model
    narrow = [f for f, scope in enumerate(model.scopes) if len(scope) <= 1]
    merged = absorb(_selected(model, wide))
    rest = _selected(model, narrow)
    return FactorGraph(
        model.cards, merged.scopes + rest.scopes, merged.log_tables + rest.log_tables
    )


def _selected(model: FactorGraph, factors: list[int]) -> FactorGraph:
    return FactorGraph(
        model.cards,
        tuple(model.scopes[f] for f in factors),
        tuple(model.log_tables[f] for f in factors),
    )


@numba.njit(cache=True, nogil=True)
def _grow(edge_start, variable, parent, order, taken):  # type: ignore[no-untyped-def]
    """Join factors whose variables are all in different trees, by union-find."""
    for f in order:
        begin, end = edge_start[f], edge_start[f + 1]
        apart = True
        for e in range(begin, end):
            i = _root(parent, variable[e])
            for d in range(begin, e):
                apart = apart and _root(parent, variable[d]) != i
        if apart:
            taken[f] = 1.0
            for e in range(begin + 1, end):
                parent[_root(parent, variable[e])] = _root(parent, variable[begin])


@numba.njit(cache=True, nogil=True)
def _root(parent, i):  # type: ignore[no-untyped-def]
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
