from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import zoo
from icgi.clock import Deadline
from icgi.data.families import FAMILIES
from icgi.elimination.attempts import UNUSABLE_SPREAD
from icgi.elimination.branches import Leaf, branch, combined, strength
from icgi.elimination.engine import _BRANCH_TARGET, TensorTrainElimination, _Limits
from icgi.elimination.potentials import potentials
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Marginals, Status, infer
from icgi.model.condition import Evidence


@pytest.mark.parametrize("name", ["chain", "grid-3x3", "zeros", "mixed-cards", "ternary-factors"])
@pytest.mark.parametrize("most", [2, 7, 30])
def test_exact_leaves_add_up_to_the_exact_answer(name: str, most: int) -> None:
    model, exact = zoo.MODELS[name], zoo.exact(name)

    def solve(held: Evidence) -> Marginals:
        found = zoo.run(JunctionTree(), model, dict(held))
        # called unsound while few variables are held, so that the tree has to grow
        status = Status.EXACT if len(held) > 2 else Status.DIVERGED
        return Marginals(found.probs, status, found.log_z)

    *_, leaves = branch(model, solve({}), solve, most, 0.0, Deadline())
    found = combined(leaves)
    assert len(leaves) >= min(most, 2)
    assert_allclose(found.probs, exact.probs, atol=1e-9)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)
    assert found.status is (Status.EXACT if all(x.sound for x in leaves) else Status.DIVERGED)


def test_a_leaf_of_unknown_weight_is_never_sound() -> None:
    probs = np.full((2, 2), 0.5)
    known = Leaf({0: 0}, Marginals(probs, Status.CONVERGED, 3.0, stats={"spread": 0.0}))
    unknown = Leaf({0: 1}, Marginals(probs, Status.DIVERGED, None))
    assert combined([known, unknown]).status is Status.DIVERGED
    assert combined([unknown, unknown]).status is Status.DIVERGED
    light = Leaf({0: 1}, Marginals(probs, Status.DIVERGED, -9.0))
    assert combined([known, light]).status is Status.CONVERGED


def test_an_unusable_leaf_may_weigh_more_than_it_says() -> None:
    probs = np.full((2, 2), 0.5)

    def leaf(state: int, log_z: float, negative: float, spread: float) -> Leaf:
        stats = {"spread": spread, "change": 0.01, "negative": negative}
        return Leaf({0: state}, Marginals(probs, Status.DIVERGED, log_z, stats=stats))

    known = Leaf({0: 0}, Marginals(probs, Status.CONVERGED, 3.0, stats={"spread": 0.01}))
    assert combined([known, leaf(1, 1.0, 0.0, 0.06)]).status is Status.CONVERGED
    assert combined([known, leaf(1, 1.0, 0.0, 2.0)]).status is Status.DIVERGED
    assert combined([known, leaf(1, 1.0, 0.1, 0.06)]).status is Status.DIVERGED
    assert combined([leaf(0, 3.0, 0.0, 0.06), leaf(1, 3.0, 0.0, 0.06)]).status is Status.DIVERGED


def test_a_tree_of_one_leaf_is_no_second_opinion() -> None:
    """A root whose samples contradict it does not state less because its spread is small."""
    probs, error = np.full((2, 2), 0.5), np.full((2, 2), 0.005)
    stats = {"spread": 1e-4, "change": 0.01, "negative": 0.0}
    root = Marginals(probs, Status.DIVERGED, 3.0, std_error=error, stats=stats)
    engine = TensorTrainElimination()
    found = engine._mixture(root, [Leaf({}, root)], _Limits(Deadline()))
    assert found.std_error is error
    rough = replace(root, std_error=10 * error)
    assert engine._mixture(rough, [Leaf({}, rough)], _Limits(Deadline())) is rough


def test_the_leaf_that_may_weigh_most_is_split_first() -> None:
    model = zoo.random_model(np.random.default_rng(1), [2] * 4, [(0, 1), (1, 2), (2, 3)])
    probs = np.full((4, 2), 0.5)

    def solve(held: Evidence) -> Marginals:
        if len(held) > 1:
            return Marginals(probs, Status.CONVERGED, -5.0, stats={"spread": 0.0})
        unusable = next(iter(held.values()), 0) == 1  # of a fifth of the other's weight
        stats = {"spread": 0.06, "change": 0.01, "negative": 0.1 if unusable else 0.0}
        return Marginals(probs, Status.DIVERGED, -1.6 if unusable else 0.0, stats=stats)

    *_, leaves = branch(model, solve({}), solve, 3, 0.0, Deadline())
    first = next(x for x in leaves if len(x.evidence) == 1)
    assert list(first.evidence.values()) == [0]


def test_hubs_are_the_strongest() -> None:
    model = zoo.random_model(np.random.default_rng(0), [2] * 5, [(0, i) for i in range(1, 5)])
    assert np.argmax(strength(potentials(model))) == 0


def test_branches_mend_what_trains_of_the_whole_cannot() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(5), n=18, beta=3.0, h=0.5)
    exact = zoo.run(JunctionTree(), model)
    engine = TensorTrainElimination(rank=4, max_rank=4, exact_entries=0, samples=0)
    whole = TensorTrainElimination(rank=4, max_rank=4, exact_entries=0, samples=0, branches=0)
    errors = [np.abs(zoo.run(e, model).probs - exact.probs).sum(1).mean() for e in (engine, whole)]
    assert zoo.run(engine, model).stats["branches"] > 1
    assert errors[0] < 0.5 * errors[1]


def test_leaves_take_half_the_rank_and_all_of_it_where_it_can_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unusable leaves get two tries at half the rank; others the whole rank unless accurate."""
    runs: dict[tuple[tuple[int, int], ...], list[tuple[int, bool, float]]] = {}

    def watched(model, held, engine, budget, rng):  # type: ignore[no-untyped-def]
        found = infer(model, held, engine, budget, rng)
        unusable = found.stats["negative"] > 0.0 or not found.stats["spread"] < UNUSABLE_SPREAD
        key = tuple(sorted(held.items()))
        runs.setdefault(key, []).append((engine.rank, unusable, found.stats["spread"]))
        return found

    monkeypatch.setattr("icgi.elimination.engine.infer", watched)
    model = FAMILIES["sk"].sample(np.random.default_rng(5), n=20, beta=3.0, h=0.5)
    zoo.run(TensorTrainElimination(rank=4, max_rank=4, exact_entries=0, samples=0), model)
    assert {rank for tries in runs.values() for rank, _, _ in tries} == {2, 4}
    for tries in runs.values():
        ranks, unusable, spreads = zip(*tries, strict=True)
        low = [w for r, w in zip(ranks, unusable, strict=True) if r == 2]
        assert low[:-1] == [True] * (len(low) - 1)
        assert len(low) <= 2
        assert (4 in ranks) == (not low[-1] and spreads[len(low) - 1] > _BRANCH_TARGET)
