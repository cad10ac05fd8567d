import numpy as np
import pytest

import icgi
import zoo
from icgi.clock import Deadline
from icgi.data.families import FAMILIES
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


def test_an_answer_that_came_too_late_does_not_look_at_the_model_again(monkeypatch) -> None:
    def looked(model: icgi.FactorGraph) -> None:
        raise AssertionError

    monkeypatch.setattr(doubt, "strengths_of", looked)
    model = FAMILIES["sk"].sample(np.random.default_rng(0), n=300)
    for engine in ("gnn-bp", "direct-gnn", "ensemble"):
        zoo.engine_or_skip(engine)
        found = icgi.marginals(model, engine=engine, budget=icgi.Budget(seconds=0.01))
        assert found.status is icgi.Status.BUDGET_SPENT
        assert found.marginals.std_error is not None
        assert (found.marginals.std_error > 0.5).all()
