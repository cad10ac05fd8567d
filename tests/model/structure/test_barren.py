"""Barren variables leave the model and come back in batches, with nothing changed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from icgi.exact.enumeration import Enumerate
from icgi.inference import Budget
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph
from icgi.model.ordering import find_order
from icgi.model.structure.barren import are_barren, find_barren, plan_batches

BUDGET = Budget()


def bayes_net(rng, n: int, parents: int) -> FactorGraph:
    cards = rng.integers(2, 4, n)
    scopes, tables = [], []
    for i in range(n):
        chosen = rng.permutation(i)[: min(i, int(rng.integers(0, parents + 1)))].tolist()
        table = rng.dirichlet(np.ones(cards[i]), [cards[j] for j in chosen])
        scopes.append((*chosen, i))
        tables.append(np.log(table))
    return FactorGraph(cards, tuple(scopes), tuple(tables))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_left_and_every_batch_agree_with_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = condition(
        bayes_net(rng, 9, 3), {int(i): 0 for i in rng.permutation(9)[: seed % 3]}
    ).model
    barren = find_barren(model)
    if barren is None:
        return
    truth = Enumerate()(model, BUDGET, rng)
    cost = lambda part: find_order(part, rng, restarts=0).log2_entries  # noqa: E731
    for back in [set(), *plan_batches(barren, cost)[0]]:
        found = Enumerate()(barren.including(back), BUDGET, rng)
        rows = sorted(back) or [i for i in range(9) if i not in barren.variables]
        assert_allclose(found.log_z, truth.log_z, atol=1e-11)
        for i in rows:
            card = model.cards[i]
            assert_allclose(found.probs[i, :card], truth.probs[i, :card], atol=1e-12)


def test_without_evidence_everything_with_parents_is_barren() -> None:
    model = bayes_net(np.random.default_rng(3), 12, 2)
    barren = find_barren(model)
    assert barren is not None
    assert max(map(len, barren.model.scopes)) <= 1


def test_tables_that_were_rounded_make_no_difference_to_what_hardly_matters() -> None:
    model = bayes_net(np.random.default_rng(3), 12, 2)
    rough = tuple(np.log(np.round(np.exp(t), 5) + 1e-9) for t in model.log_tables)
    rounded = FactorGraph(model.cards, model.scopes, rough)
    assert np.array_equal(are_barren(rounded), are_barren(model))
    assert are_barren(model).any()


def test_batches_hold_every_barren_variable() -> None:
    rng = np.random.default_rng(8)
    model = condition(bayes_net(rng, 40, 4), {39: 0, 38: 1}).model
    barren = find_barren(model)
    assert barren is not None
    cost = lambda part: find_order(part, rng, restarts=0).log2_entries  # noqa: E731
    batches, total = plan_batches(barren, cost)
    assert set().union(*batches) == set(barren.variables)
    assert total <= np.logaddexp2(cost(barren.including(set(barren.variables))), cost(barren.model))


def test_models_that_sum_to_no_constant_have_none() -> None:
    rng = np.random.default_rng(0)
    model = FactorGraph(np.array([2, 2]), ((0, 1),), (rng.normal(size=(2, 2)),))
    assert find_barren(model) is None
