"""Generalised BP: exact on junction trees, loopy BP on factors, better than it on loops."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from test_lbp import lattice, nasty_models, pairwise
from test_trbp import hypergraph

import zoo
from icgi.approx.gbp import GeneralisedBP, single_loop
from icgi.approx.lbp import LoopyBP
from icgi.approx.region_sweeps import advance, initial_state, kikuchi, refresh
from icgi.approx.region_tables import compile_regions
from icgi.errors import BudgetError, EvidenceError, IcgiError
from icgi.exact.enumeration import Enumerate
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ising import ising_model
from icgi.model.ordering import greedy_order

ALGORITHMS = ["parent-to-child", "double-loop"]
CHOICES = ["factors", "loops", "clusters", "join-graph"]

GO = np.zeros(1, np.uint8)  # a stop flag that nobody raises


def glass(seed: int, size: int = 10, beta: float = 1.0) -> FactorGraph:
    """Gaussian spin glass on a square, with fields of 0.1."""
    rng = np.random.default_rng(seed)
    edges = 2 * size * (size - 1)
    return lattice(size, beta * rng.normal(size=edges), beta * 0.1 * rng.normal(size=size**2))


def error(found: Marginals, exact: Marginals) -> float:
    return float(np.abs(found.probs - exact.probs).sum(1).mean())


class TestJunctionTree:
    @pytest.mark.parametrize("name", zoo.MODELS)
    def test_zoo(self, name: str) -> None:
        found, exact = zoo.run(GeneralisedBP(regions="clusters", ibound=9), name), zoo.exact(name)
        assert found.status is Status.EXACT
        assert_allclose(found.probs, exact.probs, atol=1e-9)
        assert found.log_z == pytest.approx(exact.log_z, abs=1e-9, rel=1e-12)

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("make", [glass, hypergraph, lambda s: pairwise(s, 12, 3, 0.3, 2.0)])
    def test_against_the_exact_engine(self, make, seed: int) -> None:
        model = make(seed)
        engine = GeneralisedBP(regions="clusters", ibound=greedy_order(model, "min-fill").width)
        found, exact = zoo.run(engine, model), zoo.run(JunctionTree(), model)
        assert found.status is Status.EXACT
        assert found.stats["sweeps"] <= 3
        assert_allclose(found.probs, exact.probs, atol=1e-9)
        assert found.log_z == pytest.approx(exact.log_z, rel=1e-11)

    @pytest.mark.parametrize("name", zoo.TREES)
    @pytest.mark.parametrize("regions", ["factors", "loops"])
    def test_factors_of_a_tree(self, name: str, regions: str) -> None:
        found = zoo.run(GeneralisedBP(regions=regions), name)
        assert found.status is Status.EXACT
        assert_allclose(found.probs, zoo.exact(name).probs, atol=1e-9)

    @pytest.mark.parametrize("seed", range(4))
    def test_one_loop_is_one_region(self, seed: int) -> None:
        model = zoo.random_model(
            np.random.default_rng(seed), [2, 3, 2, 4], [(0, 1), (1, 2), (2, 3), (3, 0)], scale=2.0
        )
        found, exact = zoo.run(GeneralisedBP(loop=4), model), zoo.run(Enumerate(), model)
        assert found.status is Status.EXACT
        assert_allclose(found.probs, exact.probs, atol=1e-9)


def loops_of_triples(seed: int) -> FactorGraph:
    """Factors of three variables that share at most one."""
    scopes = [(0, 1, 2), (2, 3, 4), (4, 5, 0), (1, 6, 3), (5, 6), (0,), (6,)]
    return zoo.random_model(np.random.default_rng(seed), [2, 3, 2, 2, 3, 2, 2], scopes, scale=0.8)


class TestOnFactors:
    """Regions that are the factors alone, overlapping in single variables: Bethe's free energy."""

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("make", [lambda s: pairwise(s, 8, 3, 0.5, 0.7), loops_of_triples])
    def test_equals_loopy_bp(self, make, seed: int, algorithm: str) -> None:
        model, budget = make(seed), Budget(iterations=20_000)
        engine = GeneralisedBP(regions="factors", algorithm=algorithm, tolerance=1e-9)
        theirs = zoo.run(LoopyBP(tolerance=1e-11, damping=0.3), model, budget=budget)
        ours = zoo.run(engine, model, budget=budget)
        assert theirs.status is ours.status is Status.AT_REST
        assert_allclose(ours.probs, theirs.probs, atol=1e-6)
        assert ours.log_z == pytest.approx(theirs.log_z, abs=1e-7)


class TestOnLoops:
    @pytest.mark.parametrize("seed", range(4))
    def test_far_better_than_loopy_bp_on_a_frustrated_grid(self, seed: int) -> None:
        model = glass(seed)
        exact = zoo.run(JunctionTree(), model)
        kikuchi, bethe = (zoo.run(e, model) for e in (GeneralisedBP(), LoopyBP()))
        assert kikuchi.status is Status.AT_REST
        assert error(kikuchi, exact) < 0.02
        assert error(kikuchi, exact) < 0.1 * error(bethe, exact)
        assert kikuchi.log_z == pytest.approx(exact.log_z, rel=1e-3)

    @pytest.mark.parametrize("seed", range(3))
    def test_algorithms_agree(self, seed: int) -> None:
        model, budget = glass(seed, 6, 2.0), Budget(iterations=5000)
        first, second = (
            zoo.run(GeneralisedBP(algorithm=a, tolerance=1e-8), model, budget=budget)
            for a in ALGORITHMS
        )
        assert first.status is second.status is Status.AT_REST
        assert_allclose(first.probs, second.probs, atol=1e-5)
        assert first.log_z == pytest.approx(second.log_z, abs=1e-5)

    def test_large_clusters_are_better(self) -> None:
        """Not with every step of the bound, but on the way to the junction tree."""
        models = [glass(seed) for seed in range(3)]
        small, large = (
            np.mean([error(zoo.run(engine, m), zoo.run(JunctionTree(), m)) for m in models])
            for engine in (GeneralisedBP(regions="clusters", ibound=k) for k in (1, 8))
        )
        assert large < 0.2 * small

    @pytest.mark.parametrize("seed", [0, 3])
    def test_double_loop_converges_where_the_single_loop_does_not(self, seed: int) -> None:
        """A complete graph of ten spins, cold, with triangles as regions or edges alone."""
        rng = np.random.default_rng(seed)
        model = ising_model(2 * np.triu(rng.normal(size=(10, 10)), 1), 0.1 * rng.normal(size=10))
        budget = Budget(iterations=5000)
        single, double, auto = (
            zoo.run(GeneralisedBP(regions="factors", algorithm=a), model, budget=budget)
            for a in (*ALGORITHMS, "auto")
        )
        assert single.status is Status.BUDGET_SPENT
        assert single.log_z is None
        assert single.stats["residual"] > 0.1
        assert double.status is auto.status is Status.AT_REST
        assert auto.stats["double_loop"]
        assert auto.log_z == pytest.approx(double.log_z, abs=1e-3)


class TestStationary:
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("ibound", [1, 2, 3])
    @pytest.mark.parametrize("regions", ["clusters", "join-graph"])
    def test_free_energy(self, regions: str, ibound: int, seed: int) -> None:
        """Its derivative vanishes along every change of a joint distribution.

        Any change of beliefs that keeps them consistent is the marginal of a change of some
        joint, not necessarily a positive one. In a join graph there are other changes as well.
        """
        rng = np.random.default_rng(seed)
        scopes = [*zoo.grid_scopes(3, 3), (0, 4, 8), (2, 4)]
        model = zoo.random_model(rng, [2, 2, 3, 2, 2, 2, 3, 2, 2], scopes)
        graph, _ = GeneralisedBP(regions=regions, ibound=ibound).region_graph(model)
        tables = compile_regions(model, graph, Budget(), "")
        state = initial_state(tables)
        kept = single_loop(graph, tables)
        _, residual = advance(tables, state, kept, 0.3, False, 1e-11, 5000, GO)
        assert residual <= 1e-11
        refresh(tables, state, GO)
        theta = cut(tables.theta, tables.entry_start)
        outer = cut(state.joint, tables.entry_start)
        inner = cut(state.belief, tables.state_start)

        def paired(first: list[FloatArray], second: list[FloatArray]) -> float:
            energy = sum(w @ (t - np.log(b)) for w, t, b in zip(first, theta, outer, strict=True))
            counted = zip(graph.counting, second, inner, strict=True)
            return float(energy - sum(c * w @ np.log(b) for c, w, b in counted))

        for _ in range(10):
            change = rng.normal(size=model.cards)
            change = (change - change.mean()) / np.abs(change).sum()
            moves = [[marginal(change, r) for r in group] for group in (graph.outer, graph.inner)]
            assert abs(paired(*moves)) < 1e-9
        assert kikuchi(tables, state, GO) == pytest.approx(tables.constant + paired(outer, inner))


def cut(values: FloatArray, start: IntArray) -> list[FloatArray]:
    return np.split(values, start[1:-1])


def marginal(table: FloatArray, region: tuple[int, ...]) -> FloatArray:
    return table.sum(tuple(i for i in range(table.ndim) if i not in region)).ravel()


class TestHonesty:
    def test_damping_cannot_pass_for_convergence(self) -> None:
        engine = GeneralisedBP(algorithm="parent-to-child", damping=0.999)
        found = zoo.run(engine, glass(0), budget=Budget(iterations=200))
        assert found.status is Status.BUDGET_SPENT
        assert found.stats["residual"] > 1e-2
        assert found.log_z is None

    @pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
    @pytest.mark.parametrize("sweeps", [0, 1, 7, 120])
    def test_sweeps_are_kept(self, sweeps: int, algorithm: str) -> None:
        engine = GeneralisedBP(algorithm=algorithm, tolerance=1e-300)
        found = zoo.run(engine, glass(0, 6), budget=Budget(iterations=sweeps))
        assert found.status is Status.BUDGET_SPENT
        assert found.stats["sweeps"] == sweeps
        assert_allclose(found.probs.sum(1), 1.0)

    def test_seconds_are_kept(self) -> None:
        engine = GeneralisedBP(tolerance=1e-300)
        zoo.run(engine, glass(0, 6), budget=Budget(1))  # compiling is not what is timed
        found = zoo.run(engine, glass(0, 6), budget=Budget(10**9, seconds=0.1))
        assert found.status is Status.BUDGET_SPENT
        assert 0 < found.stats["sweeps"] < 10**8
        assert math.isfinite(found.stats["residual"])

    @pytest.mark.parametrize(
        ("engine", "advice"),
        [
            (GeneralisedBP(regions="clusters", ibound=8), "smaller ibound"),
            (GeneralisedBP(regions="join-graph", ibound=7), "ibound below 7"),
            (GeneralisedBP(regions="join-graph", ibound=1), "lbp"),
            (GeneralisedBP(loop=6), "smaller ibound or loop"),
            (GeneralisedBP(regions="factors"), "lbp"),
        ],
    )
    def test_memory_is_asked_for_first(self, engine: GeneralisedBP, advice: str) -> None:
        with pytest.raises(BudgetError, match=advice):
            zoo.run(engine, glass(0, 5), budget=Budget(table_bytes=1000))

    @pytest.mark.parametrize("seconds", [0.0, 1e-3])
    def test_without_time_for_regions_the_answer_is_that_of_messages(self, seconds: float) -> None:
        model = pairwise(0, 12, 12, 1.0, 1.0)  # triangles of 12³ entries
        found = zoo.run(GeneralisedBP(), model, budget=Budget(1, seconds=seconds))
        assert found.status is Status.BUDGET_SPENT
        assert found.log_z is None
        assert found.stats["regions"] == 0
        assert_allclose(found.probs.sum(1), 1.0)

    @pytest.mark.parametrize("kwargs", [{"damping": 1.0}, {"loop": 2}, {"ibound": 0}])
    def test_settings(self, kwargs: dict) -> None:
        with pytest.raises(IcgiError, match="at least"):
            GeneralisedBP(**kwargs)


class TestZeros:
    @pytest.mark.parametrize("regions", CHOICES)
    @pytest.mark.parametrize("seed", range(10))
    def test_impossible_states_get_no_probability(self, seed: int, regions: str) -> None:
        rng = np.random.default_rng(seed)
        scopes = [(0, 1), (1, 2), (2, 0), (2, 3, 4), (4, 0), (1, 3)]
        model = zoo.random_model(rng, [3, 2, 3, 2, 4], scopes, zeros=0.5)
        found = zoo.run(GeneralisedBP(regions=regions, ibound=2), model)
        check(model, found)
        assert (found.probs[zoo.run(Enumerate(), model).probs == 0] == 0).all()

    def test_contradiction_is_an_error(self) -> None:
        """Four variables, all different, of three states: arcs are consistent, triples are not."""
        different = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
        scopes = tuple((i, j) for i in range(4) for j in range(i))
        model = FactorGraph(np.full(4, 3), scopes, (different,) * 6)
        with pytest.raises(EvidenceError, match="region"):
            zoo.run(GeneralisedBP(regions="clusters", ibound=3), model)


def check(model: FactorGraph, found: Marginals) -> None:
    """Finite, normalised, and with a status that agrees with the residual."""
    assert found.probs.shape == (model.n_variables, model.max_states)
    assert np.isfinite(found.probs).all()
    assert (found.probs >= 0).all()
    assert_allclose(found.probs.sum(1), 1.0, atol=1e-9)
    assert found.log_z is None or math.isfinite(found.log_z)
    assert all(not math.isnan(value) for value in found.stats.values())
    rest = max(found.stats["residual"], found.stats["consistency"]) <= 1e-6
    assert (found.status is not Status.BUDGET_SPENT) == rest
    assert (found.log_z is not None) == rest


@given(
    nasty_models(),
    st.sampled_from(CHOICES),
    st.sampled_from(["auto", *ALGORITHMS]),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_answers_are_sound_whatever_the_model(
    model: FactorGraph, regions: str, algorithm: str
) -> None:
    engine = GeneralisedBP(regions=regions, algorithm=algorithm, ibound=2)
    found = engine(model, Budget(iterations=150), np.random.default_rng(0))
    check(model, found)
