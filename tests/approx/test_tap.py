"""TAP equations: right to second order in the couplings, for Ising models only."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.testing import assert_allclose, assert_array_equal
from test_lbp import check, nasty_models

import zoo
from icgi.approx.mean_field import MeanField
from icgi.approx.tap import ThoulessAndersonPalmer
from icgi.errors import IcgiError, UnsupportedModelError
from icgi.exact.enumeration import Enumerate
from icgi.inference import Budget, Status
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising, ising_model

NAIVE = MeanField(tolerance=1e-13)
TIGHT = ThoulessAndersonPalmer(tolerance=1e-13)


def glass(seed: int, n: int, beta: float, field: float = 1.0) -> FactorGraph:
    """Sherrington and Kirkpatrick's model; the fields do not scale with β."""
    rng = np.random.default_rng(seed)
    couplings = np.triu(rng.normal(size=(n, n)) / np.sqrt(n), 1)
    return ising_model(beta * couplings, field * rng.normal(size=n))


@pytest.mark.parametrize("seed", range(6))
def test_error_is_of_third_order(seed: int) -> None:
    """Plefka's expansion ends before J³: halving the couplings divides the error by eight."""
    weak, weaker = (
        [zoo.run(engine, glass(seed, 12, beta)) for engine in (TIGHT, Enumerate(), NAIVE)]
        for beta in (0.01, 0.005)
    )
    for found, _, _ in (weak, weaker):
        assert found.status is Status.AT_REST
    errors = [np.abs(a.probs - b.probs).mean() for a, b, _ in (weak, weaker)]
    assert errors[0] / errors[1] == pytest.approx(8, rel=0.1)
    gaps = [a.log_z - b.log_z for a, b, _ in (weak, weaker)]
    assert gaps[0] / gaps[1] == pytest.approx(8, rel=0.1)
    naive = [np.abs(c.probs - b.probs).mean() for _, b, c in (weak, weaker)]
    assert naive[0] / naive[1] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_beats_mean_field_on_a_warm_glass(seed: int) -> None:
    model = glass(seed, 18, 0.5, 0.3)
    exact = zoo.run(Enumerate(), model).probs
    tap, naive = (zoo.run(engine, model).probs for engine in (TIGHT, MeanField()))
    assert np.abs(tap - exact).mean() < 0.2 * np.abs(naive - exact).mean()


@pytest.mark.parametrize("damping", [0.0, 0.5, 0.8])
def test_answer_solves_the_equations(damping: float) -> None:
    model = glass(1, 200, 0.7, 0.3)
    found = zoo.run(ThoulessAndersonPalmer(damping=damping, tolerance=1e-10), model)
    assert found.status is Status.AT_REST
    ising = as_ising(model)
    couplings = np.zeros((200, 200))
    couplings[tuple(ising.edges.T)] = ising.couplings
    couplings += couplings.T
    m = found.probs[:, 1] - found.probs[:, 0]
    reaction = m * (couplings**2 @ (1 - m**2))
    assert_allclose(m, np.tanh(ising.fields + couplings @ m - reaction), atol=1e-8)


def test_earlier_magnetisation_converges_below_the_naive_limit() -> None:
    """At β = 0.9 of the high-temperature phase, without damping."""
    found = zoo.run(ThoulessAndersonPalmer(damping=0.0), glass(2, 800, 0.9, 0.1))
    assert found.status is Status.AT_REST


def test_not_coming_to_rest_is_said() -> None:
    found = zoo.run(ThoulessAndersonPalmer(damping=0.0), glass(0, 100, 4.0, 0.1))
    assert found.status is Status.BUDGET_SPENT
    assert found.log_z is None
    assert found.stats["sweeps"] == 1000


def test_exact_without_couplings() -> None:
    model = zoo.random_model(np.random.default_rng(0), [2, 1, 2], [(0,), (2,), (0,), ()])
    found, exact = zoo.run(TIGHT, model), zoo.run(Enumerate(), model)
    assert_allclose(found.probs, exact.probs, atol=1e-12)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("mixed-cards", "5 states"), ("factor-tree", "3 states"), ("zeros", "3 states")],
)
def test_other_models_are_refused(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        zoo.run(ThoulessAndersonPalmer(), name)


def test_zeros_and_wide_factors_are_refused() -> None:
    table = np.array([[0.0, -np.inf], [0.0, 0.0]])
    with pytest.raises(UnsupportedModelError, match="zeros"):
        zoo.run(ThoulessAndersonPalmer(), FactorGraph(np.full(2, 2), ((0, 1),), (table,)))
    wide = zoo.random_model(np.random.default_rng(0), [2] * 3, [(0, 1, 2)])
    with pytest.raises(UnsupportedModelError, match="3 variables"):
        zoo.run(ThoulessAndersonPalmer(), wide)


def test_settings_and_budget() -> None:
    with pytest.raises(IcgiError):
        ThoulessAndersonPalmer(damping=-0.5)
    first, second = (
        zoo.run(ThoulessAndersonPalmer(), glass(0, 50, 1.5), budget=Budget(iterations=7))
        for _ in range(2)
    )
    assert first.stats["sweeps"] == 7
    assert_array_equal(first.probs, second.probs)


@given(nasty_models())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_answers_are_sound_whatever_the_model(model: FactorGraph) -> None:
    try:
        found = ThoulessAndersonPalmer()(model, Budget(iterations=60), np.random.default_rng(0))
    except UnsupportedModelError:
        return
    check(model, found)


def test_without_variables_or_couplings_the_answer_is_exact() -> None:
    empty = FactorGraph(np.empty(0, np.int64), ((),), (np.array(1.5),))
    found = zoo.run(ThoulessAndersonPalmer(), empty)
    assert (found.status, found.log_z) == (Status.EXACT, 1.5)
    alone = FactorGraph(np.array([2, 2]), ((0,),), (np.array([0.3, -0.4]),))
    found = zoo.run(ThoulessAndersonPalmer(), alone)
    assert found.status is Status.EXACT
    assert_allclose(found.probs, zoo.run(Enumerate(), alone).probs, atol=1e-12)
