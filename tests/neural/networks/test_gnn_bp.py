"""`gnn-bp`: the published form has the published sizes, and takes what it was published for."""

import numpy as np
import pytest
from laws import answers, built, spins, takes, trained, varied
from numpy.testing import assert_allclose

from icgi.model.graph import FactorGraph


def dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def test_the_published_form_has_the_published_sizes() -> None:
    message = dense(13, 64) + dense(64, 64) + dense(64, 5)
    recurrent = 2 * 3 * dense(5, 5)  # three gates, from the message and from the state
    answer = dense(5, 64) + dense(64, 64) + dense(64, 2)
    net = built("gnn-bp", form="node")
    assert net.config.steps == 10
    assert sum(p.numel() for p in net.parameters()) == message + recurrent + answer


def test_the_published_form_takes_pairs_of_spins_only() -> None:
    rng = np.random.default_rng(0)
    assert takes(built("gnn-bp", form="node"), spins(rng, 5))
    refusal = built("gnn-bp", form="node").refuse(24, 4, 7, 4)
    assert "4 states" in refusal
    assert "form=message" in refusal
    assert takes(built("gnn-bp"), varied(rng))


@pytest.mark.parametrize("form", ["node", "message"])
def test_names_and_neighbours_do_not_matter(form: str) -> None:
    rng = np.random.default_rng(1)
    net = trained(built("gnn-bp", form=form))
    model, other = spins(rng, 6), spins(rng, 9)
    new = rng.permutation(6)
    scopes = tuple(tuple(int(new[i]) for i in scope) for scope in model.scopes)
    renamed = FactorGraph(model.cards, scopes, model.log_tables)
    (alone,) = answers(net, [model])
    together, _, after = answers(net, [model, other, renamed], variables=12, states=3)
    assert_allclose(together, alone, atol=1e-5)
    assert_allclose(after[new], alone, atol=1e-5)
