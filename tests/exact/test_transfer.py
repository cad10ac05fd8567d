"""Rings of columns: recognised, and answered as exact inference answers them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
from icgi.data.families import FAMILIES
from icgi.exact.rings import ring_of
from icgi.exact.transfer import by_transfer
from icgi.inference import Budget, Status
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising, ising_model


def torus(rows: int, columns: int, strength: float, seed: int = 0, field: float = 1.0):
    """Spins in a random order, couplings of either sign."""
    rng = np.random.default_rng(seed)
    name = rng.permutation(rows * columns).reshape(rows, columns)
    edges = [
        (name[a, b], name[c % rows, d % columns])
        for a in range(rows)
        for b in range(columns)
        for c, d in ((a + 1, b), (a, b + 1))
    ]
    couplings = rng.uniform(-strength, strength, len(edges))
    return ising_model((edges, couplings), field * rng.uniform(-1, 1, rows * columns))


def answered(model: FactorGraph, **limits: float):
    return by_transfer(model, as_ising(model), Budget(**limits), np.random.default_rng(1))


@pytest.mark.parametrize("strength", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("shape", [(5, 5), (5, 8), (7, 6)])
def test_tori_are_answered_right(shape: tuple[int, int], strength: float) -> None:
    model = torus(*shape, strength)
    exact, found = icgi.marginals(model, engine="jt"), answered(model)
    assert found.status is Status.CONVERGED
    difference = np.abs(found.probs - exact.probs).max()
    assert difference <= found.std_error.max() < 1e-3
    assert found.log_z == pytest.approx(exact.log_z, abs=10 * found.std_error.max())


def test_narrow_columns_are_the_ring_that_is_taken() -> None:
    ring = ring_of(as_ising(torus(5, 9, 1.0)))
    assert ring.spins.shape == (9, 5)


def test_columns_may_hold_any_couplings() -> None:
    """A ring of open columns, which has no second direction to go round."""
    rng = np.random.default_rng(3)
    edges = [(5 * k + i, 5 * ((k + 1) % 6) + i) for k in range(6) for i in range(5)]
    edges += [(5 * k + i, 5 * k + i + 1) for k in range(6) for i in range(4)]
    model = ising_model((edges, rng.normal(size=len(edges))), rng.normal(size=30))
    assert ring_of(as_ising(model)).spins.shape == (6, 5)
    assert_allclose(answered(model).probs, icgi.marginals(model, engine="jt").probs, atol=1e-5)


def test_two_nearly_equal_states_take_more_than_one_vector() -> None:
    """A cold ferromagnet in a weak field: two eigenvalues share the trace."""
    edges = [
        (6 * a + b, 6 * (c % 6) + d % 6)
        for a in range(6)
        for b in range(6)
        for c, d in ((a + 1, b), (a, b + 1))
    ]
    fields = np.full(36, 0.002)
    model = ising_model((edges, np.ones(len(edges))), fields)
    assert_allclose(answered(model).probs, icgi.marginals(model, engine="jt").probs, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        FAMILIES["ea2d"].sample(np.random.default_rng(0), L=6),
        FAMILIES["ea3d"].sample(np.random.default_rng(0), L=3),
        FAMILIES["sk"].sample(np.random.default_rng(0), n=12),
        FAMILIES["potts"].sample(np.random.default_rng(0), L=5, periodic=True),
        FAMILIES["tree"].sample(np.random.default_rng(0), n=20),
    ],
    ids=["open", "cube", "dense", "potts", "tree"],
)
def test_other_models_are_left_to_others(model: FactorGraph) -> None:
    assert answered(model) is None


def test_a_twist_is_no_ring() -> None:
    edges = [
        (5 * k + i, 5 * ((k + 1) % 6) + (i + (k == 5)) % 5) for k in range(6) for i in range(5)
    ]
    edges += [(5 * k + i, 5 * k + (i + 1) % 5) for k in range(6) for i in range(5)]
    assert ring_of(as_ising(ising_model((edges, np.ones(60)), np.ones(30)))) is None


@pytest.mark.parametrize("limits", [{"seconds": 0.0}, {"table_bytes": 1000}])
def test_what_does_not_fit_is_no_answer(limits: dict[str, float]) -> None:
    assert answered(torus(5, 5, 1.0), **limits) is None
