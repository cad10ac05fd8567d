"""Factors that are products fall apart, and the model stays the same."""

import numpy as np
from numpy.testing import assert_allclose

import zoo
from icgi.exact.enumeration import joint
from icgi.model.graph import FactorGraph
from icgi.model.structure.split import split_products


def product_model(rng, zeros: float) -> FactorGraph:
    cards = [2, 3, 2, 4, 2]
    parts = zoo.random_model(rng, cards, [(0, 1, 3), (2, 3), (4,)], zeros=zeros)
    table = (
        parts.log_tables[0][:, :, None, :, None]
        + parts.log_tables[1][None, None, :, :, None]
        + parts.log_tables[2]
    )
    return FactorGraph(np.array(cards), ((0, 1, 2, 3, 4),), (table,))


def test_products_fall_apart() -> None:
    split = split_products(product_model(np.random.default_rng(0), 0.0))
    assert sorted(tuple(sorted(s)) for s in split.scopes if len(s) > 1) == [(0, 1, 3), (2, 3)] or (
        max(map(len, split.scopes)) == 3
    )


def test_the_joint_table_stays() -> None:
    for seed in range(20):
        model = product_model(np.random.default_rng(seed), 0.3)
        with np.errstate(invalid="ignore"):
            before, after = joint(model), joint(split_products(model))
        finite = np.isfinite(before)
        assert (np.isfinite(after) == finite).all()
        assert_allclose(after[finite], before[finite], atol=1e-10)


def test_models_without_products_are_themselves() -> None:
    for name in ("grid-3x3", "ternary-factors", "mixed-cards", "empty-scope", "no-factors"):
        assert split_products(zoo.MODELS[name]) is zoo.MODELS[name]
