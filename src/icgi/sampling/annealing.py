"""Population annealing: the second, independent route to marginals and log Z.

A population of replicas is cooled from λ = 0, where its members are independent and uniform, to
λ = 1. At every step they are reweighted by exp Δλ·θ(x), drawn anew in proportion, and swept. The
mean weights multiply up to an unbiased estimate of Z (Hukushima and Iba 2003; Machta 2010).
"""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from icgi import clock
from icgi.clock import Deadline
from icgi.errors import IcgiError, UnsupportedModelError
from icgi.inference import UNKNOWN_ERROR, Budget, Marginals, Status
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.sampling.diagnostics import student
from icgi.sampling.replicas import drawn, make_scratch, make_state, reach, refresh, sweep, weigh
from icgi.sampling.streams import Stream, stream
from icgi.sampling.targets import (
    Target,
    arranging_bytes,
    guess,
    prepare,
    refuse,
    replica_bytes,
)

PILOT = 64  # replicas of the run that finds the steps
SMALLEST = 32  # replicas per run below which a short budget of seconds does not go
POPULATION = 512  # replicas per run where nothing else decides
LARGEST = 2**15  # replicas per run that a long time leads to
IN_TIME = 0.7  # share of the seconds that sweeps are planned for
IN_STEPS = 0.9  # share of the time left that the steps may plan with
LATE = 0.2  # seconds beyond the deadline that a last sweep of a few replicas may take
DESCRIBING = 3e-8  # seconds that a probability of a replica takes to be described
RHAT = 1.05
SMALL = 0.05  # largest standard error under CONVERGED
FAMILIES = 10  # effective number of families that every run should keep


@dataclass(frozen=True, slots=True)
class PopulationAnnealing:
    """Resampled population annealing in several independent runs, weighted by their estimates of Z.

    A small pilot run chooses the steps so that the effective sample size of the weights stays at
    `overlap` of the population. One iteration is one sweep of the population of every run; the
    steps take `sweeps` each, fewer when the budget is shorter, and the last one takes them twice.

    `std_error` is the larger of the deviation between runs and of what families (replicas with a
    common ancestor) differ by. CONVERGED means: no standard error above 0.05, runs
    agree to R-hat below 1.05, each keeps ten effective families, and no few runs have all the
    weight.
    """

    population: int | None = None  # replicas per run; None: 512, or what the seconds allow
    runs: int = 8
    sweeps: int = 10  # per step
    overlap: float = 0.9
    threads: int | None = None  # None: one per processor; the answer does not depend on it

    def __post_init__(self) -> None:
        population = 2 if self.population is None else self.population
        if population < 2 or self.runs < 2 or self.sweeps < 1:
            raise IcgiError("pa: population and runs should be at least 2, sweeps at least 1")
        if not 0.0 < self.overlap < 1.0:
            raise IcgiError(f"pa: overlap={self.overlap} should lie between 0 and 1")
        if self.threads is not None and self.threads < 1:
            raise IcgiError(f"pa: threads={self.threads}; give 1 or more, or leave it out")

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Find the steps, anneal every run, combine."""
        deadline = budget.deadline()
        if (needed := arranging_bytes(model)) > budget.table_bytes:
            raise refuse("pa", needed, budget)
        aim = prepare(model, deadline)
        if aim is None:
            return guess(model)
        if aim.model.n_variables == 0:
            return aim.fixed()
        return aim.answer(anneal(aim, self, budget, deadline, rng))


class Plan(NamedTuple):
    """Levels after the first, sweeps at each, replicas per run."""

    levels: FloatArray  # t
    sweeps: int
    population: int
    more: bool = False  # whether steps take more sweeps where time is left


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What one annealed population says."""

    log_z: float  # relative to λ = 0
    noise: float  # variance of log_z as the weights of its steps tell it
    mean: FloatArray  # slots
    variance: FloatArray  # slots: between replicas
    error: FloatArray  # slots: variance of the mean, families taken as independent
    families: float  # effective number of families: 1 / Σ (share of each)²


def anneal(
    aim: Target,
    settings: PopulationAnnealing,
    budget: Budget,
    deadline: Deadline,
    rng: Generator,
) -> Marginals:
    """Marginals of a target's variables."""
    most = _most_replicas(aim, settings, budget)
    pilot, *children = rng.spawn(settings.runs + 1)
    found = _pilot(aim, settings, budget.sweeps() // 4, deadline.share(0.25), pilot)
    if found is None:
        return guess(aim.model)
    plan = _plan(found, settings, budget, deadline, most)
    describing = DESCRIBING * settings.runs * plan.population * aim.slots
    until = replace(deadline, at=deadline.at - min(describing, 0.25 * deadline.left))
    with ThreadPoolExecutor(settings.threads) as pool, until.flag() as stop:
        made = pool.map(lambda child: _start(aim, plan.population, child, stop), children)
        populations = list(made)
        spent = found.sweeps + _descend(aim, plan, populations, until, pool, stop)
        if any(each.local is None for each in populations):
            if found.pace * SMALLEST * settings.runs > LATE:
                return guess(aim.model, spent)
            # a part of its own: who asks to stop gets these words, too
            with Deadline(clock.now() + until.left + LATE, clock.Part()).flag() as late:
                list(pool.map(lambda held: _last_words(aim, held, late), populations))
                if late[0]:
                    return guess(aim.model, spent)
    runs = [_describe(each) for each in populations if each.local is not None and each.sound]
    if not runs:
        raise UnsupportedModelError(
            f"pa: no configuration of non-zero probability was found by {settings.runs} runs of "
            f"{plan.population} replicas; give a larger population, or use pt, which repairs "
            "violations, or jt, which says whether there is one"
        )
    return _combine(aim, runs, plan, settings, spent)


def _most_replicas(aim: Target, settings: PopulationAnnealing, budget: Budget) -> int:
    """How many replicas a run may have; `BudgetError` where not even a few fit."""
    # twice the state, while it is drawn anew; p(x_i | rest), and twice more to describe it
    each = 2 * replica_bytes(aim) + 24 * aim.slots + 64
    fixed = arranging_bytes(aim.original)
    most = int((budget.table_bytes - fixed) // (each * settings.runs))
    least = min(SMALLEST, settings.population or SMALLEST)
    if most < least:
        raise refuse("pa", fixed + each * settings.runs * least, budget)
    return min(most, LARGEST)


class Pilot(NamedTuple):
    """What a small population found out."""

    levels: FloatArray  # after λ = 0
    sweeps: int
    pace: float  # seconds that a sweep of one replica takes


def _pilot(
    aim: Target, settings: PopulationAnnealing, most: int, deadline: Deadline, rng: Generator
) -> Pilot | None:
    """Find the levels within so many sweeps and the deadline; None if there is no time at all.

    What is left is divided evenly when sweeps or time do not allow the steps that were wanted.
    """
    levels: list[float] = []
    now, sweeps, began, relaxing = 0.0, 0, clock.now(), 0.0
    with deadline.flag() as stop:
        held = _start(aim, PILOT, rng, stop)
        while now < 1.0:
            if stop[0] and not sweeps:
                return None
            step = _next_step(held.weight, 1.0 - now, settings.overlap)
            pace = max((clock.now() - began) / (sweeps + 1), 1e-9)
            possible = min(most - sweeps, deadline.left / pace)
            step = max(step, (1.0 - now) / max(1.0, possible))
            now = 1.0 if now + step > 1.0 - 1e-9 else now + step
            levels.append(now)
            held.draw(_resample(np.exp(step * (held.weight - held.weight.max())), rng))
            before = clock.now()
            held.relax(aim, now, False, 1, stop)
            relaxing += clock.now() - before
            sweeps += 1
    return Pilot(np.array(levels), sweeps, max(relaxing / (PILOT * sweeps), 1e-8))


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
    pilot: Pilot, settings: PopulationAnnealing, budget: Budget, deadline: Deadline, most: int
) -> Plan:
    """Fit steps, sweeps and the population to the budget."""
    levels, seconds = pilot.levels, deadline.left
    iterations = budget.sweeps() - pilot.sweeps
    steps = min(len(levels), max(1, iterations - 1))
    if steps < len(levels):
        levels = np.interp(
            np.linspace(0, len(levels), steps + 1)[1:], np.arange(len(levels) + 1), [0.0, *levels]
        )
    sweeps = max(1, min(settings.sweeps, iterations // (steps + 1)))
    population = min(settings.population or POPULATION, most)
    timed = math.isfinite(seconds)
    if timed:
        # replica sweeps that fit, the pilot's pace being that of one thread
        fitting = IN_TIME * seconds / pilot.pace / settings.runs / (steps + 2)
        sweeps = int(np.clip(fitting / population, 1, sweeps))
        top = min(settings.population or most, most)
        population = int(np.clip(fitting / sweeps, min(SMALLEST, top), top))
    return Plan(levels, sweeps, population, timed and budget.iterations is None)


@dataclass(slots=True, eq=False)
class Population:
    """Replicas of one run on their way down; its arrays change in place."""

    state: Any
    scratch: Any
    stream: Stream
    rng: Generator
    family: IntArray  # ancestor of each replica
    weight: FloatArray
    broken: IntArray
    log_z: float = 0.0  # relative to λ = 0
    noise: float = 0.0
    local: FloatArray | None = None  # replicas × slots, p(x_i | rest) at the end
    sound: bool = True  # whether something violates nothing

    def draw(self, chosen: IntArray) -> None:
        """Keep the chosen replicas."""
        self.state = drawn(self.state, chosen)
        self.family, self.weight = self.family[chosen], self.weight[chosen]
        self.broken = self.broken[chosen]

    def cool(self, log_w: FloatArray) -> None:
        """Draw anew by weights; their mean goes to the estimate of Z."""
        size = len(self.family)
        gain = float(logsumexp(log_w)) - math.log(size)
        w = np.exp(log_w - gain)
        self.draw(_resample(w, self.rng))
        self.log_z += gain
        self.noise += float(w.var()) / size

    def harden(self, aim: Target) -> None:
        """Weed out what violates something; where everything does, the run has nothing to say."""
        self.sound = bool(self.broken.min() == 0)
        if self.sound:
            self.cool(np.where(self.broken == 0, 0.0, -np.inf))
        else:
            self.local = np.zeros((0, aim.slots))

    def relax(
        self, aim: Target, scale: float, hard: bool, sweeps: int, stop: NDArray[np.uint8]
    ) -> None:
        """Sweep every replica that `stop` lets have its turn."""
        relax(
            aim.kernel, self.state, scale, hard, sweeps, self.stream, self.scratch,
            self.weight, self.broken, np.empty((0, 0)), stop,
        )  # fmt: skip

    def recorded(self, aim: Target, sweeps: int, stop: NDArray[np.uint8]) -> FloatArray:
        """Sweep at the target; means of p(x_i | rest) of every replica."""
        local = np.zeros((len(self.family), aim.slots))
        relax(
            aim.kernel, self.state, 1.0, aim.has_zeros, sweeps, self.stream, self.scratch,
            self.weight, self.broken, local, stop,
        )  # fmt: skip
        return local


def _start(aim: Target, size: int, rng: Generator, stop: NDArray[np.uint8]) -> Population:
    """Independent uniform replicas."""
    source = stream(rng)
    shape = size, aim.model.n_variables
    x = np.asarray(rng.integers(0, aim.model.cards, shape, dtype=np.int32))
    made = Population(
        make_state(aim.kernel, x), make_scratch(aim.kernel), source, rng,
        np.arange(size), np.zeros(size), np.zeros(size, np.int64),
    )  # fmt: skip
    made.relax(aim, 0.0, False, 0, stop)
    return made


def _descend(
    aim: Target,
    plan: Plan,
    populations: list[Population],
    deadline: Deadline,
    pool: ThreadPoolExecutor,
    stop: NDArray[np.uint8],
) -> int:
    """Cool all runs side by side from λ = 0 to the target; returns the sweeps it took.

    Where time gets short, steps take fewer sweeps, then levels are left out; where there is more
    than planned, the steps that are left share it.
    """
    levels = plan.levels.tolist()
    now, spent, k = 0.0, 0, 0
    pace = 0.0  # seconds that a sweep of everything takes

    def step(held: Population, level: float, sweeps: int) -> None:
        if level > now:
            held.cool((level - now) * held.weight)
        held.relax(aim, level, False, sweeps, stop)

    while k < len(levels):
        sweeps = plan.sweeps
        if pace > 0 and math.isfinite(deadline.at):
            # the last step counts three times: it is recorded
            fitting = IN_STEPS * deadline.left / pace / (len(levels) - k + 2)
            sweeps = max(1, int(fitting if plan.more else min(sweeps, fitting)))
            if fitting < 1.0:
                k = min(len(levels) - 1, k + int(1.0 / max(fitting, 1e-9)) - 1)
        last = k == len(levels) - 1
        # of the last step's sweeps those that are recorded come after it
        size = 1 if last and not aim.has_zeros else sweeps
        before = clock.now()
        list(pool.map(lambda held: step(held, levels[k], size), populations))  # noqa: B023
        pace = (clock.now() - before) / size
        now, spent, k = levels[k], spent + size, k + 1
    if aim.has_zeros:
        for held in populations:
            held.harden(aim)
    return spent + _record(aim, plan, populations, deadline, pool, stop, pace)


def _record(
    aim: Target,
    plan: Plan,
    populations: list[Population],
    deadline: Deadline,
    pool: ThreadPoolExecutor,
    stop: NDArray[np.uint8],
    pace: float,
) -> int:
    """Means of p(x_i | rest) at the target for every replica; returns the sweeps it took.

    They are taken in rounds of doubling length, of which one that the deadline cuts is forgotten.
    """
    done, most = 0, 2 * plan.sweeps - 1 + int(aim.has_zeros)
    living = [held for held in populations if held.sound]
    while (plan.more or done < most) and not stop[0]:
        size = min(max(1, done), most - done) if not plan.more else max(1, done)
        if math.isfinite(deadline.at) and done:
            fitting = int(IN_STEPS * deadline.left / max(pace, 1e-9))
            if fitting < 1:
                break
            size = min(size, fitting)
        before = clock.now()
        rows = list(pool.map(lambda held: held.recorded(aim, size, stop), living))  # noqa: B023
        pace = (clock.now() - before) / size
        if stop[0]:
            break
        for held, found in zip(living, rows, strict=True):
            old = found if held.local is None else held.local
            held.local = old + (size / (done + size)) * (found - old)
        done += size
    return done


def _last_words(aim: Target, held: Population, late: NDArray[np.uint8]) -> None:
    """One sweep of a few replicas, for a run that time did not let record anything."""
    if held.local is None:
        size = len(held.family)
        held.draw(np.unique(np.linspace(0, size - 1, min(SMALLEST, size)).astype(np.int64)))
        held.local = held.recorded(aim, 1, late)


def _describe(held: Population) -> Run:
    assert held.local is not None
    local, family = held.local, held.family
    size = len(family)
    mean = local.mean(0)
    order = np.argsort(family, kind="stable")
    begin = np.flatnonzero(np.diff(family[order], prepend=-1))
    share = np.diff(np.append(begin, size)) / size
    by_family = np.add.reduceat(local[order] - mean, begin, axis=0) / size
    families = 1.0 / float((share**2).sum())
    return Run(held.log_z, held.noise, mean, local.var(0), (by_family**2).sum(0), families)


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
    effective_runs = 1.0 / float((weight**2).sum())
    # A run that has all the weight agrees with itself: what it may be off by is what the runs
    # differ by, whatever their weights.
    between = np.maximum(
        (weight**2 @ around) * (m / max(m - 1, 1)),
        means.var(0, ddof=min(1, m - 1)) / effective_runs,
    )
    if m == 1:
        between = np.full_like(between, UNKNOWN_ERROR**2)
    # what no family has seen may have a probability of some 1/families
    unseen = reach(aim.kernel) / sum(run.families for run in runs)
    inflate = student(np.sqrt(within), np.sqrt(between), max(effective_runs - 1.0, 1.0))
    error = np.maximum(np.sqrt(np.maximum(within, between)) * inflate, unseen)
    inside = weight @ np.stack([run.variance for run in runs])
    spread = around.sum(0) / max(1, m - 1)
    rhat = np.sqrt(1.0 + np.where(spread > 1e-12, spread / np.maximum(inside, 1e-300), 0.0))
    known = aim.symmetric_slots
    mean, other = np.where(known, 0.5, mean), np.where(known, 0.5, other)
    error, rhat = aim.stated(error), np.where(known, 1.0, rhat)
    deviation = np.where(known, 0.0, np.sqrt(spread))
    full = np.concatenate([np.exp(log_zs - log_z), np.zeros(settings.runs - m)])
    # Runs with few families may all have missed the same; 1/families bounds the variance of their
    # log Z (Wang, Machta and Katzgraber 2015). Where families abound it is far too large.
    few = [1.0 / run.families if run.families < FAMILIES else 0.0 for run in runs]
    by_run = float(np.mean([max(run.noise, f) for run, f in zip(runs, few, strict=True)])) / m
    log_z_error = max(float(full.std(ddof=1)) / math.sqrt(settings.runs), math.sqrt(by_run))
    families = min(run.families for run in runs)
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
    small = float(error.max()) <= SMALL
    sane = (
        small and rhat.max() < RHAT and families >= FAMILIES and effective_runs > settings.runs / 2
    )
    # Z of a population that died out is that of its few ancestors
    known_z = families >= 2.0 and effective_runs > 1.5
    return Marginals(
        aim.spread(mean, other),
        Status.CONVERGED if sane else Status.BUDGET_SPENT,
        log_z + aim.log_count + aim.constant if known_z else None,
        std_error=aim.spread(error, error),
        deviation=aim.spread(deviation, deviation).max(1),
        rhat=aim.spread(rhat, rhat),
        stats=stats,
    )


def _resample(weight: FloatArray, rng: Generator) -> IntArray:
    """Systematic resampling: replica r is drawn ⌊R w_r⌋ or ⌈R w_r⌉ times."""
    size = len(weight)
    edges = np.cumsum(weight) / weight.sum()
    points = (np.arange(size) + rng.random()) / size
    return np.minimum(np.searchsorted(edges, points, side="right"), size - 1).astype(np.int64)


@kernel
def relax(  # type: ignore[no-untyped-def]
    model, state, scale, hard, sweeps, stream, scratch, weight, broken, local, stop
):
    """Sweep every replica; mean of p(x_i | rest) to its row of `local`, unless that is empty.

    From the moment at which `stop` is raised replicas stay as they are, and `local` is of no use.
    """
    record = len(local) > 0
    buffer = np.empty(local.shape[1])
    for r in range(len(state.x)):
        if stop[0]:
            break
        refresh(model, state, r)  # removes the rounding of the sweeps before
        if record:
            local[r] = 0.0
        for _ in range(sweeps):
            if stop[0]:
                break
            sweep(model, state, r, scale, hard, stream, scratch, buffer, record)
            if record:
                for slot in range(len(buffer)):
                    local[r, slot] += buffer[slot]
        if record:
            # divided once: a sum of numbers up to one never rounds above their count
            for slot in range(len(buffer)):
                local[r, slot] /= sweeps
        weight[r], broken[r] = weigh(model, state, r)
