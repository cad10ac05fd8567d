"""Theorem error-prop: where Σ ε_t bounds the error of a marginal, where not, and what does."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import zoo
from icgi.bench.propagation import Worse, mixing, propagate, rounding
from icgi.data.families import FAMILIES
from icgi.exact.enumeration import Enumerate
from icgi.model.graph import FactorGraph

CASES = {
    "tree": {"n": 9, "arity": 2},
    "grid": {"rows": 3, "columns": 3},
    "er": {"n": 9, "p": 0.5},
}


def draw(family: str, beta: float, seed: int) -> FactorGraph:
    return FAMILIES[family].sample(np.random.default_rng(seed), beta=beta, **CASES[family])


def unchanged(factor: np.ndarray) -> np.ndarray:
    return factor


@pytest.mark.parametrize("family", CASES)
def test_without_errors_the_marginal_is_exact(family: str) -> None:
    model = draw(family, 1.5, 0)
    for order in (range(9), range(8, -1, -1)):
        assert propagate(model, list(order), unchanged).error < 1e-12
        assert propagate(model, list(order), rounding(2**5)).error < 1e-10


def test_elimination_sums_to_the_marginals_of_enumeration() -> None:
    """Two ends of the same chain of steps: a last factor that says all, and the oracle."""
    for name in ("loop", "grid-3x3", "ternary-factors", "mixed-cards"):
        model = zoo.MODELS[name]
        last = model.n_variables - 1
        seen: list[np.ndarray] = []

        def look(factor: np.ndarray, seen: list[np.ndarray] = seen) -> np.ndarray:
            seen.append(factor)
            return factor

        propagate(model, list(range(last + 1)), look)
        own = [
            np.exp(t) for s, t in zip(model.scopes, model.log_tables, strict=True) if s == (last,)
        ]
        product = np.prod([seen[-1], *own], axis=0)
        truth = zoo.run(Enumerate(), name).probs[last, : model.cards[last]]
        assert_allclose(product / product.sum(), truth, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("beta", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("family", CASES)
def test_the_bound_with_the_division_always_holds(family: str, beta: float, seed: int) -> None:
    model, rng = draw(family, beta, seed), np.random.default_rng(seed)
    order = rng.permutation(9).tolist()
    kinds: list[Worse] = [rounding(1), rounding(2), mixing(0.01, rng), mixing(0.2, rng)]
    for worse in kinds:
        found = propagate(model, order, worse)
        assert found.error <= found.divided + 1e-9
        assert (found.amplification >= 1 - 1e-9).all()  # a maximum is no less than a mean


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("family", CASES)
def test_the_linear_bound_holds_where_couplings_are_weak(family: str, seed: int) -> None:
    model, rng = draw(family, 0.1, seed), np.random.default_rng(seed)
    found = propagate(model, rng.permutation(9).tolist(), mixing(0.05, rng))
    assert found.error <= found.linear


@pytest.mark.parametrize("eta", [0.1, 0.01, 0.001])
def test_the_linear_bound_fails_by_any_factor(eta: float) -> None:
    """One step: φ = (1−η, η), then ψ = (η, 1−η). Moving η of mass makes (½, ½) into (⅓, ⅔)."""
    tables = np.log(np.array([[1 - eta], [eta]])), np.log(np.array([eta, 1 - eta]))
    model = FactorGraph(np.array([1, 2]), ((1, 0), (1,)), (tables[0], tables[1]))

    def moved(factor: np.ndarray) -> np.ndarray:
        return factor + eta * np.array([-1.0, 1.0])

    found = propagate(model, [0, 1], moved)
    assert found.linear == pytest.approx(2 * eta)
    assert found.error == pytest.approx(1 / 3, abs=eta)
    assert found.error > found.linear * 0.15 / eta
    assert found.error <= found.divided
    assert_allclose(found.amplification, (1 - eta) / (2 * eta * (1 - eta)), rtol=1e-9)


def test_the_linear_bound_fails_on_trees_too() -> None:
    """A tree has no fill-in and no rank to cut, but predicted messages may err there as well."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found.append(
            propagate(draw("tree", 3.0, seed), rng.permutation(9).tolist(), mixing(1e-3, rng))
        )
    assert any(each.error > each.linear for each in found)
    assert all(each.error <= each.divided + 1e-9 for each in found)
