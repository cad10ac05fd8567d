"""What every network keeps: how a model is written does not matter, nor what it stands next to."""

from typing import Any

import numpy as np
import pytest
import torch
from laws import answers, batch_of, built, models, spins, takes, trained, varied
from numpy.testing import assert_allclose

import zoo
from icgi.model.graph import FactorGraph
from icgi.neural.losses import graph_mean, kl
from icgi.neural.networks import NETWORKS

CLOSE = {"rtol": 0.0, "atol": 1e-5}  # batches are laid out in single precision


@pytest.fixture(scope="module", params=NETWORKS)
def net(request: pytest.FixtureRequest) -> Any:
    return trained(built(request.param))


@pytest.fixture(params=range(3), ids=["spins", "varied", "zeros"])
def model(request: pytest.FixtureRequest, net: Any) -> FactorGraph:
    found = models(np.random.default_rng(1))[request.param]
    if not takes(net, found):
        pytest.skip("refused")
    return found


def test_answers_are_distributions_over_the_states_that_exist(net: Any, model: FactorGraph) -> None:
    with torch.no_grad():
        alpha = net(net.prepare(batch_of([model], pairwise=net.pairwise)))[0].numpy()
    alpha = alpha[: model.n_variables, : model.max_states]
    exists = np.arange(model.max_states) < model.cards[:, None]
    assert np.all(alpha[~exists] == 0.0)
    assert np.all(alpha[exists] >= 0.0)
    if not net.dirichlet:
        assert_allclose(alpha.sum(1), 1.0, atol=1e-6)


def test_names_of_variables_do_not_matter(net: Any, model: FactorGraph) -> None:
    new = np.random.default_rng(2).permutation(model.n_variables)  # old number -> new
    cards = np.empty_like(model.cards)
    cards[new] = model.cards
    scopes = tuple(tuple(int(new[i]) for i in scope) for scope in model.scopes)
    (before,), (after,) = (
        answers(net, [m]) for m in (model, FactorGraph(cards, scopes, model.log_tables))
    )
    assert_allclose(after[new], before, **CLOSE)


def test_names_of_states_do_not_matter(net: Any, model: FactorGraph) -> None:
    rng = np.random.default_rng(3)
    orders = [rng.permutation(c) for c in model.cards]
    orders[0] = np.arange(model.cards[0])[::-1]
    tables = tuple(
        table[np.ix_(*(orders[i] for i in scope))]
        for scope, table in zip(model.scopes, model.log_tables, strict=True)
    )
    (before,), (after,) = (
        answers(net, [m]) for m in (model, FactorGraph(model.cards, model.scopes, tables))
    )
    for i, order in enumerate(orders):
        assert_allclose(after[i, : len(order)], before[i, order], **CLOSE)


def test_the_writing_of_factors_does_not_matter(net: Any, model: FactorGraph) -> None:
    rng = np.random.default_rng(4)
    written = []
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        order = rng.permutation(len(scope))
        turned = (tuple(scope[a] for a in order), table.transpose(order))
        written.append(turned)
        if np.isfinite(table).all():  # the product of two factors; floors of zeros would differ
            part = rng.normal(size=turned[1].shape)
            written[-1] = (turned[0], turned[1] - part)
            written.append((turned[0], part))
    written = [written[w] for w in rng.permutation(len(written))]
    scopes, tables = zip(*written, strict=True)
    (before,), (after,) = (
        answers(net, [m]) for m in (model, FactorGraph(model.cards, scopes, tables))
    )
    assert_allclose(after, before, **CLOSE)


def test_neighbours_in_the_batch_do_not_matter(net: Any) -> None:
    rng = np.random.default_rng(5)
    together = [m for m in (spins(rng, 5), spins(rng, 12), varied(rng)) if takes(net, m)]
    if net.pairwise:  # elimination of spins is another algebra; engines batch equal states only
        together = together[:2]
    states = max(m.max_states for m in together)
    apart = [answers(net, [m])[0] for m in together]
    for sizes in ({}, {"variables": 15, "states": states + (states > 2)}):
        for alone, found in zip(apart, answers(net, together, **sizes), strict=True):
            assert_allclose(found, alone, **CLOSE)


def test_some_models_of_a_form_are_their_own_form(net: Any) -> None:
    rng = np.random.default_rng(6)
    batch = batch_of([spins(rng, n) for n in (4, 6, 5, 7)], pairwise=net.pairwise)
    index = torch.tensor([3, 1])
    with torch.no_grad():
        chosen = net(net.prepare(batch)[index])
        assert_allclose(chosen, net(net.prepare(batch[index])), atol=1e-12)
        assert_allclose(chosen, net(net.prepare(batch))[index], **CLOSE)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("model_name", zoo.MODELS)
def test_gradients_are_finite(name: str, model_name: str) -> None:
    net, model = built(name), zoo.MODELS[model_name]
    if not takes(net, model):
        pytest.skip("refused")
    batch = batch_of([model], pairwise=net.pairwise)
    net = net.double()
    alpha = net(net.prepare(batch))
    target = batch.states / batch.states.sum(-1, keepdim=True)
    graph_mean(kl(alpha, target), batch.own).backward()
    given = [p.grad for p in net.parameters() if p.grad is not None]
    assert given
    assert all(torch.isfinite(g).all() for g in given)
