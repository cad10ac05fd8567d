"""Promises that hold in every group: exact laws of conditional conformal prediction."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from icgi.conformal.groups import conditional_quantile
from icgi.conformal.quantiles import Atoms, hierarchical_quantile, weighted_quantile
from icgi.errors import IcgiError

RNG = np.random.default_rng


def points(scores: np.ndarray) -> list[Atoms]:
    return [Atoms(np.array([s]), np.ones(1)) for s in scores]


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.37])
def test_with_one_group_it_is_split_conformal(alpha: float) -> None:
    scores = RNG(0).normal(size=43)
    expected = weighted_quantile(scores, np.ones(43), 1.0, alpha)
    found = conditional_quantile(points(scores), np.ones((43, 1)), np.ones(1), alpha)
    assert_allclose(found, expected)


def test_with_separate_groups_each_has_its_own_quantile() -> None:
    rng, sizes = RNG(1), (40, 25, 60)
    member = np.repeat(np.eye(3), sizes, axis=0)
    scores = rng.normal(size=sum(sizes)) + member @ np.array([0.0, 5.0, -2.0])
    for group in np.eye(3):
        inside = scores[member @ group > 0]
        expected = weighted_quantile(inside, np.ones(len(inside)), 1.0, 0.1)
        assert_allclose(conditional_quantile(points(scores), member, group, 0.1), expected)


def test_soft_scores_of_one_group_give_the_hierarchical_quantile() -> None:
    rng = RNG(2)
    models = [Atoms(rng.normal(size=7), rng.dirichlet(np.ones(7))) for _ in range(30)]
    expected = hierarchical_quantile(models, np.ones(30), 1.0, 0.15)
    found = conditional_quantile(models, np.ones((30, 1)), np.ones(1), 0.15)
    assert_allclose(found, expected)


def test_a_group_with_too_few_models_gets_no_finite_threshold() -> None:
    member = np.repeat(np.eye(2), (50, 8), axis=0)
    scores = RNG(3).normal(size=58)
    assert math.isinf(conditional_quantile(points(scores), member, np.eye(2)[1], 0.1))
    assert math.isfinite(conditional_quantile(points(scores), member, np.eye(2)[0], 0.1))
    assert math.isinf(conditional_quantile([], np.ones((0, 1)), np.ones(1), 0.1))


@pytest.mark.parametrize("soft", [False, True])
def test_overlapping_groups_are_all_covered_and_one_quantile_would_not(soft: bool) -> None:
    """Families × sizes: error grows with both; soft: each model has a law of scores, not one."""
    rng, alpha, times = RNG(4), 0.15, 300

    def draw(k: int) -> tuple[np.ndarray, np.ndarray]:
        groups = np.stack([np.ones(k), rng.random(k) < 0.3, rng.random(k) < 0.5], 1).astype(float)
        return groups, groups @ np.array([1.0, 4.0, 2.0])

    def law(scale: float) -> np.ndarray:
        centre = scale * abs(rng.normal())
        return centre + (0.3 * rng.normal(size=6) if soft else np.zeros(1))

    covered, plain, groups = [], [], []
    for _ in range(times):
        members, scales = draw(80)
        atoms = [Atoms(s := law(scale), np.full(len(s), 1 / len(s))) for scale in scales]
        new, scale = draw(1)
        score = law(scale[0])
        threshold = conditional_quantile(atoms, members, new[0], alpha)
        rough = hierarchical_quantile(atoms, np.ones(80), 1.0, alpha)
        covered.append((score <= threshold).mean())
        plain.append((score <= rough).mean())
        groups.append(new[0])
    inside = np.stack(groups) > 0
    for group in inside.T:
        error = 3 * math.sqrt(alpha * (1 - alpha) / group.sum())
        assert np.mean(np.array(covered)[group]) >= 1 - alpha - error
    hard = inside[:, 1] & inside[:, 2]
    assert np.mean(np.array(plain)[hard]) < 0.75


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(IcgiError, match="alpha"):
        conditional_quantile(points(np.ones(3)), np.ones((3, 1)), np.ones(1), 0.0)
    with pytest.raises(IcgiError, match="2 rows"):
        conditional_quantile(points(np.ones(3)), np.ones((2, 1)), np.ones(1), 0.1)
