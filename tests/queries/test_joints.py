import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.engines import parse_engine
from icgi.exact.enumeration import joint
from icgi.joint import infer_joints
from structured import written_network


def by_enumeration(model, scope, evidence=None):
    """Joint table of a scope from the weights of all configurations."""
    axes = model.cards.tolist()
    log = joint(model).reshape(axes)
    for i, x in (evidence or {}).items():
        keep = np.full(axes[i], -np.inf)
        keep[x] = 0.0
        log = log + keep.reshape([-1 if a == i else 1 for a in range(len(axes))])
    weights = np.exp(log - log.max())
    gone = tuple(a for a in range(len(axes)) if a not in scope)
    table = weights.sum(gone)
    left = sorted(scope)
    return np.transpose(table, [left.index(i) for i in scope]) / weights.sum()


def all_scopes(model, most=3):
    n = model.n_variables
    return [s for k in range(1, most + 1) for s in itertools.permutations(range(n), k)]


def ask(engine, model, scopes, evidence=None, seed=0):
    rng = np.random.default_rng(seed)
    return infer_joints(model, evidence or {}, scopes, parse_engine(engine), zoo.BUDGET, rng)


@pytest.mark.parametrize("name", [n for n in zoo.MODELS if n != "grid-3x3"])
@pytest.mark.parametrize("engine", ["jt", "enumerate", "exact", "auto"])
def test_any_variables_in_any_order_equal_enumeration(engine: str, name: str) -> None:
    model = zoo.MODELS[name]
    every = all_scopes(model)
    scopes = [every[k] for k in np.random.default_rng(0).permutation(len(every))[:25]]
    found = ask(engine, model, scopes)
    assert found.status is icgi.Status.EXACT or name == "strong"
    assert found.log_z == pytest.approx(zoo.exact(name).log_z, rel=1e-12, abs=1e-9)
    for scope, table in zip(scopes, found.tables, strict=True):
        assert_allclose(table, by_enumeration(model, scope), atol=1e-10)


@pytest.mark.parametrize("engine", ["jt", "enumerate", "exact"])
def test_evidence_leaves_observed_variables_certain(engine: str) -> None:
    model = zoo.MODELS["mixed-cards"]
    evidence = {1: 3}
    scopes = [(0, 2), (1, 2), (1,), (3, 1, 0), (2, 0, 3)]
    for scope, table in zip(scopes, ask(engine, model, scopes, evidence).tables, strict=True):
        assert_allclose(table, by_enumeration(model, scope, evidence), atol=1e-12)


def test_zeros_and_evidence_together() -> None:
    model = zoo.MODELS["zeros"]
    for state in range(3):
        try:
            found = ask("jt", model, [(1, 3), (0, 2, 4)], {2: state})
        except icgi.EvidenceError:
            continue
        for scope, table in zip([(1, 3), (0, 2, 4)], found.tables, strict=True):
            assert_allclose(table, by_enumeration(model, scope, {2: state}), atol=1e-12)


@pytest.mark.parametrize("engine", ["pt", "ttve", "auto:exact=false"])
@pytest.mark.parametrize("name", ["grid-3x3", "zeros", "mixed-cards", "disconnected"])
def test_sampled_joints_are_within_their_errors(engine: str, name: str) -> None:
    model = zoo.MODELS[name]
    scopes = [(0, 2), (3, 1), (0, 1, 3), (4,)] if model.n_variables > 4 else [(0, 2), (3, 1), (1,)]
    budget = icgi.Budget(iterations=4000)
    rng = np.random.default_rng(1)
    found = infer_joints(model, {}, scopes, parse_engine(engine), budget, rng)
    assert found.status is icgi.Status.CONVERGED
    for scope, table, error in zip(scopes, found.tables, found.std_errors, strict=True):
        assert table.sum() == pytest.approx(1.0)
        assert error.max() < 0.05
        assert (np.abs(table - by_enumeration(model, scope)) <= 4.5 * error).all()


def test_symmetric_spins_have_symmetric_joints() -> None:
    """Two cold domains that tempering rarely turns over: the mirror image counts as much."""
    J = np.zeros((12, 12))
    for i in range(11):
        J[i, i + 1] = 3.0
    model = icgi.from_ising(J)
    found = ask("pt", model, [(0, 11), (5, 4)])
    for scope, table in zip([(0, 11), (5, 4)], found.tables, strict=True):
        assert_allclose(table, table[::-1, ::-1], atol=1e-12)
        assert_allclose(table, by_enumeration(model, scope), atol=0.02)


@pytest.mark.parametrize("name", zoo.TREES)
def test_belief_propagation_is_exact_on_trees(name: str) -> None:
    model = zoo.MODELS[name]
    for scope in model.scopes:
        if scope:
            table = ask("lbp", model, [tuple(reversed(scope))]).tables[0]
            assert_allclose(table, by_enumeration(model, scope[::-1]), atol=1e-8)


def test_belief_propagation_with_evidence_and_zeros() -> None:
    rng = np.random.default_rng(5)
    chain = [(0, 1), (1, 2), (2, 3), (3, 4)]
    model = zoo.random_model(rng, [3, 2, 4, 3, 2], [*chain, (2,)], zeros=0.3)
    evidence = {4: int(np.argmax(by_enumeration(model, (4,))))}
    scopes = [(1, 0), (2, 3), (3, 4), (2,)]
    found = ask("lbp", model, scopes, evidence)
    assert found.status is icgi.Status.EXACT
    for scope, table in zip(scopes, found.tables, strict=True):
        assert_allclose(table, by_enumeration(model, scope, evidence), atol=1e-8)


def test_beliefs_of_factors_agree_with_the_marginals_on_loops() -> None:
    model = zoo.MODELS["ternary-factors"]
    probs = zoo.run(parse_engine("lbp"), model).probs
    found = ask("lbp", model, list(model.scopes))
    for scope, table in zip(model.scopes, found.tables, strict=True):
        for a, i in enumerate(scope):
            other = tuple(b for b in range(len(scope)) if b != a)
            assert_allclose(table.sum(other), probs[i, : model.cards[i]], atol=1e-5)


@pytest.mark.parametrize("engine", ["trbp", "gbp", "gbp:regions=join-graph", "lbp"])
@pytest.mark.parametrize("name", [*zoo.TREES, "zeros"])
def test_factors_have_exact_joints_where_the_engine_is_exact(engine: str, name: str) -> None:
    model = zoo.MODELS[name]
    scopes = [tuple(reversed(scope)) for scope in model.scopes if scope]
    found = ask(engine, model, scopes)
    if name == "zeros" and found.status is not icgi.Status.EXACT:
        pytest.skip("not exact here")
    for scope, table in zip(scopes, found.tables, strict=True):
        assert_allclose(table, by_enumeration(model, scope), atol=1e-6)


@pytest.mark.parametrize("engine", ["trbp:tolerance=1e-9", "gbp:tolerance=1e-9"])
@pytest.mark.parametrize("name", ["grid-3x3", "ternary-factors", "mixed-cards", "zeros"])
def test_joints_agree_with_the_marginals_of_their_engine(engine: str, name: str) -> None:
    model = zoo.MODELS[name]
    scopes = [scope for scope in model.scopes if scope]
    probs = zoo.run(parse_engine(engine), model).probs
    found = ask(engine, model, scopes)
    for scope, table in zip(scopes, found.tables, strict=True):
        assert table.sum() == pytest.approx(1.0)
        for a, i in enumerate(scope):
            other = tuple(b for b in range(len(scope)) if b != a)
            assert_allclose(table.sum(other), probs[i, : model.cards[i]], atol=1e-6)


def test_joints_of_a_junction_tree_of_clusters_are_exact_beyond_factors() -> None:
    model = zoo.MODELS["grid-3x3"]
    scope = (1, 3)  # in one cluster, in no factor
    assert "by conditioning" in ask("gbp", model, [(0, 8)]).note
    assert "by conditioning" in ask("trbp", model, [scope]).note
    square = ask("gbp:regions=clusters,ibound=8", model, [scope])
    assert square.status is icgi.Status.EXACT
    assert_allclose(square.tables[0], by_enumeration(model, scope), atol=1e-9)


@pytest.mark.parametrize("name", zoo.TREES)
@pytest.mark.parametrize("engine", ["lbp", "icgi"])
def test_other_joints_come_by_conditioning(engine: str, name: str) -> None:
    """Variables of no common factor, and engines without joints: both are exact on trees."""
    model = zoo.MODELS[name]
    scopes = [s for s in all_scopes(model) if s[0] <= s[-1]][:12]
    found = ask(engine, model, scopes)
    for scope, table in zip(scopes, found.tables, strict=True):
        assert_allclose(table, by_enumeration(model, scope), atol=1e-6)


@pytest.mark.parametrize("engine", ["pa", "icgi:paper"])
def test_errors_of_conditioning_are_those_of_its_products(engine: str) -> None:
    model = zoo.MODELS["grid-3x3"]
    scopes = [(0, 8), (1, 3, 5), (4, 2)]
    found = ask(engine, model, scopes)
    assert found.std_errors is not None
    for scope, table, error in zip(scopes, found.tables, found.std_errors, strict=True):
        expected = by_enumeration(model, scope)
        assert table.sum() == pytest.approx(1.0)
        assert (error > 0).all()
        assert error.max() < 0.1
        assert (np.abs(table - expected) <= 5 * error).all()


def test_conditioning_asks_each_question_once_and_leaves_out_what_is_impossible() -> None:
    model = zoo.MODELS["zeros"]
    asked = []

    class Counting:
        def __call__(self, model, budget, rng):
            asked.append(model)
            return parse_engine("jt")(model, budget, rng)

    scopes = [s for s in all_scopes(model, 2) if len(s) == 2]
    rng = np.random.default_rng(0)
    found = infer_joints(model, {}, scopes, Counting(), zoo.BUDGET, rng)
    assert found.status is icgi.Status.EXACT
    assert found.std_errors is None
    assert len(asked) <= 1 + int(model.cards.sum())
    for scope, table in zip(scopes, found.tables, strict=True):
        assert_allclose(table, by_enumeration(model, scope), atol=1e-12)


def test_too_many_conditions_are_refused_before_any_is_asked() -> None:
    model = icgi.from_ising(np.zeros((20, 20)))
    with pytest.raises(icgi.BudgetError, match="32,767 answers"):
        ask("mf", model, [tuple(range(15))])


def test_a_joint_beyond_the_memory_is_refused_with_its_size() -> None:
    model = icgi.from_ising(np.zeros((40, 40)))
    with pytest.raises(icgi.BudgetError, match=r"1\.07e\+09 entries \(8\.59 GB\)"):
        ask("jt", model, [tuple(range(30))])
    with pytest.raises(icgi.BudgetError):
        ask("jt", model, [tuple(range(40))])


def test_hidden_structure_is_used_by_conditioning() -> None:
    """A noisy or of many causes: no clique of the model as it is fits the memory."""
    rng = np.random.default_rng(3)
    _, factors, ends = written_network(rng, "max", 26, 8, 12)
    model = icgi.from_factors(factors)
    evidence = dict.fromkeys(ends[:3], 1)
    scopes = [(0, 5), (ends[4], 2), (1, 3, ends[5])]
    rng = np.random.default_rng(0)
    exact = infer_joints(model, evidence, scopes, parse_engine("jt"), icgi.Budget(), rng)
    small = icgi.Budget(table_bytes=20_000_000)
    by_conditions = infer_joints(model, evidence, scopes, parse_engine("exact"), small, rng)
    for a, b in zip(exact.tables, by_conditions.tables, strict=True):
        assert_allclose(a, b, atol=1e-9)
    assert by_conditions.note == "by conditioning: 11 answers"
