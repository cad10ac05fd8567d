"""Every form of a model gives the same answer, and the cheapest is taken."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import structured
import zoo
from icgi.clock import Deadline
from icgi.errors import BudgetError, EvidenceError, UnsupportedModelError
from icgi.exact import forms as module
from icgi.exact.enumeration import Enumerate
from icgi.exact.forms import forms
from icgi.exact.signed_engine import CollapsedJunctionTree
from icgi.exact.structured import StructuredJunctionTree
from icgi.inference import Budget, infer
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph
from icgi.model.ordering import find_order

BUDGET = Budget()


def mixed_model(rng) -> FactorGraph:
    """Noisy-or chains over causes that are copies of others, and children that are barren."""
    cards, factors, _ = structured.chain_network(rng, "or", 4, 2, 3)
    copy = len(cards)
    cards += [2, 3, 2]
    factors.append(((0, copy), np.eye(2)))
    factors.append(((1, copy, copy + 1), rng.dirichlet(np.ones(3), (2, 2))))
    factors.append(((copy + 1, 2, copy + 2), rng.dirichlet(np.ones(2), (3, 2))))
    return structured.hide(rng, cards, factors, {})[0]


@pytest.mark.parametrize("seed", range(6))
def test_all_forms_agree_with_enumeration(seed: int, monkeypatch) -> None:
    monkeypatch.setattr(module, "EASY", -1.0)
    monkeypatch.setattr(module, "NARROW", -1.0)
    monkeypatch.setattr(module, "QUICK", -1.0)
    rng = np.random.default_rng(seed)
    model = condition(mixed_model(rng), {0: 0} if seed % 2 else {}).model
    truth = Enumerate()(model, BUDGET, rng)
    found = forms(model, find_order(model, rng), rng, Deadline.after(10.0))
    assert {form.name for form in found} >= {"as it is", "reduced"}
    if seed % 2 == 0:
        assert {form.name for form in found} == {"as it is", "reduced", "collapsed", "batches"}
    for form in found:
        answer = form.answer(BUDGET)
        assert answer is not None
        assert_allclose(answer.probs, truth.probs, atol=1e-9)
        assert_allclose(answer.log_z, truth.log_z, atol=1e-9)


def test_the_engine_takes_what_fits() -> None:
    rng = np.random.default_rng(2)
    cards, factors, ends = structured.chain_network(rng, "or", 80, 10, 30)
    model, seen, _ = structured.hide(rng, cards, factors, {y: 1 for y in ends})
    answer = infer(model, seen, StructuredJunctionTree(), BUDGET, rng)
    assert answer.stats["collapsed"] > 100
    with pytest.raises(BudgetError, match="sums of at most 2 products"):
        infer(model, seen, StructuredJunctionTree(), Budget(table_bytes=5000), rng)


@pytest.mark.parametrize("name", zoo.MODELS)
def test_the_engine_agrees_with_enumeration_on_the_zoo(name: str, monkeypatch) -> None:
    monkeypatch.setattr(module, "EASY", -1.0)
    monkeypatch.setattr(module, "NARROW", -1.0)
    monkeypatch.setattr(module, "QUICK", -1.0)
    rng = np.random.default_rng(0)
    found, truth = (
        infer(zoo.MODELS[name], {}, engine, BUDGET, rng)
        for engine in (StructuredJunctionTree(), Enumerate())
    )
    assert_allclose(found.probs, truth.probs, atol=1e-9)
    assert_allclose(found.log_z, truth.log_z, atol=1e-9)


def test_impossible_evidence_is_never_answered(monkeypatch) -> None:
    monkeypatch.setattr(module, "EASY", -1.0)
    monkeypatch.setattr(module, "NARROW", -1.0)
    rng = np.random.default_rng(3)
    even = structured.parity_gate(rng, 3, noise=False)[0]
    odd = structured.parity_gate(rng, 3, noise=False)[1]
    prior = [((i,), rng.dirichlet(np.ones(2))) for i in range(3)]
    # x₀ + x₁ + x₂ is even, and odd: no variable alone shows it
    model, seen, _ = structured.hide(
        rng, [2] * 3, [*prior, ((0, 1, 2), even), ((2, 0, 1), odd)], {}
    )
    for engine in (StructuredJunctionTree(), CollapsedJunctionTree()):
        with pytest.raises((EvidenceError, BudgetError, UnsupportedModelError)):
            infer(model, seen, engine, BUDGET, rng)
