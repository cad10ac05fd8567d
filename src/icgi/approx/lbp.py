"""Loopy belief propagation: exact on trees, elsewhere a stationary point of Bethe's free energy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.approx.factor_joints import factor_joints
from icgi.approx.fixed_point import after, check_settings
from icgi.approx.flat import (
    FlatModels,
    Sizes,
    State,
    initial_state,
    lay_out,
    lay_out_wired,
    packs,
    probabilities,
    reweight,
)
from icgi.approx.mean_field import SOFT, relax, starting_point
from icgi.approx.mean_field_sweeps import mean_messages
from icgi.approx.messages import NUMBER, Schedule, log_partitions, sweep
from icgi.approx.reading import TimeSpent, check, from_fields, patient
from icgi.approx.spin_sweeps import (
    SpinModels,
    mean_field_messages,
    spin_log_partitions,
    spin_models,
    sweep_spins,
)
from icgi.approx.support import supported_all
from icgi.arrays import ManyMarginals, PairwiseBatch
from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.inference import Budget, JointTables, Marginals, Scope, Status
from icgi.model.condition import Conditioned, lift
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray
from icgi.randomness import LazyStreams

MEAN_FIELD_SWEEPS = 20  # before a run that starts at the messages of mean field
AUTOMATIC = (1, 2, 4)  # numbers of the further runs where they are left to the engine
PROBE, EXTRA = 2, 3  # sweeps of the first of them, and of all, in sweeps of the run before them
SHORT = 20  # sweeps that each of them may make in any case
EXACT = 1e-9  # residual up to which the solution of a forest is called exact


@dataclass(frozen=True, slots=True)
class LoopyBP:
    """m_{f→i}(x_i) ∝ Σ_{x_f∖x_i} exp θ_f(x_f) Π_{j∈f∖i} Π_{g≠f} m_{g→j}(x_j); `log_z` is Bethe's.

    At rest means that no message, normalised and without damping, would change by more than the
    tolerance. Only then is `log_z` stationary, and given; the stats have its value always. On
    forests that is exact. Restarts take the messages of mean field, the other schedules, then
    random messages with more damping and random mean fields in turn; of the runs that came to
    rest the one with the largest Bethe log Z is the answer. Without a number of restarts there is
    one from the messages of mean field after a run that came to rest, of at most twice its sweeps,
    and where that does not find the same log Z two more; all together make at most three times the
    sweeps of the first run, or twenty each.
    """

    damping: float = 0.0  # share of the old message, geometrically; the paper: 0, 0.3, 0.5
    schedule: Schedule = "sequential"
    restarts: int | None = None  # further runs; None: a few where they cost little
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_settings(self.damping, self.restarts, self.schedule in NUMBER)

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Sweep until the messages are at rest or the budget is spent."""
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
        for part in packs(models, budget, "lbp", copies=2):
            share = deadline.share((part.stop - part.start) / max(len(models) - part.start, 1))
            found += self._together(models[part], budget, rngs[part], share, threads)
        return found

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Beliefs of factors, b(x_f) ∝ exp θ_f(x_f) Π_i b(x_i)/m_{f→i}(x_i), of the run chosen."""
        packs([model], budget, "lbp", copies=3)
        settled = self._settled([model], budget, [rng], budget.deadline(), None, keep=True)
        if settled is None:
            raise BudgetError("lbp: the seconds were over before a sweep was made; give more")
        (part,), flat, best = settled
        assert best.messages is not None
        answer = best.answer(flat, 0, np.zeros((0, 0)))
        tables = factor_joints(flat, best.belief, best.messages, part, model.cards, scopes)
        return JointTables(tables, answer.status, answer.log_z)

    def messages(
        self, model: FactorGraph, budget: Budget, rng: Generator
    ) -> tuple[FlatModels, FloatArray, bool] | None:
        """Arrays of a model, the log ratios of the best run's messages, and whether it is at rest.

        The model is one that `supported` left. None where there was no time for a sweep.
        """
        packs([model], budget, "lbp", copies=3)
        settled = self._settled([model], budget, [rng], budget.deadline(), None, keep=True)
        if settled is None:
            return None
        _, flat, best = settled
        assert best.messages is not None
        return flat, best.messages, bool(best.at_rest[0])

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
        settled = self._settled(models, budget, rngs, deadline, threads)
        if settled is None:
            return [from_fields(model) for model in models]
        parts, flat, best = settled
        probs = probabilities(flat, best.belief, max(part.model.max_states for part in parts))
        rows = np.split(probs, flat.model_variable[1:-1])
        return [
            lift(best.answer(flat, m, rows[m][:, : part.model.max_states].copy()), part.alive)
            for m, part in enumerate(parts)
        ]

    def _settled(
        self,
        models: Sequence[FactorGraph],
        budget: Budget,
        rngs: Sequence[Generator],
        deadline: Deadline,
        threads: int | None,
        keep: bool = False,
    ) -> "tuple[list[Conditioned], FlatModels, _Best] | None":
        """All runs of all models; None where there was no time for the first.

        With `keep` the messages of the best run are kept, too.
        """
        try:
            parts, w = supported_all(models, patient(models, deadline))
            flat = lay_out([part.model for part in parts], w, patient(models, deadline))
            flat = reweight(flat, flat.rho)
            check(patient(models, deadline))
        except TimeSpent:
            return None
        return parts, flat, self._best(flat, budget, rngs, deadline, threads, keep)

    def arrays(
        self, batch: PairwiseBatch, budget: Budget, rng: Generator, threads: int | None = None
    ) -> ManyMarginals | None:
        """Answers to a batch of arrays, as to its models; None where one by one is better."""
        n, e, k = batch.n_variables, len(batch.edges), batch.n_states
        needed = 8 * (2 * batch.values.size + len(batch) * (n * (k + 8) + e * (16 + 10 * k)))
        if not len(batch) or not batch.ordinary or k < 2 or needed > budget.table_bytes:
            return None
        deadline = Deadline.after(budget.seconds * len(batch))
        flat = lay_out_wired([Sizes(n, n + e)] * len(batch), batch.wiring(0, len(batch)))
        flat = reweight(flat, flat.rho)
        spins = spin_models(flat, len(batch)) if k == 2 else None
        streams = LazyStreams(rng, len(batch))
        best = self._best(flat, budget, streams, deadline, threads, spins=spins)
        probs = probabilities(flat, best.belief, k).reshape(len(batch), n, k)
        exact = flat.forest & flat.plain & (best.residual <= EXACT)
        status = tuple(
            (Status.EXACT if sure else Status.AT_REST) if rest else Status.BUDGET_SPENT
            for rest, sure in zip(best.at_rest.tolist(), exact.tolist(), strict=True)
        )
        known = best.at_rest & np.isfinite(best.log_z)
        stats = {
            "residual": best.residual,
            "sweeps": best.sweeps.astype(np.float64),
            "converged_runs": best.fixed_points.astype(np.float64),
        }
        return ManyMarginals(probs, np.where(known, best.log_z, np.nan), status, stats)

    def _best(
        self,
        flat: FlatModels,
        budget: Budget,
        rngs: Sequence[Generator],
        deadline: Deadline,
        threads: int | None,
        keep: bool = False,
        spins: SpinModels | None = None,
    ) -> "_Best":
        """All runs of models that are laid out; with `keep` the messages of the best are kept.

        `spins` are the same models, where they can be swept as such.
        """
        best = _Best.empty(flat, keep)
        further = AUTOMATIC if self.restarts is None else range(1, self.restarts + 1)
        for attempt in (0, *further):
            limit, share = self._allowed(flat, attempt, best, budget.sweeps(), deadline)
            if attempt and (deadline.passed or not limit.any()):
                break
            schedule, damping = _plan(self, attempt)
            state = initial_state(flat, _start(flat, attempt, rngs, limit, share, spins))
            rest = self.tolerance, limit, share, threads
            if spins is None or schedule == "residual":
                sweep(flat, state, schedule, damping, *rest)
            else:
                sweep_spins(spins, state, schedule == "flooding", damping, *rest)
            settled = (state.residual <= self.tolerance).any()
            with (after(deadline) if settled else deadline).flag() as stop:
                found = (
                    log_partitions(flat, state, stop)
                    if spins is None
                    else spin_log_partitions(spins, state, stop)
                )
            best.offer(flat, state, found, self.tolerance, attempt, limit > 0)
        return best

    def _allowed(
        self, flat: FlatModels, attempt: int, best: "_Best", sweeps: int, deadline: Deadline
    ) -> tuple[IntArray, Deadline]:
        """Sweeps of each model in a run, and the end of its share of the time."""
        left = sweeps - best.sweeps
        if self.restarts is None:
            if attempt == 0:
                return left, deadline
            # Forests have one fixed point, and two runs that agree are taken for a sign of that.
            open_ = best.at_rest_first & ~flat.forest & ~best.agreed
            extra = (
                best.first - best.sweeps + np.maximum(EXTRA * best.first, len(AUTOMATIC) * SHORT)
            )
            if attempt == AUTOMATIC[0]:
                extra = np.maximum(PROBE * best.first, SHORT)
            return np.where(open_, np.minimum(left, extra).clip(min=0), 0), deadline
        # the first run may take half; what runs leave over goes to those that follow
        shares = 2 if attempt == 0 < self.restarts else self.restarts + 1 - attempt
        return left // shares, deadline.share(1 / shares)


@dataclass(slots=True)
class _Best:
    """Best run of each model so far: at rest before not, then Bethe log Z, then residual."""

    belief: FloatArray  # log ratios
    at_rest: BoolArray  # m
    log_z: FloatArray  # m    NaN where there was no time for it
    residual: FloatArray  # m
    run: IntArray  # m    number of the run
    sweeps: IntArray  # m    of all runs together
    fixed_points: IntArray  # m    runs that came to rest
    lowest: FloatArray  # m    smallest Bethe log Z of them
    runs: IntArray  # m
    first: IntArray  # m    sweeps of the first run
    at_rest_first: BoolArray  # m    whether the first run came to rest
    agreed: BoolArray  # m    whether a later one came to rest at the same log Z
    messages: FloatArray | None  # log ratios, where they are kept; of one model only

    @classmethod
    def empty(cls, flat: FlatModels, keep: bool = False) -> "_Best":
        m = len(flat.constant)
        zero, worst = np.zeros(m, np.int64), np.full(m, np.inf)
        return cls(
            flat.field.copy(), zero > 0, -worst, worst, zero - 1, zero, zero, worst, zero, zero,
            zero > 0, zero > 0, np.zeros(int(flat.message_start[-1])) if keep else None,
        )  # fmt: skip

    def offer(
        self,
        flat: FlatModels,
        state: State,
        log_z: FloatArray,
        tolerance: float,
        number: int,
        taking_part: BoolArray,
    ) -> None:
        at_rest = (state.residual <= tolerance) & taking_part
        near = np.abs(log_z - self.log_z) <= 1e-6 * np.maximum(np.abs(log_z), 1.0)
        self.agreed = self.agreed | (at_rest & self.at_rest & near)
        better = np.where(
            at_rest & self.at_rest,
            log_z > self.log_z + 1e-9,
            at_rest | (~self.at_rest & ((state.residual < self.residual) | (self.run < 0))),
        )
        chosen = np.repeat(better, np.diff(flat.ratio_start[flat.model_variable]))
        self.belief = np.where(chosen, state.belief, self.belief)
        if self.messages is not None and better.all():
            self.messages = state.messages.copy()
        self.log_z = np.where(better, log_z, self.log_z)
        self.residual = np.where(better, state.residual, self.residual)
        self.run = np.where(better, number, self.run)
        self.at_rest = self.at_rest | at_rest
        self.runs = self.runs + taking_part
        self.sweeps = self.sweeps + state.sweeps
        self.fixed_points = self.fixed_points + at_rest
        self.lowest = np.where(at_rest, np.minimum(log_z, self.lowest), self.lowest)
        if number == 0:
            self.first, self.at_rest_first = state.sweeps.copy(), at_rest

    def answer(self, flat: FlatModels, m: int, probs: FloatArray) -> Marginals:
        if not self.at_rest[m]:
            return Marginals(probs, Status.BUDGET_SPENT, stats=self.stats(m))
        exact = flat.forest[m] and flat.plain[m] and self.residual[m] <= EXACT
        log_z = float(self.log_z[m]) if np.isfinite(self.log_z[m]) else None
        status = Status.EXACT if exact else Status.AT_REST
        return Marginals(probs, status, log_z, stats=self.stats(m))

    def stats(self, m: int) -> dict[str, float]:
        stats = {
            "residual": float(self.residual[m]),
            "sweeps": float(self.sweeps[m]),
            "restarts": float(max(self.runs[m] - 1, 0)),
            "chosen_run": float(self.run[m]),
            "converged_runs": float(self.fixed_points[m]),
        }
        if np.isfinite(self.log_z[m]):
            stats["bethe_log_z"] = float(self.log_z[m])  # also where it is not stationary
            if self.fixed_points[m]:
                # how much the choice between fixed points mattered
                stats["log_z_spread"] = float(self.log_z[m] - self.lowest[m])
        return stats


def _plan(settings: LoopyBP, attempt: int) -> tuple[Schedule, float]:
    """Schedule and damping of a run."""
    names: list[Schedule] = ["sequential", "flooding", "residual"]
    names.sort(key=lambda name: name != settings.schedule)
    schedule = names[max(attempt - 1, 0) % len(names)]
    return schedule, max(settings.damping, 0.5) if _at_random(attempt) else settings.damping


def _at_random(attempt: int) -> bool:
    return attempt >= 4 and attempt % 2 == 0


def _start(
    flat: FlatModels,
    attempt: int,
    streams: Sequence[Generator],
    limit: IntArray,
    deadline: Deadline,
    spins: SpinModels | None,
) -> FloatArray | None:
    """First messages of a run, random ones drawn from one stream for each model; None: uniform."""
    if attempt in (0, 2, 3):
        return None
    if _at_random(attempt):
        ends = flat.message_start[flat.edge_start[flat.model_factor]]
        messages = np.zeros(ends[-1])
        for m in np.flatnonzero(limit).tolist():  # strong enough to reach other fixed points
            messages[ends[m] : ends[m + 1]] = streams[m].normal(0.0, 2.0, ends[m + 1] - ends[m])
        return messages
    if spins is not None and attempt == 1:
        return mean_field_messages(spins, np.where(limit > 0, MEAN_FIELD_SWEEPS, 0), deadline)
    q = starting_point(flat, None if attempt == 1 else streams)
    relax(flat, q, SOFT, np.where(limit > 0, MEAN_FIELD_SWEEPS, 0), deadline)
    with deadline.flag() as stop:
        return np.asarray(mean_messages(flat, q, SOFT, stop))
