"""Pieces of a model make up its answer: runs, connected parts, branches of conditioning."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import zoo
from icgi.approx.lbp import LoopyBP
from icgi.data.families import FAMILIES
from icgi.elimination.engine import TensorTrainElimination
from icgi.errors import EvidenceError, UnsupportedModelError
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Engine, Marginals, Status, infer
from icgi.model.graph import FactorGraph
from icgi.model.reduce import Component
from icgi.portfolio.auto import united
from icgi.portfolio.division import cutset, divide, mixed, pooled
from icgi.portfolio.exact import Exact
from icgi.sampling.tempering import ParallelTempering

BUDGET = Budget()
GRID = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=6)


def solved(model: FactorGraph, engine: Engine, parts: int, budget: Budget = BUDGET) -> Marginals:
    division = divide(model, engine, parts, np.random.default_rng(0))
    answers: list[Marginals | None] = []
    for each in division.pieces:
        rng = np.random.default_rng(each.seed)
        try:
            answers.append(infer(each.model, each.evidence, engine, budget, rng))
        except EvidenceError:
            answers.append(None)
    return division.combine(answers)


def exactly(model: FactorGraph) -> Marginals:
    return JunctionTree()(model, BUDGET, np.random.default_rng(0))


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_branches_of_conditioning_are_the_whole(parts: int) -> None:
    for model in (GRID, zoo.MODELS["mixed-cards"], zoo.MODELS["zeros"]):
        found, truth = solved(model, JunctionTree(), parts), exactly(model)
        assert found.status is Status.EXACT
        assert_allclose(found.probs, truth.probs, atol=1e-12)
        assert_allclose(found.log_z, truth.log_z, atol=1e-12)


def test_conditioning_makes_every_branch_cheaper() -> None:
    from icgi.model.condition import condition
    from icgi.model.ordering import greedy_order

    held = cutset(GRID, 16)
    assert len(held) == 4
    left = condition(GRID, dict.fromkeys(held, 0)).model
    before, after = (greedy_order(m, "min-fill").log2_entries for m in (GRID, left))
    assert after <= before - 2.0


def test_connected_parts_are_answered_apart() -> None:
    parts = [FAMILIES["ea2d"].sample(np.random.default_rng(k), L=3) for k in range(5)]
    whole = united([Component(part, 9 * k + np.arange(9)) for k, part in enumerate(parts)]).model
    for engine in (Exact(), LoopyBP()):
        division = divide(whole, engine, 2, np.random.default_rng(0))
        assert sorted(each.model.n_variables for each in division.pieces) == [18, 27]
        found = solved(whole, engine, 2)
        alone = infer(whole, {}, engine, BUDGET, np.random.default_rng(0))
        assert_allclose(found.probs, alone.probs, atol=1e-6)
    assert_allclose(solved(whole, Exact(), 2).log_z, exactly(whole).log_z, atol=1e-10)


def test_work_that_is_one_piece_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="one piece"):
        divide(GRID, LoopyBP(), 2, np.random.default_rng(0))


def test_impossible_branches_weigh_nothing() -> None:
    answer = exactly(GRID)
    found = mixed([None, answer])
    assert_allclose(found.probs, answer.probs)
    with pytest.raises(EvidenceError):
        mixed([None, None])


def test_independent_runs_have_the_errors_of_all_their_ensembles() -> None:
    """ŝ of all ensembles from that of each run is the sum of squares within and between."""
    rng = np.random.default_rng(0)
    means = rng.uniform(0.4, 0.6, (3, 4))  # runs, ensembles
    runs = []
    for each in means:
        p, s = each.mean(), each.std(ddof=1)
        runs.append(
            Marginals(
                np.array([[p, 1 - p]]), Status.CONVERGED, 1.0, std_error=np.full((1, 2), 1e-6),
                deviation=np.array([s]), stats={"sweeps": 10.0, "ensembles": 4.0},
            )
        )  # fmt: skip
    found = pooled(runs)
    assert_allclose(found.probs[0, 0], means.mean())
    assert found.deviation is not None
    assert found.std_error is not None
    assert_allclose(found.deviation[0], means.std(ddof=1))
    least = means.std(ddof=1) / np.sqrt(12)
    assert least <= found.std_error[0, 0] <= 1.2 * least  # Student's t at eleven degrees of freedom


def test_runs_in_different_modes_are_not_sound() -> None:
    runs = [
        Marginals(
            np.array([[p, 1 - p]]), Status.CONVERGED, 0.0, std_error=np.full((1, 2), 0.01),
            deviation=np.array([0.01]), stats={"sweeps": 1.0, "ensembles": 4.0},
        )
        for p in (0.1, 0.9)
    ]  # fmt: skip
    found = pooled(runs)
    assert found.status is Status.BUDGET_SPENT
    assert found.std_error is not None
    assert found.std_error.min() > 0.1


def test_more_runs_are_more_certain_and_right() -> None:
    truth = exactly(GRID)
    budget = Budget(iterations=400)
    few, many = (solved(GRID, ParallelTempering(threads=1), k, budget) for k in (1, 4))
    assert few.std_error is not None
    assert many.std_error is not None
    assert many.std_error.mean() < 0.7 * few.std_error.mean()
    free = many.std_error > 0
    z = np.abs(many.probs - truth.probs)[free] / many.std_error[free]
    assert np.mean(z < 2.0) > 0.8
    assert abs(many.log_z - truth.log_z) < 5 * many.stats["log_z_std_error"]


def test_trains_by_branches_state_errors() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(1), n=20, beta=1.0)
    engine = TensorTrainElimination(rank=4, exact_entries=0, escalate=False, samples=0)
    found, truth = solved(model, engine, 4), exactly(model)
    assert found.stats["pieces"] == 4.0
    assert found.std_error is not None
    assert np.abs(found.probs - truth.probs).mean() <= 5 * found.std_error.mean() + 1e-6
