from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

import zoo
from icgi.data.families import FAMILIES
from icgi.elimination.orders import find_layout
from icgi.elimination.passes import Cut
from icgi.elimination.potentials import potentials
from icgi.elimination.run import both_passes
from icgi.elimination.sampling import log_potential, sample, walk
from icgi.errors import IcgiError
from icgi.model.reduce import components


@pytest.mark.parametrize("name", ["chain", "grid-3x3", "ternary-factors", "zeros", "mixed-cards"])
@pytest.mark.parametrize("rank", [1, 2, 64])
def test_q_is_a_distribution(name: str, rank: int) -> None:
    """Σ_x q(x) = 1 by enumeration, at any rank: truncation changes q, never its normalisation."""
    model = components(zoo.MODELS[name])[0].model
    pots = potentials(model)
    layout = find_layout(model, pots, rank, np.random.default_rng(0))
    done = both_passes(pots, layout, Cut(rank, 3.0, 1e-12, True))
    every = np.array(list(product(*(range(k) for k in model.cards))))
    _, log_q = walk(pots, layout, done.forward, len(every), np.random.default_rng(0), every)
    assert np.exp(log_q).sum() == pytest.approx(1.0)
    if rank == 64:
        log_p = log_potential(model, every)
        possible = log_p > -np.inf
        exact = np.exp(log_p - np.logaddexp.reduce(log_p))
        assert_allclose(np.exp(log_q)[possible], exact[possible], atol=2e-3)


@pytest.mark.parametrize("name", ["chain", "tree", "zeros", "disconnected", "one-state-variable"])
def test_full_rank_weights_are_constant(name: str) -> None:
    model = zoo.MODELS[name]
    exact = zoo.exact(name)
    drawn = sample(model, 400, np.random.default_rng(1), rank=64)
    assert drawn.log_z == pytest.approx(exact.log_z, abs=0.15)
    assert drawn.share > 0.8
    assert_allclose(drawn.marginals(model.cards), exact.probs, atol=0.12)


def test_weights_estimate_z_without_bias() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(2), n=12, beta=1.0)
    log_z = zoo.run(zoo.Enumerate(), model).log_z
    drawn = sample(model, 4000, np.random.default_rng(0), rank=2)
    assert abs(drawn.log_z - log_z) < 5 * drawn.log_z_error
    assert drawn.log_z_error < 0.1


def test_mirror_images_are_found_without_a_field() -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(2), L=5, field=0.0, beta=3.0)
    drawn = sample(model, 1000, np.random.default_rng(0), rank=8)
    assert_allclose(drawn.marginals(model.cards), 0.5, atol=0.1)


def test_no_samples_is_a_wrong_question() -> None:
    with pytest.raises(IcgiError, match="at least one"):
        sample(zoo.MODELS["chain"], 0, np.random.default_rng(0))
    with pytest.raises(IcgiError, match="rank 0 asked for"):
        sample(zoo.MODELS["chain"], 3, np.random.default_rng(0), rank=0)
