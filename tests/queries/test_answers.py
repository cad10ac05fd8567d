import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.joint import Joint

WEATHER = icgi.from_factors(
    [
        (("rain",), [0.7, 0.2, 0.1]),
        (("rain", "wet"), [[0.9, 0.1], [0.3, 0.7], [0.05, 0.95]]),
        (("wet", "late"), [[0.8, 0.2], [0.5, 0.5]]),
    ],
    states={"rain": ["none", "some", "much"], "wet": ["no", "yes"], "late": ["no", "yes"]},
)


def test_states_are_found_by_name() -> None:
    answer = icgi.marginals(WEATHER, engine="jt")
    row = answer["rain"]
    assert row["much"] == row[2]
    assert row.sum() == pytest.approx(1.0)
    assert isinstance(row["some"], float)
    with pytest.raises(KeyError, match="did you mean 'much'"):
        row["mucho"]


def test_factors_and_pairs_are_the_joints_of_scopes() -> None:
    answer = icgi.marginals(WEATHER, {"late": "yes"}, engine="jt")
    by_hand = icgi.marginals(WEATHER, {"late": "yes"}, engine="enumerate")
    for f, scope in enumerate(WEATHER.scopes):
        assert answer.factor(f).variables == scope
        assert_allclose(answer.factor(f).probs, by_hand.joint(*scope).probs, atol=1e-12)
    assert set(answer.pairs) == {(0, 1), (1, 2)}
    with pytest.raises(IndexError, match="factor 3"):
        answer.factor(3)


def test_conditional_tables_and_marginals_of_joints() -> None:
    joint = icgi.marginals(WEATHER, engine="jt").joint("late", "rain", "wet")
    assert joint.names == ("late", "rain", "wet")
    assert joint["yes", "much", "no"] == joint.probs[1, 2, 0]
    assert_allclose(joint.given("rain", "wet").sum(0), 1.0)
    assert_allclose(joint.given("rain", "wet")[1, :, 1], 0.5)
    pair = joint.marginal("wet", "late")
    assert pair.names == ("wet", "late")
    assert_allclose(pair.probs, joint.probs.sum(1).T)
    assert joint.marginal("wet", "rain")["yes", "much"] == pytest.approx(joint.probs[:, 2, 1].sum())
    with pytest.raises(KeyError, match="this joint is of"):
        pair.marginal("rain")


def test_mutual_information_is_what_the_definition_says() -> None:
    joint = icgi.marginals(WEATHER, engine="jt").joint("rain", "wet")
    p = joint.probs
    entropy = lambda q: -(q * np.log2(q)).sum()  # noqa: E731
    expected = entropy(p.sum(0)) + entropy(p.sum(1)) - entropy(p)
    assert joint.mutual_information() == (pytest.approx(expected), 0.0)
    apart = icgi.marginals(zoo.MODELS["disconnected"], engine="jt").joint(0, 2)
    assert apart.mutual_information()[0] == pytest.approx(0.0, abs=1e-12)


def test_mutual_information_of_samples_covers_the_truth() -> None:
    exact = icgi.marginals(WEATHER, engine="jt").joint("rain", "wet").mutual_information()[0]
    answer = icgi.marginals(WEATHER, engine="pt", budget=icgi.Budget(iterations=2000))
    value, error = answer.joint("rain", "wet").mutual_information()
    assert 0 < error < 0.1
    assert abs(value - exact) < 4 * error
    only = Joint(WEATHER, (1, 2), np.full((2, 2), 0.25), icgi.Status.AT_REST)
    assert only.mutual_information() == (0.0, None)


def test_batches_and_improving_engines_know_their_joints() -> None:
    answers = icgi.marginals_batch(WEATHER, [{"late": "yes"}, {}], "jt")
    for answer, evidence in zip(answers, [{"late": "yes"}, {}], strict=True):
        expected = icgi.marginals(WEATHER, evidence, "enumerate").joint("rain", "late")
        assert_allclose(answer.joint("rain", "late").probs, expected.probs, atol=1e-12)


def test_unknown_and_repeated_names_are_refused() -> None:
    answer = icgi.marginals(WEATHER, engine="jt")
    with pytest.raises(icgi.IcgiError, match="did you mean 'rain'"):
        answer.joint("rian", "wet")
    with pytest.raises(icgi.IcgiError, match="named twice"):
        answer.joint("rain", 0)
    with pytest.raises(icgi.IcgiError, match="no variables were given"):
        answer.joint()
