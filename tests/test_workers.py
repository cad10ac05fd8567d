"""One model over several workers: the pieces decide the answer, the workers do not."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import icgi
from icgi.data.families import FAMILIES
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Budget, Status

GRID = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=8)


def test_the_same_pieces_make_the_same_answer_wherever_they_are_worked_on() -> None:
    budget = Budget(iterations=60)
    found = [
        icgi.marginals(GRID, {0: 1}, engine="pt", budget=budget, seed=3, pieces=3, **where)
        for where in ({"cluster": "serial"}, {"workers": 1}, {"workers": 2})
    ]
    for each in found[1:]:
        assert_array_equal(each.probs, found[0].probs)
        assert_array_equal(each.std_error, found[0].std_error)
        assert each.log_z == found[0].log_z
    assert found[0].stats["pieces"] == 3
    assert "3 independent runs" in found[0].marginals.note
    alone = icgi.marginals(GRID, {0: 1}, engine="pt", budget=budget, seed=3)
    assert alone.std_error is not None
    assert np.abs(alone.probs - found[0].probs).max() < 8 * alone.std_error.max()


def test_exact_by_conditioning_is_exact() -> None:
    found = icgi.marginals(GRID, {0: 1}, engine="jt", cluster="serial", pieces=4)
    truth = icgi.marginals(GRID, {0: 1}, engine="jt")
    assert found.status is Status.EXACT
    np.testing.assert_allclose(found.probs, truth.probs, atol=1e-12)
    np.testing.assert_allclose(found.log_z, truth.log_z, atol=1e-10)


def test_a_piece_that_does_not_fit_is_a_refusal() -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=14)
    budget = Budget(table_bytes=200_000)
    with pytest.raises(BudgetError, match="piece"):
        icgi.marginals(model, engine="jt", cluster="serial", pieces=2, budget=budget)


def test_work_that_is_one_piece_is_refused_before_workers_start() -> None:
    with pytest.raises(UnsupportedModelError, match="independent runs"):
        icgi.marginals(GRID, engine="lbp", workers=2)
