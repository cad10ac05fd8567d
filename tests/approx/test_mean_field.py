"""Mean field: coordinate ascent of a lower bound, from inside the support where there are zeros."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.testing import assert_allclose, assert_array_equal
from test_lbp import lattice, nasty_models, pairwise

import zoo
from icgi.approx import mean_field
from icgi.approx.flat import lay_out
from icgi.approx.mean_field import MeanField, relax, starting_point
from icgi.approx.mean_field_sweeps import lower_bounds
from icgi.approx.support import possible_configuration, supported
from icgi.clock import Deadline
from icgi.exact.enumeration import Enumerate, joint
from icgi.inference import Budget, Status
from icgi.model.graph import FactorGraph, FloatArray

RNG = np.random.default_rng

GO = np.zeros(1, np.uint8)  # a stop flag that nobody raises


def free_energy(model: FactorGraph, probs: FloatArray) -> float:
    """E_q[log p̃] + H(q) by summing over every configuration."""
    q = np.ones(1)
    for i, card in enumerate(model.cards):
        q = np.outer(q, probs[i, :card]).ravel()
    here = q > 0
    return float((q[here] * (joint(model)[here] - np.log(q[here]))).sum())


@pytest.mark.parametrize("name", zoo.MODELS)
def test_bound_is_that_of_the_answer(name: str) -> None:
    found = zoo.run(MeanField(), name)
    alone = all(len(scope) < 2 for scope in zoo.MODELS[name].scopes)
    assert found.status is (Status.EXACT if alone else Status.AT_REST)
    assert found.log_z == pytest.approx(free_energy(zoo.MODELS[name], found.probs), abs=1e-8)
    assert found.log_z <= zoo.exact(name).log_z + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_no_product_nearby_is_better(seed: int) -> None:
    rng = RNG(seed)
    scopes = [(0, 1), (1, 2), (2, 3, 4), (4, 0), (2,), (0, 1, 3, 4)]
    model = zoo.random_model(rng, [2, 3, 2, 3, 2], scopes)
    found = zoo.run(MeanField(tolerance=1e-10), model)
    for _ in range(20):
        noise = np.exp(1e-3 * rng.normal(size=found.probs.shape))
        moved = found.probs * noise
        assert free_energy(model, moved / moved.sum(1, keepdims=True)) <= found.log_z + 1e-12


def test_every_sweep_ascends() -> None:
    flat = lay_out([pairwise(1, 12, 3, 0.5, 1.0)])
    q = starting_point(flat, [RNG(0)])
    bounds = [lower_bounds(flat, q, GO)[0]]
    for _ in range(20):
        relax(flat, q, -math.inf, np.array([1]), Deadline())
        bounds.append(lower_bounds(flat, q, GO)[0])
    assert (np.diff(bounds) >= -1e-12).all()


def test_exact_without_interactions() -> None:
    model = zoo.random_model(RNG(0), [2, 3, 4], [(0,), (1,), (2,), (1,), ()])
    found, exact = zoo.run(MeanField(), model), zoo.run(Enumerate(), model)
    assert_allclose(found.probs, exact.probs, atol=1e-12)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-12)


def test_restarts_find_the_better_of_two_magnets() -> None:
    model = lattice(4, np.full(24, 1.0), np.full(16, 0.02))
    best = [zoo.run(MeanField(restarts=6), model, seed=s).log_z for s in range(4)]
    assert_allclose(best, max(best), atol=1e-6)


class TestZeros:
    def all_different(self, n: int, states: int) -> FactorGraph:
        table = np.zeros((states, states))
        np.fill_diagonal(table, -np.inf)
        scopes = tuple((i, j) for i in range(n) for j in range(i))
        return FactorGraph(np.full(n, states), scopes, (table,) * len(scopes))

    def test_starts_at_a_possible_configuration(self) -> None:
        """Of all-different, every product inside the support is one configuration."""
        found = zoo.run(MeanField(), self.all_different(6, 6))
        assert found.status is Status.AT_REST
        assert sorted(found.probs.argmax(1)) == list(range(6))
        assert found.log_z == pytest.approx(0.0, abs=1e-12)

    @pytest.mark.parametrize("seed", range(10))
    def test_configuration_has_no_zero(self, seed: int) -> None:
        rng = RNG(seed)
        scopes = [tuple(rng.permutation(9)[:3].tolist()) for _ in range(10)]
        model = supported(zoo.random_model(rng, [3] * 9, scopes, zeros=0.6)).model
        states = possible_configuration(model, np.ones(int(model.cards.sum())), rng)
        assert states is not None
        for scope, table in zip(model.scopes, model.log_tables, strict=True):
            if np.isneginf(table).any():
                assert table[tuple(states[list(scope)])] > -np.inf

    def test_search_gives_up_on_pigeons(self) -> None:
        """Seven pigeons, six holes: arc consistent throughout, and impossible."""
        model = self.all_different(5, 4)
        assert possible_configuration(model, np.ones(20), RNG(0)) is None

    def test_no_possible_start_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mean_field, "possible_configuration", lambda *_: None)
        found = zoo.run(MeanField(), self.all_different(4, 4))
        assert found.status is Status.DIVERGED
        assert found.log_z is None
        assert found.stats["possible"] == 0
        assert_allclose(found.probs.sum(1), 1.0)

    def test_bound_with_weight_on_a_zero_is_minus_infinity(self) -> None:
        flat = lay_out([self.all_different(3, 3)])
        assert lower_bounds(flat, np.full(9, 1 / 3), GO)[0] == -math.inf


def test_same_seed_same_answer() -> None:
    first, second = (zoo.run(MeanField(), "zeros", seed=2) for _ in range(2))
    assert_array_equal(first.probs, second.probs)
    assert first.stats == second.stats


@pytest.mark.parametrize("threads", [1, 3])
def test_batch_equals_one_by_one(threads: int) -> None:
    models = [*zoo.MODELS.values(), TestZeros().all_different(4, 4), pairwise(0, 9, 3, 0.5, 1.0)]
    first, second = (RNG(5).spawn(len(models)) for _ in range(2))
    batch = MeanField().batch(models, zoo.BUDGET, first, threads)
    for model, found, rng in zip(models, batch, second, strict=True):
        alone = MeanField()(model, zoo.BUDGET, rng)
        assert_array_equal(found.probs, alone.probs)
        assert (found.status, found.log_z) == (alone.status, alone.log_z)
        assert found.stats == alone.stats
    assert MeanField().batch([], zoo.BUDGET, []) == []


@pytest.mark.parametrize("sweeps", [0, 1, 5, 30])
def test_budget_is_kept(sweeps: int) -> None:
    for name in ("strong", "zeros", "mixed-cards"):
        found = zoo.run(MeanField(tolerance=0.0), name, budget=Budget(iterations=sweeps))
        assert found.stats["sweeps"] <= sweeps
        assert found.status is not Status.AT_REST or found.stats["residual"] == 0


def test_no_restart_begins_after_the_deadline() -> None:
    found = zoo.run(MeanField(restarts=5), "zeros", budget=Budget(seconds=0.0))
    assert found.stats["restarts"] == 0
    assert found.status is not Status.AT_REST


@given(nasty_models())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_answers_are_sound_whatever_the_model(model: FactorGraph) -> None:
    found = MeanField()(model, Budget(iterations=60), RNG(0))
    assert np.isfinite(found.probs).all()
    assert (found.probs >= 0).all()
    assert_allclose(found.probs.sum(1), 1.0, atol=1e-9)
    assert found.log_z is None or math.isfinite(found.log_z)
    assert (found.log_z is None) == (found.status is Status.DIVERGED)
