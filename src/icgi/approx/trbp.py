"""Tree-reweighted belief propagation: a convex free energy that bounds log Z from above."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.approx.factor_joints import factor_joints, over_all_states
from icgi.approx.fixed_point import Stop, after, check_settings
from icgi.approx.flat import (
    FlatModels,
    State,
    forest,
    initial_state,
    lay_out,
    packs,
    probabilities,
    reweight,
    root,
)
from icgi.approx.messages import NUMBER, Schedule, informations, log_partitions, sweep
from icgi.approx.reading import (
    NEVER,
    TimeSpent,
    check,
    from_fields,
    patient,
    side_by_side,
)
from icgi.approx.support import supported, supported_all
from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.inference import Budget, JointTables, Marginals, Scope, Status
from icgi.kernels import kernel
from icgi.model.condition import Conditioned, lift
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray, assembled, starts
from icgi.model.reduce import absorb, all_states
from icgi.model.wiring import Wiring

TREES = 16  # forests at least: their share is the appearance probability of a factor
DRAWN = 4e6  # factors in all forests together, up to which forests are drawn one by one
ABSORBING = 2e-5  # seconds for each factor that is multiplied into another one
EXACT = 1e-9  # residual up to which the solution of a forest is called exact


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
        deadline = Deadline.after(budget.seconds * len(models))
        found: list[Marginals] = []
        for part in packs(models, budget, "trbp", copies=4 if self.optimise else 2):
            share = deadline.share((part.stop - part.start) / max(len(models) - part.start, 1))
            found += self._together(models[part], budget, rngs[part], share, threads)
        return found

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Beliefs of factors, b(x_f) ∝ exp(θ_f(x_f) / ρ_f) Π_i b(x_i)/m_{f→i}(x_i)."""
        packs([model], budget, "trbp", copies=4)
        deadline = budget.deadline()
        try:
            (part,), (merged,), flat = _ready([model], [rng], deadline)
        except TimeSpent as error:
            raise BudgetError("trbp: the seconds were over before a sweep; give more") from error
        run = self._tightened(flat, budget, deadline, None)
        answer = self._answer(run, 0, np.zeros((0, 0)))
        state, cards = run.state, part.model.cards
        found = factor_joints(run.flat, state.belief, state.messages, merged, cards, scopes)
        tables = over_all_states(found, scopes, part.alive, model.cards)
        return JointTables(tables, answer.status, answer.log_z)

    def _together(
        self,
        models: Sequence[FactorGraph],
        budget: Budget,
        rngs: Sequence[Generator],
        deadline: Deadline,
        threads: int | None,
    ) -> list[Marginals]:
        if not models:
            return []
        try:
            parts, merged, flat = _ready(models, rngs, deadline)
        except TimeSpent:
            return [from_fields(model) for model in models]
        run = self._tightened(flat, budget, deadline, threads)
        probs = probabilities(flat, run.state.belief, max(p.model.max_states for p in merged))
        rows = np.split(probs, flat.model_variable[1:-1])
        found = [
            lift(self._answer(run, m, rows[m][:, : part.model.max_states].copy()), part.alive)
            for m, part in enumerate(merged)
        ]
        return [lift(one, part.alive) for one, part in zip(found, parts, strict=True)]

    def _answer(self, run: "_Run", m: int, probs: FloatArray) -> Marginals:
        residual = float(run.state.residual[m])
        bound = float(run.bound[m]) if np.isfinite(run.bound[m]) else None
        at_rest = residual <= self.tolerance
        factors = slice(run.flat.model_factor[m], run.flat.model_factor[m + 1])
        stats = {
            "sweeps": float(run.sweeps[m]),
            "optimised": float(run.optimised[m]),
            "residual": residual,
            "upper_bound": float(at_rest and bound is not None),
            "smallest_appearance": float(run.flat.rho[factors].min(initial=1.0)),
        }
        if bound is not None:
            stats["reweighted_log_z"] = bound  # no bound unless messages are at rest
        if not at_rest:
            return Marginals(probs, Status.BUDGET_SPENT, stats=stats)
        exact = run.flat.forest[m] and run.flat.plain[m] and residual <= EXACT
        return Marginals(probs, Status.EXACT if exact else Status.AT_REST, bound, stats=stats)

    def _tightened(
        self, flat: FlatModels, budget: Budget, deadline: Deadline, threads: int | None
    ) -> "_Run":
        """Fixed point at the given ρ, then at every ρ along the way that lowers the bound."""
        state = initial_state(flat)
        size = len(flat.constant)
        self._sweep(flat, state, np.full(size, budget.sweeps()), deadline, threads)
        bound = self._bounds(flat, state, deadline)
        run = _Run(flat, state, bound, state.sweeps, np.zeros(size, np.int64))
        step = np.full(size, 0.5)  # m    towards the tree of largest information
        for _ in range(self.optimise):
            open_ = (run.state.residual <= self.tolerance) & (run.sweeps < budget.sweeps())
            with deadline.flag() as stop:
                found = informations(run.flat, run.state, stop)
            if not open_.any() or deadline.passed:
                break
            tree = forest(
                flat.edge_start, flat.variable, len(flat.ratio_start) - 1, _falling(found)
            )
            shift = np.repeat(np.where(open_, step, 0.0), np.diff(flat.model_factor))
            moved = reweight(flat, run.flat.rho + shift * (tree - run.flat.rho))
            trial = initial_state(moved, run.state.messages.copy())
            left = np.where(open_, budget.sweeps() - run.sweeps, 0)
            self._sweep(moved, trial, left, deadline, threads)
            lower = self._bounds(moved, trial, deadline)
            better = open_ & (trial.residual <= self.tolerance) & (lower < run.bound)
            run = run.moved(moved, trial, lower, better)
            step = np.where(better, step, step / 2)
        return run

    def _bounds(self, flat: FlatModels, state: State, deadline: Deadline) -> FloatArray:
        settled = (state.residual <= self.tolerance).any()
        with (after(deadline) if settled else deadline).flag() as stop:
            return np.asarray(log_partitions(flat, state, stop))

    def _sweep(
        self,
        flat: FlatModels,
        state: State,
        limit: IntArray,
        deadline: Deadline,
        threads: int | None,
    ) -> None:
        sweep(flat, state, self.schedule, self.damping, self.tolerance, limit, deadline, threads)


def _ready(
    models: Sequence[FactorGraph], rngs: Sequence[Generator], deadline: Deadline
) -> tuple[list[Conditioned], list[Conditioned], FlatModels]:
    """Models without impossible states, with nested factors merged, laid out; or `TimeSpent`."""
    preparing = patient(models, deadline)
    parts, w = supported_all(models, preparing)
    merged, w = _merged(parts, w, deadline)
    flat = lay_out([part.model for part in merged], w, preparing)
    flat = reweight(flat, appearance(flat, rngs, preparing))
    check(preparing)
    return parts, merged, flat


def _falling(values: FloatArray) -> IntArray:
    return np.argsort(-values, kind="stable")


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Where the models of a batch are."""

    flat: FlatModels
    state: State
    bound: FloatArray  # m
    sweeps: IntArray  # m    of all steps together
    optimised: IntArray  # m    steps that lowered the bound

    def moved(self, flat: FlatModels, trial: State, bound: FloatArray, better: BoolArray) -> "_Run":
        """Take the trial's place where it is better."""
        factors = np.repeat(better, np.diff(flat.model_factor))
        ends = flat.message_start[flat.edge_start[flat.model_factor]]
        messages = np.repeat(better, np.diff(ends))
        ratios = np.repeat(better, np.diff(flat.ratio_start[flat.model_variable]))
        state = self.state._replace(
            messages=np.where(messages, trial.messages, self.state.messages),
            belief=np.where(ratios, trial.belief, self.state.belief),
            residual=np.where(better, trial.residual, self.state.residual),
        )
        # the trial's weights are written over: at most one copy besides those of the beginning
        return _Run(
            reweight(flat, np.where(factors, flat.rho, self.flat.rho), reuse=True),
            state,
            np.where(better, bound, self.bound),
            self.sweeps + trial.sweeps,
            self.optimised + better,
        )


def appearance(
    flat: FlatModels, rngs: Sequence[Generator], deadline: Deadline = NEVER
) -> FloatArray:
    """Share of forests that contain each factor; drawn until every factor is in one of them.

    Each forest takes the factors that earlier ones left out first, in random order: that covers
    all of them soon and evens the shares out, whereas forests at random leave some very rare. On
    dense models, which need hundreds of forests, factors are packed into forests in one go.
    """
    sizes = np.diff(flat.model_factor)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    count, trees = np.zeros(len(owner)), np.zeros(len(sizes), np.int64)
    n = len(flat.ratio_start) - 1
    fewest = sizes / np.maximum(np.diff(flat.model_variable) - 1, 1)  # m    forests it takes
    for m in np.flatnonzero(sizes * fewest > DRAWN).tolist():
        here = slice(flat.model_factor[m], flat.model_factor[m + 1])
        order = here.start + rngs[m].permutation(sizes[m])
        with deadline.flag() as stop:
            trees[m] = _pack(flat, m, order, stop)
        check(deadline)
        count[here] = 1.0
    while True:
        left = np.bincount(owner[count == 0], minlength=len(sizes))  # factors in no forest yet
        open_ = (trees < TREES) | (left > 0)
        if not open_.any():
            return np.asarray(count / trees[owner])
        check(deadline)
        drawn = [rng.random(k) for rng, k, o in zip(rngs, sizes, open_, strict=True) if o]
        key = count.copy()
        key[open_[owner]] += np.concatenate(drawn)  # below one: breaks ties only
        count += forest(flat.edge_start, flat.variable, n, np.argsort(key)) * open_[owner]
        trees += open_


def _pack(flat: FlatModels, m: int, order: IntArray, stop: Stop) -> int:
    """How many forests hold all factors of a model, each factor in the first that it fits."""
    first, n = flat.model_variable[m], int(np.diff(flat.model_variable)[m])
    pairs = np.diff(flat.edge_start)[order].max() == 2
    pack = _pack_pairs if pairs else _pack_rounds
    return int(pack(flat.edge_start, flat.variable - first, n, order, stop))


def _merged(
    parts: list[Conditioned], w: Wiring, deadline: Deadline
) -> tuple[list[Conditioned], Wiring]:
    """Multiply factors into those whose scope contains theirs; unary factors stay as they are.

    Products have zeros that their factors alone do not show, so that states may be impossible
    which were not before. Worth a tenth of the time: the bound holds without it, less tightly.
    """
    models = [part.model for part in parts]
    nested = _nested(models, w)
    work = ABSORBING * sum(m.n_factors for m, some in zip(models, nested, strict=True) if some)
    plain = [Conditioned(model, all_states(model)) for model in models]
    if not any(nested) or work > 0.1 * deadline.left:
        return plain, w
    found = [
        supported(_absorbed(part.model)) if some else part
        for part, some in zip(plain, nested, strict=True)
    ]
    return found, side_by_side([part.model for part in found])


def _nested(models: list[FactorGraph], w: Wiring) -> list[bool]:
    """Which models may have a factor of two or more variables within the scope of another one."""
    arity = np.diff(w.scope_start)
    factors = starts(np.array([model.n_factors for model in models], np.int64))
    wide = np.flatnonzero(arity > 2)
    pair = np.flatnonzero(arity == 2)
    one, two = w.scope[w.scope_start[pair]], w.scope[w.scope_start[pair] + 1]
    key = np.minimum(one, two) * len(w.cards) + np.maximum(one, two)  # ascending with the model
    found = np.sort(key)
    twice = found[1:][found[1:] == found[:-1]] // max(len(w.cards), 1)
    variables = starts(np.array([model.n_variables for model in models], np.int64))
    marked = np.zeros(len(models), np.bool_)
    marked[np.searchsorted(factors, wide, "right") - 1] = True
    marked[np.searchsorted(variables, twice, "right") - 1] = True
    return list(marked.tolist())


def _absorbed(model: FactorGraph) -> FactorGraph:
    wide = [f for f, scope in enumerate(model.scopes) if len(scope) > 1]
    narrow = [f for f, scope in enumerate(model.scopes) if len(scope) <= 1]
    merged = absorb(_selected(model, wide))
    rest = _selected(model, narrow)
    return assembled(model.cards, merged.scopes + rest.scopes, merged.log_tables + rest.log_tables)


def _selected(model: FactorGraph, factors: list[int]) -> FactorGraph:
    return assembled(
        model.cards,
        tuple(model.scopes[f] for f in factors),
        tuple(model.log_tables[f] for f in factors),
    )


@kernel
def _pack_pairs(edge_start, variable, n, order, stop):  # type: ignore[no-untyped-def]
    """Number of forests when each pair goes to the first forest where it closes no cycle.

    What a forest joins, all earlier ones join as well, since they had no place for the pairs in
    it: so the first forest that keeps two variables apart is found by halving.
    """
    parent = np.empty((16, n), np.int32)
    count = 0
    for k in range(len(order)):
        if stop[0]:
            break
        e = edge_start[order[k]]
        i, j = variable[e], variable[e + 1]
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if root(parent[middle], i) == root(parent[middle], j):
                low = middle + 1
            else:
                high = middle
        if low == count:
            if count == len(parent):
                larger = np.empty((2 * count, n), np.int32)
                larger[:count] = parent
                parent = larger
            for v in range(n):
                parent[count, v] = v
            count += 1
        parent[low, root(parent[low], i)] = root(parent[low], j)
    return count


@kernel
def _pack_rounds(edge_start, variable, n, order, stop):  # type: ignore[no-untyped-def]
    """Number of forests when each takes what it can of the factors that the others left."""
    waiting, parent = order.copy(), np.empty(n, np.int64)
    left, count = len(waiting), 0
    while left > 0:
        for v in range(n):
            parent[v] = v
        kept = 0
        for k in range(left):
            if stop[0]:
                return count + 1
            begin, end = edge_start[waiting[k]], edge_start[waiting[k] + 1]
            apart = True
            for e in range(begin, end):
                i = root(parent, variable[e])
                for d in range(begin, e):
                    apart = apart and root(parent, variable[d]) != i
            if apart:
                for e in range(begin + 1, end):
                    parent[root(parent, variable[e])] = root(parent, variable[begin])
            else:
                waiting[kept] = waiting[k]
                kept += 1
        left = kept
        count += 1
    return count
