"""Join graphs: arcs with one variable are a tree, messages along them find the fixed points."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from test_gbp import ALGORITHMS, error, glass
from test_lbp import pairwise
from test_trbp import hypergraph

import zoo
from icgi.approx import join_graph as module
from icgi.approx.gbp import GeneralisedBP
from icgi.approx.join_graph import join_graph, merged, mini_buckets
from icgi.approx.lbp import LoopyBP
from icgi.approx.regions import RegionGraph
from icgi.approx.support import supported
from icgi.exact.enumeration import Enumerate
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Status
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ordering import cost, greedy_order


@st.composite
def models(draw: st.DrawFn, most: int = 12) -> FactorGraph:
    """Pairs and factors of up to four variables, with zeros, over one to three states."""
    n, density = draw(st.integers(1, most)), draw(st.sampled_from([0.5, 1.0, 2.0]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    arities = rng.choice([0, 1, 2, 3, 4], round(density * n), p=[0.05, 0.15, 0.5, 0.2, 0.1])
    scopes = [tuple(rng.permutation(n)[:arity].tolist()) for arity in arities]
    return zoo.random_model(rng, rng.integers(1, 4, n).tolist(), scopes, scale=2.0, zeros=0.2)


def arcs(graph: RegionGraph, variable: int | None = None) -> nx.MultiGraph:
    """Clusters and arcs, all or those with one variable."""
    found = nx.MultiGraph()
    found.add_nodes_from(a for a, r in enumerate(graph.outer) if variable in (None, *r))
    for label, parents in zip(graph.inner, graph.parents, strict=True):
        if variable in (None, *label):
            found.add_edge(*parents)
    return found


class TestMiniBuckets:
    @pytest.mark.parametrize("ibound", [1, 2, 4, 7])
    @pytest.mark.parametrize(
        "model",
        [glass(0, 5), pairwise(0, 8, 2, 1.0, 1.0), pairwise(1, 12, 3, 0.3, 1.0), hypergraph(1)],
    )
    def test_keep_the_bound_and_hold_every_factor(self, model: FactorGraph, ibound: int) -> None:
        found = mini_buckets(model, ibound)
        largest = max(map(len, model.scopes))
        assert all(len(c) <= max(ibound + 1, largest) for c in found.clusters)
        for scope in model.scopes:
            assert set(scope) <= set(found.clusters[found.placed[tuple(sorted(scope))]])

    def test_a_scope_within_a_large_factor_joins_it(self) -> None:
        scopes = [(0, 1, 2, 3), (0, 1), (1, 3), (2,)]
        model = zoo.random_model(np.random.default_rng(0), [2] * 4, scopes)
        found = mini_buckets(model, 1)
        assert found.clusters[0] == (0, 1, 2, 3)
        assert sorted(len(c) for c in found.clusters) == [1, 2, 3, 4]


def test_example_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """P(a) P(b|a) P(c|ab) P(d|b) P(f|cd) P(e|bf) P(g|ef), three variables, g eliminated first.

    Mini-buckets: g: gef; e: bef; f: cdf, bf; d: bcd; c: abc; b: ab; a: a. The chain of bucket f
    joins bef and cdf; bf, ab and a are within their neighbours bef and abc, bf hands b to ab.
    """
    a, b, c, d, e, f, g = range(7)
    scopes = [(a,), (a, b), (a, b, c), (b, d), (c, d, f), (b, e, f), (e, f, g)]
    model = zoo.random_model(np.random.default_rng(0), [2] * 7, scopes)
    order = cost(model, np.array([g, e, f, d, c, b, a]))
    monkeypatch.setattr(module, "greedy_order", lambda *_: order)
    graph = join_graph(model, 2)
    assert graph.outer == [(e, f, g), (b, e, f), (c, d, f), (b, c, d), (a, b, c)]
    assert graph.inner == [(e, f), (f,), (b,), (c, d), (b, c)]
    assert graph.parents == [[0, 1], [1, 2], [1, 4], [2, 3], [3, 4]]
    assert graph.home == [4, 4, 4, 3, 2, 1, 0]
    assert not graph.junction_tree


def test_merging_goes_on_through_clusters_that_are_merged_themselves() -> None:
    near, into = merged([(0,), (0, 1), (0, 1, 2)], {(0, 1): (0,), (1, 2): (0, 1)})
    assert into == [2, 2, 2]
    assert near == [{}, {}, {}]


class TestLaws:
    @given(models(), st.integers(1, 4))
    @settings(max_examples=300, deadline=None)
    def test_arcs_of_every_variable_are_a_tree(self, model: FactorGraph, ibound: int) -> None:
        """Running intersection without a loop: beliefs agree, and every variable counts once."""
        graph = join_graph(model, ibound)
        for i in range(model.n_variables):
            assert nx.is_tree(arcs(graph, i))

    @given(models(), st.integers(1, 4))
    @settings(max_examples=300, deadline=None)
    def test_arcs_are_regions_below_their_two_clusters(
        self, model: FactorGraph, ibound: int
    ) -> None:
        graph = join_graph(model, ibound)
        for label, (a, b) in zip(graph.inner, graph.parents, strict=True):
            assert a != b
            assert set(label) < set(graph.outer[a])
            assert set(label) < set(graph.outer[b])
        assert len({frozenset(p) for p in graph.parents}) == len(graph.parents)
        assert (graph.counting == -1).all()
        for scope, home in zip(model.scopes, graph.home, strict=True):
            assert set(scope) <= set(graph.outer[home]) if scope else home == -1

    @given(models(), st.integers(1, 4))
    @settings(max_examples=300, deadline=None)
    def test_a_junction_tree_is_one_and_is_taken_where_there_is_one(
        self, model: FactorGraph, ibound: int
    ) -> None:
        """Clusters have a junction tree iff they are the cliques of a chordal graph."""
        graph = join_graph(model, ibound)
        clusters = [set(c) for c in mini_buckets(model, ibound).clusters]
        joined = nx.Graph()
        for cluster in clusters:
            joined.add_nodes_from(cluster)
            joined.add_edges_from(itertools.combinations(cluster, 2))
        acyclic = nx.is_chordal(joined) and all(
            any(clique <= cluster for cluster in clusters)
            for clique in nx.chordal_graph_cliques(joined)
        )
        assert graph.junction_tree == acyclic
        assert graph.junction_tree == nx.is_forest(arcs(graph))

    def test_sweeps_run_along_the_buckets(self) -> None:
        """Every cluster speaks to later ones, when the earlier ones have spoken to it."""
        graph = join_graph(glass(0, 6), 3)
        assert all(a < b for a, b in graph.parents)
        assert graph.parents == sorted(graph.parents)


class TestExact:
    @pytest.mark.parametrize("name", zoo.MODELS)
    def test_from_the_induced_width_on(self, name: str) -> None:
        width = greedy_order(supported(zoo.MODELS[name]).model, "min-fill").width
        engine = GeneralisedBP(regions="join-graph", ibound=max(width, 1))
        found, exact = zoo.run(engine, name), zoo.exact(name)
        assert found.status is Status.EXACT
        assert_allclose(found.probs, exact.probs, atol=1e-9)
        assert found.log_z == pytest.approx(exact.log_z, abs=1e-9, rel=1e-12)

    @given(models(most=6))
    @settings(max_examples=100, deadline=None)
    def test_from_the_induced_width_on_whatever_the_model(self, model: FactorGraph) -> None:
        width = greedy_order(supported(model).model, "min-fill").width
        found = zoo.run(GeneralisedBP(regions="join-graph", ibound=max(width, 1)), model)
        exact = zoo.run(Enumerate(), model)
        assert found.status is Status.EXACT
        assert_allclose(found.probs, exact.probs, atol=1e-9)
        assert found.log_z == pytest.approx(exact.log_z, abs=1e-8)

    @pytest.mark.parametrize("ibound", [1, 2, 3])
    @pytest.mark.parametrize("name", zoo.TREES)
    def test_on_trees_at_any_bound(self, name: str, ibound: int) -> None:
        found = zoo.run(GeneralisedBP(regions="join-graph", ibound=ibound), name)
        assert found.status is Status.EXACT
        assert_allclose(found.probs, zoo.exact(name).probs, atol=1e-9)


class TestEdges:
    """A pairwise model and ibound = 1: clusters are edges, and arcs make Bethe's free energy."""

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_equals_loopy_bp(self, algorithm: str, seed: int) -> None:
        model, budget = pairwise(seed, 8, 3, 0.5, 0.7), Budget(iterations=20_000)
        graph = join_graph(model, 1)
        assert set(graph.outer) == {s for s in model.scopes if len(s) == 2}
        assert {len(label) for label in graph.inner} == {1}
        engine = GeneralisedBP("join-graph", ibound=1, algorithm=algorithm, tolerance=1e-9)
        theirs = zoo.run(LoopyBP(tolerance=1e-11, damping=0.3), model, budget=budget)
        ours = zoo.run(engine, model, budget=budget)
        assert theirs.status is ours.status is Status.AT_REST
        assert_allclose(ours.probs, theirs.probs, atol=1e-6)
        assert ours.log_z == pytest.approx(theirs.log_z, abs=1e-7)


def small_grid(seed: int) -> FactorGraph:
    cards = [2, 3, 2, 2, 2, 2, 3, 2, 2, 2, 2, 2, 3, 2, 2, 2]
    return zoo.random_model(np.random.default_rng(seed), cards, zoo.grid_scopes(4, 4), scale=0.8)


class TestPropagation:
    @pytest.mark.parametrize("ibound", [1, 2, 3])
    @pytest.mark.parametrize("seed", range(3))
    def test_fixed_point_is_that_of_plain_messages(self, seed: int, ibound: int) -> None:
        model = small_grid(seed)
        graph = join_graph(model, ibound)
        assert not graph.junction_tree
        engine = GeneralisedBP("join-graph", ibound=ibound, tolerance=1e-10)
        found = zoo.run(engine, model)
        beliefs = plain_ijgp(model, graph)
        assert found.status is Status.AT_REST
        for i, card in enumerate(model.cards):
            for belief in (
                b for b, region in zip(beliefs, graph.outer, strict=True) if i in region
            ):
                computed = summed(belief, {i}).ravel()
                assert_allclose(computed, found.probs[i, :card], atol=1e-7)
        exact = zoo.run(JunctionTree(), model)
        assert 1e-5 < np.abs(found.probs - exact.probs).max() < 0.2

    @pytest.mark.parametrize("seed", range(3))
    def test_algorithms_agree(self, seed: int) -> None:
        model, budget = glass(seed, 6), Budget(iterations=5000)
        first, second = (
            zoo.run(
                GeneralisedBP("join-graph", ibound=3, algorithm=a, tolerance=1e-8),
                model,
                budget=budget,
            )
            for a in ALGORITHMS
        )
        assert first.status is second.status is Status.AT_REST
        assert_allclose(first.probs, second.probs, atol=1e-5)
        assert first.log_z == pytest.approx(second.log_z, abs=1e-5)

    def test_large_clusters_are_better(self) -> None:
        exact = [zoo.run(JunctionTree(), glass(seed)) for seed in range(3)]
        small, large = (
            np.mean([error(zoo.run(engine, glass(s)), exact[s]) for s in range(3)])
            for engine in (GeneralisedBP("join-graph", ibound=k) for k in (1, 8))
        )
        assert large < 0.5 * small


def plain_ijgp(model: FactorGraph, graph: RegionGraph) -> list[FloatArray]:
    """Beliefs of the clusters; every table has an axis for every variable, of one if it is not in.

    A cluster's message to a neighbour is the product of its factors and of all other messages to
    it, summed down to the label of the arc (Mateescu and others 2010).
    """
    psi = [np.ones([1] * model.n_variables) for _ in graph.outer]
    for scope, table, home in zip(model.scopes, model.log_tables, graph.home, strict=True):
        shape = [model.cards[i] if i in scope else 1 for i in range(model.n_variables)]
        psi[home] = psi[home] * np.exp(table.transpose(np.argsort(scope))).reshape(shape)
    labels = {(a, b): r for r, (a, b) in zip(graph.inner, graph.parents, strict=True)}
    labels |= {(b, a): r for (a, b), r in reversed(labels.items())}
    messages = {arc: np.ones([1] * model.n_variables) for arc in labels}

    def product(a: int, without: int | None = None) -> FloatArray:
        incoming = [m for (c, b), m in messages.items() if b == a and c != without]
        return np.asarray(math.prod(incoming, start=psi[a]))

    for _ in range(2000):
        change = 0.0
        for (a, b), label in labels.items():
            new = summed(product(a, without=b), set(label))
            change = max(change, np.abs(new - messages[a, b]).max())
            messages[a, b] = new
        if change < 1e-13:
            return [product(a) / product(a).sum() for a in range(len(psi))]
    raise AssertionError("plain messages have not come to rest")


def summed(table: FloatArray, label: set[int]) -> FloatArray:
    kept = table.sum(tuple(i for i in range(table.ndim) if i not in label), keepdims=True)
    return np.asarray(kept / kept.sum())
