"""Soft evidence and excluded states: factors by another name, and contradictions named."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.model.findings import Findings, contradiction, enter, resolve
from some_networks import network


def engine_error() -> icgi.EvidenceError:
    return icgi.EvidenceError("as the engine worded it")


@pytest.mark.filterwarnings("ignore")
def test_likelihoods_are_the_soft_evidence_of_pyagrum() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gum = pytest.importorskip("pyagrum")
    model = network()
    engine = gum.LazyPropagation(icgi.to_pyagrum(model))
    engine.setEvidence({"Wet": [0.2, 0.5, 0.3], "Rain": [1.0, 0.25], "Mood": 2})
    engine.makeInference()
    found = icgi.marginals(
        model,
        {"Mood": 2},
        likelihood={"Wet": {"damp": 0.5, "dry": 0.2, "soaked": 0.3}, "Rain": [1, 0.25]},
    )
    for name in model.names:
        assert_allclose(found[name], engine.posterior(name).toarray(), atol=1e-12)


@given(st.sampled_from(sorted(zoo.MODELS)), st.data())
@settings(max_examples=60, deadline=None)
def test_findings_multiply_the_model(name: str, data: st.DataObject) -> None:
    model = zoo.MODELS[name]
    if not model.n_variables:
        return
    i = data.draw(st.integers(0, model.n_variables - 1))
    card = int(model.cards[i])
    weights = data.draw(st.lists(st.floats(0.01, 10), min_size=card, max_size=card))
    excluded = data.draw(st.sets(st.integers(0, card - 1), max_size=card - 1))
    before = zoo.exact(name)
    expected = before.probs[i, :card] * weights
    expected[list(excluded)] = 0
    if expected.sum() == 0:
        return
    found = icgi.marginals(model, {}, "jt", likelihood={i: weights}, exclude={i: excluded})
    assert_allclose(found[i], expected / expected.sum(), atol=1e-10)
    assert found.log_z == pytest.approx(before.log_z + np.log(expected.sum()), abs=1e-9)


def test_only_ratios_of_a_likelihood_matter_for_marginals() -> None:
    model = network()
    a = icgi.marginals(model, likelihood={"Wet": [0.2, 0.5, 0.3]})
    b = icgi.marginals(model, likelihood={"Wet": [2, 5, 3]})
    assert_allclose(a.probs, b.probs, atol=1e-14)
    assert b.log_z - a.log_z == pytest.approx(np.log(10))


@pytest.mark.parametrize("engine", ["auto", "lbp", "pt:warm_up=20", "ttve"])
def test_engines_know_nothing_of_it(engine: str) -> None:
    model = zoo.MODELS["chain"]
    found = icgi.marginals(
        model, {}, engine.partition(":")[0], icgi.Budget(iterations=3000),
        likelihood={0: [0.1, 0.9]}, exclude={2: 0},
    )  # fmt: skip
    exact = icgi.marginals(model, {}, "jt", likelihood={0: [0.1, 0.9]}, exclude={2: [0]})
    assert found[2][0] == 0
    assert_allclose(found.probs, exact.probs, atol=0.05)


def test_answers_say_what_was_entered() -> None:
    import json

    answer = icgi.marginals(network(), likelihood={"Rain": [1, 3]}, exclude={"Wet": "damp"})
    content = json.loads(answer.to_json())
    assert content["likelihood"] == {"Rain": {"0": 1.0, "1": 3.0}}
    assert content["excluded"] == {"Wet": ["damp"]}
    assert answer.model.n_factors == network().n_factors


@pytest.mark.parametrize(
    ("likelihood", "exclude", "message"),
    [
        ({"Wett": [1, 1, 1]}, None, "did you mean 'Wet'"),
        ({"Wet": [1, 1]}, None, "2 weights for 3 states"),
        ({"Wet": [1, -1, 1]}, None, "non-negative"),
        ({"Wet": [0, 0, 0]}, None, "zero everywhere"),
        ({"Wet": [1, np.inf, 0]}, None, "finite"),
        ({"Wet": "abc"}, None, "no list of numbers"),
        ({"Wet": {"dry": 1}}, None, "nothing about damp, soaked"),
        ({"Wet": {"dri": 1}}, None, "did you mean 'dry'"),
        ({"Wet": [1, 1, 1], 1: [1, 1, 1]}, None, "two likelihoods"),
        ({7: [1, 1]}, None, "variable 7"),
        (None, {"Wet": ["dry", "damp", "soaked"]}, "leave one"),
        (None, {"Wet": "wet"}, "unknown state"),
        (None, {"Wet": 3}, "no state 3"),
    ],
)
def test_wrong_findings_are_named(likelihood, exclude, message: str) -> None:
    with pytest.raises(icgi.EvidenceError, match=message):
        icgi.marginals(network(), likelihood=likelihood, exclude=exclude)


def equal(n: int) -> icgi.FactorGraph:
    """A chain of copies with names, and one free variable."""
    return icgi.from_factors([((f"v{i}", f"v{i + 1}"), np.eye(2)) for i in range(n)]
                             + [(("free",), [0.5, 0.5])])  # fmt: skip


def test_contradicting_observations_are_named_and_no_others() -> None:
    model = equal(6)
    with pytest.raises(icgi.EvidenceError) as caught:
        icgi.marginals(model, {"free": 0, "v0": 0, "v3": 0, "v6": 1})
    message = str(caught.value)
    assert "v6=1" in message
    assert "free" not in message
    assert ("v0" in message) != ("v3" in message)  # either one of them does it
    assert "without the observation v6=1 the rest is possible" in message


@given(st.sets(st.integers(0, 8), min_size=1), st.data())
@settings(max_examples=60, deadline=None)
def test_the_clash_is_smallest(observed: set[int], data: st.DataObject) -> None:
    model = equal(8)
    evidence = {i: data.draw(st.integers(0, 1)) for i in sorted(observed)}
    both = len(set(evidence.values())) == 2
    named = contradiction(model, Findings(evidence), error := engine_error())
    if not both:
        assert named is error
        return
    pairs = [(i, j) for i, j in itertools.permutations(evidence, 2) if evidence[i] != evidence[j]]
    listed = [f"v{i}={evidence[i]} and the observation v{j}={evidence[j]} " for i, j in pairs]
    assert any(words in str(named) for words in listed)


def test_exclusions_and_likelihoods_contradict_too() -> None:
    model = equal(3)
    with pytest.raises(icgi.EvidenceError, match="exclusion of v3=1"):
        icgi.marginals(model, {"v0": 1}, exclude={"v3": 1})
    with pytest.raises(icgi.EvidenceError, match="likelihood of v3"):
        icgi.marginals(model, {"v0": 1}, likelihood={"v3": [1, 0]})


def test_a_single_impossible_observation() -> None:
    model = icgi.from_factors([(("a", "b"), [[1.0, 2.0], [0.0, 0.0]])])
    with pytest.raises(icgi.EvidenceError, match="observation a=1 is impossible in this model"):
        icgi.marginals(model, {"a": 1, "b": 0})


def test_what_only_an_exact_engine_sees_is_named() -> None:
    parity = np.zeros((2, 2, 2))
    for x in itertools.product(range(2), repeat=3):
        parity[x] = sum(x) % 2 == 0
    # a + b + c = 0 and a + b + c + d = 0 (by way of s = a + b): d = 1 is impossible
    model = icgi.from_factors(
        [(("a", "b", "c"), parity), (("a", "b", "s"), parity), (("s", "c", "d"), parity)]
    )
    with pytest.raises(icgi.EvidenceError, match="observation d=1 is impossible"):
        icgi.marginals(model, {"d": 1}, engine="jt")


def test_batches_name_the_question() -> None:
    model = equal(2)
    with pytest.raises(icgi.EvidenceError, match=r"question 1: .*v0=0 and the observation v2=1"):
        icgi.marginals_batch(model, [{}, {"v0": 0, "v2": 1}], engine="jt")


def test_a_model_without_configurations_says_so() -> None:
    model = icgi.from_factors([(("a",), [0.0, 0.0])])
    with pytest.raises(icgi.EvidenceError, match="whatever is observed"):
        icgi.marginals(model, {"a": 1})


def test_nothing_to_enter_is_the_same_model() -> None:
    model = network()
    assert enter(model, resolve(model, {"Wet": "dry"})) is model
