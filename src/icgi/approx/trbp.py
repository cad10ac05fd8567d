"""Tree-reweighted belief propagation: a convex free energy that bounds log Z from above."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

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
from icgi.approx.fixed_point import check_settings
from icgi.approx.messages import NUMBER, Schedule, informations, log_partitions, sweep
from icgi.approx.support import supported_all
from icgi.inference import Budget, Marginals, Status
from icgi.kernels import kernel
from icgi.model.condition import lift
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray
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
        return self.batch([model], budget, [rng])[0]

    def batch(
        self,
        models: Sequence[FactorGraph],
        budget: Budget,
        rngs: Sequence[Generator],
        threads: int | None = None,
    ) -> list[Marginals]:
        """Answers to many models, as to each alone, from one compiled run over threads.

        The seconds of the budget are for each model on average.
        """
        found: list[Marginals] = []
        for part in packs(models, budget):
            found += self._together(models[part], budget, rngs[part], threads)
        return found

    def _together(
        self,
        models: Sequence[FactorGraph],
        budget: Budget,
        rngs: Sequence[Generator],
        threads: int | None,
    ) -> list[Marginals]:
        if not models:
            return []
        until = perf_counter() + budget.seconds * len(models)
        parts = supported_all(models)
        core = compile_models([_merged(part.model) for part in parts])
        core = reweight(core, appearance(core, rngs))
        run = self._tightened(core, budget, until, threads)
        probs = probabilities(core, run.state.belief, max(p.model.max_states for p in parts))
        rows = np.split(probs, core.model_variable[1:-1])
        return [
            lift(self._answer(run, m, rows[m][:, : part.model.max_states].copy()), part.alive)
            for m, part in enumerate(parts)
        ]

    def _answer(self, run: "_Run", m: int, probs: FloatArray) -> Marginals:
        bound, residual = float(run.bound[m]), float(run.state.residual[m])
        converged = residual <= self.tolerance
        factors = slice(run.core.model_factor[m], run.core.model_factor[m + 1])
        stats = {
            "sweeps": float(run.sweeps[m]),
            "optimised": float(run.optimised[m]),
            "residual": residual,
            "reweighted_log_z": bound,  # no bound unless messages are at rest
            "upper_bound": float(converged),
            "smallest_appearance": float(run.core.rho[factors].min(initial=1.0)),
        }
        status = Status.CONVERGED if converged else Status.BUDGET_SPENT
        return Marginals(probs, status, bound if converged else None, stats=stats)

    def _tightened(self, core: Core, budget: Budget, until: float, threads: int | None) -> "_Run":
        """Fixed point at the given ρ, then at every ρ along the way that lowers the bound."""
        state = initial_state(core)
        size = len(core.constant)
        self._sweep(core, state, np.full(size, budget.sweeps()), until, threads)
        run = _Run(core, state, log_partitions(core, state), state.sweeps, np.zeros(size, np.int64))
        step = np.full(size, 0.5)  # m    towards the tree of largest information
        for _ in range(self.optimise):
            open_ = (run.state.residual <= self.tolerance) & (run.sweeps < budget.sweeps())
            if not open_.any():
                break
            order = np.argsort(-informations(run.core, run.state), kind="stable")
            shift = np.repeat(np.where(open_, step, 0.0), np.diff(core.model_factor))
            rho = run.core.rho + shift * (forest(core, order) - run.core.rho)
            moved = reweight(core, rho)
            trial = initial_state(moved, run.state.messages.copy())
            left = np.where(open_, budget.sweeps() - run.sweeps, 0)
            self._sweep(moved, trial, left, until, threads)
            lower = log_partitions(moved, trial)
            better = open_ & (trial.residual <= self.tolerance) & (lower < run.bound)
            run = run.moved(moved, trial, lower, better)
            step = np.where(better, step, step / 2)
        return run

    def _sweep(
        self, core: Core, state: State, limit: IntArray, until: float, threads: int | None
    ) -> None:
        sweep(core, state, self.schedule, self.damping, self.tolerance, limit, until, threads)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Where the models of a batch are."""

    core: Core
    state: State
    bound: FloatArray  # m
    sweeps: IntArray  # m    of all steps together
    optimised: IntArray  # m    steps that lowered the bound

    def moved(self, core: Core, trial: State, bound: FloatArray, better: BoolArray) -> "_Run":
        """Take the trial's place where it is better."""
        factors = np.repeat(better, np.diff(core.model_factor))
        ends = core.message_start[core.edge_start[core.model_factor]]
        messages = np.repeat(better, np.diff(ends))
        ratios = np.repeat(better, np.diff(core.ratio_start[core.model_variable]))
        state = self.state._replace(
            messages=np.where(messages, trial.messages, self.state.messages),
            belief=np.where(ratios, trial.belief, self.state.belief),
            residual=np.where(better, trial.residual, self.state.residual),
        )
        return _Run(
            reweight(core, np.where(factors, core.rho, self.core.rho)),
            state,
            np.where(better, bound, self.bound),
            self.sweeps + trial.sweeps,
            self.optimised + better,
        )


def appearance(core: Core, rngs: Sequence[Generator]) -> FloatArray:
    """Share of forests that contain each factor; drawn until every factor is in one of them.

    Each forest takes the factors that earlier ones left out first, in random order: that covers
    all of them soon and evens the shares out, whereas forests at random leave some very rare.
    """
    sizes = np.diff(core.model_factor)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    count, trees = np.zeros(len(owner)), np.zeros(len(sizes), np.int64)
    while True:
        left = np.bincount(owner[count == 0], minlength=len(sizes))  # factors in no forest yet
        open_ = (trees < TREES) | (left > 0)
        if not open_.any():
            return np.asarray(count / trees[owner])
        drawn = [rng.random(k) for rng, k, o in zip(rngs, sizes, open_, strict=True) if o]
        key = count.copy()
        key[open_[owner]] += np.concatenate(drawn)  # below one: breaks ties only
        count += forest(core, np.argsort(key)) * open_[owner]
        trees += open_


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


@kernel
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


@kernel
def _root(parent, i):  # type: ignore[no-untyped-def]
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
