import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import zoo
from icgi.errors import ModelFormatError
from icgi.exact.enumeration import Enumerate, joint
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising, ising_model, potts_model


def energies(J: np.ndarray, h: np.ndarray, beta: float) -> np.ndarray:
    """β(Σ_{i<j} J s s + Σ h s) of every configuration, straight from the definition."""
    n = len(h)
    spins = 2 * np.stack(np.unravel_index(np.arange(2**n), (2,) * n), 1) - 1
    return beta * (np.einsum("ci,ij,cj->c", spins, np.triu(J, 1), spins) + spins @ h)


@pytest.fixture
def glass() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    J = np.triu(rng.normal(size=(6, 6)) * (rng.random((6, 6)) < 0.6), 1)
    return J + J.T, rng.normal(size=6) * (np.arange(6) != 2)


class TestIsingModel:
    def test_state_one_is_spin_up(self) -> None:
        probs = zoo.run(Enumerate(), ising_model(np.zeros((1, 1)), [0.7], beta=2.0)).probs
        assert_allclose(probs[0, 1], 1 / (1 + np.exp(-2 * 2.0 * 0.7)))

    def test_positive_coupling_aligns(self) -> None:
        found = joint(ising_model([[0, 1.0], [1.0, 0]]))
        assert_array_equal(found, [1, -1, -1, 1])

    def test_is_the_definition(self, glass: tuple[np.ndarray, np.ndarray]) -> None:
        J, h = glass
        assert_allclose(joint(ising_model(J, h, 0.8)), energies(J, h, 0.8), atol=1e-12)

    @pytest.mark.parametrize("triangle", [np.triu, np.tril, lambda J: J])
    @pytest.mark.parametrize(
        "form", [np.asarray, sparse.csr_array, sparse.coo_matrix, sparse.csc_matrix, list]
    )
    def test_every_form_is_the_same_model(self, glass, form, triangle) -> None:
        J, h = glass
        given = form(triangle(J))
        model, plain = ising_model(given, h, 0.8), ising_model(J, h, 0.8)
        assert model.scopes == plain.scopes
        for table, expected in zip(model.log_tables, plain.log_tables, strict=True):
            assert_array_equal(table, expected)

    def test_a_sparse_argument_is_untouched(self) -> None:
        given = sparse.coo_matrix(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2))
        assert joint(ising_model(given))[0] == 3.0
        assert given.nnz == 2

    def test_one_factor_per_field_and_edge(self, glass) -> None:
        J, h = glass
        model = ising_model(J, h)
        assert [s for s in model.scopes if len(s) == 1] == [(i,) for i in range(6) if i != 2]
        assert sum(len(s) == 2 for s in model.scopes) == np.count_nonzero(np.triu(J))
        assert not any(table.flags.writeable for table in model.log_tables)

    def test_edges_of_zero_coupling_stay(self) -> None:
        model = ising_model((np.array([[0, 1], [2, 1]]), [0.0, 1.0]), np.zeros(4))
        assert model.scopes == ((0, 1), (2, 1))
        assert model.n_variables == 4

    def test_number_of_spins_of_an_edge_list(self) -> None:
        edges = [[0, 3]]
        assert ising_model((edges, [1.0])).n_variables == 4
        assert ising_model((edges, [1.0]), 0.5).n_factors == 5
        assert ising_model((edges, 1.0), names=list("abcde")).names == tuple("abcde")
        assert ising_model((np.empty((0, 2)), []), np.ones(3)).n_factors == 3

    @pytest.mark.parametrize(
        ("J", "h", "says"),
        [
            (np.array([[0, 1.0], [2.0, 0]]), None, "triangles"),
            (sparse.csr_array(np.array([[0, 1, 0], [0, 0, 0], [1, 0, 0.0]])), None, "triangles"),
            (np.eye(2), None, "diagonal"),
            (np.zeros((2, 3)), None, "square"),
            (np.zeros((2, 2)), [1.0], "one per spin"),
            (np.array([[0, np.nan], [np.nan, 0]]), None, "triangles|finite"),
            (np.zeros((2, 2)), [np.inf, 0], "finite"),
            (([[0, 1]], [1.0, 2.0]), None, "one per edge"),
            (([[0, 1, 2]], [1.0]), None, "m × 2"),
            (([[0.5, 1]], [1.0]), None, "whole numbers"),
            (([[1, 1]], [1.0]), None, "twice"),
            (([[0, 5]], [1.0]), [0.0, 0.0], "variable 5"),
            (([[0, 10**12]], [1.0]), None, "dense array"),
            (([[0, 1], [2]], [1.0]), None, "no array"),
            (np.array([[0, 1j], [1j, 0]]), None, "real numbers"),
            ([["a"]], None, "real numbers"),
            (np.zeros((1, 1)), ["a"], "real numbers"),
            (np.array([[0, np.inf], [np.inf, 0]]), None, "finite"),
            (np.array([[0, 9e300], [9e300, 0]]), None, "beyond ±1e"),
        ],
    )
    def test_refuses(self, J, h, says: str) -> None:
        with pytest.raises(ModelFormatError, match=says):
            ising_model(J, h)

    @pytest.mark.parametrize(
        ("beta", "says"), [(np.nan, "beta is nan"), (np.inf, "beta is inf"), (1e100, "beyond")]
    )
    def test_refuses_products_that_no_number_holds(self, beta: float, says: str) -> None:
        with pytest.raises(ModelFormatError, match=says):
            ising_model(np.array([[0, 1e300], [1e300, 0]]), None, beta)
        with pytest.raises(ModelFormatError, match=says):
            ising_model(np.zeros((1, 1)), [1e300], beta)

    @pytest.mark.parametrize(
        "J", [[], np.zeros((0, 0)), sparse.csr_array((0, 0)), ((), ()), (np.empty((0, 2)), 1.0)]
    )
    def test_no_spins_are_a_model(self, J) -> None:
        assert ising_model(J).n_variables == 0

    def test_what_was_given_can_still_be_written_to(self) -> None:
        edges, couplings, h = np.array([[0, 1]]), np.ones(1), np.ones(2)
        model = ising_model((edges, couplings), h)
        edges[0], couplings[0], h[0] = (1, 0), 5.0, 7.0
        assert model.scopes == ((0,), (1,), (0, 1))
        assert max(table.max() for table in model.log_tables) == 1.0


class TestAsIsing:
    def test_round_trip(self, glass) -> None:
        J, h = glass
        found = as_ising(ising_model(J, h, 0.8))
        assert found is not None
        matrix = np.zeros((6, 6))
        matrix[found.edges[:, 0], found.edges[:, 1]] = found.couplings
        assert_allclose(matrix, 0.8 * np.triu(J), atol=1e-15)
        assert_allclose(found.fields, 0.8 * h, atol=1e-15)
        assert found.constant == pytest.approx(0, abs=1e-14)

    @pytest.mark.parametrize("name", ["chain", "loop", "grid-3x3", "empty-scope", "strong"])
    def test_any_binary_pairwise_model_is_one(self, name: str) -> None:
        model = zoo.MODELS[name]
        found = as_ising(model)
        assert found is not None
        n = model.n_variables
        J = np.zeros((n, n))
        J[found.edges[:, 0], found.edges[:, 1]] = found.couplings
        assert_allclose(
            energies(J, found.fields, 1.0) + found.constant, joint(model), rtol=1e-12, atol=1e-12
        )

    @pytest.mark.parametrize(
        "name", ["one-variable", "tree", "ternary-factors", "zeros", "one-state-variable"]
    )
    def test_other_models_are_none(self, name: str) -> None:
        assert as_ising(zoo.MODELS[name]) is None

    def test_zeros_are_none_even_in_a_constant(self) -> None:
        assert as_ising(FactorGraph(np.array([2]), ((),), (np.array(-np.inf),))) is None

    def test_parallel_edges_merge(self) -> None:
        found = as_ising(ising_model((np.array([[2, 0], [0, 2], [1, 2]]), [1.0, 0.5, 2.0])))
        assert found is not None
        assert_array_equal(found.edges, [[0, 2], [1, 2]])
        assert_array_equal(found.couplings, [1.5, 2.0])

    def test_symmetric_tables_have_exactly_no_field(self) -> None:
        rng = np.random.default_rng(0)
        a, b = rng.normal(size=(2, 50)) * 10.0 ** rng.integers(-3, 3, 50)
        tables = np.stack([a, b, b, a], 1).reshape(-1, 2, 2)
        scopes = tuple((i, i + 1) for i in range(50))
        found = as_ising(FactorGraph(np.full(51, 2), scopes, tuple(tables)))
        assert found is not None
        assert not found.fields.any()

    def test_observed_variables_leave_z_unchanged(self) -> None:
        from icgi.model.condition import condition

        model = ising_model(np.triu(np.ones((4, 4)), 1), [0.1, 0.2, 0.3, 0.4])
        given = condition(model, {1: 1}).model
        found = as_ising(given)
        assert found is not None
        again = ising_model((found.edges, found.couplings), found.fields)
        assert Enumerate()(again, zoo.BUDGET, np.random.default_rng(0)).log_z + (
            found.constant
        ) == pytest.approx(Enumerate()(given, zoo.BUDGET, np.random.default_rng(0)).log_z)


class TestPottsModel:
    edges = np.array([[0, 1], [1, 2]])

    def test_scalar_and_per_edge_couplings_count_equal_states(self) -> None:
        log_weight = joint(potts_model(self.edges, [1.0, -2.0], n_states=3, beta=0.5))
        x = np.stack(np.unravel_index(np.arange(27), (3, 3, 3)), 1)
        expected = 0.5 * (1.0 * (x[:, 0] == x[:, 1]) - 2.0 * (x[:, 1] == x[:, 2]))
        assert_allclose(log_weight, expected)
        same = potts_model(self.edges, 1.0, n_states=3)
        assert_allclose(same.log_tables[1], np.eye(3))

    def test_tables_and_fields(self) -> None:
        rng = np.random.default_rng(0)
        table, fields = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
        fields[1] = 0
        model = potts_model(self.edges, table, fields, beta=2.0)
        assert model.scopes == ((0,), (2,), (0, 1), (1, 2))
        assert_allclose(model.log_tables[2], 2 * table)
        each = potts_model(self.edges, np.stack([table, table]), fields, beta=2.0)
        assert_allclose(joint(each), joint(model))

    def test_forbidden_pairs_colour_a_graph(self) -> None:
        table = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
        for couplings in (table, -np.inf):
            model = potts_model(self.edges, couplings, n_states=3)
            assert np.isfinite(joint(model)).sum() == 3 * 2 * 2

    def test_two_states_are_an_ising_model(self) -> None:
        found = as_ising(potts_model(self.edges, 1.0, n_states=2))
        assert found is not None
        assert_allclose(found.couplings, 0.5)

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"couplings": 1.0}, "nothing"),
            ({"couplings": 1.0, "n_states": 3, "fields": np.zeros((3, 2))}, "2, 3"),
            ({"couplings": np.zeros((5, 3, 3))}, "shape"),
            ({"couplings": 1.0, "fields": np.zeros(3)}, "one row of states"),
            ({"couplings": np.inf, "n_states": 3}, "NaN"),
            ({"couplings": 1.0, "n_states": 0}, "at least 1"),
            ({"couplings": 1.0, "n_states": 2.5}, "at least 1"),
            ({"couplings": 1e200, "n_states": 3, "beta": 1e200}, "beyond"),
            ({"couplings": -np.inf, "n_states": 3, "beta": 0.0}, "no number"),
            ({"couplings": 1.0, "fields": np.full((3, 3), np.inf)}, "finite"),
        ],
    )
    def test_refuses(self, arguments: dict, says: str) -> None:
        with pytest.raises(ModelFormatError, match=says):
            potts_model(self.edges, **arguments)
