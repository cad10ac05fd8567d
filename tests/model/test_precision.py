import numpy as np
import pytest
from numpy.testing import assert_allclose

import zoo
from icgi.exact.enumeration import Enumerate
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Status
from icgi.model.graph import FactorGraph
from icgi.model.precision import extent_of, resolution, shifted


def two_spins(pair: list[list[float]], field: list[float]) -> FactorGraph:
    return FactorGraph(np.array([2, 2]), ((0, 1), (0,)), (np.array(pair), np.array(field)))


@pytest.mark.parametrize("engine", [JunctionTree(), Enumerate()])
def test_a_constant_of_a_table_costs_no_digits(engine) -> None:
    far = two_spins([[1e16, 1e16 + 2], [1e16, 1e16]], [0.0, 1.0])
    near = two_spins([[0.0, 2.0], [0.0, 0.0]], [0.0, 1.0])
    found, expected = zoo.run(engine, far), zoo.run(engine, near)
    assert found.status is Status.EXACT
    assert_allclose(found.probs, expected.probs, atol=1e-12)
    assert found.log_z == pytest.approx(1e16 + expected.log_z)


@pytest.mark.parametrize(
    ("span", "status"), [(700.0, Status.EXACT), (1e9, Status.CONVERGED), (1e15, Status.DIVERGED)]
)
def test_what_doubles_cannot_hold_is_not_called_exact(span: float, status: Status) -> None:
    found = zoo.run(JunctionTree(), two_spins([[0.0, -span], [-span, 0.5]], [0.0, 1.0]))
    assert found.status is status
    assert ("resolution" in found.stats) == (status is not Status.EXACT)
    assert (found.std_error is not None) == (status is not Status.EXACT)


def test_zeros_are_no_range() -> None:
    model = two_spins([[0.0, -np.inf], [-3.0, 0.5]], [0.0, -np.inf])
    assert resolution(extent_of(model)) < 1e-14
    assert shifted(model, extent_of(model)) == (model, 0.0)


def test_large_and_small_tables_are_looked_at_alike() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(100, 100))
    table[3, 5] = -np.inf
    large = FactorGraph(np.array([100, 100]), ((0, 1),), (table,))
    small = FactorGraph(np.array([100, 100]), ((0, 1), *[()] * 50), (table, *[np.array(0.0)] * 50))
    assert extent_of(large) == extent_of(small)
