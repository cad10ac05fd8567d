"""Numbers that say how well stated uncertainty fits, against their definitions and scikit-learn."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.calibration import calibration_curve

from icgi.conformal.metrics import (
    calibration_error,
    class_bins,
    rank_correlation,
    set_coverage,
    set_size,
    top_bins,
    within_bands,
    worst_group,
)

RNG = np.random.default_rng


def test_true_marginals_have_no_calibration_error_and_neither_has_a_constant_answer() -> None:
    truth = RNG(0).dirichlet(np.ones(3), 500)
    states = np.ones_like(truth, bool)
    assert calibration_error(top_bins(truth, truth)) == 0.0
    assert calibration_error(class_bins(truth, truth, states)) == 0.0
    symmetric = np.concatenate([truth, truth[:, [1, 2, 0]], truth[:, [2, 0, 1]]])
    constant = np.full_like(symmetric, 1 / 3)
    error = calibration_error(class_bins(constant, symmetric, np.ones_like(symmetric, bool)))
    assert error == pytest.approx(0.0, abs=1e-12)  # though it is wrong everywhere
    assert np.abs(constant - symmetric).mean() > 0.1


def test_bins_are_those_of_scikit_learn() -> None:
    rng = RNG(1)
    confidence, labels = rng.random(400), rng.integers(0, 2, 400)
    predicted = np.stack([1 - confidence, confidence], 1)
    truth = np.stack([1 - labels, labels], 1).astype(float)
    only_one = np.zeros_like(predicted, bool)
    only_one[:, 1] = True
    sums = class_bins(predicted, truth, only_one)
    filled = sums[:, 0] > 0
    frequency, mean = calibration_curve(labels, confidence, n_bins=20)
    assert_allclose(sums[filled, 2] / sums[filled, 0], frequency)
    assert_allclose(sums[filled, 1] / sums[filled, 0], mean)
    expected = (sums[filled, 0] * np.abs(frequency - mean)).sum() / 400
    assert_allclose(calibration_error(sums), expected)


def test_sums_of_models_add_up() -> None:
    rng = RNG(2)
    a, b = rng.dirichlet(np.ones(2), (2, 50))
    truth = rng.dirichlet(np.ones(2), 50)
    both = top_bins(np.concatenate([a, b]), np.concatenate([truth, truth]))
    assert_allclose(top_bins(a, truth) + top_bins(b, truth), both)


def test_a_confident_answer_that_is_a_coin_toss_is_off_by_its_excess() -> None:
    predicted = np.tile([0.9, 0.1], (10, 1))
    truth = np.tile([0.5, 0.5], (10, 1))
    assert calibration_error(top_bins(predicted, truth)) == pytest.approx(0.4)


def test_coverage_counts_true_mass_and_bands_all_states() -> None:
    truth = np.array([[0.7, 0.3], [0.2, 0.8]])
    sets = np.array([[True, False], [True, True]])
    assert set_coverage(sets, truth) == pytest.approx((0.7 + 1.0) / 2)
    assert set_size(sets) == 1.5
    assert within_bands(truth - 0.1, truth + np.array([[0.1], [-0.05]]), truth) == 0.5
    assert worst_group({"a": [0.9, 1.0], "b": [0.5, 0.6], "none": []}) == ("b", 0.55)


def test_rank_correlation_is_spearmans() -> None:
    rng = RNG(3)
    a = rng.integers(0, 9, 60).astype(float)  # with ties
    b = a + rng.normal(size=60) * 3
    assert_allclose(rank_correlation(a, b), stats.spearmanr(a, b).statistic)
    assert rank_correlation(np.ones(5), np.arange(5.0)) == 0.0
    assert rank_correlation(np.ones(1), np.ones(1)) == 0.0
