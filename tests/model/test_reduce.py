import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import zoo
from icgi.exact.enumeration import Enumerate
from icgi.model.graph import FactorGraph
from icgi.model.reduce import absorb, all_states, components, propagate, restrict
from icgi.model.wiring import unwire, wiring


@st.composite
def models_with_zeros(draw) -> FactorGraph:
    n = draw(st.integers(1, 6))
    cards = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    scopes = draw(
        st.lists(st.lists(st.integers(0, n - 1), max_size=3, unique=True).map(tuple), max_size=8)
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return zoo.random_model(rng, cards, scopes, zeros=draw(st.sampled_from([0.0, 0.5, 0.8])))


def naive_arc_consistency(model: FactorGraph) -> np.ndarray:
    alive = all_states(model)
    while True:
        before = alive.copy()
        for scope, table in zip(model.scopes, model.log_tables, strict=True):
            possible = table > -np.inf
            for axis, i in enumerate(scope):
                shape = [1] * len(scope)
                shape[axis] = -1
                possible = possible & alive[i, : model.cards[i]].reshape(shape)
            for axis, i in enumerate(scope):
                others = tuple(a for a in range(len(scope)) if a != axis)
                alive[i, : model.cards[i]] &= possible.any(axis=others)
        if (alive == before).all():
            return alive


@given(models_with_zeros())
@settings(max_examples=150, deadline=None)
def test_propagation_equals_its_definition_and_loses_no_mass(model: FactorGraph) -> None:
    alive = propagate(model, all_states(model))
    assert_array_equal(alive, naive_arc_consistency(model))
    exact = zoo.run(Enumerate(), model)
    assert (exact.probs[~alive] == 0).all()
    reduced = Enumerate()(restrict(model, alive), zoo.BUDGET, np.random.default_rng(0))
    assert reduced.log_z == pytest.approx(exact.log_z, abs=1e-10)
    assert_allclose(reduced.probs[:, 0], [exact.probs[i, a.argmax()] for i, a in enumerate(alive)])


@given(models_with_zeros())
@settings(max_examples=100, deadline=None)
def test_one_state_variables_leave_every_scope(model: FactorGraph) -> None:
    reduced = restrict(model, all_states(model))
    assert all(reduced.cards[i] > 1 for scope in reduced.scopes for i in scope)
    if (model.cards == 1).any():
        assert sum(not scope for scope in reduced.scopes) <= 1
    assert zoo.run(Enumerate(), reduced).log_z == pytest.approx(
        zoo.run(Enumerate(), model).log_z, abs=1e-10
    )


@given(models_with_zeros())
@settings(max_examples=100, deadline=None)
def test_components_multiply_to_the_whole(model: FactorGraph) -> None:
    parts = components(model)
    assert sorted(np.concatenate([p.variables for p in parts]).tolist()) == list(
        range(model.n_variables)
    )
    exact = zoo.run(Enumerate(), model)
    answers = [zoo.run(Enumerate(), p.model) for p in parts]
    assert sum(a.log_z for a in answers) == pytest.approx(exact.log_z, abs=1e-10)
    for part, answer in zip(parts, answers, strict=True):
        width = answer.probs.shape[1]
        assert_allclose(exact.probs[part.variables, :width], answer.probs, atol=1e-12)


@given(models_with_zeros())
@settings(max_examples=100, deadline=None)
def test_absorbing_keeps_the_distribution(model: FactorGraph) -> None:
    absorbed = absorb(model)
    scopes = [set(s) for s in absorbed.scopes]
    assert not any(a <= b for x, a in enumerate(scopes) for y, b in enumerate(scopes) if x != y)
    before, after = zoo.run(Enumerate(), model), zoo.run(Enumerate(), absorbed)
    assert_allclose(after.probs, before.probs, atol=1e-12)
    assert after.log_z == pytest.approx(before.log_z, abs=1e-10)


def test_components_are_connected_parts() -> None:
    parts = components(zoo.MODELS["disconnected"])
    assert [p.variables.tolist() for p in parts] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("name", zoo.MODELS)
def test_flat_arrays_round_trip(name: str) -> None:
    model = zoo.MODELS[name]
    back = unwire(wiring(model), model)
    assert back.scopes == model.scopes
    for a, b in zip(back.log_tables, model.log_tables, strict=True):
        assert_array_equal(a, b)


def test_names_of_states_follow_the_states() -> None:
    equal = np.where(np.eye(3) > 0, 0.0, -np.inf)
    equal[2, 2] = -np.inf
    model = FactorGraph(
        np.full(2, 3), ((0, 1),), (equal,), names=("a", "b"), states=(("x", "y", "z"),) * 2
    )
    reduced = restrict(model, propagate(model, all_states(model)))
    assert reduced.states == (("x", "y"), ("x", "y"))
    assert reduced.names == ("a", "b")


def test_factors_without_free_variables_add_up_to_one_constant() -> None:
    rng = np.random.default_rng(0)
    scopes = ((0, 1), (1,), (1, 2), (0,), (2, 3))
    cards = (2, 3, 2, 2)
    tables = tuple(rng.normal(size=tuple(cards[i] for i in scope)) for scope in scopes)
    model = FactorGraph(np.array(cards), scopes, tables)
    alive = all_states(model)
    for i, x in enumerate((1, 2, 0)):
        alive[i] = False
        alive[i, x] = True
    reduced = restrict(model, alive)
    assert reduced.scopes == ((3,), ())
    assert_array_equal(reduced.log_tables[0], tables[4][0])
    expected = tables[0][1, 2] + (tables[1][2] + tables[2][2, 0] + tables[3][1])
    assert_allclose(reduced.log_tables[1], expected, rtol=1e-15)


def test_parts_of_many_variables_are_those_of_their_graph() -> None:
    rng = np.random.default_rng(5)
    for factors in (10, 30, 60):
        scopes = [tuple(rng.choice(60, rng.integers(0, 4), replace=False).tolist())
                  for _ in range(factors)]  # fmt: skip
        tables = tuple(rng.normal(size=(2,) * len(scope)) for scope in scopes)
        model = FactorGraph(np.full(60, 2), tuple(scopes), tables)
        graph = nx.Graph()
        graph.add_nodes_from(range(60))
        graph.add_edges_from((scope[0], i) for scope in scopes for i in scope[1:])
        found = {tuple(part.variables.tolist()) for part in components(model)}
        assert found == {tuple(sorted(part)) for part in nx.connected_components(graph)}
