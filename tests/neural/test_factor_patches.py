"""Models of any size for the network: belief propagation, then pieces with messages around."""

import time

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.clock import Deadline
from icgi.inference import Status
from icgi.model.graph import FactorGraph
from icgi.model.reduce import restrict
from icgi.neural.cases import NEGLIGIBLE, prepare
from icgi.neural.factor_patches import Limits, pieces
from icgi.neural.gate import believes
from icgi.neural.possible import possible_states
from icgi.neural.sum_product import sum_product

torch.set_num_threads(1)
NEVER = Deadline()


def tree(seed: int, n: int, states: int) -> FactorGraph:
    """Tree of factors of two and three variables, each joined to what is there by one."""
    rng = np.random.default_rng(seed)
    scopes: list[tuple[int, ...]] = [(0,)]
    made = 1
    while made < n:
        size = min(int(rng.integers(1, 3)), n - made)
        scopes.append((int(rng.integers(max(0, made - 6), made)), *range(made, made + size)))
        made += size
    return zoo.random_model(rng, [states] * n, scopes)


def exact(model: FactorGraph) -> np.ndarray:
    return icgi.marginals(model, engine="jt").probs


@pytest.mark.parametrize("name", zoo.TREES)
def test_beliefs_are_exact_on_trees(name: str) -> None:
    model = zoo.MODELS[name]
    reduced = restrict(model, possible_states(model))
    found = sum_product(reduced, NEVER)
    assert found.at_rest
    assert_allclose(found.beliefs, exact(reduced), atol=1e-6)


def test_a_loop_is_at_the_fixed_point_of_lbp() -> None:
    model = zoo.random_model(np.random.default_rng(1), [3] * 9, zoo.grid_scopes(3, 3), scale=0.5)
    beliefs = sum_product(model, NEVER).beliefs
    assert_allclose(beliefs, icgi.marginals(model, engine="lbp").probs, atol=1e-5)


def test_pieces_answer_every_variable_once_and_keep_their_size() -> None:
    model, limits = tree(0, 60, 3), Limits(tokens=60, states=64)
    found = list(pieces(model, sum_product(model, NEVER), limits))
    answered = np.concatenate([p.members[p.answered] for p in found])
    assert sorted(answered) == list(range(60))
    assert len(found) > 3
    assert all(p.cut for p in found)


@pytest.mark.parametrize("tokens", [12, 60, 10**6])
def test_pieces_of_a_tree_have_its_marginals(tokens: int) -> None:
    model = tree(1, 30, 3)
    truth = exact(model)
    for piece in pieces(model, sum_product(model, NEVER), Limits(tokens, 64)):
        assert_allclose(exact(piece.model), truth[piece.members], atol=1e-5)


def test_factors_too_wide_and_variables_of_too_many_states_are_messages() -> None:
    rng = np.random.default_rng(2)
    model = zoo.random_model(rng, [2, 3, 3, 3, 9, 2], [(0, 1, 2, 3), (3, 4), (4, 5)])
    truth = exact(model)
    found = list(pieces(model, sum_product(model, NEVER), Limits(10**6, 8)))
    assert sorted(np.concatenate([p.members for p in found])) == [0, 1, 2, 3, 5]
    for piece in found:
        assert_allclose(exact(piece.model), truth[piece.members, :3], atol=1e-5)


def test_a_large_tree_of_many_states_is_answered_exactly() -> None:
    model = tree(3, 40, 3)
    budget = icgi.Budget(table_bytes=10**7)
    found = icgi.marginals(model, engine="icgi:orders=1,rest=sum", budget=budget)
    assert found.stats["patches"] > 1
    assert found.stats["answered"] == 1.0
    assert_allclose(found.probs, exact(model), atol=1e-3)


def test_states_of_negligible_belief_keep_it() -> None:
    rng = np.random.default_rng(4)
    scopes = [(0, 1), (1, 2), (0, 2)]
    tables = [rng.normal(size=(20, 20)) for _ in scopes]
    field = np.where(np.arange(20) < 4, 0.0, -20.0)
    model = FactorGraph(np.full(3, 20), (*scopes, (0,), (1,), (2,)), (*tables, *[field] * 3))
    case = prepare(model, NEVER)
    small = case.prior < NEGLIGIBLE
    assert small.any()
    assert (case.kept == ~small).all()
    found = icgi.marginals(model, engine="icgi:rest=sum")
    assert_allclose(found.probs[small], case.prior[small], rtol=1e-9)
    assert_allclose(found.probs.sum(1), 1.0)
    assert np.abs(found.probs - exact(model)).sum(1).mean() < 0.01


def ordered(fields: float) -> FactorGraph:
    """Every spin likes to agree with all others, weakly opposed by its own field."""
    scopes = [(i, j) for i in range(10) for j in range(i)]
    agree = np.array([[2.0, 0.0], [0.0, 2.0]])
    tables = [agree] * len(scopes) + [np.array([0.0, fields])] * 10
    return FactorGraph(np.full(10, 2), (*scopes, *[(i,) for i in range(10)]), tuple(tables))


def test_the_likelier_of_several_fixed_points_is_found() -> None:
    for field in (-0.5, 0.5):
        model = ordered(field)
        assert_allclose(sum_product(model, NEVER).beliefs, exact(model), atol=0.02)


def test_answers_in_a_worse_mode_are_not_believed() -> None:
    model = ordered(0.5)
    case, truth = prepare(model, NEVER), exact(model)
    assert believes(case, truth[:, ::-1])
    assert not believes(case, truth)


def test_seconds_are_kept_and_what_was_not_answered_is_belief_propagation() -> None:
    rng = np.random.default_rng(5)
    scopes = [(i, j) for i in range(1500) for j in range(i + 1, min(i + 4, 1500))]
    model = zoo.random_model(rng, [6] * 1500, scopes, scale=0.5)
    icgi.marginals(tree(0, 5, 3), engine="icgi")  # compiles
    began = time.perf_counter()
    found = icgi.marginals(model, engine="icgi:rest=sum", budget=icgi.Budget(seconds=1.0))
    assert time.perf_counter() - began < 3.0  # generous: other work may share the machine
    assert found.status is Status.BUDGET_SPENT
    assert found.stats["answered"] < 1.0
    unanswered = found.marginals.concentration.sum(1) <= 1.0 + 1e-9
    assert_allclose(found.probs[unanswered], prepare(model, NEVER).prior[unanswered], atol=1e-3)
    assert (found.marginals.std_error[unanswered] > 0.5).all()
