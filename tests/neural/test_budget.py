"""Budgets of the networks: seconds, memory, what an unfinished answer is, and honest bands."""

import time

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.clock import Deadline
from icgi.engines import parse_engine
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Budget, Status, infer
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model
from icgi.neural import engine as engine_module
from icgi.neural.doubt import floored
from icgi.neural.general_batch import listed, pair_form
from icgi.neural.general_engine import pair_beliefs

ENGINES = ("icgi", "icgi:paper")


def lattice(side: int, beta: float = 1.0) -> FactorGraph:
    scopes = [s for s in zoo.grid_scopes(side, side) if len(s) == 2]
    rng = np.random.default_rng(side)
    return ising_model((scopes, rng.normal(size=len(scopes))), rng.normal(0, 0.3, side**2), beta)


def run(model: FactorGraph, engine: str, **budget: float) -> icgi.inference.Marginals:
    return infer(model, {}, parse_engine(engine), Budget(**budget), np.random.default_rng(0))  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", zoo.MODELS)
def test_without_time_there_is_an_answer_that_says_so(engine: str, name: str) -> None:
    found = run(zoo.MODELS[name], engine, seconds=0.0)
    assert found.status is Status.BUDGET_SPENT
    assert_allclose(found.probs.sum(1), 1.0)
    assert np.isfinite(found.probs).all()
    assert not found.probs[np.arange(found.probs.shape[1]) >= zoo.MODELS[name].cards[:, None]].any()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("side", [30, 60])
def test_seconds_are_kept(engine: str, side: int) -> None:
    model = lattice(side)
    began = time.perf_counter()
    found = run(model, engine, seconds=1.0)
    assert time.perf_counter() - began < 3.0  # generous: other work may share the machine
    assert_allclose(found.probs.sum(1), 1.0)


def test_a_short_time_gives_smaller_patches_and_a_long_one_the_whole() -> None:
    found = run(lattice(12), "icgi:orders=1", seconds=0.2)
    assert found.status is Status.BUDGET_SPENT
    found = run(lattice(5), "icgi:orders=1,core=8")
    assert found.status is Status.ESTIMATED
    assert found.stats["patches"] == 1.0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", zoo.MODELS)
def test_bands_contain_their_own_estimate(engine: str, name: str) -> None:
    answer = icgi.marginals(zoo.MODELS[name], engine=engine)
    for level in (0.5, 0.9, 0.99):
        band = answer.interval(level)
        assert band is not None
        assert (band[0] <= answer.probs + 1e-12).all()
        assert (band[1] >= answer.probs - 1e-12).all()
    assert not answer.probs[zoo.impossible(name)].any()


def test_dirichlet_bands_contain_the_mean_for_tiny_concentrations() -> None:
    probs = np.array([[0.0087, 0.9913]])
    found = icgi.inference.Marginals(probs, Status.ESTIMATED, concentration=0.6 * probs)
    model = FactorGraph(np.array([2]), (), ())
    low, high = icgi.answer.Answer(model, {}, found, "", 0.0).interval(0.9)
    assert (low <= probs).all()
    assert (high >= probs).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_strong_couplings_are_not_answered_with_narrow_bands(engine: str) -> None:
    rng = np.random.default_rng(5)
    scopes = [(i, j) for i in range(11) for j in range(i)]
    model = zoo.random_model(rng, [2] * 11, scopes, scale=40.0)
    exact = icgi.marginals(model, engine="jt").probs
    low, high = icgi.marginals(model, engine=engine).interval(0.9)
    assert ((low <= exact + 1e-9) & (exact <= high + 1e-9)).all()


def test_the_floor_grows_with_the_strength_and_leaves_weak_models_alone() -> None:
    alpha = np.array([[60.0, 40.0]] * 3)
    bounded, error = floored(alpha, np.array([0.0, 8.0, 700.0]))
    assert_allclose(bounded[0], alpha[0])
    assert error[0, 0] < error[1, 0] < error[2, 0]
    assert 1.645 * error[2, 0] > 0.99
    assert_allclose(bounded / bounded.sum(1, keepdims=True), alpha / 100.0)


@pytest.mark.parametrize("name", zoo.TREES)
def test_beliefs_on_pairs_are_exact_on_trees(name: str) -> None:
    model = zoo.MODELS[name]
    found = pair_beliefs(listed([pair_form(model)]), Deadline())[0, : model.n_variables]
    assert_allclose(found[:, : model.max_states], zoo.exact(name).probs, atol=1e-4)


def test_little_memory_means_small_patches_before_a_refusal() -> None:
    model = lattice(12)
    found = run(model, "icgi:orders=1,core=8", table_bytes=12_000_000)
    assert found.stats["patches"] > 1
    with pytest.raises(BudgetError, match="larger memory"):
        run(model, "icgi", table_bytes=10_000)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_wide_factor_is_refused_quickly(engine: str) -> None:
    model = FactorGraph(np.full(20, 2), (tuple(range(20)),), (np.zeros((2,) * 20),))
    with pytest.raises(UnsupportedModelError, match="use the engine"):
        run(model, engine)


@pytest.mark.parametrize("missing", ["torch", "safetensors"])
def test_a_missing_extra_is_refused_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    there = engine_module.importlib.util.find_spec
    monkeypatch.setattr(
        engine_module.importlib.util, "find_spec", lambda n: None if n == missing else there(n)
    )
    with pytest.raises(icgi.IcgiError, match=rf"{missing} not found.*pip install -e '\.\[nn\]'"):
        parse_engine("icgi")
