import numpy as np
import pytest
from numpy.testing import assert_allclose

from icgi.sampling.ladder import barrier, first_ladder, respaced, wanted_levels


@pytest.mark.parametrize("levels", [2, 3, 8])
@pytest.mark.parametrize("spread", [0.0, 0.5, 1000.0])
def test_first_ladder_runs_from_zero_to_one(levels: int, spread: float) -> None:
    made = first_ladder(levels, 0.0, spread)
    assert len(made) == levels
    assert made[0] == 0
    assert made[-1] == 1
    assert (np.diff(made) >= 0).all()


def test_first_ladder_starts_where_asked() -> None:
    assert_allclose(first_ladder(3, 0.25, 10.0), [0.25, 0.5, 1.0])


def test_respaced_levels_share_the_barrier() -> None:
    """With a rejection rate that grows as the distance in λ², the new levels are even in λ²."""
    ladder = np.linspace(0, 1, 33)
    rejection = np.diff(ladder**2)
    made = respaced(ladder, rejection, 9)
    assert_allclose(made**2, np.linspace(0, 1, 9), atol=0.01)


def test_respacing_a_good_ladder_changes_nothing() -> None:
    ladder = np.array([0.0, 0.1, 0.3, 1.0])
    assert_allclose(respaced(ladder, np.full(3, 0.4), 4), ladder, atol=1e-9)


def test_respacing_survives_ladders_without_rejections() -> None:
    made = respaced(np.array([0.0, 0.5, 1.0]), np.zeros(2), 5)
    assert made[0] == 0
    assert made[-1] == 1
    assert (np.diff(made) > 0).all()


def test_number_of_levels_follows_the_barrier() -> None:
    assert barrier(np.full(10, 0.3)) == pytest.approx(3.0)
    assert wanted_levels(np.full(10, 0.3), 64) == 8
    assert wanted_levels(np.full(7, 0.95), 64) == 16  # saturated: doubled
    assert wanted_levels(np.full(63, 0.95), 64) == 64
    assert wanted_levels(np.zeros(7), 64) == 3
