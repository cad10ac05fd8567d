"""The shared loop: budgets are kept, chunks are invisible."""

import math
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from icgi.approx.fixed_point import Stop, _blocks, check_settings, fixed_point, fixed_points
from icgi.clock import Deadline, request_stop, stoppable
from icgi.errors import IcgiError
from icgi.inference import Status

NEVER = Deadline()


class Halving:
    """Residual 2^−sweeps; stops by itself at its tolerance, as compiled sweeps do."""

    def __init__(self, tolerance: float) -> None:
        self.sweeps, self.calls, self.tolerance = 0, 0, tolerance

    def __call__(self, count: int, stop: Stop) -> tuple[int, float]:
        self.calls += 1
        made = 0
        while made < count:
            made += 1
            self.sweeps += 1
            if 2.0**-self.sweeps <= self.tolerance:
                break
        return made, 2.0**-self.sweeps


def test_stops_at_the_tolerance() -> None:
    outcome = fixed_point(Halving(1e-3), 1000, NEVER, 1e-3)
    assert outcome.at_rest
    assert outcome.status is Status.AT_REST
    assert outcome.sweeps == 10
    assert outcome.residual == 2.0**-10


def test_sweeps_are_not_exceeded() -> None:
    step = Halving(0.0)
    outcome = fixed_point(step, 37, NEVER, 0.0)
    assert (outcome.sweeps, step.sweeps, outcome.at_rest) == (37, 37, False)
    assert outcome.status is Status.BUDGET_SPENT


@pytest.mark.parametrize(("sweeps", "until"), [(0, NEVER), (1000, Deadline(0.0))])
def test_nothing_to_spend_means_no_sweep(sweeps: int, until: Deadline) -> None:
    step = Halving(0.0)
    outcome = fixed_point(step, sweeps, until, 1e-6)
    assert (step.calls, outcome.sweeps, outcome.residual) == (0, 0, math.inf)
    assert not outcome.at_rest


def test_fast_sweeps_take_few_calls() -> None:
    step = Halving(0.0)
    fixed_point(step, 10_000, NEVER, 0.0)
    assert step.calls <= 12


def test_a_sweep_that_hears_the_stop_is_not_counted() -> None:
    """One endless sweep: only the flag ends it, and the residual is that of the sweep before."""
    calls = []

    def advance(count: int, stop: Stop) -> tuple[int, float]:
        calls.append(count)
        if len(calls) == 1:
            return 1, 0.5
        while not stop[0]:
            time.sleep(0.001)
        return 0, math.inf

    outcome = fixed_point(advance, 10**6, Deadline.after(0.05), 0.0)
    assert (len(calls), outcome.sweeps, outcome.residual) == (2, 1, 0.5)
    assert outcome.status is Status.BUDGET_SPENT


def test_a_request_to_stop_ends_an_iteration_without_a_deadline() -> None:
    def advance(count: int, stop: Stop) -> tuple[int, float]:
        request_stop()
        assert stop[0]
        return count, 1.0

    with stoppable():
        assert fixed_point(advance, 10**6, NEVER, 0.0).sweeps == 1


@pytest.mark.parametrize("settings", [(1.0,), (-0.1,), (0.0, -1), (0.0, 0, False)])
def test_impossible_settings_are_refused(settings: tuple[float, int, bool]) -> None:
    with pytest.raises(IcgiError, match=r"give"):
        check_settings(*settings)


class TestMany:
    """Models that halve their residual with every sweep, from different beginnings."""

    def run(self, size: int, threads: int | None, limit: int, seconds: float = math.inf) -> tuple:
        residual = np.geomspace(1e-3, 1e3, size)
        start, sweeps = residual.copy(), np.zeros(size, np.int64)
        limits = np.full(size, limit)

        def advance(count: int, first: int, last: int, stop: Stop) -> None:
            for m in range(first, last):
                for _ in range(count):
                    if residual[m] <= 1e-6 or sweeps[m] >= limit:
                        break
                    residual[m] /= 2
                    sweeps[m] += 1

        work, until = np.arange(size) % 7, Deadline.after(seconds)
        fixed_points(advance, work, sweeps, residual, limits, until, 1e-6, threads)
        return start, residual, sweeps

    @pytest.mark.parametrize("threads", [None, 1, 2, 5])
    @pytest.mark.parametrize("size", [1, 2, 3, 50, 333])
    def test_each_stops_when_it_is_at_rest(self, size: int, threads: int | None) -> None:
        start, residual, sweeps = self.run(size, threads, 1000)
        assert_array_equal(sweeps, np.ceil(np.log2(start / 1e-6)))
        assert (residual <= 1e-6).all()

    @pytest.mark.parametrize("threads", [1, 3])
    def test_limits_are_kept(self, threads: int) -> None:
        _, _, sweeps = self.run(100, threads, 12)
        assert sweeps.max() == 12
        assert sweeps.min() == 10

    def test_no_time_no_sweeps(self) -> None:
        assert not self.run(20, 2, 1000, seconds=-1.0)[2].any()

    @pytest.mark.parametrize("count", [1, 2, 5, 40, 1000])
    def test_blocks_leave_nothing_out(self, count: int) -> None:
        work = np.random.default_rng(0).integers(0, 100, 57)
        blocks = _blocks(work, count)
        assert [m for first, last in blocks for m in range(first, last)] == list(range(57))
        assert len(blocks) <= count
        assert all(last > first for first, last in blocks)
        heaviest = max(work[first:last].sum() + last - first for first, last in blocks)
        assert heaviest <= (work.sum() + 57) / min(count, 57) + 101
