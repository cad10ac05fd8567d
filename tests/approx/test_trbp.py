"""Tree-reweighted BP: a valid distribution over forests, an upper bound of log Z."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from test_lbp import check, frustrated, nasty_models, pairwise

import zoo
from icgi.approx.flat import FlatModels, compile_models, forest, initial_state
from icgi.approx.lbp import LoopyBP
from icgi.approx.mean_field import MeanField
from icgi.approx.messages import NUMBER, informations
from icgi.approx.trbp import TreeReweightedBP, appearance
from icgi.errors import IcgiError
from icgi.exact.enumeration import Enumerate
from icgi.inference import Budget, Status
from icgi.model.graph import FactorGraph

GO = np.zeros(1, np.uint8)  # a stop flag that nobody raises


def factor_graph(flat: FlatModels, factors: np.ndarray) -> nx.Graph:
    graph = nx.Graph()
    for f in factors:
        for e in range(flat.edge_start[f], flat.edge_start[f + 1]):
            graph.add_edge(("factor", int(f)), ("variable", int(flat.variable[e])))
    return graph


def grown_forest(flat: FlatModels, rng: np.random.Generator) -> np.ndarray:
    order = rng.permutation(len(flat.rho))
    return forest(flat.edge_start, flat.variable, len(flat.ratio_start) - 1, order)


def hypergraph(seed: int) -> FactorGraph:
    rng = np.random.default_rng(seed)
    every = [c for k in (2, 3, 4) for c in itertools.combinations(range(7), k)]
    scopes = [(i,) for i in range(7)]
    scopes += [every[k] for k in rng.choice(len(every), 6, replace=False)]
    cards = rng.integers(2, 4, 7).tolist()
    return zoo.random_model(rng, cards, scopes, scale=float(rng.uniform(0.1, 3.0)))


class TestForests:
    @pytest.mark.parametrize("model", [pairwise(0, 12, 2, 0.5, 1.0), hypergraph(1), hypergraph(2)])
    def test_are_acyclic_and_maximal(self, model: FactorGraph) -> None:
        flat = compile_models([model])
        rng = np.random.default_rng(0)
        for _ in range(20):
            taken = grown_forest(flat, rng) > 0
            assert nx.is_forest(factor_graph(flat, np.flatnonzero(taken)))
            for f in np.flatnonzero(~taken):
                grown = factor_graph(flat, np.append(np.flatnonzero(taken), f))
                assert not nx.is_forest(grown)

    def test_appearances_are_a_point_of_the_spanning_tree_polytope(self) -> None:
        """Σ ρ over the edges within any set of k connected variables is at most k − 1."""
        model = pairwise(3, 8, 2, 0.6, 1.0)
        flat = compile_models([model])
        rho = appearance(flat, [np.random.default_rng(0)])
        edges = flat.variable.reshape(-1, 2)
        assert rho.sum() == pytest.approx(7)
        assert ((rho > 0) & (rho <= 1)).all()
        for size in range(2, 9):
            for chosen in itertools.combinations(range(8), size):
                inside = np.isin(edges, chosen).all(1)
                assert rho[inside].sum() <= size - 1 + 1e-9

    @pytest.mark.parametrize("name", zoo.TREES)
    def test_every_factor_of_a_tree_is_in_every_forest(self, name: str) -> None:
        flat = compile_models([zoo.MODELS[name]])
        assert_array_equal(appearance(flat, [np.random.default_rng(0)]), 1.0)


class TestExactOnTrees:
    @pytest.mark.parametrize("schedule", list(NUMBER))
    @pytest.mark.parametrize("name", zoo.TREES)
    def test_zoo(self, name: str, schedule: str) -> None:
        engine = TreeReweightedBP(schedule=schedule)
        found, exact = zoo.run(engine, name), zoo.exact(name)
        assert found.status is Status.EXACT
        assert_allclose(found.probs, exact.probs, atol=1e-9)
        assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)
        assert found.stats["upper_bound"] == 1


class TestBounds:
    """Mean field ≤ log Z ≤ tree-reweighted, on hundreds of random models."""

    @pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
    @pytest.mark.parametrize("states", [2, 3])
    def test_pairwise(self, states: int, scale: float) -> None:
        converged = 0
        for seed in range(40):
            model = pairwise(seed, 7 if states == 2 else 6, states, 0.6, scale)
            converged += self.enclosed(model)
        assert converged >= 39

    def test_factors_of_more_variables(self) -> None:
        assert sum(self.enclosed(hypergraph(seed)) for seed in range(60)) == 60

    def test_zeros(self) -> None:
        converged = 0
        for seed in range(40):
            rng = np.random.default_rng(seed)
            scopes = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 0), (1, 3), (0, 2, 4)]
            converged += self.enclosed(zoo.random_model(rng, [3, 2, 3, 2, 3], scopes, zeros=0.4))
        assert converged >= 38

    def enclosed(self, model: FactorGraph) -> bool:
        log_z = zoo.run(Enumerate(), model).log_z
        below = zoo.run(MeanField(restarts=1), model)
        assert below.log_z is None or below.log_z <= log_z + 1e-9
        above = zoo.run(TreeReweightedBP(), model)
        if above.status is Status.BUDGET_SPENT:
            assert above.log_z is None
            assert above.stats["upper_bound"] == 0
            return False
        assert above.log_z >= log_z - 1e-8
        return True


class TestDense:
    def test_packed_forests_are_a_point_of_the_spanning_tree_polytope(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each pair in one of k forests of n − 1 pairs at most, and the bound holds."""
        monkeypatch.setattr("icgi.approx.trbp.DRAWN", 0.0)
        model = pairwise(5, 9, 2, 1.0, 1.0)
        flat = compile_models([model])
        rho = appearance(flat, [np.random.default_rng(0)])
        forests = round(1 / rho.min())
        assert (rho > 0).all()
        assert forests >= len(rho) / (model.n_variables - 1)
        assert forests <= 2 * len(rho) / (model.n_variables - 1)
        found = zoo.run(TreeReweightedBP(), model)
        assert found.log_z >= zoo.run(Enumerate(), model).log_z - 1e-8

    def test_factors_of_more_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("icgi.approx.trbp.DRAWN", 0.0)
        for seed in range(10):
            found = zoo.run(TreeReweightedBP(), hypergraph(seed))
            assert found.log_z >= zoo.run(Enumerate(), hypergraph(seed)).log_z - 1e-8


def test_zeros_that_only_products_show_leave_a_finite_log_z() -> None:
    """x₀ = x₁ in one factor and x₀ = 1 − x₁ for x₂ = 0 in another: x₂ = 0 is impossible."""
    equal = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    other = np.zeros((2, 2, 2))
    other[0] = np.where(np.eye(2) > 0, -np.inf, 0.0)
    model = FactorGraph(np.full(3, 2), ((0, 1), (2, 0, 1)), (equal, other))
    found = zoo.run(TreeReweightedBP(), model)
    assert found.log_z == pytest.approx(zoo.run(Enumerate(), model).log_z)
    assert_allclose(found.probs, zoo.run(Enumerate(), model).probs, atol=1e-9)
    assert found.status is Status.EXACT


class TestOptimisation:
    @pytest.mark.parametrize("seed", range(4))
    def test_lowers_the_bound_and_keeps_it(self, seed: int) -> None:
        model = pairwise(seed, 7, 2, 0.7, 1.5)
        plain = zoo.run(TreeReweightedBP(), model)
        better = zoo.run(TreeReweightedBP(optimise=12), model, budget=Budget(iterations=5000))
        assert better.stats["optimised"] > 0
        log_z = zoo.run(Enumerate(), model).log_z
        assert log_z - 1e-8 <= better.log_z < plain.log_z - 1e-4

    def test_information_is_that_of_the_joint_on_a_tree(self) -> None:
        """On a tree log Z = Σ_f ⟨θ_f⟩ + Σ_i H_i − Σ_f I_f with the true marginals."""
        model = zoo.MODELS["factor-tree"]
        flat = compile_models([model])
        state = initial_state(flat)
        found = zoo.run(LoopyBP(), model)
        from icgi.approx.messages import advance

        advance(flat, state, 1, 0.0, 1e-12, np.array([9]), 9, 0, 1, GO)
        assert (informations(flat, state, GO) > 0).all()
        joint = np.exp(sum_tables(model))
        joint /= joint.sum()
        energy = float((joint * sum_tables(model)).sum())
        entropy = -sum(float((p[p > 0] * np.log(p[p > 0])).sum()) for p in found.probs)
        expected = energy + entropy - informations(flat, state, GO).sum()
        assert expected == pytest.approx(zoo.exact("factor-tree").log_z, abs=1e-9)


def sum_tables(model: FactorGraph) -> np.ndarray:
    total = np.zeros(model.cards)
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        order = np.argsort(scope)
        shape = [int(c) if i in scope else 1 for i, c in enumerate(model.cards)]
        total = total + table.transpose(order).reshape(shape)
    return total


def test_parallel_and_nested_factors_are_one() -> None:
    """Splitting a factor changes nothing, unlike in loopy belief propagation."""
    rng = np.random.default_rng(4)
    scopes = [(0, 1, 2), (2, 3), (3, 0), (1,)]
    model = zoo.random_model(rng, [2, 3, 2, 2], scopes)
    extra = rng.normal(size=(2, 3)), rng.normal(size=(2, 2))
    tables = list(model.log_tables)
    merged = [tables[0] + extra[0][:, :, None], tables[1] + extra[1].T, *tables[2:]]
    one = FactorGraph(model.cards, tuple(scopes), tuple(merged))
    split = FactorGraph(model.cards, (*scopes, (0, 1), (3, 2)), (*tables, *extra))
    a, b = zoo.run(TreeReweightedBP(), one), zoo.run(TreeReweightedBP(), split)
    assert_allclose(a.probs, b.probs, atol=1e-5)
    assert a.log_z == pytest.approx(b.log_z, abs=1e-8)


def test_same_seed_same_answer() -> None:
    first, second = (zoo.run(TreeReweightedBP(optimise=3), frustrated(), seed=1) for _ in range(2))
    assert_array_equal(first.probs, second.probs)
    assert first.stats == second.stats


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kwargs", [{}, {"optimise": 3}, {"schedule": "residual", "damping": 0.3}])
def test_batch_equals_one_by_one(kwargs: dict, threads: int) -> None:
    models = [*zoo.MODELS.values(), frustrated(), *map(hypergraph, range(5))]
    first, second = (np.random.default_rng(5).spawn(len(models)) for _ in range(2))
    batch = TreeReweightedBP(**kwargs).batch(models, zoo.BUDGET, first, threads)
    for model, found, rng in zip(models, batch, second, strict=True):
        alone = TreeReweightedBP(**kwargs)(model, zoo.BUDGET, rng)
        assert_array_equal(found.probs, alone.probs)
        assert found.status is alone.status
        assert dict(found.stats) == pytest.approx(dict(alone.stats), rel=1e-12, abs=1e-12)


def test_appearances_of_a_batch_are_those_of_each_model() -> None:
    models = [pairwise(s, 8 + s, 2, 0.5, 1.0) for s in range(4)]
    flat = compile_models(models)
    rho = appearance(flat, np.random.default_rng(1).spawn(4))
    parts = np.split(rho, flat.model_factor[1:-1])
    for model, part, rng in zip(models, parts, np.random.default_rng(1).spawn(4), strict=True):
        assert_array_equal(part, appearance(compile_models([model]), [rng]))


def test_budget_covers_the_optimisation() -> None:
    found = zoo.run(TreeReweightedBP(optimise=50), "grid-3x3", budget=Budget(iterations=60))
    assert found.stats["sweeps"] <= 60


def test_negative_steps_are_refused() -> None:
    with pytest.raises(IcgiError):
        TreeReweightedBP(optimise=-1)


@given(nasty_models(), st.sampled_from(list(NUMBER)))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_answers_are_sound_whatever_the_model(model: FactorGraph, schedule: str) -> None:
    engine = TreeReweightedBP(schedule=schedule, optimise=1)
    check(model, engine(model, Budget(iterations=60), np.random.default_rng(0)))
