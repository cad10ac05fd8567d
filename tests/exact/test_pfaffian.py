import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial import Delaunay
from scipy.special import logsumexp

import zoo
from icgi.data.families.lattice import lattice_edges
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.exact import pfaffian
from icgi.exact.enumeration import joint
from icgi.exact.pfaffian import Pfaffian
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model


def run(model: FactorGraph, budget: Budget = zoo.BUDGET) -> Marginals:
    return Pfaffian()(model, budget, np.random.default_rng(0))


def glass(edges: np.ndarray, couplings: np.ndarray, n: int) -> FactorGraph:
    return ising_model((np.asarray(edges).reshape(-1, 2), couplings), np.zeros(n))


def assert_equals_enumeration(model: FactorGraph) -> None:
    found = run(model)
    log_joint = joint(model)
    log_z = logsumexp(log_joint)
    weights = np.exp(log_joint - log_z).reshape((2,) * model.n_variables)
    assert found.status is Status.EXACT
    assert found.log_z == pytest.approx(log_z, abs=1e-9, rel=1e-12)
    assert_allclose(found.probs, 0.5)
    assert found.pairs is not None
    assert set(found.pairs) == {tuple(sorted(s)) for s in model.scopes if len(s) == 2}
    for (i, j), table in found.pairs.items():
        others = tuple(a for a in range(model.n_variables) if a not in (i, j))
        assert_allclose(table, weights.sum(others), atol=1e-9)


@st.composite
def planar_models(draw: st.DrawFn) -> FactorGraph:
    """Grids, triangulations and trees with edges left out: cycle-free, disconnected, isolated."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["grid", "triangulation", "tree", "wheel", "two parts"]))
    if kind == "grid":
        shape = draw(st.sampled_from([(2, 2), (3, 4), (2, 6), (3, 3)]))
        n, edges = math.prod(shape), lattice_edges(shape)
    elif kind == "triangulation":
        n = draw(st.integers(4, 11))
        faces = Delaunay(rng.random((n, 2))).simplices
        edges = np.unique(np.sort(faces[:, [[0, 1], [1, 2], [0, 2]]].reshape(-1, 2), 1), axis=0)
    elif kind == "tree":
        n = draw(st.integers(2, 11))
        edges = np.array([(rng.integers(i), i) for i in range(1, n)])
    elif kind == "wheel":
        n = draw(st.integers(4, 11))
        rim = np.arange(1, n)
        edges = np.concatenate([np.stack([rim, np.roll(rim, 1)], 1), np.stack([0 * rim, rim], 1)])
    else:
        n, edges = 12, np.concatenate([lattice_edges((2, 3)), 6 + lattice_edges((3, 2))])
    edges = edges[rng.random(len(edges)) < draw(st.sampled_from([0.5, 0.8, 1.0]))]
    edges = rng.permutation(n)[edges]
    couplings = rng.normal(size=len(edges)) * draw(st.sampled_from([0.1, 1.0, 5.0, 20.0]))
    if draw(st.booleans()):
        couplings = np.sign(couplings) * np.abs(couplings).max(initial=0.0)
    couplings[rng.random(len(edges)) < draw(st.sampled_from([0.0, 0.2]))] = 0.0
    doubled = rng.random(len(edges)) < 0.2
    edges = np.concatenate([edges, edges[doubled][:, ::-1]])
    return glass(edges, np.concatenate([couplings, rng.normal(size=doubled.sum())]), n)


@settings(max_examples=120, deadline=None)
@given(planar_models())
def test_equals_enumeration_on_planar_graphs(model: FactorGraph) -> None:
    assert_equals_enumeration(model)


@pytest.mark.parametrize("face", [3, 4, 1000])
def test_splitting_faces_changes_nothing(face: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pfaffian, "FACE", face)
    rng = np.random.default_rng(face)
    ring = np.stack([np.arange(9), (np.arange(9) + 1) % 9], 1)
    assert_equals_enumeration(glass(ring, rng.normal(size=9), 9))
    edges = lattice_edges((3, 4))
    assert_equals_enumeration(glass(edges, rng.normal(size=len(edges)), 12))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_no_edges(n: int) -> None:
    found = run(glass(np.empty((0, 2), np.int64), np.empty(0), n))
    assert found.log_z == pytest.approx(n * math.log(2))
    assert found.probs.shape == (n, 2 if n else 0)


def test_constants_count_and_one_state_variables_do_not() -> None:
    model = FactorGraph(
        np.array([2, 1, 2]), ((), (0, 2)), (np.array(3.0), np.array([[1.0, 0], [0, 1.0]]))
    )
    found = run(model)
    assert found.log_z == pytest.approx(logsumexp(joint(model)))
    assert_allclose(found.probs, [[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])


def strip(rows: int, columns: int, J: np.ndarray) -> tuple[float, np.ndarray]:
    """log Z and P(s_i = s_j) of a strip by transfer matrices, sums of positive terms only.

    Edges are in the order of `lattice_edges`: down, then across.
    """
    edges = lattice_edges((rows, columns))
    down, across = J[: (rows - 1) * columns], J[(rows - 1) * columns :].reshape(rows, columns - 1)
    down = down.reshape(rows - 1, columns)
    spins = 2.0 * np.stack(np.unravel_index(np.arange(2**rows), (2,) * rows), 1) - 1
    inner = [(spins[:, :-1] * spins[:, 1:]) @ down[:, c] for c in range(columns)]
    step = [(spins * across[:, c]) @ spins.T for c in range(columns - 1)]
    left, right = [inner[0]], [np.zeros(2**rows)]
    for c in range(1, columns):
        left.append(inner[c] + logsumexp(left[-1][:, None] + step[c - 1], 0))
        right.append(logsumexp(step[-c] + (inner[-c] + right[-1]), 1))
    right.reverse()
    log_z = float(logsumexp(left[-1]))
    alike = np.empty(len(edges))
    for e, (i, j) in enumerate(edges.tolist()):
        (r, c), (s, d) = divmod(i, columns), divmod(j, columns)
        if c == d:
            weight, same = left[c] + right[c], spins[:, r] == spins[:, s]
        else:
            weight = left[c][:, None] + step[c] + (inner[d] + right[d])
            same = spins[:, r][:, None] == spins[:, s]
        alike[e] = np.exp(logsumexp(weight, b=same) - log_z)
    return log_z, alike


class TestStrips:
    """Against transfer matrices, which lose no digits at any temperature."""

    @pytest.mark.parametrize("disorder", ["ferromagnet", "gaussian", "bimodal"])
    @pytest.mark.parametrize("beta", [0.0, 0.4407, 1.0, 3.0, 20.0, 60.0])
    def test_equals_transfer_matrices(self, beta: float, disorder: str) -> None:
        rng = np.random.default_rng(8)
        edges = lattice_edges((4, 12))
        J = {
            "ferromagnet": np.ones(len(edges)),
            "gaussian": rng.normal(size=len(edges)),
            "bimodal": rng.choice([-1.0, 1.0], len(edges)),
        }[disorder]
        log_z, alike = strip(4, 12, beta * J)
        found = run(glass(edges, beta * J, 48))
        assert found.status is Status.EXACT
        assert found.log_z == pytest.approx(log_z, abs=1e-9, rel=1e-12)
        assert found.pairs is not None
        tables = np.array([found.pairs[i, j] for i, j in edges.tolist()])
        assert_allclose(tables[:, 0, 0] + tables[:, 1, 1], alike, atol=1e-9)

    def test_digits_grow_only_when_needed(self) -> None:
        rng = np.random.default_rng(8)
        edges = lattice_edges((4, 12))
        J = rng.choice([-1.0, 1.0], len(edges))
        assert run(glass(edges, 1.0 * J, 48)).stats["digits"] == 16
        assert run(glass(edges, 20.0 * J, 48)).stats["digits"] > 16

    @pytest.mark.parametrize("disorder", ["gaussian", "bimodal"])
    def test_couplings_beyond_the_range_of_floats(self, disorder: str) -> None:
        rng = np.random.default_rng(3)
        edges = lattice_edges((3, 5))
        J = 1000.0 * rng.normal(size=len(edges))
        J = J if disorder == "gaussian" else 400.0 * np.sign(J)
        log_z, alike = strip(3, 5, J)
        found = run(glass(edges, J, 15))
        assert found.log_z == pytest.approx(log_z, rel=1e-13)
        assert found.pairs is not None
        tables = np.array([found.pairs[i, j] for i, j in edges.tolist()])
        assert_allclose(2 * tables[:, 0, 0], alike, atol=1e-9)


def onsager(J: float) -> float:
    """Free energy per spin of the infinite square lattice, log Z / N (Onsager 1944)."""
    k = 2 * math.sinh(2 * J) / math.cosh(2 * J) ** 2
    theta = (np.arange(2000) + 0.5) * np.pi / 4000
    mean = np.log((1 + np.sqrt(1 - (k * np.sin(theta)) ** 2)) / 2).mean()
    return math.log(2 * math.cosh(2 * J)) + mean / 2


@pytest.mark.parametrize("J", [0.2, 0.9])
def test_bulk_free_energy_is_onsagers(J: float) -> None:
    """Second differences in the size remove boundary and corner: bulk = f(L+1,L+1) − 2f + …"""
    f = {}
    for rows, columns in ((16, 16), (16, 17), (17, 17)):
        edges = lattice_edges((rows, columns))
        log_z = run(glass(edges, np.full(len(edges), J), rows * columns)).log_z
        assert log_z is not None
        f[rows, columns] = log_z
    bulk = f[17, 17] - 2 * f[16, 17] + f[16, 16]
    assert bulk == pytest.approx(onsager(J), abs=2e-6)


def test_a_large_grid_takes_seconds() -> None:
    edges = lattice_edges((30, 30))
    J = np.random.default_rng(0).normal(size=len(edges))
    found = run(glass(edges, J, 900))
    assert found.status is Status.EXACT
    assert found.stats["digits"] == 16
    assert found.stats["difference"] < 1e-12


class TestRefusals:
    def test_fields(self) -> None:
        with pytest.raises(UnsupportedModelError, match=r"variable 1 with 0\.3.*use jt"):
            run(ising_model(([[0, 1]], [1.0]), [0.0, 0.3]))

    @pytest.mark.parametrize("name", ["zeros", "ternary-factors", "mixed-cards"])
    def test_other_models(self, name: str) -> None:
        with pytest.raises(UnsupportedModelError, match="not an Ising model"):
            run(zoo.MODELS[name])

    @pytest.mark.parametrize("graph", ["K5", "K33"])
    def test_graphs_that_are_not_planar(self, graph: str) -> None:
        edges = [(i, j) for i in range(6) for j in range(i) if graph == "K5" or (i < 3) != (j < 3)]
        with pytest.raises(UnsupportedModelError, match="planar"):
            run(glass(np.array(edges), np.ones(len(edges)), 6))

    def test_a_zero_coupling_may_cross(self) -> None:
        edges = np.array([(i, j) for i in range(5) for j in range(i)])
        couplings = np.ones(10)
        couplings[3] = 0.0
        found = run(glass(edges, couplings, 5))
        assert found.log_z == pytest.approx(logsumexp(joint(glass(edges, couplings, 5))))
        assert found.pairs is not None
        assert len(found.pairs) == 9

    def test_memory_is_predicted(self) -> None:
        edges = lattice_edges((8, 8))
        with pytest.raises(BudgetError, match=r"kB.*larger memory budget"):
            run(glass(edges, np.ones(len(edges)), 64), Budget(table_bytes=1000))

    def test_no_time_for_digits_is_said(self) -> None:
        edges = lattice_edges((8, 8))
        J = 20 * np.random.default_rng(0).choice([-1.0, 1.0], len(edges))
        found = run(glass(edges, J, 64), Budget(seconds=0.0))
        assert found.status is Status.BUDGET_SPENT
        assert found.log_z is None
        assert found.pairs is None
        assert_allclose(found.probs, 0.5)
