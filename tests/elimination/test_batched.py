import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.data.families import FAMILIES
from icgi.elimination.batched import batched_passes, same_shape
from icgi.elimination.engine import TensorTrainElimination
from icgi.elimination.orders import find_layout
from icgi.elimination.passes import Cut
from icgi.elimination.potentials import potentials
from icgi.elimination.run import both_passes
from icgi.engines import parse_engine
from icgi.errors import IcgiError
from icgi.inference import Status

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("family", "size", "rank"),
    [("ea2d", {"L": 5}, 4), ("sk", {"n": 10}, 4), ("sk", {"n": 9}, 64), ("potts", {"L": 3}, 5)],
)
@pytest.mark.parametrize("iterations", [1, 2])
def test_a_batch_answers_as_the_compiled_passes(
    family: str, size: dict[str, int], rank: int, iterations: int
) -> None:
    models = [FAMILIES[family].sample(np.random.default_rng(s), **size) for s in range(4)]
    assert same_shape(models)
    pots = [potentials(m) for m in models]
    layout = find_layout(models[0], pots[0], rank, np.random.default_rng(0))
    cut = Cut(rank, 3.0, 1e-12, True)
    batch = batched_passes(pots, layout, cut, iterations)
    for k, pot in enumerate(pots):
        env = None
        for _ in range(iterations):
            done = both_passes(pot, layout, cut, env)
            env = done.backward
        assert_allclose(batch.mass[k], done.mass, atol=1e-8)
        assert_allclose(batch.log_z_steps[k], done.log_z_steps, atol=1e-8)
        assert batch.eps_max[k] == pytest.approx(done.eps_max, rel=1e-4, abs=1e-7)
        assert batch.spread[k] == pytest.approx(done.spread, abs=1e-8)


def test_shapes_are_compared() -> None:
    chain, loop = zoo.MODELS["chain"], zoo.MODELS["loop"]
    assert same_shape([chain, chain])
    assert not same_shape([chain, loop])
    assert not same_shape([zoo.MODELS["ternary-factors"]] * 2)


def test_the_engine_answers_a_batch_as_one_by_one() -> None:
    models = [FAMILIES["ea2d"].sample(np.random.default_rng(s), L=6) for s in range(3)]
    engine = TensorTrainElimination(rank=8, exact_entries=0, halving=False, samples=0, device="cpu")
    found = icgi.marginals_batch(models, engine=engine, budget=zoo.BUDGET)
    for model, answer in zip(models, found, strict=True):
        alone = zoo.run(engine, model)
        assert answer.status in (Status.CONVERGED, Status.EXACT)
        assert_allclose(answer.probs, alone.probs, atol=1e-4)
        assert answer.log_z == pytest.approx(alone.log_z, abs=1e-4)


def test_what_a_batch_cannot_settle_is_solved_alone() -> None:
    models = [FAMILIES["sk"].sample(np.random.default_rng(s), n=14, beta=3.0) for s in range(2)]
    engine = TensorTrainElimination(rank=2, max_rank=2, halving=False, samples=0, device="cpu")
    exact = engine.batch(models, zoo.BUDGET, streams(2))  # small tables: dense
    assert exact is not None
    assert [x.status for x in exact] == [Status.EXACT] * 2


def test_models_of_different_shapes_are_no_batch() -> None:
    engine = TensorTrainElimination(device="cpu")
    models = [zoo.MODELS["loop"], zoo.MODELS["chain"]]
    assert engine.batch(models, zoo.BUDGET, streams(2)) is None
    found = icgi.marginals_batch(models, engine=engine, budget=zoo.BUDGET)
    assert_allclose(found[1].probs, zoo.exact("chain").probs, atol=1e-9)


def streams(count: int) -> list[np.random.Generator]:
    return [np.random.default_rng(k) for k in range(count)]


@pytest.mark.parametrize("name", ["abacus", "cuda:99"])
def test_a_device_that_cannot_be_used_is_refused_by_name(name: str) -> None:
    with pytest.raises(IcgiError, match=f"device={name} cannot be used"):
        parse_engine(f"ttve:device={name}")
