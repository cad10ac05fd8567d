"""The loop that every iterative engine shares: it alone knows budgets and tolerance."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias

from icgi.errors import IcgiError
from icgi.inference import Budget, Status

Advance: TypeAlias = Callable[[int], tuple[int, float]]
"""Makes up to so many sweeps, fewer if it converges; returns how many, and the residual."""

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


def check_settings(damping: float, repeats: int = 0, schedule: bool = True) -> None:
    """Refuse settings that no run could honour."""
    if not 0 <= damping < 1:
        raise IcgiError(f"damping={damping}: give a share of at least 0 and below 1")
    if repeats < 0:
        raise IcgiError(f"{repeats} restarts or steps: give 0 or more")
    if not schedule:
        raise IcgiError("unknown schedule: give sequential, flooding or residual")
