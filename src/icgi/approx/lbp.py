"""Loopy belief propagation: exact on trees, elsewhere a stationary point of Bethe's free energy."""

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
)
from icgi.approx.fixed_point import check_settings
from icgi.approx.mean_field import SOFT, relax, starting_point
from icgi.approx.mean_field_sweeps import mean_messages
from icgi.approx.messages import NUMBER, Schedule, log_partitions, sweep
from icgi.approx.support import supported_all
from icgi.inference import Budget, Marginals, Status
from icgi.model.condition import lift
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray

MEAN_FIELD_SWEEPS = 20  # before a run that starts at the messages of mean field


@dataclass(frozen=True, slots=True)
class LoopyBP:
    """m_{f→i}(x_i) ∝ Σ_{x_f∖x_i} exp θ_f(x_f) Π_{j∈f∖i} Π_{g≠f} m_{g→j}(x_j); `log_z` is Bethe's.

    Converged means that no message, normalised and without damping, would change by more than the
    tolerance. Only then is `log_z` stationary, and given; the stats have its value always. Restarts
    take the messages of mean field, the other schedules, then random messages with more damping
    and random mean fields in turn; of the converged runs the one with the largest Bethe log Z is
    the answer.
    """

    damping: float = 0.0  # share of the old message, geometrically; the paper: 0, 0.3, 0.5
    schedule: Schedule = "sequential"
    restarts: int = 0  # further runs; all of them share the budget
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
        core = compile_models([part.model for part in parts])
        best = _Best.empty(core)
        for attempt in range(self.restarts + 1):
            # the first run may take half; what runs leave over goes to those that follow
            shares = 2 if attempt == 0 < self.restarts else self.restarts + 1 - attempt
            limit = (budget.sweeps() - best.sweeps) // shares
            schedule, damping = _plan(self, attempt)
            state = initial_state(core, _start(core, attempt, rngs))
            sweep(core, state, schedule, damping, self.tolerance, limit, until, threads)
            best.offer(core, state, self.tolerance, attempt)
        probs = probabilities(core, best.belief, max(part.model.max_states for part in parts))
        rows = np.split(probs, core.model_variable[1:-1])
        return [
            lift(best.answer(m, rows[m][:, : part.model.max_states].copy()), part.alive)
            for m, part in enumerate(parts)
        ]


@dataclass(slots=True)
class _Best:
    """Best run of each model so far: converged before not, then Bethe log Z, then residual."""

    belief: FloatArray  # log ratios
    converged: BoolArray  # m
    log_z: FloatArray  # m
    residual: FloatArray  # m
    run: IntArray  # m    number of the run
    sweeps: IntArray  # m    of all runs together
    fixed_points: IntArray  # m    runs that converged
    lowest: FloatArray  # m    smallest Bethe log Z of them
    runs: int = 0

    @classmethod
    def empty(cls, core: Core) -> "_Best":
        m = len(core.constant)
        zero, worst = np.zeros(m, np.int64), np.full(m, np.inf)
        return cls(
            core.field.copy(), zero > 0, -worst, worst, zero - 1, zero, zero.copy(), worst.copy()
        )

    def offer(self, core: Core, state: State, tolerance: float, number: int) -> None:
        log_z = log_partitions(core, state)
        converged = state.residual <= tolerance
        better = np.where(
            converged & self.converged,
            log_z > self.log_z + 1e-9,
            converged | (~self.converged & ((state.residual < self.residual) | (self.run < 0))),
        )
        chosen = np.repeat(better, np.diff(core.ratio_start[core.model_variable]))
        self.belief = np.where(chosen, state.belief, self.belief)
        self.log_z = np.where(better, log_z, self.log_z)
        self.residual = np.where(better, state.residual, self.residual)
        self.run = np.where(better, number, self.run)
        self.converged = self.converged | converged
        self.runs += 1
        self.sweeps = self.sweeps + state.sweeps
        self.fixed_points = self.fixed_points + converged
        self.lowest = np.where(converged, np.minimum(log_z, self.lowest), self.lowest)

    def answer(self, m: int, probs: FloatArray) -> Marginals:
        if not self.converged[m]:
            return Marginals(probs, Status.BUDGET_SPENT, stats=self.stats(m))
        return Marginals(probs, Status.CONVERGED, float(self.log_z[m]), stats=self.stats(m))

    def stats(self, m: int) -> dict[str, float]:
        stats = {
            "residual": float(self.residual[m]),
            "sweeps": float(self.sweeps[m]),
            "bethe_log_z": float(self.log_z[m]),  # also where it is not stationary
            "restarts": float(self.runs - 1),
            "chosen_run": float(self.run[m]),
            "converged_runs": float(self.fixed_points[m]),
        }
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


def _start(core: Core, attempt: int, streams: Sequence[Generator]) -> FloatArray | None:
    """First messages of a run, random ones drawn from one stream for each model; None: uniform."""
    if attempt in (0, 2, 3):
        return None
    if _at_random(attempt):
        ends = core.message_start[core.edge_start[core.model_factor]]
        # strong enough to reach other fixed points
        draws = [r.normal(0.0, 2.0, k) for r, k in zip(streams, np.diff(ends), strict=True)]
        return np.concatenate(draws)
    q = starting_point(core, None if attempt == 1 else streams)
    relax(core, q, SOFT, MEAN_FIELD_SWEEPS)
    return np.asarray(mean_messages(core, q, SOFT))
