"""The CUDA path: needs a device (marked gpu); what runs without one is tested everywhere."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import zoo
from icgi.data.families import FAMILIES
from icgi.errors import UnsupportedModelError
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget
from icgi.sampling import gpu, gpu_batches
from icgi.sampling.gpu import GpuTempering


def test_without_a_device_it_says_what_to_use() -> None:
    if gpu.available():
        pytest.skip("there is a device")
    with pytest.raises(UnsupportedModelError, match="--engine pt"):
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
    with pytest.raises(UnsupportedModelError, match="--engine pt"):
        gpu_batches.pairwise(zoo.MODELS[bad])


def mixed(rng: np.random.Generator) -> list:
    sk = [FAMILIES["sk"].sample(rng, n=int(n), beta=1.5, h=0.3) for n in (12, 16, 18, 20)]
    lattice = [FAMILIES["ea2d"].sample(rng, L=6, beta=1.0) for _ in range(6)]
    states = [
        zoo.random_model(rng, rng.integers(2, 6, 9).tolist(), zoo.grid_scopes(3, 3))
        for _ in range(6)
    ]
    return sk + lattice + states


@pytest.mark.gpu
def test_agrees_with_exact_within_its_own_error() -> None:
    models = mixed(np.random.default_rng(3))
    found = GpuTempering().run(models, Budget(iterations=20_000), np.random.default_rng(0))
    scores = []
    for model, answer in zip(models, found, strict=True):
        exact = zoo.run(JunctionTree(), model)
        assert answer.std_error is not None
        error = np.abs(answer.probs - exact.probs)
        assert error.max() < 0.02
        scores.append((error / np.maximum(answer.std_error, 1e-5))[:, 0])
        assert answer.log_z == pytest.approx(exact.log_z, abs=0.05)
    z = np.concatenate(scores)
    assert (z > 3).mean() < 0.08, "standard errors are honest (32 segments, not 10,000)"


@pytest.mark.gpu
def test_same_seed_same_answer_and_padding_changes_nothing() -> None:
    models = mixed(np.random.default_rng(4))[:4]
    budget = Budget(iterations=2000)
    first = GpuTempering().run(models, budget, np.random.default_rng(1))
    second = GpuTempering().run(models, budget, np.random.default_rng(1))
    for a, b in zip(first, second, strict=True):
        assert_allclose(a.probs, b.probs, atol=0)
    alone = GpuTempering().run(models[:1], Budget(iterations=20_000), np.random.default_rng(2))[0]
    exact = zoo.run(JunctionTree(), models[0])
    assert alone.log_z == pytest.approx(exact.log_z, abs=0.05)


@pytest.mark.gpu
def test_a_broken_ladder_is_not_called_converged() -> None:
    """No hot replicas: a cold ferromagnet with a weak field stays where it started."""
    rng = np.random.default_rng(5)
    model = FAMILIES["sk"].sample(rng, n=64, beta=8.0, h=0.05)
    broken = GpuTempering(replicas=2, hottest=0.99)
    answer = broken.run([model], Budget(iterations=2000), rng)[0]
    assert answer.status.value == "budget spent"
