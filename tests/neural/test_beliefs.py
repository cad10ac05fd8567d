import numpy as np
import pytest

import icgi
from icgi.clock import Deadline
from icgi.neural import cases, doubt
from icgi.neural.pace import unary_beliefs


@pytest.fixture
def steep() -> icgi.FactorGraph:
    """State 1 of both variables is possible, and rarer than the smallest number."""
    tables = [((0,), [0.0, -900.0]), ((0, 1), [[0.0, -900.0], [-900.0, -np.inf]])]
    return icgi.from_factors(tables, log=True)


def test_what_is_too_small_for_a_number_is_not_known_to_be_impossible(steep) -> None:
    beliefs = unary_beliefs(steep)
    assert (beliefs > 0).all()
    _, error = doubt.unknown(beliefs)
    assert (error > 0).all()


def test_belief_propagation_does_not_make_states_impossible(steep) -> None:
    case = cases.prepare(steep, Deadline())
    assert case.at_rest
    assert (case.prior > 0).all()


def test_impossible_states_stay_so() -> None:
    model = icgi.from_factors([((0,), [0.0, 1.0]), ((0, 1), [[1.0, 1.0], [1.0, 1.0]])])
    assert unary_beliefs(model)[0, 0] == 0
    assert cases.prepare(model, Deadline()).prior[0, 0] == 0
