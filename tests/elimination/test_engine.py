import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import zoo
from icgi.data.families import FAMILIES
from icgi.elimination.attempts import SOUND_SPREAD
from icgi.elimination.engine import STEEP, TensorTrainElimination
from icgi.elimination.potentials import potentials
from icgi.elimination.run import NEGATIVE
from icgi.engines import parse_engine
from icgi.errors import BudgetError, IcgiError
from icgi.exact.enumeration import Enumerate
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Status
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model

FULL = TensorTrainElimination(
    rank=512, max_rank=512, exact_entries=0, halving=False, samples=0, steps=0
)


@st.composite
def models(draw: st.DrawFn) -> FactorGraph:
    n = draw(st.integers(1, 7))
    cards = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    count = draw(st.integers(0, 9))
    arities = st.integers(0, min(n, 3))
    scopes = [tuple(draw(st.permutations(range(n)))[: draw(arities)]) for _ in range(count)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.1, 1.0, 3.0, 6.0, 30.0, 200.0]))
    zeros = draw(st.sampled_from([0.0, 0.3]))
    return zoo.random_model(rng, cards, scopes, scale=scale, zeros=zeros)


PROPERTY = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@pytest.mark.parametrize("name", zoo.MODELS)
@pytest.mark.parametrize("arithmetic", ["auto", "qr"])
def test_full_rank_is_exact_on_the_zoo(name: str, arithmetic: str) -> None:
    engine = TensorTrainElimination(
        rank=512, arithmetic=arithmetic, exact_entries=0, halving=False, samples=0, steps=0
    )
    found, exact = zoo.run(engine, name), zoo.exact(name)
    assert_allclose(found.probs, exact.probs, atol=1e-9)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)
    assert found.status in (Status.EXACT, Status.CONVERGED)


@given(models())
@PROPERTY
def test_full_rank_is_exact_on_any_model(model: FactorGraph) -> None:
    found, exact = zoo.run(FULL, model), zoo.run(Enumerate(), model)
    assert_allclose(found.probs, exact.probs, atol=1e-9)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-9, rel=1e-10)


@given(models())
@PROPERTY
def test_small_tables_are_exact_without_a_train(model: FactorGraph) -> None:
    found, exact = zoo.run(TensorTrainElimination(), model), zoo.run(Enumerate(), model)
    assert found.status is Status.EXACT
    assert_allclose(found.probs, exact.probs, atol=1e-9)


@given(models(), st.integers(1, 3), st.integers(0, 3))
@PROPERTY
def test_a_failed_check_is_never_called_converged(
    model: FactorGraph, rank: int, steps: int
) -> None:
    engine = TensorTrainElimination(
        rank=rank, exact_entries=0, escalate=False, halving=False, samples=0, steps=steps
    )
    found = zoo.run(engine, model)
    assert np.isfinite(found.probs).all()
    assert_allclose(found.probs.sum(1), 1.0)
    if found.status in (Status.EXACT, Status.CONVERGED):
        assert found.stats.get("negative", 0.0) == 0.0
        assert found.stats.get("spread", 0.0) <= SOUND_SPREAD * model.n_variables
    if found.status is Status.EXACT:
        assert_allclose(found.probs, zoo.run(Enumerate(), model).probs, atol=1e-9)


@pytest.mark.parametrize("scale", [30.0, 300.0])
def test_digits_below_double_precision_are_never_called_exact(scale: float) -> None:
    """Too large for dense tables and too steep for trains: whatever comes out is not exact."""
    rng = np.random.default_rng(4)
    model = zoo.random_model(
        rng, [2] * 30, [(i, j) for i in range(30) for j in range(i)], scale=scale
    )
    engine = TensorTrainElimination(
        rank=4, max_rank=4, exact_entries=0, escalate=False, halving=False, samples=0
    )
    assert potentials(model).steepness > STEEP
    found = zoo.run(engine, model)
    assert found.status is not Status.EXACT
    assert_allclose(found.probs.sum(1), 1.0)


def test_evidence_and_permuted_variables_change_nothing() -> None:
    model = zoo.MODELS["ternary-factors"]
    found = zoo.run(FULL, model, {1: 1})
    assert_allclose(found.probs, zoo.run(Enumerate(), model, {1: 1}).probs, atol=1e-9)
    order = np.array([2, 0, 3, 1])  # new number of each variable
    renamed = FactorGraph(
        model.cards[np.argsort(order)],
        tuple(tuple(int(order[i]) for i in s) for s in model.scopes),
        model.log_tables,
    )
    assert_allclose(zoo.run(FULL, renamed).probs[order], zoo.run(FULL, model).probs, atol=1e-9)


@pytest.mark.parametrize(("family", "size"), [("ea2d", {"L": 8}), ("sk", {"n": 14})])
def test_error_falls_with_rank(family: str, size: dict[str, int]) -> None:
    model = FAMILIES[family].sample(np.random.default_rng(3), **size)
    exact = zoo.run(JunctionTree(), model)
    errors = []
    for rank in (2, 8, 32):
        engine = TensorTrainElimination(
            rank=rank, exact_entries=0, escalate=False, halving=False, samples=0
        )
        found = zoo.run(engine, model)
        errors.append(np.abs(found.probs - exact.probs).sum(1).mean())
    assert errors[1] < 0.2 * errors[0]
    assert errors[2] < 0.2 * errors[1] or errors[2] < 1e-9


def test_stats_account_for_the_error() -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(1), L=8)
    exact = zoo.run(JunctionTree(), model)
    engine = TensorTrainElimination(rank=4, exact_entries=0, samples=200)
    found = zoo.run(engine, model)
    error = np.abs(found.probs - exact.probs).sum(1).mean()
    stats = found.stats
    assert {"eps_sum", "eps_max", "halving", "negative", "change", "spread"} <= stats.keys()
    assert stats["spread"] / 30 < error < 30 * stats["spread"]
    assert stats["halving"] > error
    assert abs(stats["sample_log_z"] - exact.log_z) < 5 * stats["sample_log_z_error"] + 1e-3
    assert 0 < stats["sample_share"] <= 1


def test_spins_without_fields_are_even() -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(2), L=7, field=0.0, beta=3.0)
    exact = zoo.run(JunctionTree(), model)
    engine = TensorTrainElimination(rank=16, exact_entries=0, halving=False)
    found = zoo.run(engine, model)
    assert (found.probs == 0.5).all()
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-6)


def test_escalation_mends_what_a_small_rank_breaks() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(5), n=16, beta=3.0, h=0.5)
    exact = zoo.run(JunctionTree(), model)
    found = zoo.run(TensorTrainElimination(rank=2, max_rank=64, exact_entries=0), model)
    assert found.status in (Status.CONVERGED, Status.EXACT)
    assert np.abs(found.probs - exact.probs).sum(1).mean() < 0.05


@pytest.mark.parametrize("steps", [0, None])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cold_hopeless_models_are_called_diverged(seed: int, steps: int | None) -> None:
    model = FAMILIES["ea3d"].sample(np.random.default_rng(seed), L=5, beta=4.0)
    engine = TensorTrainElimination(
        rank=2, max_rank=2, exact_entries=0, halving=False, iterations=2, samples=0, steps=steps,
        branches=8,
    )  # fmt: skip
    found = zoo.run(engine, model)
    assert found.status is Status.DIVERGED
    assert found.stats["unsound"] > 0.01 or found.stats["spread"] > SOUND_SPREAD  # and says why
    assert NEGATIVE < 0


def test_time_and_memory_are_kept() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(0), n=30)
    engine = TensorTrainElimination(rank=16, exact_entries=0)
    found = zoo.run(engine, model, budget=Budget(seconds=0.0))
    assert found.status is Status.BUDGET_SPENT
    assert found.stats["passes"] == 0
    small = zoo.run(engine, model, budget=Budget(table_bytes=400_000))
    assert small.stats["rank"] < 16
    with pytest.raises(BudgetError, match="memory"):
        zoo.run(engine, model, budget=Budget(table_bytes=1000))


def test_many_states_and_wide_factors() -> None:
    rng = np.random.default_rng(11)
    cards = [7, 2, 5, 3, 2, 4]
    scopes = [(0, 2), (1, 2, 3), (3, 4, 5, 1), (5, 0), (2, 5), (4,)]
    model = zoo.random_model(rng, cards, scopes, zeros=0.2)
    exact = zoo.run(Enumerate(), model)
    assert_allclose(zoo.run(FULL, model).probs, exact.probs, atol=1e-9)


def test_a_model_without_variables() -> None:
    model = ising_model((np.zeros((0, 2), np.int64), np.zeros(0)), np.zeros(0))
    assert zoo.run(TensorTrainElimination(), model).status is Status.EXACT


def test_tables_that_fit_are_used_where_trains_are_sound_but_not_accurate() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(6), n=16, beta=1.0, h=0.3)
    trains = TensorTrainElimination(
        rank=6, max_rank=6, exact_entries=0, escalate=False, halving=False, samples=0
    )
    engine = TensorTrainElimination(rank=6, max_rank=6, exact_entries=2**10, samples=0)
    rough = zoo.run(trains, model)
    assert rough.status is Status.CONVERGED
    assert rough.stats["spread"] > engine.spread
    found = zoo.run(engine, model)
    assert found.status is Status.EXACT
    assert_allclose(found.probs, zoo.run(Enumerate(), model).probs, atol=1e-9)


@pytest.mark.parametrize(
    "option", ["rank=0", "iterations=0", "layouts=0", "samples=-2", "steps=-1"]
)
def test_settings_that_no_run_could_honour_are_refused_by_name(option: str) -> None:
    with pytest.raises(IcgiError, match=f"ttve: {option} is too small; give [01] or more"):
        parse_engine(f"ttve:{option}")


def test_no_time_at_all_is_answered_by_what_is_known() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(0), n=30, h=0.3)
    found = zoo.run(TensorTrainElimination(exact_entries=0), model, budget=Budget(seconds=0.0))
    assert found.status is Status.BUDGET_SPENT
    assert found.std_error is not None
    assert_allclose(found.probs.sum(1), 1.0)


def test_tables_of_more_entries_than_numbers_reach_are_no_overflow() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(0), n=1100, h=0.3)
    found = zoo.run(TensorTrainElimination(), model, budget=Budget(seconds=0.5))
    assert found.status is Status.BUDGET_SPENT


def test_marginals_beyond_the_memory_are_refused() -> None:
    model = FactorGraph(np.array([2] * 15 + [2**24]), (), ())
    with pytest.raises(BudgetError, match="marginals"):
        zoo.run(TensorTrainElimination(), model, budget=Budget(table_bytes=10**8))
