"""Every form of a model gives the same answer, and the cheapest is taken."""

from time import process_time

import numpy as np
import pytest
from numpy.testing import assert_allclose

import structured
import zoo
from collapsed import CollapsedJunctionTree
from icgi.clock import Deadline
from icgi.data.families import FAMILIES
from icgi.errors import BudgetError, EvidenceError, UnsupportedModelError
from icgi.exact import forms as module
from icgi.exact.enumeration import Enumerate
from icgi.exact.forecast import forecast
from icgi.exact.forms import forms
from icgi.inference import Budget, Status, ask, infer
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph
from icgi.model.ordering import find_order
from icgi.model.structure.collapse import collapse
from icgi.model.structure.count import count_classes
from icgi.model.structure.merge import merge_copies
from icgi.model.structure.split import split_products
from icgi.portfolio.exact import Exact

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
    monkeypatch.setattr(module, "MUCH", 0.0)
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


def test_interchangeable_variables_are_counted() -> None:
    """Far too wide as it is; both states of a variable, each entered, make up the answer."""
    rng = np.random.default_rng(5)
    cards, factors, _ = structured.exchangeable_network(rng, [40, 30], lone=1, states=2, order=2)
    model, _, _ = structured.hide(rng, cards, factors, {})
    ahead = Exact().forecast(model, BUDGET, rng)
    assert ahead.forms[0].name == "counted"
    assert "70 interchangeable variables counted in 2 classes" in ahead.structure
    answer = Exact().along(ahead)(model, BUDGET, rng)
    assert answer.status is Status.EXACT
    answers = infer(model, {0: 0}, Exact(), BUDGET, rng), infer(model, {0: 1}, Exact(), BUDGET, rng)
    log_z = np.array([each.log_z for each in answers])
    assert_allclose(answer.log_z, np.logaddexp(*log_z), atol=1e-9)
    assert_allclose(answer.probs[0, :2], np.exp(log_z - answer.log_z), atol=1e-9)


@pytest.mark.parametrize("late", [False, True])
def test_the_forecast_is_no_worse_than_that_of_the_junction_tree(late: bool, monkeypatch) -> None:
    """Even where the time of the first order is over before any rule has ended."""
    model = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=16)
    plain = forecast(model, BUDGET, np.random.default_rng(0))
    monkeypatch.setattr("icgi.model.ordering.search._LEAST_SECONDS", 0.0)
    monkeypatch.setattr(module, "BRIEFLY", 0.0 if late else 1.0)
    first = find_order(model, np.random.default_rng(1), seconds=module.BRIEFLY)
    assert first.finished is not late
    ahead = module.best_forecast(model, BUDGET, np.random.default_rng(0))
    assert ahead.seconds <= plain.seconds
    assert ahead.table_bytes <= plain.table_bytes


def test_the_engine_takes_what_fits() -> None:
    rng = np.random.default_rng(2)
    cards, factors, ends = structured.chain_network(rng, "or", 80, 10, 30)
    model, seen, _ = structured.hide(rng, cards, factors, {y: 1 for y in ends})
    answer = infer(model, seen, Exact(), BUDGET, rng)
    assert answer.stats["collapsed"] > 100
    with pytest.raises(BudgetError, match="sums of at most 2 products"):
        infer(model, seen, Exact(), Budget(table_bytes=20_000), rng)


@pytest.mark.parametrize("name", zoo.MODELS)
def test_the_engine_agrees_with_enumeration_on_the_zoo(name: str, monkeypatch) -> None:
    monkeypatch.setattr(module, "EASY", -1.0)
    monkeypatch.setattr(module, "NARROW", -1.0)
    monkeypatch.setattr(module, "QUICK", -1.0)
    monkeypatch.setattr(module, "MUCH", 0.0)
    rng = np.random.default_rng(0)
    found, truth = (
        infer(zoo.MODELS[name], {}, engine, BUDGET, rng) for engine in (Exact(), Enumerate())
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
    for engine in (Exact(), CollapsedJunctionTree()):
        with pytest.raises((EvidenceError, BudgetError, UnsupportedModelError)):
            infer(model, seen, engine, BUDGET, rng)


def random_structured(rng, kind: str) -> tuple[FactorGraph, dict[int, int]]:
    """Chains and written-out gates, trees of them, noise, zeros and evidence anywhere."""
    states = int(rng.integers(2, 4)) if kind == "max" else 2
    build = (structured.chain_network, structured.written_network)[int(rng.integers(2))]
    shape = int(rng.integers(3, 6)), int(rng.integers(1, 3)), int(rng.integers(2, 5))
    cards, factors, ends = build(rng, kind, *shape, states)
    if len(ends) == 2 and rng.random() < 0.5:
        inputs = [cards[y] for y in ends]
        table = structured.gate(rng, kind, inputs[0], inputs, 2)
        factors.append(((len(cards), *ends), table))
        cards.append(inputs[0])
    for zeros in rng.choice([0.0, 0.3], int(rng.integers(0, 3))):
        scope = tuple(rng.permutation(len(cards))[: rng.integers(1, 3)].tolist())
        table = rng.uniform(0.1, 1.0, [cards[i] for i in scope])
        table[rng.random(table.shape) < zeros] = 0.0
        factors.append((scope, table))
    chosen = rng.permutation(len(cards))[: rng.integers(0, 3)].tolist()
    seen = {i: int(rng.integers(cards[i])) for i in chosen}
    model, evidence, _ = structured.hide(rng, cards, factors, seen)
    return model, evidence


def check_forms(seed: int) -> None:
    rng = np.random.default_rng([31, seed])
    model, evidence = random_structured(rng, ("or", "max", "parity")[seed % 3])
    try:
        model = condition(model, evidence).model
        truth = Enumerate()(model, BUDGET, rng)
    except (EvidenceError, UnsupportedModelError):
        return
    for form in forms(model, find_order(model, rng, restarts=0), rng, Deadline.after(10.0)):
        answer = form.answer(BUDGET)
        assert answer is not None
        error = np.abs(answer.probs - truth.probs).max()
        assert error <= answer.stats.get("error_bound", 0.0) + 1e-13
        assert_allclose(answer.log_z, truth.log_z, atol=1e-10)


@pytest.mark.parametrize("seed", range(90))
def test_structured_models_with_noise_agree_with_enumeration(seed: int, monkeypatch) -> None:
    for gate in ("EASY", "NARROW", "QUICK", "MUCH"):
        monkeypatch.setattr(module, gate, -1.0)
    check_forms(seed)


@pytest.mark.slow
def test_many_structured_models_agree_with_enumeration(monkeypatch) -> None:
    for gate in ("EASY", "NARROW", "QUICK", "MUCH"):
        monkeypatch.setattr(module, gate, -1.0)
    for seed in range(90, 5000):
        check_forms(seed)


def test_looking_for_structure_hears_the_deadline() -> None:
    """One large table: every search ends within a look at the clock or two, not after all of it."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=[2] * 21)
    table[rng.random(table.shape) < 0.01] = -np.inf
    model = FactorGraph(np.full(21, 2), (tuple(range(21)),), (table,))
    searches = {
        "count": lambda d: count_classes(model, d),
        "split": lambda d: split_products(model, d),
        "merge": lambda d: merge_copies(model, d),
        "collapse": lambda d: collapse(model, deadline=d),
    }
    for search in searches.values():
        search(Deadline())  # compiled
    for name, search in searches.items():
        began = process_time()
        search(Deadline.after(0.0))
        assert process_time() - began < 0.15, name


def test_structure_of_a_large_table_costs_less_than_the_table() -> None:
    """Colours of 2^21 entries would take a second, the junction tree a tenth of one."""
    rng = np.random.default_rng(0)
    model = FactorGraph(np.full(21, 2), (tuple(range(21)),), (rng.normal(size=[2] * 21),))
    module.best_forecast(model, BUDGET, rng)  # compiled
    began = process_time()
    ahead = module.best_forecast(model, BUDGET, rng)
    assert ahead.plain is None
    assert process_time() - began < 2.0 * ahead.seconds + 0.2
    assert module.counting_seconds(model) > module.COUNTING_SHARE * ahead.seconds


def test_structure_and_numbers_far_from_one() -> None:
    """A form is found before numbers are shifted, and answers afterwards; log Z is right."""
    rng = np.random.default_rng(2)
    cards, factors, ends = structured.chain_network(rng, "or", 80, 10, 30)
    model, seen, _ = structured.hide(rng, cards, factors, {y: 1 for y in ends})
    far = FactorGraph(model.cards, (*model.scopes, ()), (*model.log_tables, np.array(3e6)))
    found = {}
    for name, asked in (("near", model), ("far", far)):
        question = condition(asked, seen)
        ahead = Exact().forecast(question.model, BUDGET, np.random.default_rng(0))
        assert ahead.forms
        found[name] = ask(question, Exact().along(ahead), BUDGET, np.random.default_rng(0))
    assert_allclose(found["far"].log_z, found["near"].log_z + 3e6, rtol=1e-15, atol=1e-8)
    assert_allclose(found["far"].probs, found["near"].probs, atol=1e-9)
