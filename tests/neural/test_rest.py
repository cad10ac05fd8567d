"""What elimination leaves is summed exactly as soon as it can be."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import icgi
from icgi.clock import Deadline
from icgi.data.families import FAMILIES
from icgi.inference import Status
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model
from icgi.neural.closed_form import enumerate_core
from icgi.neural.fast import FastNetwork
from icgi.neural.rest import ExactRest
from icgi.neural.spin_engine import require_ising, spins_from
from icgi.neural.weights import shipped

FOREVER = Deadline.after(float("inf"))


def sparse(seed: int, n: int = 40) -> FactorGraph:
    return FAMILIES["er"].sample(np.random.default_rng(seed), n=n, p=0.12, beta=1.0, field=0.3)


@torch.no_grad()
def means(models: list[FactorGraph], exact: ExactRest | None, core: int) -> list[np.ndarray]:
    network = shipped("icgi-fast")
    assert isinstance(network, FastNetwork)
    alpha = network.run(spins_from([require_ising(m) for m in models], "cpu"), core, exact=exact)
    p = alpha / alpha.sum(-1, keepdim=True)
    return [x[: m.n_variables, 0].numpy() for x, m in zip(p, models, strict=True)]


def test_means_and_covariances_are_those_of_all_states() -> None:
    rng = np.random.default_rng(0)
    couplings = np.triu(rng.normal(size=(9, 9)) * (rng.random((9, 9)) < 0.4), 1)
    couplings += couplings.T
    fields = rng.normal(size=9)
    found = ExactRest(9, FOREVER).spins(couplings, fields)
    assert found is not None
    mean, covariance, _ = enumerate_core(
        torch.from_numpy(couplings)[None], torch.from_numpy(fields)[None]
    )
    assert_allclose(found[0], mean[0], atol=1e-12)
    read = (couplings != 0) | np.eye(9, dtype=bool)
    assert_allclose(found[1][read], covariance[0].numpy()[read], atol=1e-12)
    assert not found[1][~read].any()


def test_what_is_too_wide_is_not_summed() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(0), n=14, beta=1.0, h=0.1)
    assert ExactRest(13, FOREVER).whole(model) is None
    found = ExactRest(14, FOREVER).whole(model)
    assert found is not None
    assert_allclose(found.probs, icgi.marginals(model, engine="jt").probs, atol=1e-12)


def test_what_costs_no_more_than_an_elimination_is_summed() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(0), n=14, beta=1.0, h=0.1)
    assert ExactRest(8, FOREVER).whole(model, worth=1e-5) is None  # 2^14 entries take longer
    found = ExactRest(8, FOREVER).whole(model, worth=0.1)
    assert found is not None
    assert found.status is Status.EXACT
    in_no_time = ExactRest(8, Deadline.after(1e-5)).whole(model, worth=0.1)
    assert in_no_time is None


def test_models_of_many_states_are_summed_too() -> None:
    model = FAMILIES["potts"].sample(np.random.default_rng(1), L=5, q=4, beta=1.5)
    found = icgi.marginals(model, engine="icgi:fast")
    assert found.status is Status.EXACT
    assert_allclose(found.probs, icgi.marginals(model, engine="jt").probs, atol=1e-12)
    network = icgi.marginals(model, engine="icgi:fast,rest=sum")
    assert network.status is Status.ESTIMATED
    assert np.abs(network.probs - found.probs).max() > 1e-6


def test_on_a_complete_graph_it_is_the_sum_of_the_core() -> None:
    """Its tree has one clique, which fits when as many spins are left as the sum takes."""
    model = FAMILIES["sk"].sample(np.random.default_rng(1), n=20, beta=1.0, h=0.3)
    with_tree = means([model], ExactRest(8, FOREVER), core=8)[0]
    assert_allclose(with_tree, means([model], None, core=8)[0], atol=2e-5)


def test_an_answer_does_not_depend_on_the_other_models_of_its_batch() -> None:
    models = [sparse(0, 40), sparse(1, 27), sparse(2, 35)]
    together = means(models, ExactRest(9, FOREVER), core=6)
    for model, found in zip(models, together, strict=True):
        alone = means([model], ExactRest(9, FOREVER), core=6)[0]
        assert_allclose(found, alone, atol=1e-4)


def test_stopping_early_is_more_accurate() -> None:
    late, early = [], []
    for seed in range(6):
        model = sparse(seed)
        truth = icgi.marginals(model, engine="jt").probs[:, 1]
        late.append(np.abs(means([model], None, core=10)[0] - truth).mean())
        early.append(np.abs(means([model], ExactRest(14, FOREVER), core=10)[0] - truth).mean())
    assert np.mean(early) < 0.7 * np.mean(late)


@pytest.mark.parametrize("engine", ["icgi:fast,core=8", "icgi:fast,core=8,rest=sum"])
def test_only_the_tree_is_exact_where_the_model_has_a_small_one(engine: str) -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(3), L=6, beta=2.0)
    found = icgi.marginals(model, engine=engine)
    truth = icgi.marginals(model, engine="jt")
    if "rest=sum" in engine:
        assert found.status is Status.ESTIMATED
        return
    assert found.status is Status.EXACT
    assert_allclose(found.probs, truth.probs, atol=1e-12)
    assert found.log_z == pytest.approx(truth.log_z)
    low, high = found.interval(0.9)
    assert_allclose(low, high, atol=1e-3)


def test_models_that_fit_and_models_that_do_not_share_a_batch() -> None:
    edges = np.array([[i, i + 1] for i in range(29)])
    chain = ising_model((edges, np.ones(29)), np.full(30, 0.1))
    dense = FAMILIES["sk"].sample(np.random.default_rng(2), n=30, beta=1.0, h=0.3)
    answers = icgi.marginals_batch([dense, chain, dense], engine="icgi:fast")
    assert [a.status for a in answers] == [Status.ESTIMATED, Status.EXACT, Status.ESTIMATED]
    assert_allclose(answers[0].probs, answers[2].probs, atol=0.03)  # orders of their own
