"""Population annealing: the second, independent route to marginals and log Z.

A population of replicas is cooled from λ = 0, where its members are independent and uniform, to
λ = 1. At every step they are reweighted by exp Δλ·θ(x), drawn anew in proportion, and swept. The
mean weights multiply up to an unbiased estimate of Z (Hukushima and Iba 2003; Machta 2010).
"""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from icgi.errors import IcgiError, UnsupportedModelError
from icgi.inference import Budget, Marginals, Status
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.sampling.replicas import make_scratch, make_state, reach, refresh, sweep, weigh
from icgi.sampling.streams import stream
from icgi.sampling.targets import Target, check_memory, target

PILOT = 64  # replicas of the run that finds the steps
SMALLEST = 32  # replicas per run below which a short budget of seconds does not go
RHAT = 1.05
FAMILIES = 10  # effective number of families that every run should keep


@dataclass(frozen=True, slots=True)
class PopulationAnnealing:
    """Resampled population annealing in several independent runs, weighted by their estimates of Z.

    A small pilot run chooses the steps so that the effective sample size of the weights stays at
    `overlap` of the population. One iteration is one sweep of the population of every run; the
    steps take `sweeps` each, fewer when the budget is shorter, and the last one takes them twice.

    `std_error` is the larger of the deviation between runs and of what families (replicas with a
    common ancestor) differ by. CONVERGED means: runs agree to R-hat below 1.05, each keeps ten
    effective families, and no few runs have all the weight.
    """

    population: int = 512  # replicas per run
    runs: int = 8
    sweeps: int = 10  # per step
    overlap: float = 0.9
    threads: int | None = None  # None: one per processor; the answer does not depend on it

    def __post_init__(self) -> None:
        if self.population < 2 or self.runs < 2 or self.sweeps < 1:
            raise IcgiError("pa: population and runs should be at least 2, sweeps at least 1")
        if not 0.0 < self.overlap < 1.0:
            raise IcgiError(f"pa: overlap={self.overlap} should lie between 0 and 1")

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Find the steps, anneal every run, combine."""
        aim = target(model)
        if aim.model.n_variables == 0:
            return aim.fixed()
        return aim.answer(anneal(aim, self, budget, rng))


class Plan(NamedTuple):
    """Levels after the first, sweeps at each, replicas per run."""

    levels: FloatArray  # t
    sweeps: int
    population: int


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What one annealed population says."""

    log_z: float  # relative to λ = 0
    noise: float  # variance of log_z as the weights of its steps tell it
    mean: FloatArray  # slots
    variance: FloatArray  # slots: between replicas
    error: FloatArray  # slots: variance of the mean, families taken as independent
    families: float  # effective number of families: 1 / Σ (share of each)²


def anneal(aim: Target, settings: PopulationAnnealing, budget: Budget, rng: Generator) -> Marginals:
    """Marginals of a target's variables."""
    began = time.monotonic()
    n_slots = aim.slots
    replica = 2 * (16 * n_slots + 8 * aim.model.n_factors) + 8 * n_slots
    check_memory("pa", replica * settings.population * settings.runs, budget)
    pilot, *children = rng.spawn(settings.runs + 1)
    levels, pilot_sweeps = _pilot(aim, settings, budget.sweeps() // 4, pilot)
    paced = (time.monotonic() - began) / max(1, PILOT * pilot_sweeps)  # seconds a replica's sweep
    left = budget.seconds - (time.monotonic() - began)
    plan = _plan(levels, settings, budget.sweeps() - pilot_sweeps, left, paced)
    with ThreadPoolExecutor(settings.threads) as pool:
        runs = list(pool.map(lambda child: _run(aim, plan, child), children))
    found = [run for run in runs if run is not None]
    if not found:
        raise UnsupportedModelError(
            f"pa: no configuration of non-zero probability was found by {settings.runs} runs of "
            f"{plan.population} replicas; give a larger population, or use pt, which repairs "
            "violations, or jt, which says whether there is one"
        )
    spent = pilot_sweeps + plan.sweeps * (len(plan.levels) + 1)
    return _combine(aim, found, plan, settings, spent)


def _pilot(
    aim: Target, settings: PopulationAnnealing, most: int, rng: Generator
) -> tuple[FloatArray, int]:
    """Levels after λ = 0, and the sweeps it took to find them, at most `most`."""
    source = stream(rng)
    x = _start(aim, PILOT, rng)
    levels: list[float] = []
    now, sweeps = 0.0, 0
    state, scratch = make_state(aim.kernel, x), make_scratch(aim.kernel)
    weight, broken = np.empty(PILOT), np.empty(PILOT, np.int64)
    relax(aim.kernel, state, 0.0, False, 0, source, scratch, weight, broken, np.empty((0, 0)))
    while now < 1.0:
        step = _next_step(weight, 1.0 - now, settings.overlap)
        # what is left is divided evenly when the budget does not allow the steps that were wanted
        step = max(step, (1.0 - now) / max(1, most - sweeps))
        now = 1.0 if now + step > 1.0 - 1e-9 else now + step
        levels.append(now)
        chosen = _resample(np.exp(step * (weight - weight.max())), rng)
        state = _drawn(state, chosen)
        relax(aim.kernel, state, now, False, 1, source, scratch, weight, broken, np.empty((0, 0)))
        sweeps += 1
    return np.array(levels), sweeps


def _next_step(weight: FloatArray, most: float, overlap: float) -> float:
    """Largest Δλ that leaves exp(Δλ w) an effective sample size of `overlap` of the population."""

    def share(step: float) -> float:
        w = np.exp(step * (weight - weight.max()))
        return float(w.sum() ** 2 / (w**2).sum() / len(w))

    if share(most) >= overlap:
        return most
    low, high = 0.0, most
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if share(middle) >= overlap else (low, middle)
    return low


def _plan(
    levels: FloatArray, settings: PopulationAnnealing, iterations: int, seconds: float, paced: float
) -> Plan:
    """Fit steps, sweeps and, for a short time only, the population to the budget."""
    steps = min(len(levels), max(1, iterations - 1))
    if steps < len(levels):
        levels = np.interp(
            np.linspace(0, len(levels), steps + 1)[1:], np.arange(len(levels) + 1), [0.0, *levels]
        )
    sweeps = max(1, min(settings.sweeps, iterations // (steps + 1)))
    population = settings.population
    if math.isfinite(seconds):
        # replica sweeps that fit, the pilot's pace being that of one thread
        fitting = max(seconds, 0.0) / paced / settings.runs / (steps + 1)
        sweeps = int(np.clip(fitting / population, 1, sweeps))
        population = int(np.clip(fitting / sweeps, SMALLEST, population))
    return Plan(levels, sweeps, population)


def _run(aim: Target, plan: Plan, rng: Generator) -> Run | None:
    """One population from λ = 0 to the target; None when every replica violates something."""
    source = stream(rng)
    size = plan.population
    state, scratch = make_state(aim.kernel, _start(aim, size, rng)), make_scratch(aim.kernel)
    weight, broken = np.empty(size), np.empty(size, np.int64)
    nothing = np.empty((0, 0))
    relax(aim.kernel, state, 0.0, False, 0, source, scratch, weight, broken, nothing)
    family = np.arange(size)
    log_z, noise, now = 0.0, 0.0, 0.0
    local = np.zeros((size, aim.slots))
    for level in plan.levels:
        log_w = (level - now) * weight
        now = float(level)
        state, family, gain, spread = _cool(state, family, log_w, rng)
        log_z, noise = log_z + gain, noise + spread
        last = level == plan.levels[-1] and not aim.has_zeros
        relax(
            aim.kernel, state, now, False, (2 if last else 1) * plan.sweeps, source, scratch,
            weight, broken, local if last else nothing,
        )  # fmt: skip
    if aim.has_zeros:
        if broken.min() > 0:
            return None
        log_w = np.where(broken == 0, 0.0, -np.inf)
        state, family, gain, spread = _cool(state, family, log_w, rng)
        log_z, noise = log_z + gain, noise + spread
        relax(aim.kernel, state, now, True, plan.sweeps, source, scratch, weight, broken, local)
    return _describe(local, family, log_z, noise)


def _drawn(state: Any, chosen: IntArray) -> Any:
    return type(state)(*(array[chosen] for array in state))


def _cool(
    state: Any, family: IntArray, log_w: FloatArray, rng: Generator
) -> tuple[Any, IntArray, float, float]:
    """Resample by weights; also returns log of their mean and its variance."""
    size = len(family)
    gain = float(logsumexp(log_w)) - math.log(size)
    w = np.exp(log_w - gain)
    chosen = _resample(w, rng)
    return _drawn(state, chosen), family[chosen], gain, float(w.var()) / size


def _describe(local: FloatArray, family: IntArray, log_z: float, noise: float) -> Run:
    size = len(family)
    mean = local.mean(0)
    names, where = np.unique(family, return_inverse=True)
    share = np.bincount(where) / size
    by_family = np.zeros((len(names), local.shape[1]))
    np.add.at(by_family, where, (local - mean) / size)
    families = 1.0 / float((share**2).sum())
    return Run(log_z, noise, mean, local.var(0), (by_family**2).sum(0), families)


def _combine(
    aim: Target, runs: list[Run], plan: Plan, settings: PopulationAnnealing, spent: int
) -> Marginals:
    """Mean over runs weighted by their Z, which removes the bias of resampling to first order."""
    m = len(runs)
    log_zs = np.array([run.log_z for run in runs])
    log_z = float(logsumexp(log_zs)) - math.log(settings.runs)  # runs without a solution: Z = 0
    weight = softmax(log_zs)
    means = np.stack([run.mean for run in runs])
    mean, other = weight @ means, weight @ (1.0 - means)  # either is a sum without cancellation
    within = weight**2 @ np.stack([run.error for run in runs])
    around = (means - mean) ** 2
    between = (weight**2 @ around) * (m / (m - 1) if m > 1 else np.inf)
    # what no family has seen may have a probability of some 1/families
    unseen = reach(aim.kernel) / sum(run.families for run in runs)
    error = np.maximum(np.sqrt(np.maximum(within, between)), unseen)
    inside = weight @ np.stack([run.variance for run in runs])
    spread = around.sum(0) / max(1, m - 1)
    rhat = np.sqrt(1.0 + np.where(spread > 1e-12, spread / np.maximum(inside, 1e-300), 0.0))
    known = aim.symmetric_slots
    mean, other = np.where(known, 0.5, mean), np.where(known, 0.5, other)
    error, rhat = np.where(known, 0.0, error), np.where(known, 1.0, rhat)
    deviation = np.where(known, 0.0, np.sqrt(spread))
    full = np.concatenate([np.exp(log_zs - log_z), np.zeros(settings.runs - m)])
    by_steps = float(np.mean([run.noise for run in runs])) / m
    log_z_error = max(float(full.std(ddof=1)) / math.sqrt(settings.runs), math.sqrt(by_steps))
    families = min(run.families for run in runs)
    effective_runs = 1.0 / float((weight**2).sum())
    stats = {
        "sweeps": float(spent),
        "steps": float(len(plan.levels)),
        "population": float(plan.population),
        "runs": float(settings.runs),
        "rhat": float(rhat.max()),
        "std_error": float(error.max()),
        "families_min": families,
        "effective_runs": effective_runs,
        "log_z_std_error": log_z_error,
    }
    sane = rhat.max() < RHAT and families >= FAMILIES and effective_runs > settings.runs / 2
    return Marginals(
        aim.spread(mean, other),
        Status.CONVERGED if sane else Status.BUDGET_SPENT,
        log_z + aim.log_count + aim.constant,
        std_error=aim.spread(error, error),
        deviation=aim.spread(deviation, deviation).max(1),
        rhat=aim.spread(rhat, rhat),
        stats=stats,
    )


def _start(aim: Target, size: int, rng: Generator) -> NDArray[np.int32]:
    shape = size, aim.model.n_variables
    return np.asarray(rng.integers(0, aim.model.cards, shape, dtype=np.int32))


def _resample(weight: FloatArray, rng: Generator) -> IntArray:
    """Systematic resampling: replica r is drawn ⌊R w_r⌋ or ⌈R w_r⌉ times."""
    size = len(weight)
    edges = np.cumsum(weight) / weight.sum()
    points = (np.arange(size) + rng.random()) / size
    return np.minimum(np.searchsorted(edges, points, side="right"), size - 1).astype(np.int64)


@kernel
def relax(  # type: ignore[no-untyped-def]
    model, state, scale, hard, sweeps, stream, scratch, weight, broken, local
):
    """Sweep every replica; mean of p(x_i | rest) to its row of `local`, unless that is empty."""
    record = len(local) > 0
    buffer = np.empty(local.shape[1])
    for r in range(len(state.x)):
        refresh(model, state, r)  # removes the rounding of the sweeps before
        if record:
            local[r] = 0.0
        for _ in range(sweeps):
            sweep(model, state, r, scale, hard, stream, scratch, buffer, record)
            if record:
                for slot in range(len(buffer)):
                    local[r, slot] += buffer[slot]
        if record:
            # divided once: a sum of numbers up to one never rounds above their count
            for slot in range(len(buffer)):
                local[r, slot] /= sweeps
        weight[r], broken[r] = weigh(model, state, r)
