"""The shipped networks: they load, they know trees, they answer a batch as they answer one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.data.families import FAMILIES
from icgi.engines import parse_engine
from icgi.inference import Budget, Marginals, Status
from icgi.neural.weights import parameter_count, shipped


def mae(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(found - exact).sum(1).mean())


@pytest.mark.parametrize("name", ["icgi-fast", "icgi-general"])
def test_the_shipped_networks_load(name: str) -> None:
    network = shipped(name)
    assert not network.training
    assert parameter_count(network) > 100_000


@pytest.mark.parametrize("name", ["chain", "tree", "factor-tree"])
def test_the_trained_fast_networks_are_exact_on_trees(name: str) -> None:
    found = zoo.run(parse_engine("icgi:fast,orders=1,rest=sum"), name)
    assert found.status is Status.ESTIMATED
    assert_allclose(found.probs, zoo.exact(name).probs, atol=2e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_fast_network_beats_loopy_bp_on_a_frustrated_grid(seed: int) -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng([91, seed]), L=7, beta=1.0)
    exact = icgi.marginals(model, engine="jt").probs
    fast = icgi.marginals(model, engine="icgi:fast,orders=1,rest=sum").probs
    bp = icgi.marginals(model, engine="lbp").probs
    assert mae(fast, exact) < 0.5 * mae(bp, exact)


def test_several_states_and_zeros_take_the_general_network() -> None:
    rng = np.random.default_rng(5)
    errors = []
    for _ in range(3):
        model = FAMILIES["potts"].sample(rng, L=4, q=3, beta=1.5, field=0.3)
        exact = icgi.marginals(model, engine="jt").probs
        fast = icgi.marginals(model, engine="icgi:fast,orders=1").probs
        bp = icgi.marginals(model, engine="lbp").probs
        errors.append((mae(fast, exact), mae(bp, exact)))
    ours, theirs = np.mean(errors, 0)
    assert ours < theirs


@pytest.mark.parametrize("variant", ["fast,core=6", "paper"])
def test_a_batch_gives_the_answers_of_one_by_one(variant: str) -> None:
    rng = np.random.default_rng(3)
    models = [FAMILIES["er"].sample(rng, n=n, p=0.3, beta=0.8) for n in (12, 16, 20)]
    engine = zoo.engine_or_skip(f"icgi:{variant}")

    def streams() -> list[np.random.Generator]:
        return [np.random.default_rng(k) for k in range(len(models))]

    together: list[Marginals] = engine.batch(models, Budget(), streams())  # type: ignore[attr-defined]
    for model, stream, found in zip(models, streams(), together, strict=True):
        assert_allclose(found.probs, engine(model, Budget(), stream).probs, atol=2e-4)
        assert_allclose(found.probs, found.concentration / found.concentration.sum(1)[:, None])  # type: ignore[union-attr, operator]


def test_further_orders_come_from_the_seed() -> None:
    model = FAMILIES["er"].sample(np.random.default_rng(4), n=18, p=0.4, beta=1.2)
    engine = "icgi:fast,core=4,orders=3,rest=sum"
    first, again, other = (icgi.marginals(model, engine=engine, seed=s).probs for s in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [("fast,orders=0", "orders=0"), ("fast,core=0", "core=0"), ("paper,steps=-1", "steps=-1"),
     ("fast,device=nowhere", "device=nowhere")],
)  # fmt: skip
def test_options_that_no_run_could_honour_are_refused(options: str, message: str) -> None:
    model = FAMILIES["tree"].sample(np.random.default_rng(0), n=5, states=2)
    with pytest.raises(icgi.IcgiError, match=message):
        icgi.marginals(model, engine=f"icgi:{options}")
