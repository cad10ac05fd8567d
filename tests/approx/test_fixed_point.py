"""The shared loop: budgets are kept, chunks are invisible."""

import math
from time import perf_counter

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from icgi.approx.fixed_point import (
    _blocks,
    check_settings,
    deadline,
    fixed_point,
    fixed_points,
)
from icgi.errors import IcgiError
from icgi.inference import Budget, Status


class Halving:
    """Residual 2^−sweeps; stops by itself at its tolerance, as compiled sweeps do."""

    def __init__(self, tolerance: float) -> None:
        self.sweeps, self.calls, self.tolerance = 0, 0, tolerance

    def __call__(self, count: int) -> tuple[int, float]:
        self.calls += 1
        made = 0
        while made < count:
            made += 1
            self.sweeps += 1
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


def test_seconds_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that sweeps of five milliseconds move on."""
    clock = [0.0]
    monkeypatch.setattr("icgi.approx.fixed_point.perf_counter", lambda: clock[0])

    def advance(count: int) -> tuple[int, float]:
        clock[0] += 0.005 * count
        return count, 1.0

    outcome = fixed_point(advance, 10**6, deadline(Budget(seconds=0.2)), 0.0)
    assert 0.19 < clock[0] <= 0.205
    assert not outcome.converged
    assert outcome.sweeps == pytest.approx(clock[0] / 0.005)


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

        def advance(count: int, first: int, last: int) -> None:
            for m in range(first, last):
                for _ in range(count):
                    if residual[m] <= 1e-6 or sweeps[m] >= limit:
                        break
                    residual[m] /= 2
                    sweeps[m] += 1

        work, until = np.arange(size) % 7, perf_counter() + seconds
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
