"""The loop that every iterative engine shares: it alone knows budgets and tolerance."""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from icgi.clock import Deadline, now
from icgi.errors import IcgiError
from icgi.inference import Status
from icgi.model.graph import FloatArray, IntArray

Stop: TypeAlias = NDArray[np.uint8]
"""One number that becomes 1 when the time is over; compiled loops look at it."""

Advance: TypeAlias = Callable[[int, Stop], tuple[int, float]]
"""Makes up to so many sweeps, fewer if it comes to rest or is stopped; how many, and residual."""

BLOCKS = 16  # of a batch for each thread: the slowest block is then a small part of the work
PATIENCE = 0.1  # seconds in one compiled call: the keyboard is looked at in between
GRACE = 0.2  # seconds after the deadline in which a run that came to rest may still be evaluated


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an iteration ended."""

    sweeps: int
    residual: float
    at_rest: bool

    @property
    def status(self) -> Status:
        """At rest, or out of budget."""
        return Status.AT_REST if self.at_rest else Status.BUDGET_SPENT


def fixed_point(advance: Advance, sweeps: int, deadline: Deadline, tolerance: float) -> Outcome:
    """Sweep until the residual is at most the tolerance, or `sweeps` or the time is spent.

    Compiled sweeps run in chunks, as many as fit in a fraction of a second; how they are cut has no
    influence on the result. A sweep that the deadline interrupts is not counted.
    """
    done, residual, chunk = 0, math.inf, 1
    with deadline.flag() as stop:
        while done < sweeps and residual > tolerance and not deadline.passed:
            begin = now()
            made, changed = advance(min(chunk, sweeps - done), stop)
            if made == 0:
                break
            done, residual = done + made, changed
            fitting = PATIENCE * made / max(now() - begin, 1e-9)
            chunk = max(1, min(int(fitting), 8 * chunk))
    return Outcome(done, residual, residual <= tolerance)


def fixed_points(
    advance: Callable[[int, int, int, Stop], None],
    work: IntArray,
    sweeps: IntArray,
    residual: FloatArray,
    limit: IntArray,
    deadline: Deadline,
    tolerance: float,
    threads: int | None = None,
) -> None:
    """`fixed_point` of many models; threads take blocks of models of about the same work.

    `advance(count, first, last, stop)` makes up to so many sweeps of the models first ≤ m < last,
    fewer of those that come to rest or to their limit, and keeps `sweeps` and `residual`. Each
    block may use its share of the time that is left at the beginning.
    """
    size = len(limit)
    workers = min(threads or os.cpu_count() or 1, size)
    share = deadline.left / size

    def run(block: tuple[int, int]) -> None:
        here = slice(*block)

        def some(count: int, stop: Stop) -> tuple[int, float]:
            advance(count, *block, stop)
            moving = (residual[here] > tolerance) & (sweeps[here] < limit[here])
            return count, float(residual[here][moving].max(initial=0.0))

        end = deadline.within(share * (block[1] - block[0]))
        fixed_point(some, int(limit[here].max()), end, tolerance)

    if workers == 1:
        run((0, size))
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, _blocks(work, BLOCKS * workers)))


def after(deadline: Deadline, seconds: float = GRACE) -> Deadline:
    """The moment so many seconds after a deadline, or after now if it has passed before."""
    return Deadline(max(deadline.at, now()) + seconds)


def _blocks(work: IntArray, count: int) -> list[tuple[int, int]]:
    """First model of each block and the one after its last; `work` is one number per model."""
    done = np.concatenate([np.zeros(1, np.int64), np.cumsum(work + 1)])
    cuts = np.searchsorted(done, np.linspace(0, done[-1], min(count, len(work)) + 1)[1:-1])
    ends = np.unique(np.concatenate([[0], cuts, [len(work)]])).tolist()
    return list(pairwise(ends))


def check_settings(damping: float, repeats: int | None = 0, schedule: bool = True) -> None:
    """Refuse settings that no run could honour."""
    if not 0 <= damping < 1:
        raise IcgiError(f"damping={damping}: give a share of at least 0 and below 1")
    if repeats is not None and repeats < 0:
        raise IcgiError(f"{repeats} restarts or steps: give 0 or more")
    if not schedule:
        raise IcgiError("unknown schedule: give sequential, flooding or residual")
