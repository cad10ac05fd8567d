"""Cliques of two tables: the answers are those of logarithms, which form every clique."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
from icgi.exact.forecast import forecast
from icgi.exact.sweeps import THREADED
from icgi.exact.tree import plan
from icgi.inference import Budget

CASES = {
    "every pair, many states": (7, 9, 1.0, 2),
    "every pair, two states": (14, 2, 1.0, 2),
    "triples": (8, 6, 0.3, 3),
    "some pairs": (14, 5, 0.4, 2),
    "halves": (6, 12, 1.0, 2),
}


def drawn(n: int, states: int, share: float, arity: int, zeros: float = 0.0) -> icgi.FactorGraph:
    """Random tables over random scopes; the numbers of states differ by one."""
    rng = np.random.default_rng(n + states)
    cards = rng.integers(max(2, states - 1), states + 1, n)
    factors = []
    for i in range(n):
        for _ in range(max(1, round(share * (n - 1) / (arity - 1)))):
            scope = (i, *(int(j) for j in rng.permutation(np.delete(np.arange(n), i))[: arity - 1]))
            table = rng.gamma(1.0, size=cards[list(scope)])
            gone = rng.random(table.shape) < zeros
            gone.flat[0] = False  # one configuration is possible
            factors.append((scope, np.where(gone, 0.0, table)))
    return icgi.from_factors(factors)


def paired(model: icgi.FactorGraph) -> np.ndarray:
    """Entries of the cliques that are contracted."""
    ahead = forecast(model, Budget(), np.random.default_rng(0))
    tree = (ahead.plan or plan(model, ahead.order.variables)).tree
    return tree.clique[tree.paired]


@pytest.mark.parametrize("zeros", [0.0, 0.05])
@pytest.mark.parametrize("name", CASES)
def test_contracted_cliques_answer_as_logarithms(name: str, zeros: float) -> None:
    model = drawn(*CASES[name], zeros=zeros)
    one = icgi.marginals(model, engine="jt:arithmetic=linear")
    other = icgi.marginals(model, engine="jt:arithmetic=log")
    assert one.log_z is not None
    assert other.log_z is not None
    assert_allclose(one.probs, other.probs, rtol=0, atol=1e-12)
    assert_allclose(one.log_z, other.log_z, rtol=1e-13)


def test_cliques_of_many_states_are_contracted() -> None:
    assert len(paired(drawn(*CASES["every pair, many states"]))) > 0
    assert len(paired(drawn(*CASES["some pairs"]))) > 1


def test_halves_do_not_depend_on_threads() -> None:
    model = drawn(*CASES["halves"])
    assert paired(model).max() > THREADED
    one, two = (icgi.marginals(model, engine=f"jt:threads={t}") for t in (1, 2))
    assert (one.probs == two.probs).all()
    assert one.log_z == two.log_z


def test_messages_that_leave_the_range_are_answered_on_logarithms() -> None:
    """Tables from 1 down to 1e-200: products of two of them have no digits left."""
    model = drawn(*CASES["halves"])
    rng = np.random.default_rng(1)
    tables = [rng.uniform(-460, 0, t.shape) for t in model.log_tables]
    wide = icgi.FactorGraph(model.cards, model.scopes, tuple(tables))
    one, other = (icgi.marginals(wide, engine=f"jt{text}") for text in ("", ":arithmetic=log"))
    assert_allclose(one.probs, other.probs, rtol=0, atol=1e-9)
    assert_allclose(one.log_z, other.log_z, rtol=1e-12)
