import threading

import numpy as np
from numpy.testing import assert_allclose

import zoo
from icgi import clock
from icgi.clock import Deadline
from icgi.data.families import FAMILIES
from icgi.elimination.engine import TensorTrainElimination
from icgi.elimination.messages import message_marginals, unary_factors, unary_marginals
from icgi.elimination.potentials import potentials
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Status


def test_messages_come_to_rest_on_a_tree_and_are_exact_there() -> None:
    model = FAMILIES["tree"].sample(np.random.default_rng(0), n=30, arity=2, states=3)
    found, at_rest = message_marginals(potentials(model), Deadline())
    assert at_rest
    assert_allclose(found, zoo.run(JunctionTree(), model).probs, atol=1e-6)


def test_messages_that_swing_are_not_called_at_rest() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(2), n=20, beta=4.0, h=0.5)
    found, at_rest = message_marginals(potentials(model), Deadline())
    assert not at_rest
    assert_allclose(found.sum(1), 1.0)


def test_without_time_only_single_effects_count() -> None:
    pots = potentials(FAMILIES["ea2d"].sample(np.random.default_rng(0), L=4))
    found, at_rest = message_marginals(pots, Deadline.after(0.0))
    assert not at_rest
    assert_allclose(found, unary_marginals(pots))


def test_single_factors_need_no_preparation() -> None:
    model = zoo.MODELS["mixed-cards"]
    found = unary_factors(model)
    assert_allclose(found.sum(1), 1.0)
    assert (found[np.arange(model.max_states) >= model.cards[:, None]] == 0).all()


def test_a_request_to_stop_is_heard() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(0), n=60, beta=2.0, h=0.1)
    with clock.stoppable():
        clock.request_stop()
        found = zoo.run(TensorTrainElimination(exact_entries=0), model, budget=Budget())
    assert found.status is Status.BUDGET_SPENT
    assert_allclose(found.probs.sum(1), 1.0)


def test_a_request_to_stop_ends_a_run_that_nothing_else_bounds() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(0), n=150, beta=3.0, h=0.1)
    with clock.stoppable():
        asked = threading.Timer(1.0, clock.request_stop)
        asked.start()
        found = zoo.run(TensorTrainElimination(exact_entries=0), model, budget=Budget())
        asked.cancel()
    assert found.status is Status.BUDGET_SPENT
    assert_allclose(found.probs.sum(1), 1.0)
