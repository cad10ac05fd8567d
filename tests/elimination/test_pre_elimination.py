from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal
from test_engine import PROPERTY, models

import zoo
from icgi.data.families import FAMILIES
from icgi.elimination import engine
from icgi.elimination.attempts import attempt
from icgi.elimination.engine import TensorTrainElimination
from icgi.elimination.joints import joint_marginals
from icgi.elimination.orders import find_layout
from icgi.elimination.passes import Cut
from icgi.elimination.potentials import potentials
from icgi.elimination.pre_elimination import pre_eliminate
from icgi.elimination.run import both_passes
from icgi.errors import EvidenceError
from icgi.exact.enumeration import Enumerate, joint
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Status
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model
from icgi.model.reduce import components

Scope = tuple[int, ...]


def train(rank: int, **options: object) -> TensorTrainElimination:
    """One attempt by trains, without checks."""
    return TensorTrainElimination(
        rank=rank, exact_entries=0, escalate=False, halving=False, samples=0, **options
    )


def joint_of(model: FactorGraph, scope: Scope) -> np.ndarray:
    log_p = joint(model).reshape(model.cards)
    p = np.exp(log_p - log_p.max())
    others = tuple(i for i in range(model.n_variables) if i not in scope)
    return (p.sum(others) / p.sum()).transpose(np.argsort(np.argsort(scope)))


def joints_by_passes(model: FactorGraph, rank: int) -> tuple[np.ndarray, dict[Scope, np.ndarray]]:
    """Marginals and joint marginals of all factors of a connected model."""
    pots = potentials(model)
    layout = find_layout(model, pots, rank, np.random.default_rng(0))
    done = both_passes(pots, layout, Cut(rank, 3.0, 1e-12, True))
    scopes = {s for s in model.scopes if s}
    return done.probs, joint_marginals(pots, layout, done, scopes)


@given(models())
@PROPERTY
def test_any_number_of_steps_leaves_an_equal_core_and_leads_back(model: FactorGraph) -> None:
    exact = Enumerate()(model, zoo.BUDGET, np.random.default_rng(0))
    for steps in [None, *range(model.n_variables + 1)]:
        reduced = pre_eliminate(model, steps)
        assert steps is None or len(reduced.kept) == model.n_variables - steps
        remainder = Enumerate()(reduced.remainder, zoo.BUDGET, np.random.default_rng(0))
        joints = {s: joint_of(reduced.remainder, s) for s in reduced.roots}
        assert remainder.log_z == pytest.approx(exact.log_z, abs=1e-9, rel=1e-10)
        assert_allclose(reduced.restore(remainder.probs, joints), exact.probs, atol=1e-9)


@given(models())
@PROPERTY
def test_full_rank_is_exact_with_any_number_of_steps(model: FactorGraph) -> None:
    exact = zoo.run(Enumerate(), model)
    for steps in (None, 1, 3):
        engine = TensorTrainElimination(
            rank=512, max_rank=512, exact_entries=0, halving=False, samples=0, steps=steps
        )
        found = zoo.run(engine, model)
        assert_allclose(found.probs, exact.probs, atol=1e-9)
        assert found.log_z == pytest.approx(exact.log_z, abs=1e-9, rel=1e-10)


@pytest.mark.parametrize("name", zoo.MODELS)
@pytest.mark.parametrize("steps", [None, 1, 2, 3])
def test_full_rank_is_exact_on_the_zoo(name: str, steps: int | None) -> None:
    found, exact = zoo.run(train(512, steps=steps), name), zoo.exact(name)
    assert_allclose(found.probs, exact.probs, atol=1e-9)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)


def test_evidence_and_samples_go_with_steps() -> None:
    model = zoo.MODELS["grid-3x3"]
    engine = TensorTrainElimination(rank=16, exact_entries=0, steps=3)
    found = zoo.run(engine, model, {4: 1})
    assert_allclose(found.probs, zoo.run(Enumerate(), model, {4: 1}).probs, atol=1e-9)
    assert found.stats["steps"] == 3


@pytest.mark.parametrize(
    "name", ["chain", "grid-3x3", "ternary-factors", "zeros", "mixed-cards", "factor-tree"]
)
def test_joints_of_full_rank_passes_are_exact(name: str) -> None:
    model = components(zoo.MODELS[name])[0].model
    _, found = joints_by_passes(model, 512)
    for scope, table in found.items():
        assert_allclose(table, joint_of(model, scope), atol=1e-9)


@given(models())
@PROPERTY
def test_joints_of_any_model_are_exact_at_full_rank(model: FactorGraph) -> None:
    for part in components(model):
        if potentials(part.model).steepness < 20.0:
            _, found = joints_by_passes(part.model, 512)
            for scope, table in found.items():
                assert_allclose(table, joint_of(part.model, scope), atol=1e-9)


def test_joints_of_truncated_passes_nearly_agree_with_the_marginals() -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(1), L=8)
    probs, found = joints_by_passes(model, 4)
    for scope, table in found.items():
        for axis, i in enumerate(scope):
            rest = tuple(a for a in range(len(scope)) if a != axis)
            assert_allclose(table.sum(rest), probs[i], atol=0.01)


def cold_centre(seed: int) -> tuple[FactorGraph, int, list[list[int]]]:
    """A cold SK centre of 14 spins, five tendrils, and five long cycles through two spins of it."""
    rng = np.random.default_rng(seed)
    size, length = 14, 6
    ends = [(i, j) for i in range(size) for j in range(i)]
    couplings = list(rng.normal(0.0, 2.0 / np.sqrt(size), len(ends)))
    tendrils = []
    n = size
    for k in range(10):
        path = [k, *range(n, n + length)]
        n += length
        tendrils += [path] if k < 5 else []
        more = list(pairwise([*path, *([] if k < 5 else [(k + 3) % size])]))
        ends += more
        couplings += list(rng.normal(0.0, 1.5, len(more)))
    fields = rng.normal(0.0, 0.3, n)
    return ising_model((np.array(ends), np.array(couplings)), fields), size, tendrils


def test_a_cold_centre_is_answered_no_worse_without_its_tendrils() -> None:
    errors = []
    for seed in range(6):
        model, size, _ = cold_centre(seed)
        exact = zoo.run(JunctionTree(), model)
        answers = [zoo.run(train(2, steps=steps), model) for steps in (None, 0)]
        assert [x.stats["steps"] for x in answers] == [model.n_variables - size, 0]
        assert answers[0].stats["predicted_cost"] < answers[1].stats["predicted_cost"]
        errors.append([np.abs(x.probs - exact.probs).sum(1).mean() for x in answers])
    # layouts of one model differ by more than this in error: only the mean can be compared
    found, whole = np.log(errors).mean(0)
    assert found <= whole


def test_tendrils_are_exact_given_the_centre() -> None:
    model, _, tendrils = cold_centre(0)
    probs = zoo.run(train(2), model).probs
    for path in tendrils:
        number = {i: k for k, i in enumerate(path)}
        inside = [f for f, s in enumerate(model.scopes) if set(s) <= set(path) and s != (path[0],)]
        alone = FactorGraph(
            model.cards[path],
            tuple(tuple(number[i] for i in model.scopes[f]) for f in inside),
            tuple(model.log_tables[f] for f in inside),
        )
        given_rest = np.array([zoo.run(Enumerate(), alone, {0: x}).probs for x in (0, 1)])
        expected = np.tensordot(probs[path[0]], given_rest, 1)
        assert_allclose(probs[path[1:]], expected[1:], atol=1e-12)


def test_no_steps_leave_the_model_as_it_is() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(3), n=10)
    assert pre_eliminate(model, 0).remainder is model
    # nothing is cheap in a complete graph
    found, whole = zoo.run(train(3), model), zoo.run(train(3, steps=0), model)
    assert_array_equal(found.probs, whole.probs)
    assert found.log_z == whole.log_z


def test_what_is_all_cheap_needs_no_train() -> None:
    found = zoo.run(train(1), "tree")
    assert found.status is Status.EXACT
    assert found.stats["steps"] == zoo.MODELS["tree"].n_variables
    assert_allclose(found.probs, zoo.exact("tree").probs, atol=1e-9)


def test_tables_stay_within_the_memory() -> None:
    model = zoo.MODELS["grid-3x3"]
    assert pre_eliminate(model, None, 0).steps == 0
    few = pre_eliminate(model, 9, 30)
    assert 0 < few.steps < 9
    assert sum(t.size for t in few.collected.tables.values()) <= 30


def test_joints_of_unusable_trains_still_lead_to_probabilities() -> None:
    reduced = pre_eliminate(zoo.MODELS["grid-3x3"], 2)
    probs = np.full((7, 2), 0.5)
    for wrong in (-1.0, np.nan, 0.0):
        joints = {s: np.full((2,) * len(s), wrong) for s in reduced.roots}
        found = reduced.restore(probs, joints)
        assert (found >= 0).all()
        assert_allclose(found.sum(1), 1.0)


def test_passes_that_lost_everything_have_joints_as_well() -> None:
    model = zoo.MODELS["grid-3x3"]
    pots = potentials(model)
    layout = find_layout(model, pots, 4, np.random.default_rng(0))
    done = both_passes(pots, layout, Cut(4, 3.0, 1e-12, True))
    lost = replace(done, forward=done.forward._replace(data=done.forward.data * np.nan))
    joints = joint_marginals(pots, layout, lost, [(0, 1)])
    assert np.isnan(joints[0, 1]).all()


def test_impossible_models_are_refused() -> None:
    same = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    model = FactorGraph(np.array([2, 2]), ((0, 1), (0, 1)), (same, same[::-1].copy()))
    with pytest.raises(EvidenceError, match="no configuration"):
        pre_eliminate(model)


def test_trains_leave_time_for_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: dict[str, float] = {}

    def attempted(pots, layout, cut, deadline, **settings):
        ends["trains"] = max(ends.get("trains", 0.0), deadline.at)
        return attempt(pots, layout, cut, deadline, **settings)

    def led_back(pots, layout, done, scopes, deadline):
        ends["joints"] = deadline.at
        return joint_marginals(pots, layout, done, scopes, deadline)

    monkeypatch.setattr(engine, "attempt", attempted)
    monkeypatch.setattr(engine, "joint_marginals", led_back)
    budget = Budget(seconds=1000.0)
    train(8)(zoo.MODELS["grid-3x3"], budget, np.random.default_rng(0))
    assert ends["joints"] - ends["trains"] > 90.0


def test_a_variable_that_moves_further_than_its_neighbours_errs_by_more_than_they_do() -> None:
    """Their joint marginal may be wrong where their own are not."""
    chain = zoo.random_model(np.random.default_rng(2), [2, 2, 2, 2], [(0, 1), (1, 2), (2, 3)])
    reduced = pre_eliminate(chain, 2)
    gone = np.setdiff1d(np.arange(4), reduced.kept)
    probs = np.full((4, 2), 0.5)
    errors = np.full((len(reduced.kept), 2), 1e-4)
    rough = probs.copy()
    rough[reduced.kept, 0] += 1e-3
    rough[reduced.kept, 1] -= 1e-3
    still = reduced.restore_errors(errors, probs, rough)
    assert_allclose(still, reduced.restore_errors(errors, probs))
    rough[gone[0]] += [0.2, -0.2]
    moved = reduced.restore_errors(errors, probs, rough)
    assert (moved[gone[0]] > 0.19).all()
    assert_allclose(moved[reduced.kept], still[reduced.kept])
