"""The loop that every iterative engine shares: it alone knows budgets and tolerance."""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import TypeAlias

import numpy as np

from icgi.errors import IcgiError
from icgi.inference import Budget, Status
from icgi.model.graph import FloatArray, IntArray

Advance: TypeAlias = Callable[[int], tuple[int, float]]
"""Makes up to so many sweeps, fewer if it converges; returns how many, and the residual."""

BLOCKS = 16  # of a batch for each thread: the slowest block is then a small part of the work
PATIENCE = 0.1  # seconds in one compiled call: deadlines and the keyboard are heard in between


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an iteration ended."""

    sweeps: int
    residual: float
    converged: bool

    @property
    def status(self) -> Status:
        """Converged, or out of budget."""
        return Status.CONVERGED if self.converged else Status.BUDGET_SPENT


def deadline(budget: Budget) -> float:
    """Moment at which a budget that begins now is spent, on the clock of `perf_counter`."""
    return perf_counter() + budget.seconds


def fixed_point(advance: Advance, sweeps: int, until: float, tolerance: float) -> Outcome:
    """Sweep until the residual is at most the tolerance, or `sweeps` or the time is spent.

    Compiled sweeps run in chunks, as many as fit in a fraction of a second and in half of the
    time that is left; how they are cut has no influence on the result.
    """
    done, residual, chunk = 0, math.inf, 1
    while done < sweeps and residual > tolerance:
        begin = perf_counter()
        if begin >= until:
            break
        made, residual = advance(min(chunk, sweeps - done))
        done += made
        if made == 0:
            break
        end = perf_counter()
        fitting = min(PATIENCE, (until - end) / 2) * made / max(end - begin, 1e-9)
        chunk = max(1, min(int(max(fitting, 0.0)), 8 * chunk))
    return Outcome(done, residual, residual <= tolerance)


def fixed_points(
    advance: Callable[[int, int, int], None],
    work: IntArray,
    sweeps: IntArray,
    residual: FloatArray,
    limit: IntArray,
    until: float,
    tolerance: float,
    threads: int | None = None,
) -> None:
    """`fixed_point` of many models; threads take blocks of models of about the same work.

    `advance(count, first, last)` makes up to so many sweeps of the models first ≤ m < last, fewer
    of those that converge or come to their limit, and keeps `sweeps` and `residual`. Each block may
    use its share of the time that is left at the beginning.
    """
    size = len(limit)
    workers = min(threads or os.cpu_count() or 1, size)
    share = (until - perf_counter()) / size

    def run(block: tuple[int, int]) -> None:
        here = slice(*block)

        def some(count: int) -> tuple[int, float]:
            advance(count, *block)
            moving = (residual[here] > tolerance) & (sweeps[here] < limit[here])
            return count, float(residual[here][moving].max(initial=0.0))

        end = perf_counter() + share * (block[1] - block[0])
        fixed_point(some, int(limit[here].max()), end, tolerance)

    if workers == 1:
        run((0, size))
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, _blocks(work, BLOCKS * workers)))


def _blocks(work: IntArray, count: int) -> list[tuple[int, int]]:
    """First model of each block and the one after its last; `work` is one number per model."""
    done = np.concatenate([np.zeros(1, np.int64), np.cumsum(work + 1)])
    cuts = np.searchsorted(done, np.linspace(0, done[-1], min(count, len(work)) + 1)[1:-1])
    ends = np.unique(np.concatenate([[0], cuts, [len(work)]])).tolist()
    return list(pairwise(ends))


def check_settings(damping: float, repeats: int = 0, schedule: bool = True) -> None:
    """Refuse settings that no run could honour."""
    if not 0 <= damping < 1:
        raise IcgiError(f"damping={damping}: give a share of at least 0 and below 1")
    if repeats < 0:
        raise IcgiError(f"{repeats} restarts or steps: give 0 or more")
    if not schedule:
        raise IcgiError("unknown schedule: give sequential, flooding or residual")
