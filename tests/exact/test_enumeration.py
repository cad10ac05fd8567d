import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

import zoo
from icgi.errors import EvidenceError, UnsupportedModelError
from icgi.exact.enumeration import Enumerate
from icgi.inference import Budget
from icgi.model.graph import FactorGraph


@pytest.mark.parametrize("name", [n for n in zoo.MODELS if n != "strong"])
def test_equals_a_plain_loop(name: str) -> None:
    model = zoo.MODELS[name]
    weights = np.zeros((model.n_variables, model.max_states))
    z = 0.0
    for x in itertools.product(*[range(c) for c in model.cards]):
        weight = np.exp(
            sum(
                t[tuple(x[i] for i in s)]
                for s, t in zip(model.scopes, model.log_tables, strict=True)
            )
        )
        z += weight
        for i, state in enumerate(x):
            weights[i, state] += weight
    found = zoo.run(Enumerate(), name)
    assert_allclose(found.probs, weights / z, atol=1e-12)
    assert found.log_z == pytest.approx(np.log(z), abs=1e-10)


def test_refuses_large_models() -> None:
    model = FactorGraph(np.full(23, 2), (), ())
    with pytest.raises(UnsupportedModelError, match="use jt"):
        zoo.run(Enumerate(), model)


def test_refuses_more_configurations_than_there_are_numbers() -> None:
    """2^2000 of them: a refusal without a warning of numpy's."""
    with pytest.raises(UnsupportedModelError, match="inf configurations"):
        Enumerate()(FactorGraph(np.full(2000, 2), (), ()), Budget(), np.random.default_rng(0))


def test_zero_everywhere_is_an_error() -> None:
    model = FactorGraph(np.array([2]), ((0,),), (np.full(2, -np.inf),))
    with pytest.raises(EvidenceError, match="non-zero probability"):
        Enumerate()(model, zoo.BUDGET, np.random.default_rng(0))
