"""The domain classifier against scikit-learn, and against a ratio of densities that is known."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from icgi.calibration.classifier import auc, logistic, probability, told_apart
from icgi.calibration.features import NAMES, scaled

RNG = np.random.default_rng


def test_the_fit_is_that_of_scikit_learn() -> None:
    rng = RNG(0)
    x = rng.normal(size=(300, 4))
    labels = x @ [1.0, -2.0, 0.5, 0.0] + rng.normal(size=300) > 0
    found = logistic(x, labels)
    weight = np.where(labels, 150 / labels.sum(), 150 / (~labels).sum())
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(x, labels, weight)
    assert_allclose(found[:-1], theirs.coef_[0], rtol=1e-4, atol=1e-5)
    assert_allclose(found[-1], theirs.intercept_[0], rtol=1e-3, atol=1e-4)
    assert_allclose(auc(probability(x, found), labels), roc_auc_score(labels, x @ found[:-1]))


def test_separable_kinds_do_not_diverge() -> None:
    x = np.concatenate([np.zeros((20, 2)), np.ones((20, 2))])
    assert np.isfinite(logistic(x, np.arange(40) >= 20)).all()
    assert auc(np.zeros(4), [True, False, True, False]) == 0.5
    assert auc(np.zeros(2), [True, True]) == 0.5


def features(rng: np.random.Generator, count: int, shift: float) -> np.ndarray:
    """Logarithms of features are normal; the first is shifted."""
    logs = rng.normal(size=(count, len(NAMES)))
    logs[:, 0] += shift
    return np.exp(logs) + 10.0


def test_ratios_resemble_the_true_ones_and_nothing_is_seen_where_nothing_is() -> None:
    rng = RNG(1)
    calibration, target = features(rng, 800, 0.0), features(rng, 800, 1.0)
    found = told_apart(calibration, target)
    assert 0.6 < found.auc < 0.9
    x = np.log(calibration[:, 0] - 10.0)
    true = np.exp(x - 0.5)
    assert np.corrcoef(np.log(found.odds), np.log(true))[0, 1] > 0.8
    same = told_apart(features(rng, 800, 0.0), features(rng, 800, 0.0))
    assert same.auc == pytest.approx(0.5, abs=0.07)
    new = features(rng, 50, 1.0)
    assert found.ratio(new).shape == (50,)
    assert scaled(new).shape == new.shape
