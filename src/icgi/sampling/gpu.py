"""Parallel tempering of many pairwise models at once on a CUDA device, through CuPy.

Same question and same answer as the CPU sampler, for pairwise models without zeros: dense Ising
models by a kernel that keeps local fields in registers, all others by a coloured sparse sweep.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.random import Generator

from icgi.errors import UnsupportedModelError
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ising import as_ising
from icgi.randomness import kernel_seed
from icgi.sampling.gpu_kernels import DENSE_ISING, SPARSE_PAIRWISE

MOST_DENSE = 1024  # spins whose fields fit the registers of a warp
MOST_STATES = 32
PADDING = -1e30  # log weight of states that a variable does not have


@dataclass(frozen=True, slots=True)
class GpuTempering:
    """Parallel tempering on a CUDA device, for pairwise models without zeros; `run` takes many."""

    replicas: int = 24
    ensembles: int = 4
    hottest: float = 0.1  # inverse temperature of the hottest replica; the target is 1
    burn_share: float = 0.3  # share of the sweeps before measuring
    segments: int = 8  # parts of every chain; their spread gives the standard error
    r_hat: float = 1.05

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Marginals of one model; a batch of one."""
        return self.run([model], budget, rng)[0]

    def run(self, models: Sequence[FactorGraph], budget: Budget, rng: Generator) -> list[Marginals]:
        """Marginals of many models, in one launch for each of the two kernels."""
        _require_device()
        dense = [k for k, m in enumerate(models) if _is_dense(m)]
        rest = sorted(set(range(len(models))) - set(dense))
        answers: dict[int, Marginals] = {}
        for chosen, launch in ((dense, _launch_dense), (rest, _launch_sparse)):
            if chosen:
                part = [models[k] for k in chosen]
                raw = launch(part, self, budget.iterations, kernel_seed(rng))
                found = [_answer(m, raw, b, self) for b, m in enumerate(part)]
                answers.update(zip(chosen, found, strict=True))
        return [answers[k] for k in range(len(models))]

    def ladder(self) -> FloatArray:
        """Inverse temperatures, geometric from the hottest to one."""
        return np.geomspace(self.hottest, 1.0, self.replicas)

    def parts(self, sweeps: int) -> tuple[int, int]:
        """Split sweeps into (burn-in, length of a segment)."""
        burn = int(self.burn_share * sweeps)
        return burn, max(1, (sweeps - burn) // self.segments)


@dataclass(frozen=True, slots=True, eq=False)
class _Raw:
    """What a kernel brings back; axes: b instance, c ensemble, s segment, t temperature."""

    sums: FloatArray  # b c s n k  mean of p(x_i | rest) in each segment
    squares: FloatArray  # b c 2 n k  mean of its square in each half
    energy: FloatArray  # b c t
    energy_square: FloatArray  # b c t
    swap_rate: FloatArray  # b c t-1
    trips: FloatArray  # b
    betas: FloatArray  # t
    constant: FloatArray  # b  log weight that the kernel did not see
    start: FloatArray  # b  mean log weight of a uniformly drawn configuration
    sweeps: int


def available() -> bool:
    """Whether CuPy and a CUDA device are there."""
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # CuPy raises its own errors where there is no driver
        return False


def _require_device() -> None:
    if not available():
        raise UnsupportedModelError(
            "pt-gpu needs a CUDA device and CuPy, and found none; use --engine pt"
        )


def _is_dense(model: FactorGraph) -> bool:
    n = model.n_variables
    arrays = as_ising(model) if 0 < n <= MOST_DENSE else None
    return arrays is not None and len(arrays.edges) >= n * max(4, n // 16)


def _launch_dense(
    models: Sequence[FactorGraph], settings: GpuTempering, sweeps: int, seed: int
) -> _Raw:
    import cupy as cp

    n = max(m.n_variables for m in models)
    couplings = np.zeros((len(models), n, n), np.float32)
    fields = np.zeros((len(models), n), np.float32)
    constant = np.zeros(len(models))
    for b, model in enumerate(models):
        arrays = as_ising(model)
        assert arrays is not None
        i, j = arrays.edges.T
        couplings[b, i, j] = couplings[b, j, i] = arrays.couplings
        fields[b, : model.n_variables] = arrays.fields
        constant[b] = arrays.constant
    batch = IsingBatch(cp.asarray(couplings), cp.asarray(fields))
    raw = temper_dense(batch, settings, sweeps, seed)
    up = raw.sums[..., 0]
    return _Raw(
        np.stack([1.0 - up, up], -1),
        np.stack([1.0 - 2.0 * _halves(up) + raw.squares[..., 0], raw.squares[..., 0]], -1),
        raw.energy, raw.energy_square, raw.swap_rate, raw.trips, raw.betas, constant, raw.start,
        raw.sweeps,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class IsingBatch:
    """Couplings b n n and fields b n of many Ising models, as float32 arrays on the device."""

    couplings: Any
    fields: Any


def temper_dense(batch: IsingBatch, settings: GpuTempering, sweeps: int, seed: int) -> _Raw:
    """Run the dense kernel; `sums` and `squares` hold p(s = +1) only, in their last axis."""
    count, n = batch.fields.shape
    out = _Output(count, n, 1, settings, sweeps)
    threads = (32, settings.replicas)
    _kernel(DENSE_ISING, PER=-(-n // 32))(
        (count * settings.ensembles,), threads,
        (batch.couplings, batch.fields, out.betas, *out.shape_arguments(n, settings),
         *out.arguments(seed)),
        shared_mem=20 * settings.replicas,
    )  # fmt: skip
    return out.fetch(np.zeros(count), np.zeros(count))  # random spins have mean energy zero


def _launch_sparse(
    models: Sequence[FactorGraph], settings: GpuTempering, sweeps: int, seed: int
) -> _Raw:
    import cupy as cp

    wired = [_pairwise(m) for m in models]
    n = max(m.n_variables for m in models)
    k = max(m.max_states for m in models)
    edges = max(max(len(w.neighbour) for w in wired), 1)
    colours = max(len(w.colour_start) for w in wired) - 1
    count = len(models)
    begin = np.zeros((count, n + 1), np.int32)
    neighbour = np.zeros((count, edges), np.int32)
    tables = np.zeros((count, edges, k, k), np.float32)
    fields = np.full((count, n, k), PADDING, np.float32)
    fields[:, :, 0] = 0.0
    starts = np.zeros((count, colours + 1), np.int32)
    sites = np.zeros((count, n), np.int32)
    cards = np.ones((count, n), np.uint8)
    for b, (model, w) in enumerate(zip(models, wired, strict=True)):
        m, e, q = model.n_variables, len(w.neighbour), w.tables.shape[-1]
        begin[b, : m + 1], begin[b, m + 1 :] = w.begin, w.begin[-1]
        neighbour[b, :e] = w.neighbour
        tables[b, :e, :q, :q] = w.tables
        fields[b, :m, :q] = w.fields
        starts[b, : len(w.colour_start)] = w.colour_start
        starts[b, len(w.colour_start) :] = w.colour_start[-1]
        sites[b, :m] = w.sites
        cards[b, :m] = model.cards
    out = _Output(count, n, k, settings, sweeps)
    shared = 20 * settings.replicas + settings.replicas * n
    kernel = _kernel(SPARSE_PAIRWISE, Q=k)
    kernel.max_dynamic_shared_size_bytes = max(shared, 48 * 1024)
    device = [cp.asarray(a) for a in (begin, neighbour, tables, fields, starts, sites, cards)]
    sizes = (np.int32(n), np.int32(edges), np.int32(colours))
    kernel(
        (count * settings.ensembles,), (32, settings.replicas),
        (*device, out.betas, *sizes, *out.shape_arguments(n, settings)[1:], *out.arguments(seed)),
        shared_mem=shared,
    )  # fmt: skip
    start = np.array([_uniform_mean(m) for m in models])
    return out.fetch(np.array([w.constant for w in wired]), start)


class _Output:
    """Arrays on the device that a kernel adds into."""

    def __init__(self, count: int, n: int, k: int, settings: GpuTempering, sweeps: int) -> None:
        import cupy as cp

        chains, self.count, self.settings = count * settings.ensembles, count, settings
        self.burn, self.segment = settings.parts(sweeps)
        t = settings.replicas
        self.betas = cp.asarray(settings.ladder(), dtype=cp.float32)
        self.sums = cp.zeros((chains, settings.segments, n, k), cp.float32)
        self.squares = cp.zeros((chains, 2, n, k), cp.float32)
        self.moments = cp.zeros((chains, t, 2), cp.float64)
        self.accepted = cp.zeros((chains, t - 1), cp.float32)
        self.trips = cp.zeros(chains, cp.float32)

    def shape_arguments(self, n: int, settings: GpuTempering) -> tuple[Any, ...]:
        numbers = (
            n, settings.replicas, settings.ensembles, self.burn, self.segment, settings.segments
        )  # fmt: skip
        return tuple(np.int32(x) for x in numbers)

    def arguments(self, seed: int) -> tuple[Any, ...]:
        return (
            np.uint64(seed), self.sums, self.squares, self.moments, self.accepted, self.trips,
        )  # fmt: skip

    def fetch(self, constant: FloatArray, start: FloatArray) -> _Raw:
        c, s = self.settings.ensembles, self.settings.segments
        counted = self.segment * s

        def split(a: Any) -> FloatArray:
            host = np.asarray(a.get(), dtype=np.float64)
            return host.reshape(self.count, c, *host.shape[1:])

        moments = split(self.moments) / counted
        return _Raw(
            split(self.sums) / self.segment,
            split(self.squares) / (counted / 2),
            moments[..., 0],
            moments[..., 1],
            split(self.accepted) / (counted / 2),  # each pair is tried every second sweep
            split(self.trips).sum(1),
            self.settings.ladder(),
            constant,
            start,
            self.burn + counted,
        )


@cache
def _kernel(source: str, **constants: int) -> Any:
    import cupy as cp

    options = ("-std=c++17", *(f"-D{name}={value}" for name, value in constants.items()))
    return cp.RawKernel(source, "temper", options=options)


def _halves(segments: FloatArray) -> FloatArray:
    """Mean of each half of the segments, b c s … → b c 2 …."""
    b, c, s = segments.shape[:3]
    return segments.reshape(b, c, 2, s // 2, *segments.shape[3:]).mean(3)


def _answer(model: FactorGraph, raw: _Raw, b: int, settings: GpuTempering) -> Marginals:
    n, k = model.n_variables, model.max_states
    parts = raw.sums[b, :, :, :n, :k]  # c s n k
    squares = raw.squares[b, :, :, :n, :k]
    means = _halves(raw.sums[b : b + 1, :, :, :n, :k])[0]  # c 2 n k
    within = np.maximum(squares - means**2, 0.0).mean((0, 1))
    between = means.reshape(-1, n, k).var(0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.sqrt((within + between) / within)
    r_hat = float(np.nanmax(np.where(within > 1e-12, ratio, 1.0), initial=1.0))
    chains, segments = parts.shape[:2]
    spread = parts.reshape(-1, n, k).std(0, ddof=1) / np.sqrt(chains * segments)
    across = parts.mean(1).std(0, ddof=1) / np.sqrt(chains)
    probs = parts.mean((0, 1))
    probs = np.where(np.arange(k) < model.cards[:, None], probs, 0.0)
    probs /= probs.sum(1, keepdims=True)
    log_z, error = _log_z(model, raw, b)
    swap = float(raw.swap_rate[b].mean(0).min(initial=1.0))
    good = r_hat < settings.r_hat and raw.trips[b] > 0
    return Marginals(
        probs,
        Status.CONVERGED if good else Status.BUDGET_SPENT,
        log_z,
        std_error=np.maximum(spread, across),
        deviation=parts.mean(1).std(0, ddof=1).max(1, initial=0.0),
        stats={
            "sweeps": raw.sweeps,
            "rhat": r_hat,
            "swap_rate_min": swap,
            "round_trips": float(raw.trips[b]),
            "log_z_std_error": error,
            "std_error": float(np.maximum(spread, across).max(initial=0.0)),
        },
    )


def _log_z(model: FactorGraph, raw: _Raw, b: int) -> tuple[float, float]:
    """Estimate log Z = log Z(0) + ∫₀¹ ⟨−E⟩ dβ by the trapezoid rule with end-slope correction.

    The slope of ⟨−E⟩ is its variance, which the kernel measures too, so each interval of width w
    is right to O(w⁵). Below the hottest level ⟨−E⟩ is taken as linear from β = 0, where it is
    known exactly for independent uniform variables.
    """
    mean = -raw.energy[b]  # c t
    variance = np.maximum(raw.energy_square[b] - raw.energy[b] ** 2, 0.0)
    betas = raw.betas
    width = np.diff(betas)
    inner = (width * (mean[:, 1:] + mean[:, :-1]) / 2).sum(1)
    inner = inner + (width**2 * (variance[:, :-1] - variance[:, 1:]) / 12).sum(1)
    outer = betas[0] * (mean[:, 0] + raw.start[b]) / 2
    totals = inner + outer + float(np.log(model.cards).sum()) + raw.constant[b]
    return float(totals.mean()), float(totals.std(ddof=1) / np.sqrt(len(totals)))


def _uniform_mean(model: FactorGraph) -> float:
    """Mean log weight of a uniformly drawn configuration, constants left out."""
    return float(sum(t.mean() for s, t in zip(model.scopes, model.log_tables, strict=True) if s))


@dataclass(frozen=True, slots=True, eq=False)
class _Pairwise:
    begin: IntArray  # n+1
    neighbour: IntArray  # 2e, grouped by site
    tables: FloatArray  # 2e k k  axis 1: own state, axis 2: neighbour's
    fields: FloatArray  # n k
    colour_start: IntArray
    sites: IntArray  # n, grouped by colour
    constant: float


def _pairwise(model: FactorGraph) -> _Pairwise:
    """Adjacency of a pairwise model without zeros, and a greedy colouring."""
    k, n = model.max_states, model.n_variables
    if k > MOST_STATES:
        raise UnsupportedModelError(
            f"pt-gpu takes up to {MOST_STATES} states, this model has {k}; use --engine pt"
        )
    fields = np.where(np.arange(k) < model.cards[:, None], 0.0, PADDING)
    pairs: dict[tuple[int, int], FloatArray] = {}
    constant = 0.0
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if len(scope) > 2 or np.isneginf(table).any():
            raise UnsupportedModelError(
                "pt-gpu takes pairwise models without zeros; use --engine pt for any other"
            )
        if not scope:
            constant += float(table)
        elif len(scope) == 1:
            fields[scope[0], : table.size] += table
        else:
            i, j = scope
            padded = np.zeros((k, k))
            padded[: table.shape[0], : table.shape[1]] = table
            pairs[i, j] = pairs.get((i, j), 0.0) + padded
            pairs[j, i] = pairs.get((j, i), 0.0) + padded.T
    keys = sorted(pairs)
    begin = np.searchsorted([i for i, _ in keys], np.arange(n + 1))
    neighbour = np.array([j for _, j in keys], dtype=np.int64)
    tables = np.array([pairs[key] for key in keys]).reshape(-1, k, k)
    colour = _colours(begin, neighbour)
    sites = np.argsort(colour, kind="stable")
    colour_start = np.searchsorted(colour[sites], np.arange(colour.max(initial=0) + 2))
    return _Pairwise(begin, neighbour, tables, fields, colour_start, sites, constant)


def _colours(begin: IntArray, neighbour: IntArray) -> IntArray:
    colour = np.full(len(begin) - 1, -1)
    for i in np.argsort(-np.diff(begin), kind="stable"):
        taken = set(colour[neighbour[begin[i] : begin[i + 1]]].tolist())
        colour[i] = next(c for c in range(len(taken) + 1) if c not in taken)
    return colour
