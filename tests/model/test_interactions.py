"""Sizes of interactions: laws, and spins, of which they are known in closed form."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from icgi.data.families import FAMILIES
from icgi.model import interactions
from icgi.model.graph import FactorGraph
from icgi.model.interactions import bonds, floored, without_main_effects

RNG = np.random.default_rng


def made(cards: list[int], *factors: tuple[tuple[int, ...], np.ndarray]) -> FactorGraph:
    scopes, tables = zip(*factors, strict=True)
    return FactorGraph(np.array(cards), scopes, tables)


def table(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.normal(size=shape))


def test_spins_are_bound_by_the_squares_of_their_couplings_tangents() -> None:
    couplings = [0.3, 1.2]
    spins = np.array([[1.0, -1.0], [-1.0, 1.0]])
    model = made([2, 2, 2], ((0, 1), couplings[0] * spins), ((1, 2), -1.2 * spins))
    t = np.tanh(couplings) ** 2
    assert_allclose(bonds(model), [t[0], t.sum(), t[1]])


@pytest.mark.parametrize("shape", [(2, 2), (3, 4), (2, 3, 2)])
def test_main_effects_are_no_interaction(shape: tuple[int, ...]) -> None:
    rng = RNG(1)
    alone = np.zeros(shape)
    for axis, size in enumerate(shape):
        alone += rng.normal(size=size).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    assert_allclose(without_main_effects(floored(alone[None])), 0.0, atol=1e-12)
    cards, scope = list(shape), tuple(range(len(shape)))
    both = table(rng, shape)
    plain, moved = (made(cards, (scope, t)) for t in (both, both + alone + 3.0))
    assert_allclose(bonds(plain), bonds(moved))
    assert bonds(plain).min() > 0


def test_factors_of_one_variable_bind_nobody_and_a_zero_is_a_number() -> None:
    zero = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    model = made([2, 2, 2], ((0,), np.array([0.0, 5.0])), ((0, 1), zero))
    assert_allclose(bonds(model), [1.0, 1.0, 0.0], atol=1e-3)


def test_tables_that_are_too_large_count_as_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = 0.01 * table(RNG(2), (3, 3))
    model = made([3, 3, 3], ((0, 1), weak), ((1, 2), weak))
    assert bonds(model).max() < 0.01
    monkeypatch.setattr(interactions, "MOST_ENTRIES", 9)
    assert_allclose(bonds(model)[1:], 1.0, atol=0.01)
    assert bonds(model)[0] < 0.01


def test_of_very_many_factors_some_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FAMILIES["ea2d"].sample(RNG(0), L=30, beta=1.0)
    whole = bonds(model).mean()
    monkeypatch.setattr(interactions, "MOST_FACTORS", 200)
    assert bonds(model).mean() == pytest.approx(whole, rel=0.15)
