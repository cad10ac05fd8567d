import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import icgi
import zoo
from icgi.data.families import FAMILIES
from icgi.model.ising import as_ising


@pytest.mark.parametrize("name", ["tree", "grid-3x3", "zeros", "mixed-cards", "disconnected"])
def test_samples_follow_the_model(name: str) -> None:
    model, exact = zoo.MODELS[name], zoo.exact(name)
    drawn = icgi.sample(model, 2000)
    assert drawn.states.shape == (2000, model.n_variables)
    assert (drawn.states < model.cards).all()
    assert drawn.weights.sum() == pytest.approx(1.0)
    assert drawn.share > 0.85
    assert_allclose(drawn.marginals(model.cards), exact.probs, atol=0.06)
    assert abs(drawn.log_z - exact.log_z) < 5 * drawn.log_z_error + 1e-9
    if as_ising(model) is None:  # of spins, some draws are mirror images and weigh little
        assert np.std(drawn.log_weights) < 0.05


def test_evidence_is_kept_and_states_are_the_model_s_own() -> None:
    model = zoo.MODELS["mixed-cards"]
    drawn = icgi.sample(model, 500, evidence={1: 3})
    assert (drawn.states[:, 1] == 3).all()
    exact = zoo.run(zoo.Enumerate(), model, {1: 3})
    assert_allclose(drawn.marginals(model.cards), exact.probs, atol=0.1)
    assert drawn.log_z == pytest.approx(exact.log_z, abs=0.02)


def test_zeros_move_no_state_numbers() -> None:
    """A variable that loses its first state to the evidence keeps the numbers of the others."""
    never = np.array([[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    model = icgi.from_factors([((0, 1), never), ((1,), [1.0, 1.0, 1.0])])
    drawn = icgi.sample(model, 300, evidence={0: 0})
    assert set(drawn.states[:, 1].tolist()) == {1, 2}
    assert np.isfinite(drawn.log_p).all()


def test_same_seed_same_draws() -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=5)
    first, again = icgi.sample(model, 20, seed=4), icgi.sample(model, 20, seed=4)
    assert_array_equal(first.states, again.states)
    assert_array_equal(first.log_q, again.log_q)
    assert (icgi.sample(model, 20, seed=5).states != first.states).any()


def test_impossible_evidence_is_refused() -> None:
    model = icgi.from_factors([((0, 1), [[1.0, 0.0], [0.0, 1.0]])])
    with pytest.raises(icgi.EvidenceError):
        icgi.sample(model, 3, evidence={0: 0, 1: 1})
