"""Copies are found through the zeros of several factors, and merged without a trace."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import structured
import zoo
from icgi.errors import EvidenceError
from icgi.exact.enumeration import Enumerate
from icgi.inference import Budget
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph
from icgi.model.structure.merge import merge_copies

BUDGET = Budget()


def with_copies(rng) -> FactorGraph:
    cards = [3, 3, 2, 3, 2, 2]
    equal = np.eye(3)
    flip = np.array([[0.0, 1.0], [1.0, 0.0]])
    factors = [
        ((0, 1), equal * rng.uniform(0.5, 1, (3, 3))),
        ((1, 3, 2), equal[:, :, None] * rng.uniform(0.5, 1, (3, 3, 2))),  # through a third
        ((2, 4), flip * rng.uniform(0.5, 1, (2, 2))),
        ((3, 4, 5), rng.uniform(0.1, 1, (3, 2, 2))),
        ((0, 5), rng.uniform(0.1, 1, (3, 2))),
    ]
    return structured.hide(rng, cards, factors, {})[0]


@pytest.mark.parametrize("seed", range(10))
def test_marginals_stay(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = with_copies(rng)
    merged = merge_copies(model)
    assert merged is not None
    assert merged.copies == 3
    found = merged.spread(Enumerate()(merged.model, BUDGET, rng))
    truth = Enumerate()(model, BUDGET, rng)
    assert_allclose(found.probs, truth.probs, atol=1e-12)
    assert_allclose(found.log_z, truth.log_z, atol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_random_zeros_change_nothing(seed: int) -> None:
    rng = np.random.default_rng([5, seed])
    scopes = [(0, 1, 2), (1, 2, 3), (3, 4), (0, 4, 5), (2, 5)]
    model = zoo.random_model(rng, [2, 3, 2, 3, 2, 3], scopes, zeros=0.55)
    model = condition(model, {}).model
    merged = merge_copies(model)
    if merged is None:
        return
    found = merged.spread(Enumerate()(merged.model, BUDGET, rng))
    truth = Enumerate()(model, BUDGET, rng)
    assert_allclose(found.probs, truth.probs, atol=1e-12)
    assert_allclose(found.log_z, truth.log_z, atol=1e-12)


def test_supports_that_exclude_each_other_are_reported() -> None:
    with np.errstate(divide="ignore"):
        same, other = np.log(np.eye(2)), np.log(1 - np.eye(2))
    model = FactorGraph(np.array([2, 2]), ((0, 1), (1, 0)), (same, other))
    with pytest.raises(EvidenceError):
        merge_copies(model)


def test_models_without_zeros_are_left_alone() -> None:
    assert merge_copies(zoo.MODELS["grid-3x3"]) is None
