import math

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import stats

from icgi.data.families import FAMILIES, PRESETS
from icgi.data.families.factor_graphs import planted_csp, random_scopes
from icgi.data.families.lattice import lattice_edges
from icgi.data.families.random_graphs import (
    barabasi_albert_edges,
    erdos_renyi_edges,
    watts_strogatz_edges,
)
from icgi.errors import IcgiError
from icgi.exact.enumeration import Enumerate, joint
from icgi.inference import Budget, infer
from icgi.model.graph import FactorGraph
from icgi.model.ising import IsingArrays, as_ising


def sample(family: str, seed: int = 0, **parameters: object) -> FactorGraph:
    return FAMILIES[family].sample(np.random.default_rng(seed), **parameters)


def ising(family: str, seed: int = 0, **parameters: object) -> IsingArrays:
    found = as_ising(sample(family, seed, **parameters))
    assert found is not None
    return found


def degrees(edges: np.ndarray, n: int) -> np.ndarray:
    return np.bincount(edges.ravel(), minlength=n)


@pytest.mark.parametrize("family", FAMILIES)
class TestEveryFamily:
    def test_one_seed_one_model(self, family: str) -> None:
        first, second, other = sample(family, 1), sample(family, 1), sample(family, 2)
        assert first.scopes == second.scopes
        for a, b in zip(first.log_tables, second.log_tables, strict=True):
            assert_array_equal(a, b)
        assert first.scopes != other.scopes or any(
            (a != b).any() for a, b in zip(first.log_tables, other.log_tables, strict=True)
        )

    def test_says_what_it_is(self, family: str) -> None:
        assert 20 < len(FAMILIES[family].summary) <= 100
        assert FAMILIES[family].parameters
        for value in FAMILIES[family].parameters.values():
            assert isinstance(value, int | float | str | bool)

    def test_tables_are_read_only_float64(self, family: str) -> None:
        for table in sample(family).log_tables:
            assert table.dtype == np.float64
            assert not table.flags.writeable

    def test_no_field_means_no_unary_factor(self, family: str) -> None:
        name = {"sk": "h"}.get(family, "field")
        if name in FAMILIES[family].parameters:
            assert all(len(scope) > 1 for scope in sample(family, **{name: 0.0}).scopes)


@pytest.mark.parametrize("family", ["grid", "er", "ba", "ws", "ea2d", "ea3d"])
class TestSpinGlasses:
    def test_couplings_are_standard_normal_times_beta(self, family: str) -> None:
        parts = [ising(family, seed, beta=2.0).couplings for seed in range(40)]
        couplings = np.concatenate(parts) / 2.0
        assert stats.kstest(couplings, "norm").pvalue > 1e-3
        assert abs(couplings.mean()) < 4 / math.sqrt(len(couplings))

    def test_fields_are_normal_times_beta(self, family: str) -> None:
        fields = np.concatenate([ising(family, s, beta=2.0, field=0.3).fields for s in range(40)])
        assert stats.kstest(fields / 0.6, "norm").pvalue > 1e-3

    def test_bimodal_couplings(self, family: str) -> None:
        couplings = np.concatenate(
            [ising(family, s, disorder="bimodal", beta=0.5).couplings for s in range(20)]
        )
        assert_array_equal(np.unique(couplings), [-0.5, 0.5])
        assert abs(couplings.mean() / 0.5) < 4 / math.sqrt(len(couplings))

    def test_unknown_disorder(self, family: str) -> None:
        with pytest.raises(IcgiError, match="gaussian or bimodal"):
            sample(family, disorder="uniform")


class TestLattices:
    @pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 7), (3, 4, 5)])
    def test_is_the_grid_graph(self, shape: tuple[int, ...]) -> None:
        reference = nx.convert_node_labels_to_integers(
            nx.grid_graph(shape[::-1]), ordering="sorted"
        )
        edges = {tuple(sorted(e)) for e in lattice_edges(shape).tolist()}
        assert edges == {tuple(sorted(e)) for e in reference.edges}

    @pytest.mark.parametrize(("family", "neighbours"), [("ea2d", 4), ("ea3d", 6)])
    def test_neighbours(self, family: str, neighbours: int) -> None:
        length, dimension = 4, neighbours // 2
        n = length**dimension
        ring = degrees(ising(family, L=length, periodic=True).edges, n)
        assert_array_equal(ring, neighbours)
        free = degrees(ising(family, L=length).edges, n)
        assert free.max() == neighbours
        assert np.count_nonzero(free == dimension) == 2**dimension  # corners
        assert free.sum() == 2 * dimension * (length - 1) * length ** (dimension - 1)

    def test_a_ring_of_two_has_one_edge(self) -> None:
        assert len(lattice_edges((2, 2), periodic=True)) == 4

    def test_open_lattices_are_planar(self) -> None:
        assert nx.check_planarity(nx.Graph(ising("grid", rows=7, columns=5).edges.tolist()))[0]

    def test_field_of_the_paper_is_none_but_ours_is_weak(self) -> None:
        assert FAMILIES["ea2d"].parameters["field"] == 0.1
        assert not ising("ea2d", field=0.0).fields.any()


class TestRandomGraphs:
    def test_erdos_renyi_edges_are_binomial(self) -> None:
        rng = np.random.default_rng(0)
        counts = [len(erdos_renyi_edges(rng, 40, 0.1)) for _ in range(2000)]
        mean, deviation = 780 * 0.1, math.sqrt(780 * 0.1 * 0.9)
        assert abs(np.mean(counts) - mean) < 4 * deviation / math.sqrt(2000)
        assert np.std(counts) == pytest.approx(deviation, rel=0.1)

    def test_erdos_renyi_pairs_are_equally_likely(self) -> None:
        rng = np.random.default_rng(0)
        edges = np.concatenate([erdos_renyi_edges(rng, 7, 0.3) for _ in range(4000)])
        assert (edges[:, 0] < edges[:, 1]).all()
        counts = np.unique(edges, axis=0, return_counts=True)[1]
        assert len(counts) == 21
        assert stats.chisquare(counts).pvalue > 1e-3

    @pytest.mark.parametrize("p", [0.0, 1.0])
    def test_erdos_renyi_extremes(self, p: float) -> None:
        edges = erdos_renyi_edges(np.random.default_rng(0), 9, p)
        assert_array_equal(edges, np.stack(np.triu_indices(9, 1), 1)[: int(p * 36)])

    @pytest.mark.parametrize("m", [1, 3])
    def test_barabasi_albert(self, m: int) -> None:
        edges = barabasi_albert_edges(np.random.default_rng(0), 300, m)
        assert len(edges) == m * (300 - m)
        assert len({tuple(e) for e in edges.tolist()}) == len(edges)
        assert (edges[:, 0] < edges[:, 1]).all()
        assert nx.is_connected(nx.Graph(edges.tolist()))
        assert degrees(edges, 300)[m + 1 :].min() == m

    def test_barabasi_albert_has_the_hubs_of_networkx(self) -> None:
        rng = np.random.default_rng(0)
        ours = [degrees(barabasi_albert_edges(rng, 100, 3), 100).max() for _ in range(200)]
        theirs = [
            max(d for _, d in nx.barabasi_albert_graph(100, 3, seed=s).degree) for s in range(200)
        ]
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-3

    @pytest.mark.parametrize("p", [0.0, 0.1, 1.0])
    def test_watts_strogatz(self, p: float) -> None:
        edges = watts_strogatz_edges(np.random.default_rng(0), 200, 6, p)
        assert len({tuple(e) for e in edges.tolist()}) == 600
        assert (edges[:, 0] < edges[:, 1]).all()
        ring = {
            tuple(e) for e in watts_strogatz_edges(np.random.default_rng(1), 200, 6, 0).tolist()
        }
        kept = sum(tuple(e) in ring for e in edges.tolist())
        assert abs(kept - 600 * (1 - p)) <= 4 * math.sqrt(600 * p * (1 - p)) + 20 * p
        assert degrees(edges, 200).min() >= 3  # the own half of the ring's edges stays

    def test_watts_strogatz_clusters_like_networkx(self) -> None:
        rng = np.random.default_rng(0)
        ours = [
            nx.average_clustering(nx.Graph(watts_strogatz_edges(rng, 80, 6, 0.2).tolist()))
            for _ in range(40)
        ]
        theirs = [
            nx.average_clustering(nx.watts_strogatz_graph(80, 6, 0.2, seed=s)) for s in range(40)
        ]
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-3

    def test_watts_strogatz_of_a_nearly_complete_graph_ends(self) -> None:
        edges = watts_strogatz_edges(np.random.default_rng(0), 7, 6, 1.0)
        assert len({tuple(e) for e in edges.tolist()}) == 21

    @pytest.mark.parametrize(
        ("family", "parameters"),
        [
            ("er", {"p": 1.5}),
            ("ba", {"n": 3, "m": 3}),
            ("ba", {"m": 0}),
            ("ws", {"k": 5}),
            ("ws", {"n": 6, "k": 6}),
            ("ws", {"p": -0.1}),
            ("grid", {"rows": 0}),
            ("grid", {"field": -1.0}),
            ("sk", {"n": 0}),
            ("tree", {"arity": 1}),
            ("potts", {"q": 1}),
            ("factor", {"arity": 60}),
            ("csp", {"tightness": 1.0}),
        ],
    )
    def test_refuses_what_describes_no_model(self, family: str, parameters: dict) -> None:
        with pytest.raises(IcgiError, match=next(iter(parameters))[:4]):
            sample(family, **parameters)


class TestSherringtonKirkpatrick:
    def test_is_complete(self) -> None:
        found = ising("sk", n=30)
        assert len(found.edges) == 30 * 29 // 2
        assert_array_equal(degrees(found.edges, 30), 29)

    def test_couplings_have_variance_one_over_n(self) -> None:
        couplings = np.concatenate([ising("sk", s, n=60, beta=1.5).couplings for s in range(10)])
        assert stats.kstest(couplings * math.sqrt(60) / 1.5, "norm").pvalue > 1e-3

    def test_field_is_uniform(self) -> None:
        np.testing.assert_allclose(ising("sk", n=20, beta=2.0, h=0.5).fields, 1.0)


class TestTrees:
    @pytest.mark.parametrize("arity", [2, 3, 5])
    @pytest.mark.parametrize("n", [1, 2, 3, 40])
    def test_the_factor_graph_is_a_tree(self, n: int, arity: int) -> None:
        for seed in range(10):
            model = sample("tree", seed, n=n, arity=arity)
            graph = nx.Graph()
            graph.add_nodes_from(range(n))
            for f, scope in enumerate(model.scopes):
                graph.add_edges_from((i, ("factor", f)) for i in scope)
            assert nx.is_tree(graph)
            assert max(len(scope) for scope in model.scopes) <= arity

    def test_pairs_of_spins_are_ising(self) -> None:
        found = ising("tree", n=400, arity=2, beta=0.5)
        assert stats.kstest(found.couplings / 0.5, "norm").pvalue > 1e-3
        assert stats.kstest(found.fields / 0.25, "norm").pvalue > 1e-3

    def test_arities_and_states_vary(self) -> None:
        model = sample("tree", n=100, arity=4, states=3)
        assert {len(scope) for scope in model.scopes} == {1, 2, 3, 4}
        assert set(model.cards) == {3}


class TestFactorGraphs:
    def test_potts_counts_equal_states(self) -> None:
        model = sample("potts", L=5, q=4, field=0.0, disorder="bimodal")
        assert model.n_factors == 40
        for table in model.log_tables:
            assert_array_equal(table, table[0, 0] * np.eye(4))
            assert abs(table[0, 0]) == 1

    @pytest.mark.parametrize("n", [6, 200])
    def test_scopes_have_no_variable_twice_and_are_even(self, n: int) -> None:
        sizes = np.full(4000, 3)
        scopes = random_scopes(np.random.default_rng(0), n, sizes)
        assert all(len(set(scope)) == 3 for scope in scopes)
        assert stats.chisquare(degrees(np.array(scopes), n)).pvalue > 1e-3

    def test_factor_is_as_described(self) -> None:
        model = sample("factor", n=80, density=1.5, arity=4, states=5, field=0.0)
        assert model.n_factors == 120
        assert {len(scope) for scope in model.scopes} == {2, 3, 4}
        assert set(model.cards) == {2, 3, 4, 5}

    @pytest.mark.parametrize("tightness", [0.0, 0.25, 0.9])
    @pytest.mark.parametrize(("states", "arity"), [(2, 3), (3, 2)])
    def test_planted_solution_is_possible(self, states: int, arity: int, tightness: float) -> None:
        for seed in range(10):
            model, planted = planted_csp(
                np.random.default_rng(seed), 9, 2.0, arity, states, tightness, beta=0.7
            )
            index = np.ravel_multi_index(tuple(planted), tuple(model.cards))
            assert np.isfinite(joint(model)[index])
            zeros = {int(np.isneginf(table).sum()) for table in model.log_tables}
            assert zeros == {min(round(tightness * states**arity), states**arity - 1)}

    def test_planted_solution_is_not_favoured_by_position(self) -> None:
        planted = [planted_csp(np.random.default_rng(s), 8)[1] for s in range(300)]
        assert abs(np.mean(planted) - 0.5) < 4 * 0.5 / math.sqrt(8 * 300)

    def test_a_large_csp_passes_propagation(self) -> None:
        model = sample("csp", n=18, density=3.0, tightness=0.5)
        found = infer(model, {}, Enumerate(), Budget(), np.random.default_rng(0))
        assert found.log_z is not None
        assert np.isfinite(found.log_z)


class TestPresets:
    def test_sizes_are_the_papers(self) -> None:
        assert len(PRESETS["sk-paper"]) == 7500
        assert len(PRESETS["ea2d-paper"]) + len(PRESETS["ea3d-paper"]) == 6000

    @pytest.mark.parametrize("name", PRESETS)
    def test_every_configuration_is_understood(self, name: str) -> None:
        preset = PRESETS[name]
        known = FAMILIES[preset.family].parameters
        for parameters in preset.configurations():
            assert set(parameters) <= set(known)
            for key, value in parameters.items():
                assert type(value) is type(known[key])

    def test_values_of_the_paper(self) -> None:
        assert PRESETS["er-paper"].grid["p"] == (0.05, 0.1, 0.2)
        assert PRESETS["grid-paper"].grid["rows"][-1] == 30
        assert PRESETS["ea3d-paper"].grid["beta"] == (0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
