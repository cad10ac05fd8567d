"""The CUDA path. Kernels need a device (marked gpu); what surrounds them runs on a fake one."""

import time

import fake_device
import mixed
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import zoo
from icgi.data.families import FAMILIES
from icgi.errors import BudgetError, IcgiError, UnsupportedModelError
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising, ising_model, potts_model
from icgi.sampling import gpu, gpu_batches
from icgi.sampling.gpu import GpuTempering

SMALL = GpuTempering(replicas=8, ensembles=4)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_batches, "cupy", fake_device.module)
    monkeypatch.setattr(gpu_batches, "_kernel", fake_device.Kernel)


def run(models: list, sweeps: int, settings: GpuTempering = SMALL, seed: int = 0) -> list:
    return settings.run(models, Budget(iterations=sweeps), np.random.default_rng(seed))


def some_models(rng: np.random.Generator) -> list[FactorGraph]:
    """Dense and sparse spins, Potts models and variables with different numbers of states."""
    sk = [FAMILIES["sk"].sample(rng, n=int(n), beta=1.5, h=0.3) for n in (12, 16, 18, 20)]
    lattice = [FAMILIES["ea2d"].sample(rng, L=6, beta=1.0) for _ in range(6)]
    potts = [FAMILIES["potts"].sample(rng, L=3, q=4) for _ in range(3)]
    states = [
        zoo.random_model(rng, rng.integers(2, 6, 9).tolist(), zoo.grid_scopes(3, 3))
        for _ in range(6)
    ]
    return sk + lattice + potts + states


def test_without_a_device_it_says_what_to_use() -> None:
    if gpu.available():
        pytest.skip("there is a device")
    with pytest.raises(UnsupportedModelError, match="the engine pt"):
        zoo.run(GpuTempering(), "chain")


def test_sites_of_one_colour_share_no_edge() -> None:
    model = FAMILIES["er"].sample(np.random.default_rng(0), n=60, p=0.2)
    w = gpu_batches.pairwise(model)
    colour = np.empty(60, int)
    for c in range(len(w.colour_start) - 1):
        colour[w.sites[w.colour_start[c] : w.colour_start[c + 1]]] = c
    for i in range(60):
        assert colour[i] not in colour[w.neighbour[w.begin[i] : w.begin[i + 1]]]
    assert sorted(w.sites.tolist()) == list(range(60))


def test_adjacency_holds_the_energy() -> None:
    rng = np.random.default_rng(1)
    model = zoo.random_model(rng, [2, 3, 4, 2], [(0, 1), (1, 2), (2, 0), (3,), (1, 0), ()])
    w = gpu_batches.pairwise(model)
    x = [1, 2, 3, 0]
    energy = w.constant + sum(w.fields[i, x[i]] for i in range(4))
    for i in range(4):
        for e in range(w.begin[i], w.begin[i + 1]):
            energy += 0.5 * w.tables[e, x[i], x[w.neighbour[e]]]
    expected = sum(
        t[tuple(x[i] for i in s)] for s, t in zip(model.scopes, model.log_tables, strict=True)
    )
    assert energy == pytest.approx(expected)


@pytest.mark.parametrize("bad", ["ternary-factors", "zeros"])
def test_refuses_what_it_cannot_do(bad: str) -> None:
    with pytest.raises(UnsupportedModelError, match="the engine pt"):
        gpu_batches.pairwise(zoo.MODELS[bad])


def test_moments_of_uniform_configurations_are_exact() -> None:
    rng = np.random.default_rng(2)
    grid = zoo.grid_scopes(2, 3)
    for model in (
        FAMILIES["sk"].sample(rng, n=10),
        zoo.random_model(rng, [2, 3, 4, 2, 3, 2], [*grid, (1, 0), ()]),
        potts_model(np.array([(0, 1), (1, 2)]), [0.5, -1.0], rng.normal(size=(3, 3))),
    ):
        mean, variance, constant = gpu.uniform_moments(model, as_ising(model))
        weight = mixed.log_joint(model)
        assert mean + constant == pytest.approx(weight.mean())
        assert variance == pytest.approx(weight.var())


@pytest.mark.usefixtures("device")
class TestAroundTheKernels:
    def test_errors_are_honest(self) -> None:
        rng = np.random.default_rng(7)
        kinds = ("dense-ising", "ising", "potts", "pairs")
        models = [mixed.model(kinds[k % 4], rng) for k in range(32)]
        found = run(models, 800)
        of_marginals, of_log_z = [], []
        for model, answer in zip(models, found, strict=True):
            exact = zoo.run(JunctionTree(), model)
            z = mixed.z_score(answer, exact, rng, least=1e-6)
            if z is not None:
                of_marginals.append(z)
            of_log_z.append((answer.log_z - exact.log_z) / answer.stats["log_z_std_error"])
        assert np.mean(np.abs(of_marginals) > 3) < 0.05
        assert 0.3 < np.median(np.abs(of_marginals)) < 1.0
        # the error of log Z is the spread of four ensembles: three degrees of freedom
        assert stats.kstest(of_log_z, stats.t(3).cdf).pvalue > 0.01

    def test_batches_of_both_kinds_keep_their_order(self) -> None:
        models = some_models(np.random.default_rng(3))
        for model, answer in zip(models, run(models, 800), strict=True):
            exact = zoo.run(JunctionTree(), model)
            assert answer.probs.shape == exact.probs.shape
            assert np.abs(answer.probs - exact.probs).max() < 0.15
            assert answer.log_z == pytest.approx(exact.log_z, abs=0.5)
            assert (answer.probs[exact.probs == 0] == 0).all()

    def test_every_zoo_model_is_answered_or_refused(self) -> None:
        for name in zoo.MODELS:
            try:
                found = zoo.run(SMALL, name, budget=Budget(iterations=400))
            except UnsupportedModelError:
                continue
            assert_allclose(found.probs.sum(1), 1.0)
            assert np.abs(found.probs - zoo.exact(name).probs).max() < 0.25

    def test_symmetric_spins_get_exactly_one_half(self) -> None:
        free = ising_model((np.array([(0, 1), (1, 2)]), [1.0, -2.0]))
        found = run([free], 200)[0]
        assert_array_equal(found.probs, 0.5)
        assert_array_equal(found.std_error, 0.0)

    def test_the_ladder_is_placed_by_the_probe(self) -> None:
        model = FAMILIES["sk"].sample(np.random.default_rng(4), n=24, beta=3.0)
        fixed, placed = (
            run([model], 2000, GpuTempering(replicas=6, adapt=adapt))[0] for adapt in (False, True)
        )
        assert placed.stats["swap_rate_min"] > fixed.stats["swap_rate_min"]
        assert placed.stats["sweeps"] <= 2000

    def test_a_broken_ladder_is_not_called_converged(self) -> None:
        """No hot replicas: a cold glass with a weak field stays where it started."""
        model = FAMILIES["sk"].sample(np.random.default_rng(5), n=40, beta=8.0, h=0.05)
        found = run([model], 500, GpuTempering(replicas=2, hottest=0.99))[0]
        assert found.status is Status.BUDGET_SPENT
        assert found.stats["rhat"] > 1.05

    def test_a_gap_in_the_ladder_is_not_called_converged(self) -> None:
        model = FAMILIES["sk"].sample(np.random.default_rng(6), n=60, beta=8.0, h=0.5)
        found = run([model], 300, GpuTempering(replicas=2, hottest=0.001, adapt=False))[0]
        assert found.status is Status.BUDGET_SPENT
        assert found.log_z is None

    @pytest.mark.parametrize("sweeps", [1, 10, 100, 3000])
    def test_sweeps_are_kept_to(self, sweeps: int) -> None:
        found = run([zoo.MODELS["chain"]], sweeps)[0]
        assert found.stats["sweeps"] <= max(sweeps, SMALL.segments)

    def test_seconds_are_kept_to(self) -> None:
        model = FAMILIES["sk"].sample(np.random.default_rng(8), n=30)
        run([model], 20)  # compile first
        began = time.perf_counter()
        budget = Budget(10**9, seconds=0.6)
        found = SMALL.run([model], budget, np.random.default_rng(0))[0]
        assert time.perf_counter() - began < 5.0
        assert found.stats["sweeps"] > SMALL.segments

    def test_seconds_alone_do_not_bound_the_sweeps(self) -> None:
        """Without iterations their number is 2^62, more than a kernel counts to."""
        model = FAMILIES["sk"].sample(np.random.default_rng(8), n=30)
        found = SMALL.run([model], Budget(seconds=2.0), np.random.default_rng(0))[0]
        assert SMALL.segments < found.stats["sweeps"] < gpu.LONGEST

    def test_no_time_is_an_answer_too(self) -> None:
        found = SMALL.run([zoo.MODELS["chain"]], Budget(seconds=0.0), np.random.default_rng(0))[0]
        assert_allclose(found.probs.sum(1), 1.0)

    def test_memory_is_predicted(self) -> None:
        models = some_models(np.random.default_rng(9))
        with pytest.raises(BudgetError, match="fewer models"):
            SMALL.run(models, Budget(table_bytes=1000), np.random.default_rng(0))

    def test_too_many_variables_for_a_block_are_refused(self) -> None:
        n = 30_000
        chain = np.stack([np.arange(n - 1), np.arange(1, n)], 1)
        with pytest.raises(UnsupportedModelError, match="fewer replicas"):
            run([ising_model((chain, 0.1), np.full(n, 0.1))], 10)


def test_chains_frozen_apart_have_no_finite_rhat() -> None:
    parts = np.zeros((4, 8, 1, 2))
    parts[:2, ..., 0] = parts[2:, ..., 1] = 1.0
    squares = np.zeros((4, 2, 1, 2))
    squares[:2, ..., 0] = squares[2:, ..., 1] = 1.0
    assert np.isinf(gpu._rhat(parts, squares)[1]).all()
    assert_array_equal(gpu._rhat(parts[:2], squares[:2])[1], 1.0)


def test_rounding_of_long_sums_is_no_disagreement() -> None:
    """A spin that hardly depends on the others: its sums round the same way for a whole chain."""
    sweeps = 20_000
    steps = np.float32([0.90185, 0.90190])  # of two chains
    total = np.zeros(2, np.float32)
    for _ in range(sweeps):
        total += steps
    means = total.astype(np.float64) / sweeps
    parts = np.tile(means[:, None, None, None], (1, 8, 1, 1))
    squares = np.tile((means**2)[:, None, None, None], (1, 2, 1, 1))  # nothing varies within
    assert abs(means[0] - means[1]) > np.sqrt(2) * gpu.NEGLIGIBLE
    assert np.isinf(gpu._rhat(parts, squares)[1]).all()
    assert_array_equal(gpu._rhat(parts, squares, gpu.ROUNDING * sweeps)[1], 1.0)


@pytest.mark.parametrize(
    "settings",
    [{"replicas": 1}, {"replicas": 33}, {"ensembles": 1}, {"segments": 3}, {"hottest": 0}],
)
def test_settings_are_checked(settings: dict[str, int]) -> None:
    with pytest.raises(IcgiError, match="pt-gpu:"):
        GpuTempering(**settings)


@pytest.mark.gpu
def test_agrees_with_exact_within_its_own_error() -> None:
    models = some_models(np.random.default_rng(3))
    found = run(models, 20_000, GpuTempering())
    scores = []
    for model, answer in zip(models, found, strict=True):
        exact = zoo.run(JunctionTree(), model)
        error = np.abs(answer.probs - exact.probs)
        assert error.max() < 0.02
        scores.append((error / np.maximum(answer.std_error, 1e-5))[:, 0])
        assert answer.log_z == pytest.approx(exact.log_z, abs=0.05)
    z = np.concatenate(scores)
    assert (z > 3).mean() < 0.08, "standard errors are honest (32 segments, not 10,000)"


@pytest.mark.gpu
def test_same_seed_same_answer_and_padding_changes_nothing() -> None:
    models = some_models(np.random.default_rng(4))[:4]
    first, second = (run(models, 2000, GpuTempering(), seed=1) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert_array_equal(a.probs, b.probs)
    alone: Marginals = run(models[:1], 20_000, GpuTempering(), seed=2)[0]
    exact = zoo.run(JunctionTree(), models[0])
    assert alone.log_z == pytest.approx(exact.log_z, abs=0.05)


@pytest.mark.gpu
def test_a_broken_ladder_is_not_called_converged() -> None:
    """No hot replicas: a cold glass with a weak field stays where it started."""
    model = FAMILIES["sk"].sample(np.random.default_rng(5), n=64, beta=8.0, h=0.05)
    answer = run([model], 2000, GpuTempering(replicas=2, hottest=0.99))[0]
    assert answer.status is Status.BUDGET_SPENT
