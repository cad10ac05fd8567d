"""Batches of models on a CUDA device: packed into padded arrays, launched, brought back.

Two kinds: dense Ising models, whose couplings are full matrices, and any other pairwise model,
whose sites are swept colour by colour.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from icgi.errors import UnsupportedModelError
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ising import IsingArrays
from icgi.sampling.gpu_kernels import DENSE_ISING, SPARSE_PAIRWISE

MOST_DENSE = 1024  # spins whose fields fit the registers of a warp
MOST_STATES = 32
MOST_SHARED = 227 * 1024  # bytes of shared memory that one block can have on current devices
PADDING = -1e30  # log weight of states that a variable does not have


class Schedule(NamedTuple):
    """How a batch is swept; axes as in `Raw`."""

    ladder: FloatArray  # t  inverse temperatures, the last is one
    ensembles: int
    burn: int  # sweeps before anything is counted
    segment: int  # sweeps of each segment
    segments: int

    @property
    def counted(self) -> int:
        """Sweeps that count."""
        return self.segment * self.segments


@dataclass(frozen=True, slots=True, eq=False)
class Raw:
    """What a kernel brings back; axes: b instance, c ensemble, s segment, t temperature."""

    sums: FloatArray  # b c s n k  mean of p(x_i | rest) in each segment
    squares: FloatArray  # b c 2 n k  mean of its square in each half
    energy: FloatArray  # b c t
    energy_square: FloatArray  # b c t
    swap_rate: FloatArray  # b c t-1
    trips: FloatArray  # b c
    ladder: FloatArray  # t
    sweeps: int


def cupy() -> Any:
    """CuPy, imported when it is needed."""
    return importlib.import_module("cupy")


def available() -> bool:
    """Whether CuPy and a CUDA device are there."""
    try:
        return bool(cupy().cuda.runtime.getDeviceCount())
    except Exception:  # CuPy raises its own errors where there is no driver
        return False


def halves(segments: FloatArray) -> FloatArray:
    """Mean of each half of the segments, b c s … → b c 2 …."""
    b, c, s = segments.shape[:3]
    return np.asarray(segments.reshape(b, c, 2, s // 2, *segments.shape[3:]).mean(3))


@dataclass(frozen=True, slots=True, eq=False)
class IsingBatch:
    """Couplings b n n and fields b n of many Ising models, as float32 arrays on the device."""

    couplings: Any
    fields: Any

    def launch(self, schedule: Schedule, seed: int) -> Raw:
        """Temper all models; the last axis of sums and squares holds both states."""
        raw = self.launch_up(schedule, seed)
        up, square = raw.sums[..., 0], raw.squares[..., 0]
        return Raw(
            np.stack([1.0 - up, up], -1),
            np.stack([1.0 - 2.0 * halves(up) + square, square], -1),
            raw.energy, raw.energy_square, raw.swap_rate, raw.trips, raw.ladder, raw.sweeps,
        )  # fmt: skip

    def launch_up(self, schedule: Schedule, seed: int) -> Raw:
        """Temper all models; `sums` and `squares` hold p(s = +1) only, in their last axis."""
        count, n = self.fields.shape
        out = _Output(count, n, 1, schedule)
        t = len(schedule.ladder)
        _kernel(DENSE_ISING, PER=-(-n // 32))(
            (count * schedule.ensembles,), (32, t),
            (self.couplings, self.fields, out.ladder, *_ints(n, *out.numbers), *out.arrays(seed)),
            shared_mem=20 * t,
        )  # fmt: skip
        return out.fetch()


def is_dense(arrays: IsingArrays | None) -> bool:
    """Whether an Ising model has so many edges that its full matrix is the faster way."""
    if arrays is None or not 0 < len(arrays.fields) <= MOST_DENSE:
        return False
    n = len(arrays.fields)
    return len(arrays.edges) >= n * max(4, n // 16)


def dense_batch(models: Sequence[IsingArrays]) -> IsingBatch:
    """Pack Ising models; spins beyond a model's own have no field and no neighbours."""
    n = max(len(m.fields) for m in models)
    couplings = np.zeros((len(models), n, n), np.float32)
    fields = np.zeros((len(models), n), np.float32)
    for b, arrays in enumerate(models):
        i, j = arrays.edges.T
        couplings[b, i, j] = couplings[b, j, i] = arrays.couplings
        fields[b, : len(arrays.fields)] = arrays.fields
    return IsingBatch(cupy().asarray(couplings), cupy().asarray(fields))


@dataclass(frozen=True, slots=True, eq=False)
class PairwiseBatch:
    """Padded arrays of many pairwise models on the device, in the order the kernel takes them."""

    arrays: tuple[Any, ...]  # begin, neighbour, tables, fields, colour_start, sites, cards
    variables: int
    states: int

    def launch(self, schedule: Schedule, seed: int) -> Raw:
        """Temper all models."""
        begin, neighbour, *_, colour_start, _, _ = self.arrays
        count, n, t = len(begin), self.variables, len(schedule.ladder)
        shared = 20 * t + t * n
        if shared > MOST_SHARED:
            raise UnsupportedModelError(
                f"pt-gpu keeps {t} replicas of {n} variables in {MOST_SHARED} bytes of shared "
                f"memory, and they need {shared}; use fewer replicas, or the engine pt"
            )
        out = _Output(count, n, self.states, schedule)
        kernel = _kernel(SPARSE_PAIRWISE, Q=self.states)
        kernel.max_dynamic_shared_size_bytes = max(shared, 48 * 1024)
        sizes = n, neighbour.shape[1], colour_start.shape[1] - 1
        kernel(
            (count * schedule.ensembles,), (32, t),
            (*self.arrays, out.ladder, *_ints(*sizes, *out.numbers), *out.arrays(seed)),
            shared_mem=shared,
        )  # fmt: skip
        return out.fetch()


def pairwise_batch(models: Sequence[FactorGraph]) -> PairwiseBatch:
    """Pack pairwise models without zeros; raises `UnsupportedModelError` for any other."""
    wired = [pairwise(m) for m in models]
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
    packed = begin, neighbour, tables, fields, starts, sites, cards
    return PairwiseBatch(tuple(cupy().asarray(a) for a in packed), n, k)


@dataclass(frozen=True, slots=True, eq=False)
class Pairwise:
    """Adjacency of one pairwise model, and a colouring of it."""

    begin: IntArray  # n+1
    neighbour: IntArray  # 2e, grouped by site
    tables: FloatArray  # 2e k k  axis 1: own state, axis 2: neighbour's
    fields: FloatArray  # n k
    colour_start: IntArray
    sites: IntArray  # n, grouped by colour
    constant: float


def pairwise(model: FactorGraph) -> Pairwise:
    """Adjacency of a pairwise model without zeros, and a greedy colouring."""
    k, n = model.max_states, model.n_variables
    if k > MOST_STATES:
        raise UnsupportedModelError(
            f"pt-gpu takes up to {MOST_STATES} states, this model has {k}; use the engine pt"
        )
    fields = np.where(np.arange(k) < model.cards[:, None], 0.0, PADDING)
    pairs: dict[tuple[int, int], FloatArray] = {}
    constant = 0.0
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if len(scope) > 2 or np.isneginf(table).any():
            raise UnsupportedModelError(
                "pt-gpu takes pairwise models without zeros; use the engine pt for any other"
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
    return Pairwise(begin, neighbour, tables, fields, colour_start, sites, constant)


def _colours(begin: IntArray, neighbour: IntArray) -> IntArray:
    colour = np.full(len(begin) - 1, -1)
    for i in np.argsort(-np.diff(begin), kind="stable"):
        taken = set(colour[neighbour[begin[i] : begin[i + 1]]].tolist())
        colour[i] = next(c for c in range(len(taken) + 1) if c not in taken)
    return colour


class _Output:
    """Arrays on the device that a kernel adds into."""

    def __init__(self, count: int, n: int, k: int, schedule: Schedule) -> None:
        cp = cupy()
        self.count, self.schedule = count, schedule
        chains, t = count * schedule.ensembles, len(schedule.ladder)
        self.ladder = cp.asarray(schedule.ladder, dtype=cp.float32)
        self.sums = cp.zeros((chains, schedule.segments, n, k), cp.float32)
        self.squares = cp.zeros((chains, 2, n, k), cp.float32)
        self.moments = cp.zeros((chains, t, 2), cp.float64)
        self.accepted = cp.zeros((chains, t - 1), cp.float32)
        self.trips = cp.zeros(chains, cp.float32)

    @property
    def numbers(self) -> tuple[int, ...]:
        s = self.schedule
        return len(s.ladder), s.ensembles, s.burn, s.segment, s.segments

    def arrays(self, seed: int) -> tuple[Any, ...]:
        return (
            np.uint64(seed), self.sums, self.squares, self.moments, self.accepted, self.trips,
        )  # fmt: skip

    def fetch(self) -> Raw:
        s = self.schedule

        def split(a: Any) -> FloatArray:
            host = np.asarray(a.get(), dtype=np.float64)
            return host.reshape(self.count, s.ensembles, *host.shape[1:])

        moments = split(self.moments) / s.counted
        tried = max(1, s.counted // 2)  # each pair of levels is tried every second sweep
        return Raw(
            split(self.sums) / s.segment,
            split(self.squares) / (s.counted / 2),
            moments[..., 0],
            moments[..., 1],
            np.minimum(split(self.accepted) / tried, 1.0),
            split(self.trips),
            s.ladder,
            s.burn + s.counted,
        )


def _ints(*numbers: int) -> tuple[np.int32, ...]:
    return tuple(np.int32(x) for x in numbers)


@cache
def _kernel(source: str, **constants: int) -> Any:
    options = ("-std=c++17", *(f"-D{name}={value}" for name, value in constants.items()))
    return cupy().RawKernel(source, "temper", options=options)
