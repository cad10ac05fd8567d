"""The shared loop: budgets are kept, chunks are invisible."""

import math
from time import perf_counter, sleep

import pytest

from icgi.approx.fixed_point import PATIENCE, check_settings, deadline, fixed_point
from icgi.errors import IcgiError
from icgi.inference import Budget, Status


class Halving:
    """Residual 2^−sweeps; stops by itself at its tolerance, as compiled sweeps do."""

    def __init__(self, tolerance: float, seconds: float = 0.0) -> None:
        self.sweeps, self.calls, self.tolerance, self.seconds = 0, 0, tolerance, seconds

    def __call__(self, count: int) -> tuple[int, float]:
        self.calls += 1
        made = 0
        while made < count:
            made += 1
            self.sweeps += 1
            sleep(self.seconds)
            if 2.0**-self.sweeps <= self.tolerance:
                break
        return made, 2.0**-self.sweeps


def test_stops_at_the_tolerance() -> None:
    outcome = fixed_point(Halving(1e-3), 1000, math.inf, 1e-3)
    assert outcome.converged
    assert outcome.status is Status.CONVERGED
    assert outcome.sweeps == 10
    assert outcome.residual == 2.0**-10


def test_sweeps_are_not_exceeded() -> None:
    step = Halving(0.0)
    outcome = fixed_point(step, 37, math.inf, 0.0)
    assert (outcome.sweeps, step.sweeps, outcome.converged) == (37, 37, False)
    assert outcome.status is Status.BUDGET_SPENT


@pytest.mark.parametrize(("sweeps", "until"), [(0, math.inf), (1000, -1.0)])
def test_nothing_to_spend_means_no_sweep(sweeps: int, until: float) -> None:
    step = Halving(0.0)
    outcome = fixed_point(step, sweeps, until, 1e-6)
    assert (step.calls, outcome.sweeps, outcome.residual) == (0, 0, math.inf)
    assert not outcome.converged


def test_fast_sweeps_take_few_calls() -> None:
    step = Halving(0.0)
    fixed_point(step, 10_000, math.inf, 0.0)
    assert step.calls <= 12


def test_seconds_are_kept() -> None:
    begin = perf_counter()
    outcome = fixed_point(Halving(0.0, seconds=0.005), 10**6, deadline(Budget(seconds=0.2)), 0.0)
    assert 0.15 < perf_counter() - begin < 0.2 + 2 * PATIENCE
    assert not outcome.converged
    assert outcome.sweeps > 5


@pytest.mark.parametrize("settings", [(1.0,), (-0.1,), (0.0, -1), (0.0, 0, False)])
def test_impossible_settings_are_refused(settings: tuple[float, int, bool]) -> None:
    with pytest.raises(IcgiError, match=r"give"):
        check_settings(*settings)
