import time

import mixed
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import zoo
from icgi.errors import BudgetError, IcgiError, UnsupportedModelError
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Status
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model
from icgi.sampling import annealing
from icgi.sampling.annealing import PopulationAnnealing, _next_step, _resample
from icgi.sampling.targets import target
from icgi.sampling.tempering import ParallelTempering

SMALL = PopulationAnnealing(population=64)


def glass(n: int, seed: int) -> FactorGraph:
    rng = np.random.default_rng(seed)
    return ising_model(np.triu(rng.normal(0, 1.2 / np.sqrt(n), (n, n)), 1), rng.normal(0, 0.2, n))


def calibrate(count: int, seed: int, engine: PopulationAnnealing) -> None:
    rng = np.random.default_rng(seed)
    of_marginals, of_log_z = [], []
    for k, (model, exact) in enumerate(mixed.models(count, seed)):
        found = zoo.run(engine, model, seed=k)
        assert (found.probs[exact.probs == 0] == 0).all()
        z = mixed.z_score(found, exact, rng)
        if z is not None:
            of_marginals.append(z)
            of_log_z.append((found.log_z - exact.log_z) / found.stats["log_z_std_error"])
    mixed.assert_honest(of_marginals)
    mixed.assert_honest(of_log_z)


def test_errors_are_honest_on_random_models() -> None:
    calibrate(105, 9, SMALL)


@pytest.mark.slow
def test_errors_are_honest_on_many_random_models() -> None:
    calibrate(700, 10, PopulationAnnealing(population=256))


def test_agrees_with_tempering_where_enumeration_cannot_go() -> None:
    model = glass(60, 1)
    annealed = zoo.run(PopulationAnnealing(population=128), model)
    tempered = zoo.run(ParallelTempering(), model, budget=Budget(iterations=2000))
    error = np.hypot(annealed.std_error, tempered.std_error)
    assert (np.abs(annealed.probs - tempered.probs) < 4.5 * error).all()
    spread = np.hypot(annealed.stats["log_z_std_error"], tempered.stats["log_z_std_error"])
    assert abs(annealed.log_z - tempered.log_z) < 4 * spread


def test_two_modes_are_weighed_right() -> None:
    pairs = np.array([scope for scope in zoo.grid_scopes(5, 5) if len(scope) == 2])
    model = ising_model((pairs, 0.8), np.full(25, 0.01))
    found, exact = zoo.run(PopulationAnnealing(), model), zoo.run(JunctionTree(), model)
    assert (np.abs(found.probs - exact.probs) < 4.5 * found.std_error).all()
    assert abs(found.log_z - exact.log_z) < 4 * found.stats["log_z_std_error"]


def test_the_answer_does_not_depend_on_the_number_of_threads() -> None:
    for name in ("grid-3x3", "zeros"):
        one, three = (
            zoo.run(PopulationAnnealing(population=64, threads=threads), name) for threads in (1, 3)
        )
        assert_array_equal(one.probs, three.probs)
        assert one.log_z == three.log_z


def test_a_population_that_is_too_small_says_so() -> None:
    found = zoo.run(PopulationAnnealing(population=8, sweeps=1, overlap=0.5), glass(100, 2))
    assert found.status is Status.BUDGET_SPENT
    assert found.stats["families_min"] < 10


@pytest.mark.parametrize("sweeps", [1, 3, 20, 400])
def test_sweeps_are_kept_to(sweeps: int) -> None:
    for name in ("grid-3x3", "zeros"):
        found = zoo.run(SMALL, name, budget=Budget(iterations=sweeps))
        assert found.stats["sweeps"] <= max(sweeps, 3 + (name == "zeros"))
        assert np.isfinite(found.probs).all()


def test_seconds_are_kept_to() -> None:
    model = glass(80, 3)
    zoo.run(SMALL, model, budget=Budget(iterations=10))  # compile first
    began = time.perf_counter()
    zoo.run(PopulationAnnealing(population=4096), model, budget=Budget(10**9, seconds=0.5))
    assert time.perf_counter() - began < 3.0


def test_symmetric_spins_get_exactly_one_half() -> None:
    model = ising_model((np.array([(0, 1), (1, 2)]), [1.0, -2.0]))
    found = zoo.run(SMALL, model)
    assert_array_equal(found.probs, 0.5)
    assert_array_equal(found.std_error, 0.0)


def test_no_solution_is_explained() -> None:
    differ = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    scopes = tuple((i, j) for j in range(4) for i in range(j))
    model = FactorGraph(np.full(4, 3), scopes, (differ,) * 6)
    with pytest.raises(UnsupportedModelError, match="larger population"):
        zoo.run(SMALL, model)


def test_certain_states_are_not_rounded_past_certainty() -> None:
    found = zoo.run(PopulationAnnealing(), "strong")
    assert (found.probs >= 0).all()
    assert (found.probs <= 1).all()
    assert found.deviation.shape == (len(found.probs),)
    assert found.rhat.max() == found.stats["rhat"]


def test_memory_is_predicted() -> None:
    with pytest.raises(BudgetError):
        zoo.run(SMALL, glass(50, 4), budget=Budget(table_bytes=1000))


def test_steps_keep_the_overlap() -> None:
    weight = np.random.default_rng(0).normal(0, 30.0, 500)
    step = _next_step(weight, 1.0, 0.9)
    w = np.exp(step * (weight - weight.max()))
    assert w.sum() ** 2 / (w**2).sum() / 500 == pytest.approx(0.9, abs=1e-6)
    assert _next_step(np.ones(10), 0.4, 0.9) == 0.4


def test_resampling_draws_floor_or_ceiling() -> None:
    rng = np.random.default_rng(1)
    weight = rng.random(50)
    expected = 50 * weight / weight.sum()
    for _ in range(20):
        counts = np.bincount(_resample(weight, rng), minlength=50)
        assert counts.sum() == 50
        assert (np.abs(counts - expected) < 1 + 1e-9).all()


@pytest.mark.parametrize("settings", [{"population": 1}, {"runs": 1}, {"overlap": 1.0}])
def test_settings_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(IcgiError, match="pa:"):
        PopulationAnnealing(**settings)


def test_seconds_are_used_not_only_kept() -> None:
    model = glass(20, 4)
    zoo.run(SMALL, model)  # compile first
    began = time.perf_counter()
    zoo.run(PopulationAnnealing(), model, budget=Budget(seconds=1.0))
    assert 0.6 < time.perf_counter() - began < 2.0


def test_a_run_with_all_the_weight_does_not_agree_with_itself() -> None:
    """Two runs differ; one has all the weight: the error is that of a single run."""
    aim = target(glass(4, 5))
    plan = annealing.Plan(np.ones(1), 1, 32)
    runs = [
        annealing.Run(log_z, 0.01, np.full(4, mean), np.full(4, 0.1), np.full(4, 1e-6), 20.0)
        for log_z, mean in [(0.0, 0.2), (30.0, 0.8)]
    ]
    found = annealing._combine(aim, runs, plan, PopulationAnnealing(runs=2), 10)
    assert (found.std_error > 0.25).all()
    assert found.log_z is None
