"""Naive mean field: the best product distribution, and with it a lower bound of log Z."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.approx.fixed_point import Stop, after, check_settings, fixed_points
from icgi.approx.flat import FlatModels, lay_out, packs
from icgi.approx.mean_field_sweeps import ascend, lower_bounds
from icgi.approx.reading import TimeSpent, from_fields, patient
from icgi.approx.support import possible_configuration, supported_all
from icgi.clock import Deadline
from icgi.inference import Budget, Marginals, Status
from icgi.model.condition import lift
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray

SOFT = -10.0  # log of what stands for a zero while a run looks for a region without zeros


@dataclass(frozen=True, slots=True)
class MeanField:
    """Factorised q minimising KL(q‖p): log q_i(x) = E_q[Σ_{f∋i} θ_f | x_i = x] + const.

    Coordinate ascent of the lower bound Σ_f E_q[θ_f] + Σ_i H(q_i) ≤ log Z, which is `log_z`; of
    several runs the one with the largest bound is the answer. A product that puts weight on a
    zero of the model has bound −inf: where there are zeros, a run ascends with small weights in
    their place, takes a possible configuration nearby, and ascends from there with the true
    zeros. If no configuration is found, the status says that the answer is not to be used.
    """

    restarts: int = 3  # further runs, from random starts; all of them share the budget
    tolerance: float = 1e-6  # on probabilities

    def __post_init__(self) -> None:
        check_settings(0.0, self.restarts)

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Ascend from a uniform start and from random ones."""
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
        for part in packs(models, budget, "mf", copies=1):
            share = deadline.share((part.stop - part.start) / max(len(models) - part.start, 1))
            found += self._together(models[part], budget, rngs[part], share, threads)
        return found

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
            parts, w = supported_all(models, patient(models, deadline))
            flat = lay_out([part.model for part in parts], w, patient(models, deadline))
        except TimeSpent:
            return [from_fields(model) for model in models]
        zeros = _with_zeros(flat, [part.model for part in parts])
        best = _Best.empty(len(models))
        for attempt in range(self.restarts + 1):
            if attempt and deadline.passed:
                break
            runs = self.restarts + 1 - attempt
            limit, share = (budget.sweeps() - best.sweeps) // runs, deadline.share(1 / runs)
            run = _Run.of(flat, starting_point(flat, rngs if attempt else None))
            outside = zeros
            if zeros.any():
                soft, half = np.where(zeros, limit // 2, 0), share.share(0.5)
                run.ascend(SOFT, soft, self.tolerance, half, threads)
                outside = run.enter([p.model for p in parts], zeros, rngs, share)
            softness = np.where(outside, SOFT, -math.inf)
            run.ascend(softness, limit, self.tolerance, share, threads)
            with after(deadline).flag() as stop:
                best.offer(run, attempt, stop)
        rows = np.split(
            _dense(flat, best.q, max(p.model.max_states for p in parts)), flat.model_variable[1:-1]
        )
        late = deadline.passed
        return [
            lift(
                self._answer(best, m, late, rows[m][:, : part.model.max_states].copy()), part.alive
            )
            for m, part in enumerate(parts)
        ]

    def _answer(self, best: "_Best", m: int, late: bool, probs: FloatArray) -> Marginals:
        bound = float(best.bound[m])
        stats = {
            "residual": float(best.residual[m]),
            "sweeps": float(best.sweeps[m]),
            "restarts": float(best.runs - 1),
            "chosen_run": float(best.run[m]),
            "possible": float(bound > -math.inf),
        }
        if not math.isfinite(bound):
            # without time nothing has failed: a possible configuration was not looked for
            return Marginals(probs, Status.BUDGET_SPENT if late else Status.DIVERGED, stats=stats)
        if best.residual[m] > self.tolerance:
            status = Status.BUDGET_SPENT
        else:
            status = Status.EXACT if best.exact[m] else Status.AT_REST
        return Marginals(probs, status, bound, stats=stats)


@dataclass(slots=True, eq=False)
class _Run:
    """One ascent of every model."""

    flat: FlatModels
    q: FloatArray  # probabilities, all states of all variables in a row
    sweeps: IntArray  # m
    residual: FloatArray  # m

    @classmethod
    def of(cls, flat: FlatModels, q: FloatArray) -> "_Run":
        size = len(flat.constant)
        return cls(flat, q, np.zeros(size, np.int64), np.full(size, np.inf))

    def ascend(
        self,
        zero: float | FloatArray,
        limit: IntArray,
        tolerance: float,
        deadline: Deadline,
        threads: int | None = None,
    ) -> None:
        """Coordinate ascent in place, with `zero` for the logarithm of zero."""
        self.residual[:] = np.inf
        softness = np.broadcast_to(zero, limit.shape).astype(np.float64)

        def some(count: int, first: int, last: int, stop: Stop) -> None:
            ascend(
                self.flat, self.q, softness, tolerance, limit, count, first, last,
                self.sweeps, self.residual, stop,
            )  # fmt: skip

        work = np.diff(self.flat.model_factor)
        fixed_points(some, work, self.sweeps, self.residual, limit, deadline, tolerance, threads)

    def enter(
        self,
        models: Sequence[FactorGraph],
        zeros: BoolArray,
        rngs: Sequence[Generator],
        deadline: Deadline,
    ) -> BoolArray:
        """Move models with zeros to a possible configuration nearby; where none was found."""
        start = _state_start(self.flat)[self.flat.model_variable]
        outside = zeros.copy()
        for m in np.flatnonzero(zeros).tolist():
            here = slice(start[m], start[m + 1])
            self.q[here], found = _inside(models[m], self.q[here], rngs[m], deadline)
            outside[m] = not found
        return outside


@dataclass(slots=True, eq=False)
class _Best:
    """Best run of each model so far, by its bound."""

    q: FloatArray
    bound: FloatArray  # m
    residual: FloatArray  # m
    run: IntArray  # m    number of the run
    sweeps: IntArray  # m    of all runs together
    exact: BoolArray  # m    no factor of two variables: the product is the model
    runs: int = 0

    @classmethod
    def empty(cls, size: int) -> "_Best":
        worst, zero = np.full(size, np.inf), np.zeros(size, np.int64)
        return cls(np.empty(0), -worst, worst, zero, zero, zero > 0)

    def offer(self, run: _Run, number: int, stop: Stop) -> None:
        bound = lower_bounds(run.flat, run.q, stop)
        better = (bound > self.bound) | (self.runs == 0)
        start = _state_start(run.flat)[run.flat.model_variable]
        self.q = np.where(np.repeat(better, np.diff(start)), run.q, self.q) if self.runs else run.q
        self.bound = np.where(better, bound, self.bound)
        self.residual = np.where(better, run.residual, self.residual)
        self.run = np.where(better, number, self.run)
        self.sweeps = self.sweeps + run.sweeps
        self.exact = (np.diff(run.flat.model_factor) == 0) & run.flat.plain
        self.runs += 1


def _with_zeros(flat: FlatModels, models: Sequence[FactorGraph]) -> BoolArray:
    """Which models have zeros left."""
    where = np.flatnonzero(np.isneginf(flat.values))
    if not len(where):
        return np.zeros(len(models), np.bool_)
    ends = np.cumsum([0] + [sum(t.size for t in model.log_tables) for model in models])
    return np.asarray(np.searchsorted(where, ends[1:]) > np.searchsorted(where, ends[:-1]))


def relax(
    flat: FlatModels, q: FloatArray, zero: float, sweeps: IntArray, deadline: Deadline
) -> None:
    """Make so many sweeps of each model, in place."""
    _Run.of(flat, q).ascend(zero, sweeps, 0.0, deadline)


def _state_start(flat: FlatModels) -> IntArray:
    return np.asarray(flat.ratio_start + np.arange(len(flat.ratio_start)))


def starting_point(flat: FlatModels, streams: Sequence[Generator] | None) -> FloatArray:
    """Uniform q, or drawn evenly from all distributions, by one stream for each model."""
    start = _state_start(flat)
    if streams is None:
        q = np.ones(start[-1])
    else:
        sizes = np.diff(start[flat.model_variable])
        q = np.concatenate([r.exponential(size=k) for r, k in zip(streams, sizes, strict=True)])
    sums = np.add.reduceat(q, start[:-1]) if len(q) else q
    return np.asarray(q / np.repeat(sums, np.diff(start)))


def _inside(
    model: FactorGraph, q: FloatArray, rng: Generator, deadline: Deadline
) -> tuple[FloatArray, bool]:
    """Point masses at a possible configuration, drawn by q, wherever there are zeros around."""
    states = possible_configuration(model, q, rng, deadline)
    if states is None:
        return q, False
    first = np.cumsum(model.cards) - model.cards
    fixed = states >= 0
    inside = np.where(np.repeat(fixed, model.cards), 0.0, q)
    inside[first[fixed] + states[fixed]] = 1.0
    return inside, True


def _dense(flat: FlatModels, q: FloatArray, width: int) -> FloatArray:
    start = _state_start(flat)
    probs = np.zeros((len(start) - 1, width))
    probs[np.arange(width) < np.diff(start)[:, None]] = q
    return probs
