"""Parallel tempering of many pairwise models at once on a CUDA device, through CuPy.

Same question and same answer as the CPU sampler, for pairwise models of up to 32 states without
zeros.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi import clock
from icgi.clock import Deadline
from icgi.errors import BudgetError, IcgiError, UnsupportedModelError
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ising import IsingArrays, as_ising
from icgi.randomness import kernel_seed
from icgi.sampling.gpu_batches import (
    IsingBatch,
    Raw,
    Schedule,
    available,
    dense_batch,
    halves,
    is_dense,
    pairwise,
    pairwise_batch,
)
from icgi.sampling.ladder import respaced
from icgi.sampling.targets import Target, symmetric_spins, target

__all__ = ["GpuTempering", "IsingBatch", "available", "temper_dense"]

PROBE = 256  # sweeps that place the ladder and measure the pace
LONGEST = 2**30  # sweeps of a launch: the kernels count in 32 bits
FASTEST = 1e-7  # seconds a sweep takes at least, should the clock be too coarse to see it
SLOWEST_SWAP = 0.01  # a mean acceptance below this breaks the ladder in two
NEGLIGIBLE = 1e-4  # chains that differ by less agree: their sums are of single precision
ROUNDING = 2.0**-24  # of a sum, in every addition; of a spin that hardly moves always the same way

Launch = Callable[[Schedule, int], Raw]


@dataclass(frozen=True, slots=True)
class GpuTempering:
    """Heat-bath sweeps and swaps on a CUDA device, for pairwise models without zeros.

    `run` takes many models: one block of threads is one ensemble of one model, one warp one
    replica. A probe of a few sweeps places the levels of the ladder, the same for all models of a
    batch. `std_error` is the larger of the spread of the segments and of the ensembles.
    CONVERGED means: R-hat below 1.05, a round trip in every ensemble, no gap in the ladder.
    """

    replicas: int = 24  # levels of the ladder, at most 32
    ensembles: int = 4
    hottest: float = 0.1  # inverse temperature of the hottest replica; the target is 1
    burn_share: float = 0.3  # share of the sweeps before measuring
    segments: int = 8  # parts of every chain; their spread gives the standard error
    r_hat: float = 1.05
    adapt: bool = True  # place the levels by the probe; otherwise they are geometric
    probe: int = PROBE  # sweeps of the probe; cold models need more until swaps are typical

    def __post_init__(self) -> None:
        if not 2 <= self.replicas <= 32:
            raise IcgiError(f"pt-gpu: replicas={self.replicas} should be 2 to 32")
        if self.ensembles < 2:
            raise IcgiError(f"pt-gpu: ensembles={self.ensembles}; errors need at least 2")
        if self.segments < 2 or self.segments % 2:
            raise IcgiError(f"pt-gpu: segments={self.segments} should be even, at least 2")
        if not 0.0 < self.hottest < 1.0:
            raise IcgiError(f"pt-gpu: hottest={self.hottest} should lie between 0 and 1")

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Marginals of one model; a batch of one."""
        return self.run([model], budget, rng)[0]

    def run(self, models: Sequence[FactorGraph], budget: Budget, rng: Generator) -> list[Marginals]:
        """Marginals of many models; seconds and memory are those of the whole batch."""
        if not available():
            raise UnsupportedModelError(
                "pt-gpu needs a CUDA device and CuPy, and found none; use the engine pt"
            )
        return temper(models, self, budget, rng)

    def batch(
        self,
        models: Sequence[FactorGraph],
        budget: Budget,
        rngs: Sequence[Generator],
        threads: int | None = None,
    ) -> list[Marginals]:
        """Marginals of many models in one launch, drawn from the first stream."""
        return self.run(models, budget, rngs[0]) if models else []

    def ladder(self) -> FloatArray:
        """Inverse temperatures, geometric from the hottest to one."""
        return np.geomspace(self.hottest, 1.0, self.replicas)

    def schedule(self, sweeps: int, ladder: FloatArray) -> Schedule:
        """Split sweeps into burn-in and segments of at least one sweep."""
        burn = max(0, min(int(self.burn_share * sweeps), sweeps - self.segments))
        segment = max(1, (sweeps - burn) // self.segments)
        return Schedule(ladder, self.ensembles, burn, segment, self.segments)


def temper_dense(batch: IsingBatch, settings: GpuTempering, sweeps: int, seed: int) -> Raw:
    """Run the dense kernel on a geometric ladder; `sums` and `squares` hold p(s = +1) only."""
    return batch.launch_up(settings.schedule(sweeps, settings.ladder()), seed)


def temper(
    models: Sequence[FactorGraph], settings: GpuTempering, budget: Budget, rng: Generator
) -> list[Marginals]:
    """Marginals of many models, in one launch for each of the two kernels."""
    deadline = budget.deadline()
    aims = [target(m) if _has_fixed(m) else None for m in models]
    parts = [m if aim is None else aim.model for m, aim in zip(models, aims, strict=True)]
    arrays = [as_ising(part) for part in parts]
    answers = {k: aim.fixed() for k, aim in enumerate(aims) if aim and not aim.model.n_variables}
    dense = [k for k in range(len(parts)) if k not in answers and is_dense(arrays[k])]
    rest = [k for k in range(len(parts)) if k not in answers and not is_dense(arrays[k])]
    check_memory([parts[k].n_variables for k in dense], [parts[k] for k in rest], settings, budget)
    groups = [chosen for chosen in (dense, rest) if chosen]
    for done, chosen in enumerate(groups):
        until = deadline.share(1.0 / (len(groups) - done))
        launch = (
            dense_batch([a for k in chosen if (a := arrays[k]) is not None])
            if chosen is dense
            else pairwise_batch([parts[k] for k in chosen])
        ).launch
        raw = sweep(launch, settings, budget.sweeps(), until, rng)
        for b, k in enumerate(chosen):
            answers[k] = _lifted(aims[k], _answer(parts[k], arrays[k], raw, b, settings))
    return [answers[k] for k in range(len(models))]


def sweep(
    launch: Launch, settings: GpuTempering, sweeps: int, deadline: Deadline, rng: Generator
) -> Raw:
    """Probe, place the levels, then sweep as much as sweeps and the deadline allow.

    A launch cannot be stopped: its length is planned by the pace of the probe.
    """
    sweeps = min(sweeps, LONGEST)
    timed = math.isfinite(deadline.at)
    ladder, spent, pace = settings.ladder(), 0, 0.0
    probe = min(settings.probe, sweeps // 4)
    if (settings.adapt or timed) and probe >= settings.segments:
        if timed:
            clock.pause()  # compiles
            try:
                launch(settings.schedule(1, ladder), kernel_seed(rng))
            finally:
                clock.resume()
        before = clock.now()
        raw = launch(settings.schedule(probe, ladder), kernel_seed(rng))
        spent = raw.sweeps
        pace = max((clock.now() - before) / spent, FASTEST)
        if settings.adapt:
            rejection = 1.0 - raw.swap_rate.mean((0, 1))
            ladder = respaced(ladder, rejection, settings.replicas)
    left = max(1, sweeps - spent)
    if timed and pace > 0:
        left = int(np.clip(deadline.left / pace, 1, left))
    elif deadline.passed:
        left = 1
    return launch(settings.schedule(left, ladder), kernel_seed(rng))


def check_memory(
    dense: Sequence[int], rest: Sequence[FactorGraph], settings: GpuTempering, budget: Budget
) -> None:
    """Raise `BudgetError` when the padded arrays of a batch would not fit."""
    rows = settings.ensembles * (settings.segments + 2)
    needed = 0.0
    if dense:
        n = max(dense)
        needed += 4.0 * len(dense) * (n * n + n + rows * n)
    if rest:
        n, k = max(m.n_variables for m in rest), max(m.max_states for m in rest)
        edges = max(sum(len(s) == 2 for s in m.scopes) for m in rest)
        needed += 4.0 * len(rest) * (2 * edges * (k * k + 1) + n * k * (1 + rows) + 4 * n)
    if needed > budget.table_bytes:
        raise BudgetError(
            f"pt-gpu needs {needed / 1e9:.2g} GB on the device for this batch, the budget is "
            f"{budget.table_bytes / 1e9:.2g} GB; give a larger memory budget, or fewer "
            "models at a time"
        )


def _has_fixed(model: FactorGraph) -> bool:
    return bool(
        model.n_variables == 0
        or (model.cards == 1).any()
        or any(np.isneginf(table).any() for table in model.log_tables)
    )


def _lifted(aim: Target | None, answer: Marginals) -> Marginals:
    return answer if aim is None else aim.answer(answer)


def _answer(
    model: FactorGraph, ising: IsingArrays | None, raw: Raw, b: int, settings: GpuTempering
) -> Marginals:
    """Marginals, errors and a status from the segments of one model."""
    n, k = model.n_variables, model.max_states
    parts = raw.sums[b, :, :, :n, :k]  # c s n k
    chains, segments = parts.shape[:2]
    counted = raw.sweeps - int(settings.burn_share * raw.sweeps)
    noise = max(NEGLIGIBLE, ROUNDING * counted / segments)
    within, ratio = _rhat(parts, raw.squares[b, :, :, :n, :k], noise)
    spread = parts.reshape(-1, n, k).std(0, ddof=1) / np.sqrt(chains * segments)
    deviation = parts.mean(1).std(0, ddof=1)
    error = np.maximum(spread, deviation / np.sqrt(chains))
    most = chains * counted
    ess = np.clip(within / np.maximum(error, 1e-9) ** 2, 1.0, most)
    probs = parts.mean((0, 1))
    probs = np.where(np.arange(k) < model.cards[:, None], probs, 0.0)
    probs /= probs.sum(1, keepdims=True)
    if ising is not None:
        known = symmetric_spins(ising)
        probs[known], error[known], deviation[known], ratio[known] = 0.5, 0.0, 0.0, 1.0
    log_z, log_z_error = _log_z(model, ising, raw, b)
    swap = float(raw.swap_rate[b].mean(0).min(initial=1.0))
    trips = raw.trips[b]
    rhat = float(ratio.max(initial=1.0))
    good = rhat < settings.r_hat and trips.min() > 0 and swap > SLOWEST_SWAP
    return Marginals(
        probs,
        Status.CONVERGED if good else Status.BUDGET_SPENT,
        log_z if swap > SLOWEST_SWAP else None,
        std_error=error,
        deviation=deviation.max(1, initial=0.0),
        ess=ess,
        rhat=ratio,
        stats={
            "sweeps": float(raw.sweeps),
            "rhat": rhat,
            "swap_rate_min": swap,
            "round_trips": float(trips.sum()),
            "round_trips_min": float(trips.min()),
            "log_z_std_error": log_z_error,
            "std_error": float(error.max(initial=0.0)),
        },
    )


def _rhat(
    parts: FloatArray, squares: FloatArray, noise: float = NEGLIGIBLE
) -> tuple[FloatArray, FloatArray]:
    """(variance within half chains, split R-hat) from segment means c s … and squares c 2 …."""
    means = halves(parts[None])[0]  # c 2 n k
    within = np.maximum(squares - means**2, 0.0).mean((0, 1))
    between = means.reshape(-1, *means.shape[2:]).var(0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.sqrt(1.0 + between / within)
    # chains frozen in different states have no variance within, and are as far from mixed as can be
    return within, np.where(between <= noise**2, 1.0, ratio)


def _log_z(model: FactorGraph, ising: IsingArrays | None, raw: Raw, b: int) -> tuple[float, float]:
    """Estimate log Z = log Z(0) + ∫₀¹ ⟨−E⟩ dβ by the trapezoid rule with end-slope correction.

    The slope of ⟨−E⟩ is its variance, which the kernel measures too, so each interval of width w
    is right to O(w⁵). At β = 0 both are known: there the variables are independent and uniform.
    """
    start, slope, constant = uniform_moments(model, ising)
    chains = len(raw.energy[b])
    mean = np.column_stack([np.full(chains, start), -raw.energy[b]])  # c t+1
    variance = np.maximum(raw.energy_square[b] - raw.energy[b] ** 2, 0.0)
    variance = np.column_stack([np.full(chains, slope), variance])
    width = np.diff(np.concatenate([[0.0], raw.ladder]))
    totals = (width * (mean[:, 1:] + mean[:, :-1]) / 2).sum(1)
    totals = totals + (width**2 * (variance[:, :-1] - variance[:, 1:]) / 12).sum(1)
    totals = totals + float(np.log(model.cards).sum()) + constant
    return float(totals.mean()), float(totals.std(ddof=1) / np.sqrt(chains))


def uniform_moments(model: FactorGraph, ising: IsingArrays | None) -> tuple[float, float, float]:
    """(mean, variance, constant) of the kernels' log weight over uniform configurations.

    Dense spins have their energy without the constant of `as_ising`, others without empty scopes.
    The variance adds up over main effects and the rest of each pair, which are uncorrelated.
    """
    if ising is not None and is_dense(ising):
        square = float((ising.couplings**2).sum() + (ising.fields**2).sum())
        return 0.0, square, ising.constant
    wired = pairwise(model)
    effect = [wired.fields[i, : model.cards[i]].copy() for i in range(model.n_variables)]
    mean, variance = 0.0, 0.0
    for i in range(model.n_variables):
        for e in range(wired.begin[i], wired.begin[i + 1]):
            j = int(wired.neighbour[e])
            table = wired.tables[e, : model.cards[i], : model.cards[j]]
            effect[i] += table.mean(1)
            if i < j:
                rest = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
                variance += float((rest**2).mean())
                mean -= float(table.mean())  # counted from both ends
    mean += sum(float(values.mean()) for values in effect)
    variance += sum(float(values.var()) for values in effect)
    return mean, variance, wired.constant
