"""Laws of conformal prediction: coverage follows its exact distribution, also under shift."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from icgi.conformal.bands import band_factor, band_score, bands
from icgi.conformal.quantiles import (
    Atoms,
    hierarchical_quantile,
    largest_of_most,
    weighted_quantile,
)
from icgi.conformal.scores import SCORES, sets_of_states, state_atoms
from icgi.conformal.shift import density_ratio, loss_of_coverage, support
from icgi.errors import IcgiError

RNG = np.random.default_rng


def test_the_quantile_is_the_order_statistic_of_split_conformal() -> None:
    scores = np.arange(1.0, 10.0)  # nine
    assert weighted_quantile(scores, np.ones(9), 1.0, 0.1) == 9.0
    assert math.isinf(weighted_quantile(scores, np.ones(9), 1.0, 0.09))
    assert weighted_quantile(scores[::-1].copy(), np.ones(9), 1.0, 0.5) == 5.0


def test_weights_stay_with_their_scores() -> None:
    scores, weights = np.array([3.0, 1.0, 2.0]), np.array([0.0, 5.0, 5.0])
    assert weighted_quantile(scores, weights, 0.0, 0.4) == 2.0
    assert weighted_quantile(scores, weights, 0.0, 0.5) == 1.0


def test_the_weight_of_the_test_point_is_in_the_denominator() -> None:
    scores = np.linspace(0, 1, 100)
    small = weighted_quantile(scores, np.ones(100), 1.0, 0.1)
    large = weighted_quantile(scores, np.ones(100), 9.0, 0.1)
    assert large > small
    assert math.isinf(weighted_quantile(scores, np.ones(100), 20.0, 0.1))


@pytest.mark.parametrize(("count", "alpha"), [(60, 0.1), (99, 0.05), (40, 0.2)])
def test_coverage_given_the_calibration_set_follows_the_beta_law(count: int, alpha: float) -> None:
    rng = RNG(0)
    below = math.floor(alpha * (count + 1))
    law = stats.beta(count + 1 - below, below)
    found = [
        stats.norm.cdf(weighted_quantile(rng.normal(size=count), np.ones(count), 1.0, alpha))
        for _ in range(2000)
    ]
    assert stats.kstest(found, law.cdf).pvalue > 1e-3


def test_under_a_known_shift_true_weights_restore_coverage() -> None:
    rng, alpha, hits, plain = RNG(1), 0.1, [], []
    for _ in range(2000):
        x = rng.normal(size=200)
        scores = np.abs(x + rng.normal(size=200))  # harder where |x| is large
        weights = np.exp(0.8 * x - 0.32)  # density ratio of N(0.8, 1) to N(0, 1)
        new = rng.normal(0.8)
        score = abs(new + rng.normal())
        hits.append(score <= weighted_quantile(scores, weights, np.exp(0.8 * new - 0.32), alpha))
        plain.append(score <= weighted_quantile(scores, np.ones(200), 1.0, alpha))
    error = 4 * math.sqrt(alpha * (1 - alpha) / len(hits))
    assert np.mean(hits) >= 1 - alpha - error
    assert np.mean(plain) < 1 - alpha - error  # without weights the promise is broken


@pytest.mark.parametrize("guess", [-0.4, 0.0, 0.4])
def test_estimated_weights_lose_no_more_than_the_bound(guess: float) -> None:
    """Ratios exp(guess · x) in place of exp(0.8 · x): less than promised, within δ of it."""
    rng, alpha, hits = RNG(2), 0.1, []
    x_all = rng.normal(size=200_000)
    estimated, true = np.exp(guess * x_all), np.exp(0.8 * x_all)
    delta = loss_of_coverage(estimated, true)
    for _ in range(2000):
        x = rng.normal(size=200)
        scores = x + rng.normal(size=200)  # larger where the true weights are
        new = rng.normal(0.8)
        weight = np.exp(guess * new)
        threshold = weighted_quantile(scores, np.exp(guess * x), weight, alpha)
        hits.append(new + rng.normal() <= threshold)
    error = 4 * math.sqrt(0.09 / len(hits))
    assert np.mean(hits) < 1 - alpha - error  # the promise itself is broken
    assert np.mean(hits) >= 1 - alpha - delta - error
    relative = np.abs(estimated / estimated.mean() * true.mean() / true - 1)
    theorem = (relative * true).mean() / true.mean()  # E_test |ŵ/w − 1|, as the paper states it
    assert_allclose(theorem, 2 * delta, rtol=1e-9)


@pytest.mark.parametrize(("true", "estimated"), [(0.3, 0.08), (0.18, 0.06)])
def test_the_bound_is_what_the_worst_scores_lose(true: float, estimated: float) -> None:
    """Scores are largest where ratios are underestimated most: all of δ is lost, and no more.

    A part of the models that is half of the calibration has a share `true` of the target, the
    classifier says `estimated`, which is less than α: the threshold leaves it out.
    """
    rng, alpha, hits = RNG(8), 0.1, []
    ratio, guess = (np.array([1 - share, share]) / 0.5 for share in (true, estimated))
    part = np.array([0, 1])
    delta = loss_of_coverage(guess[part], ratio[part])
    assert_allclose(delta, true - estimated)
    for _ in range(300):
        hard = (rng.random(600) < 0.5).astype(int)
        new = int(rng.random() < true)
        threshold = weighted_quantile(hard + rng.random(600), guess[hard], guess[new], alpha)
        easy_share, hard_share = np.clip([threshold, threshold - 1], 0, 1)
        hits.append((1 - true) * easy_share + true * hard_share)  # given the threshold
    error = 4 * np.std(hits) / math.sqrt(len(hits))
    assert np.mean(hits) >= 1 - alpha - delta - error
    assert np.mean(hits) <= 1 - alpha - 0.9 * delta + error


def graph(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and true marginals of a model; all its variables share a level of difficulty."""
    n, hard = int(rng.integers(3, 60)), rng.gamma(1.0, 1.0)
    truth = rng.dirichlet(np.ones(3), n)
    predicted = truth * np.exp(hard * rng.normal(size=(n, 3)))
    return predicted / predicted.sum(1, keepdims=True), truth


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_sets_hold_a_state_of_the_true_law_as_often_as_promised(name: str, alpha: float) -> None:
    rng, score, covered, sizes = RNG(3), SCORES[name], [], []
    for _ in range(150):
        atoms = [state_atoms(*graph(rng), score) for _ in range(40)]
        threshold = hierarchical_quantile(atoms, np.ones(40), 1.0, alpha)
        predicted, truth = graph(rng)
        found = sets_of_states(predicted, truth >= 0, threshold, score, rng)
        covered.append(float((found * truth).sum(1).mean()))
        sizes.append(found.sum(1).mean())
    error = 4 * np.std(covered) / math.sqrt(len(covered))
    assert np.mean(covered) >= 1 - alpha - error
    assert np.mean(sizes) < 3


def test_sets_are_not_empty_and_hold_no_impossible_state() -> None:
    predicted = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    possible = predicted > 0
    for score in SCORES.values():
        none = sets_of_states(predicted, possible, -1.0, score, RNG(0))
        every = sets_of_states(predicted, possible, math.inf, score, RNG(0))
        assert (none.sum(1) == 1).all()
        assert (every == possible).all()


def test_bands_keep_most_variables_of_most_models_and_pooling_would_not() -> None:
    rng, alpha, kept, pooled = RNG(4), 0.1, [], []

    def scores() -> np.ndarray:
        return rng.gamma(2.0, 1.0) * np.abs(rng.normal(size=int(rng.integers(20, 200))))

    for _ in range(600):
        calibration = [scores() for _ in range(60)]
        each = np.array([largest_of_most(s, 0.1) for s in calibration])
        factor = band_factor(each.tolist(), np.ones(60), 1.0, alpha)
        every = np.concatenate(calibration)
        rough = weighted_quantile(every, np.ones(len(every)), 1.0, 0.1)
        new = scores()
        kept.append((new <= factor).mean() >= 0.9)
        pooled.append((new <= rough).mean() >= 0.9)
    error = 4 * math.sqrt(0.09 / len(kept))
    assert np.mean(kept) >= 0.9 - error
    assert np.mean(pooled) < 0.8


def test_the_error_of_a_reference_widens_the_score() -> None:
    truth = np.full((10, 2), 0.5)
    guess = truth + np.array([0.1, -0.1])
    plain = band_score(guess, truth, np.full(10, 0.1))
    noisy = band_score(guess, truth, np.full(10, 0.1), reference_error=np.full((10, 2), 0.05))
    assert_allclose([plain, noisy], [1.0, 2.0])


def test_errors_that_do_not_count_are_not_told_apart() -> None:
    truth, scale = np.full((10, 2), 0.5), np.full(10, 1e-3)
    scores = [band_score(truth + off, truth, scale, least=1e-6) for off in (0.0, 1e-12, 1e-7)]
    assert scores == [1e-3] * 3
    assert band_score(truth + 1e-5, truth, scale, least=1e-6) == pytest.approx(1e-2)


def test_bands_stay_within_probabilities() -> None:
    low, high = bands(np.array([[0.02, 0.98]]), np.array([0.1]), 3.0)
    assert low.min() >= 0
    assert high.max() <= 1
    wide = bands(np.array([[0.5, 0.5]]), np.array([0.0]), math.inf)
    assert (wide[0] == 0).all()
    assert (wide[1] == 1).all()


def test_support_counts_effective_models() -> None:
    assert support(np.ones(50), 1.0).effective == pytest.approx(50)
    lone = support(np.array([1e6, *np.ones(49)]), 1.0)
    assert lone.effective < 1.01
    assert not lone.suffices(0.1)
    assert support(np.ones(50), 1.0).suffices(0.1)
    assert not support(np.ones(50), 20.0).suffices(0.1)
    assert not support(np.zeros(3), 1.0).suffices(0.5)


def test_ratios_of_a_sure_classifier_are_clipped() -> None:
    assert_allclose(density_ratio(np.array([0.5, 1.0, 0.0])), [1.0, 99.0, 1 / 99])


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(IcgiError, match="alpha"):
        weighted_quantile(np.ones(3), np.ones(3), 1.0, 1.5)
    with pytest.raises(IcgiError, match="weights"):
        weighted_quantile(np.ones(3), -np.ones(3), 1.0, 0.5)
    with pytest.raises(IcgiError, match="2 weights"):
        hierarchical_quantile([Atoms(np.ones(1), np.ones(1))], np.ones(2), 1.0, 0.5)
    with pytest.raises(IcgiError, match="exceptions"):
        largest_of_most(np.ones(3), 1.0)
