"""A device that is none: the CUDA kernels' arithmetic in plain loops, on the same arguments.

What surrounds the kernels (packing, ladders, errors, log Z, budgets) can so be tested anywhere.
"""

# ruff: noqa: NPY002 (in compiled loops these are numba's own generator)
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np

from icgi.sampling.gpu_kernels import DENSE_ISING


class Array(np.ndarray):
    def get(self) -> np.ndarray:
        return np.asarray(self)


class Kernel:
    """Stands for a compiled kernel; called with grid, block and arguments."""

    def __init__(self, source: str, **constants: int) -> None:
        self.run = dense if source is DENSE_ISING else sparse
        self.constants = constants
        self.max_dynamic_shared_size_bytes = 0

    def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int = 0) -> None:
        plain = [np.asarray(a) if isinstance(a, np.ndarray) else int(a) for a in arguments]
        assert block[0] == 32
        assert block[1] == len(plain[2 if self.run is dense else 7])
        assert self.run is dense or shared_mem <= self.max_dynamic_shared_size_bytes
        self.run(*plain)


def module(devices: int = 1) -> Any:
    def array(a: Any, dtype: Any = None) -> Array:
        return np.array(a, dtype=dtype).view(Array)

    return SimpleNamespace(
        asarray=array,
        zeros=lambda shape, dtype: array(np.zeros(shape, dtype)),
        float32=np.float32,
        float64=np.float64,
        cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: devices)),
    )


@numba.njit(cache=True)
def exchange(at, energy, away, ladder, sweep, counting, accepted, trips):
    r = len(ladder)
    for k in range(sweep % 2, r - 1, 2):
        a, b = at[k], at[k + 1]
        gain = (ladder[k] - ladder[k + 1]) * (energy[a] - energy[b])
        if gain >= 0 or np.random.random() < np.exp(gain):
            at[k], at[k + 1] = b, a
            accepted[k] += counting
    away[at[0]] = 1
    if away[at[r - 1]]:
        away[at[r - 1]] = 0
        trips[0] += counting


@numba.njit(cache=True)
def dense(
    J, h, ladder, n, r, c, burn, segment, segments, seed, sums, squares, moments, accepted, trips
):
    np.random.seed(seed % 2**32)
    for chain in range(len(sums)):
        j, field = J[chain // c], h[chain // c]
        s = np.where(np.random.random((r, n)) < 0.5, 1.0, -1.0)
        at, away, energy = np.arange(r), np.zeros(r), np.zeros(r)
        for sweep in range(burn + segment * segments):
            counting = sweep >= burn
            part = (sweep - burn) // segment if counting else 0
            for level in range(r):
                a = at[level]
                for i in range(n):
                    pull = field[i] + (j[i] * s[a]).sum()
                    p = 1.0 / (1.0 + np.exp(-2.0 * ladder[level] * pull))
                    s[a, i] = 1.0 if np.random.random() < p else -1.0
                energy[a] = 0.0
                for i in range(n):
                    pull = field[i] + (j[i] * s[a]).sum()
                    energy[a] -= 0.5 * s[a, i] * (pull + field[i])
                    if counting and level == r - 1:
                        p = 1.0 / (1.0 + np.exp(-2.0 * pull))
                        sums[chain, part, i, 0] += p
                        squares[chain, int(2 * part >= segments), i, 0] += p * p
                if counting:
                    moments[chain, level, 0] += energy[a]
                    moments[chain, level, 1] += energy[a] ** 2
            exchange(
                at, energy, away, ladder, sweep, counting, accepted[chain], trips[chain : chain + 1]
            )


@numba.njit(cache=True)
def sparse(
    begin, neighbour, tables, h, colour_start, sites, cards, ladder, n, m, colours, r, c, burn,
    segment, segments, seed, sums, squares, moments, accepted, trips,
):  # fmt: skip
    np.random.seed(seed % 2**32)
    for chain in range(len(sums)):
        b = chain // c
        x = np.zeros((r, n), np.int64)
        for a in range(r):
            for i in range(n):
                x[a, i] = np.random.randint(cards[b, i])
        at, away, energy = np.arange(r), np.zeros(r), np.zeros(r)
        for sweep in range(burn + segment * segments):
            counting = sweep >= burn
            part = (sweep - burn) // segment if counting else 0
            for level in range(r):
                a = at[level]
                for colour in range(colours):
                    for where in range(colour_start[b, colour], colour_start[b, colour + 1]):
                        i = sites[b, where]
                        w = h[b, i].astype(np.float64)
                        for e in range(begin[b, i], begin[b, i + 1]):
                            w += tables[b, e, :, x[a, neighbour[b, e]]]
                        p = np.exp(ladder[level] * (w - w.max()))
                        p /= p.sum()
                        left, drawn = np.random.random() - p[0], 0
                        while left > 0 and drawn < len(p) - 1:
                            drawn += 1
                            left -= p[drawn]
                        x[a, i] = drawn
                        if counting and level == r - 1:
                            sums[chain, part, i] += p
                            squares[chain, int(2 * part >= segments), i] += p * p
                energy[a] = 0.0
                for i in range(n):
                    energy[a] -= h[b, i, x[a, i]]
                    for e in range(begin[b, i], begin[b, i + 1]):
                        energy[a] -= 0.5 * tables[b, e, x[a, i], x[a, neighbour[b, e]]]
                if counting:
                    moments[chain, level, 0] += energy[a]
                    moments[chain, level, 1] += energy[a] ** 2
            exchange(
                at, energy, away, ladder, sweep, counting, accepted[chain], trips[chain : chain + 1]
            )
