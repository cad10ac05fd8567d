"""What signals say of errors: it grows with them, keeps within bounds, and is near the truth."""

import numpy as np
import pytest

import icgi
from icgi.data.families import FAMILIES
from icgi.inference import Budget, Marginals, Status
from icgi.model.interactions import bonds
from icgi.portfolio import doubt
from icgi.portfolio.combine import Route, combine, expected_errors
from icgi.portfolio.doubt import LARGEST, told_error

N = 50
PROBS = np.tile([0.3, 0.7], (N, 1))


def at_rest(sweeps: float) -> Marginals:
    return Marginals(PROBS, Status.AT_REST, stats={"sweeps": sweeps, "restarts": 0.0})


def moving(sweeps: float) -> Marginals:
    return Marginals(PROBS, Status.BUDGET_SPENT, stats={"sweeps": sweeps, "residual": 0.1})


def trains(own: float, passes: float = 1.0, **stats: float) -> Marginals:
    known = {"spread": 1e-3, "eps_sum": 1e-4, "passes": passes, "change": 1e-3} | stats
    return Marginals(PROBS, Status.BUDGET_SPENT, std_error=np.full((N, 2), own), stats=known)


def mean(name: str, answer: Marginals, bond: float = 1.0) -> float:
    found = told_error(name, answer, np.full(N, bond))
    assert found is not None
    assert found.shape == (N,)
    assert found.min() > 0
    assert found.max() <= LARGEST
    return float(found.mean())


def test_errors_of_belief_propagation_grow_with_sweeps_and_bonds() -> None:
    assert mean("lbp", at_rest(10)) < mean("lbp", at_rest(100)) < mean("lbp", at_rest(1e6))
    weak, strong = (mean("lbp", at_rest(30), bond) for bond in (0.1, 3.0))
    assert weak < 0.3 * strong


def test_belief_propagation_that_did_not_come_to_rest_is_worse_and_without_a_sweep_worst() -> None:
    errors = [mean("lbp", each) for each in (at_rest(20), moving(20), moving(0))]
    assert errors == sorted(errors)
    assert errors[-1] > 0.3


@pytest.mark.parametrize("passes", [1.0, 3.0])
def test_errors_of_trains_grow_with_their_own_and_stay_near_them(passes: float) -> None:
    told = [mean("ttve", trains(own, passes)) for own in (1e-6, 1e-4, 1e-2)]
    assert told == sorted(told)
    for own, found in zip((1e-6, 1e-4, 1e-2), told, strict=True):
        assert doubt.DOWN * own <= found <= doubt.UP * own


@pytest.mark.parametrize("passes", [1.0, 3.0])
def test_an_engine_that_finds_itself_rough_is_believed(passes: float) -> None:
    for own in (0.1, 0.24, 0.4):
        assert mean("ttve", trains(own, passes)) >= 0.9 * own


def test_nothing_is_told_where_nothing_was_learnt() -> None:
    strength = np.ones(N)
    assert told_error("pt", trains(0.1), strength) is None
    assert told_error("ttve", trains(0.1, branches=4.0), strength) is None
    assert told_error("ttve", Marginals(PROBS, Status.EXACT), strength) is None


def test_every_regression_has_a_factor_for_every_feature() -> None:
    answers = {
        "lbp at rest": at_rest(10), "lbp moving": moving(10), "lbp, no sweep": moving(0),
        "ttve once": trains(0.1), "ttve": trains(0.1, 2.0),
    }  # fmt: skip
    assert set(doubt.FACTORS) == set(answers)
    for of, answer in answers.items():
        assert doubt.kind("lbp" if of.startswith("lbp") else "ttve", answer) == of
        assert doubt.features(of, answer, np.ones(N)).shape == (N, len(doubt.FACTORS[of]))


@pytest.mark.parametrize("family", ["ws", "er", "ea2d"])
def test_belief_propagation_at_rest_is_about_as_wrong_as_told(family: str) -> None:
    """Over models of all strengths: the right order of magnitude, and the right order."""
    told, true = [], []
    for k, beta in enumerate(np.geomspace(0.1, 1.0, 8)):
        model = FAMILIES[family].sample(np.random.default_rng(900 + k), beta=beta, field=0.3)
        answer = icgi.marginals(model, engine="lbp", budget=Budget(iterations=500))
        error = told_error("lbp", answer.marginals, bonds(model))
        if error is not None:
            exact = icgi.marginals(model, engine="jt")
            told.append(float(error.mean()))
            true.append(float(np.abs(answer.probs - exact.probs).max(1).mean()))
    ratio = np.log(np.array(told) / np.array(true))
    assert len(told) >= 5
    assert abs(np.median(ratio)) < np.log(5)
    assert np.corrcoef(np.log(told), np.log(true))[0, 1] > 0.8


def routes(gap: float, sigma: float, told: float) -> list[Route]:
    """Belief propagation with a told error, and tempering that states one."""
    moved = PROBS + gap * np.array([1.0, -1.0])
    tempered = Marginals(moved, Status.BUDGET_SPENT, std_error=np.full((N, 2), sigma))
    return [Route("lbp", at_rest(10), np.full(N, told)), Route("pt", tempered)]


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.2])
@pytest.mark.parametrize("sigma", [1e-4, 0.02, 0.5])
@pytest.mark.parametrize("told", [1e-4, 0.02, 0.4])
def test_what_is_told_counts_as_far_as_the_distance_to_others_allows(
    gap: float, sigma: float, told: float
) -> None:
    found = float(np.sqrt(np.mean(expected_errors(routes(gap, sigma, told))[0] ** 2)))
    least, most = max(gap**2 - sigma**2, 0.0) ** 0.5, (gap**2 + sigma**2) ** 0.5
    assert 0.99 * least <= found <= max(1.6 * most, 1e-12)
    if least < told < most:
        assert found == pytest.approx(told)


def test_belief_propagation_that_is_told_to_be_right_is_chosen_before_a_rough_sample() -> None:
    made = combine(routes(0.02, 0.05, 0.001))
    assert made.chosen.name == "lbp"
    assert made.expected < 0.01
    assert combine(routes(0.3, 0.05, 0.001)).chosen.name == "pt"
