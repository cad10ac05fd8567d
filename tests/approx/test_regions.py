"""Region graphs: whatever the clusters, every variable and every factor counts once."""

import itertools

import networkx as nx
import numpy as np
import pytest
from test_lbp import pairwise
from test_trbp import hypergraph

import zoo
from icgi.approx import regions
from icgi.approx.cycles import cycles
from icgi.approx.join_graph import mini_buckets
from icgi.approx.regions import RegionGraph, region_graph
from icgi.approx.support import supported
from icgi.errors import BudgetError
from icgi.model.graph import FactorGraph
from icgi.model.ordering import greedy_order

GRID = zoo.random_model(np.random.default_rng(0), [2] * 20, zoo.grid_scopes(4, 5))
COMPLETE = pairwise(0, 8, 2, 1.0, 1.0)
MODELS = {
    **{name: supported(model).model for name, model in zoo.MODELS.items()},
    "grid-4x5": GRID,
    "complete": COMPLETE,
    "sparse": pairwise(1, 12, 3, 0.3, 1.0),
    **{f"hypergraph-{seed}": hypergraph(seed) for seed in range(4)},
}


def graphs(model: FactorGraph) -> dict[str, RegionGraph]:
    found = {"factors": region_graph(model, [])}
    for longest in (3, 4, 6):
        found[f"loops {longest}"] = region_graph(model, cycles(model, longest).regions)
    for ibound in (1, 2, 3, 5, 20):
        found[f"clusters {ibound}"] = region_graph(model, mini_buckets(model, ibound).clusters)
    return found


def primal(model: FactorGraph) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(model.n_variables))
    graph.add_edges_from(e for s in model.scopes for e in itertools.combinations(s, 2))
    return graph


@pytest.mark.parametrize("name", MODELS)
class TestCounting:
    def test_every_variable_and_factor_counts_once(self, name: str) -> None:
        model = MODELS[name]
        for kind, graph in graphs(model).items():
            every = [(set(r), 1.0) for r in graph.outer]
            every += [(set(r), c) for r, c in zip(graph.inner, graph.counting, strict=True)]
            sets = [{i} for i in range(model.n_variables)] + [set(s) for s in model.scopes if s]
            for wanted in sets:
                total = sum(c for region, c in every if wanted <= region)
                assert total == pytest.approx(1.0), (kind, wanted)

    def test_parents_contain_their_regions_and_homes_their_factors(self, name: str) -> None:
        model = MODELS[name]
        for graph in graphs(model).values():
            for region, parents in zip(graph.inner, graph.parents, strict=True):
                assert len(parents) > 1
                assert all(set(region) < set(graph.outer[a]) for a in parents)
            for scope, a in zip(model.scopes, graph.home, strict=True):
                assert set(scope) <= set(graph.outer[a]) if scope else a == -1

    def test_all_that_overlap_agree_on_what_they_share(self, name: str) -> None:
        """Two maximal regions with a common variable are linked through regions with it."""
        model = MODELS[name]
        for graph in graphs(model).values():
            for i in range(model.n_variables):
                links = nx.Graph()
                links.add_nodes_from(a for a, r in enumerate(graph.outer) if i in r)
                for region, parents in zip(graph.inner, graph.parents, strict=True):
                    if i in region:
                        links.add_edges_from(itertools.pairwise(parents))
                assert nx.is_connected(links)

    def test_junction_tree_is_recognised(self, name: str) -> None:
        model = MODELS[name]
        width = greedy_order(model, "min-fill").width
        assert region_graph(model, mini_buckets(model, width).clusters).junction_tree
        if width > 1 and max(map(len, model.scopes)) == 2:
            assert not region_graph(model, []).junction_tree


@pytest.mark.parametrize("name", zoo.TREES)
def test_factors_of_a_tree_are_a_junction_tree(name: str) -> None:
    assert region_graph(MODELS[name], []).junction_tree


class TestCycles:
    def test_of_a_grid_are_its_squares(self) -> None:
        squares = {(i, i + 1, i + 5, i + 6) for i in range(15) if i % 5 < 4}
        assert set(cycles(GRID, 4).regions) == squares

    def test_of_a_complete_graph_are_a_star_of_triangles(self) -> None:
        found = cycles(COMPLETE, 4)
        assert len(found.regions) == 28 - 8 + 1
        assert len(set.intersection(*map(set, found.regions))) == 1

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("longest", [3, 4, 5, 7])
    def test_are_all_the_chordless_ones(self, longest: int, seed: int) -> None:
        model = pairwise(seed, 11, 2, 0.35, 1.0)
        expected = [c for c in nx.chordless_cycles(primal(model), longest) if len(c) > 2]
        found = cycles(model, longest)
        assert found.found == len(expected)
        assert not found.cut
        assert set(found.regions) <= {tuple(sorted(c)) for c in expected}

    @pytest.mark.parametrize("seed", range(5))
    def test_are_a_basis(self, seed: int) -> None:
        """As many as there are independent ones, and none that others add up to."""
        model = pairwise(seed, 11, 2, 0.4, 1.0)
        rows = incidence(model, cycles(model, 11).regions)
        parts = nx.number_connected_components(primal(model))
        assert len(rows) == rows.shape[1] - model.n_variables + parts
        assert rank_mod_2(rows) == len(rows)

    @pytest.mark.parametrize(("limit", "value"), [("BASIS_WORDS", 0), ("BASIS_STEPS", 3)])
    @pytest.mark.parametrize("seed", range(5))
    def test_are_independent_without_room_or_time_as_well(
        self, seed: int, limit: str, value: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"icgi.approx.cycles.{limit}", value)
        model = pairwise(seed, 11, 2, 0.4, 1.0)
        rows = incidence(model, cycles(model, 11).regions)
        assert rank_mod_2(rows) == len(rows)
        parts = nx.number_connected_components(primal(model))
        assert len(rows) > 0.5 * (rows.shape[1] - model.n_variables + parts)

    def test_within_one_factor_are_none(self) -> None:
        model = zoo.random_model(np.random.default_rng(0), [2] * 4, [(0, 1, 2, 3)])
        assert cycles(model, 4).regions == []

    def test_search_that_ends_early_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("icgi.approx.cycles.MOST_CANDIDATES", 10)
        found = cycles(COMPLETE, 4)
        assert found.cut
        assert len(found.regions) <= 10


def incidence(model: FactorGraph, found: list[tuple[int, ...]]) -> np.ndarray:
    """Edges of each cycle as ones; chordless cycles have all edges between their variables."""
    graph = primal(model)
    number = {frozenset(e): k for k, e in enumerate(graph.edges)}
    rows = np.zeros((len(found), len(number)), np.int64)
    for row, cycle in zip(rows, found, strict=True):
        row[[number[frozenset(e)] for e in graph.subgraph(cycle).edges]] = 1
    return rows


def rank_mod_2(rows: np.ndarray) -> int:
    rows, rank = rows.copy() % 2, 0
    for column in range(rows.shape[1]):
        pivots = [r for r in range(rank, len(rows)) if rows[r, column]]
        if pivots:
            rows[[rank, pivots[0]]] = rows[[pivots[0], rank]]
            for r in range(len(rows)):
                if r != rank and rows[r, column]:
                    rows[r] ^= rows[rank]
            rank += 1
    return rank


def test_too_many_intersections_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "MOST_INNER", 5)
    rng = np.random.default_rng(0)
    wide = [tuple(rng.permutation(80)[:21].tolist()) for _ in range(15)]
    model = zoo.random_model(rng, [1] * 80, wide)
    with pytest.raises(BudgetError, match="ibound"):
        region_graph(model, [])
