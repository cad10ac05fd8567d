"""`bpnn`: untrained it is belief propagation; trained it keeps the fixed points of it."""

from typing import Any

import numpy as np
import pytest
import torch
from laws import batch_of, built, spins, trained, varied
from numpy.testing import assert_allclose

import zoo
from icgi.approx.lbp import LoopyBP
from icgi.exact.enumeration import Enumerate
from icgi.inference import Status
from icgi.model.graph import FactorGraph
from icgi.neural.batch import Batch


def laid_out(batch: Batch) -> FactorGraph:
    """The only model of a batch, with the tables that networks are given."""
    cards = batch.states[0].sum(-1).numpy().astype(np.int64)
    scopes = [(i,) for i in range(len(cards))]
    tables = [batch.unary[0, i, :c].numpy() for i, c in enumerate(cards)]
    for group in batch.factors:
        for scope, table in zip(group.scopes.numpy(), group.log_tables.numpy(), strict=True):
            scopes.append(tuple(int(i) for i in scope))
            tables.append(table[tuple(slice(cards[i]) for i in scope)])
    return FactorGraph(cards, tuple(scopes), tuple(tables))


def parallel_bp(model: FactorGraph, sweeps: int) -> np.ndarray:
    """Beliefs after some sweeps of the textbook's equations, in linear space."""
    alone = [np.ones(c) for c in model.cards]
    factors = []
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if len(scope) == 1:
            alone[scope[0]] = alone[scope[0]] * np.exp(table)
        else:
            factors.append((scope, np.exp(table)))
    back = {(f, i): np.ones(model.cards[i]) for f, (s, _) in enumerate(factors) for i in s}

    def product(i: int, but: int = -1) -> np.ndarray:
        found = alone[i]
        for (f, j), message in back.items():
            if j == i and f != but:
                found = found * message
        return found / found.sum()

    for _ in range(sweeps):
        sent = {(f, i): product(i, but=f) for f, i in back}
        for f, i in back:
            scope, table = factors[f]
            for place, j in enumerate(scope):
                if j != i:
                    shape = [-1 if p == place else 1 for p in range(len(scope))]
                    table = table * sent[f, j].reshape(shape)
            found = table.sum(tuple(p for p, j in enumerate(scope) if j != i))
            back[f, i] = found / found.sum()
    probs = np.zeros((model.n_variables, model.max_states))
    for i, c in enumerate(model.cards):
        probs[i, :c] = product(i)
    return probs


@torch.no_grad()
def beliefs(net: Any, model: FactorGraph) -> np.ndarray:
    found = net(net.prepare(batch_of([model])))[0].numpy()
    return np.asarray(found[: model.n_variables, : model.max_states])


@pytest.mark.parametrize("iterations", [1, 3, 10])
@pytest.mark.parametrize("seed", range(4))
def test_untrained_it_is_belief_propagation(seed: int, iterations: int) -> None:
    rng = np.random.default_rng(seed)
    model = spins(rng, 8) if seed % 2 else varied(rng)
    net = built("bpnn", iterations=iterations).double()
    answer = parallel_bp(laid_out(batch_of([model])), iterations)
    assert_allclose(beliefs(net, model), answer[: model.n_variables], atol=1e-9)


@pytest.mark.parametrize("weights", ["untrained", "random"])
@pytest.mark.parametrize("name", ["loop", "ternary-factors", "mixed-cards", "zeros"])
def test_fixed_points_of_belief_propagation_are_kept(name: str, weights: str) -> None:
    model = zoo.MODELS[name]
    answer = zoo.run(LoopyBP(tolerance=1e-10, restarts=0), model)
    assert answer.status in (Status.AT_REST, Status.EXACT)
    form = (plain := built("bpnn", iterations=200).double()).prepare(batch_of([model]))
    net = plain if weights == "untrained" else trained(built("bpnn"), 0.5)
    with torch.no_grad():
        rest = plain.messages(form)
        moved = net.messages(form, start=rest)
    for before, after in zip(rest, moved, strict=True):
        assert_allclose(after, before, atol=1e-8)
    if name != "zeros":  # networks know zeros as near-zeros
        assert_allclose(beliefs(plain, model), answer.probs, atol=1e-5)


def test_weights_change_messages_that_are_not_at_rest() -> None:
    model = spins(np.random.default_rng(0), 10)
    changed = beliefs(trained(built("bpnn", iterations=3)), model)
    assert np.abs(changed - beliefs(built("bpnn", iterations=3).double(), model)).max() > 1e-3


@pytest.mark.parametrize("name", zoo.TREES)
def test_untrained_it_is_exact_on_trees(name: str) -> None:
    model = zoo.MODELS[name]
    net = built("bpnn").double()
    assert_allclose(beliefs(net, model), zoo.run(Enumerate(), model).probs, atol=1e-6)


@pytest.mark.parametrize("correct_log_z", [False, True])
@pytest.mark.parametrize("name", zoo.TREES)
def test_untrained_its_log_z_is_exact_on_trees(name: str, correct_log_z: bool) -> None:
    batch = batch_of([zoo.MODELS[name], zoo.MODELS["factor-tree"]])
    net = built("bpnn", correct_log_z=correct_log_z).double()
    with torch.no_grad():
        found = net.log_z(net.prepare(batch))
    for b in range(2):
        exact = zoo.run(Enumerate(), laid_out(batch[torch.tensor([b])])).log_z
        assert found[b].item() == pytest.approx(exact, abs=1e-9)


def test_its_log_z_is_that_of_lbp_on_loops() -> None:
    model = zoo.MODELS["loop"]
    batch = batch_of([model])
    net = built("bpnn", iterations=200).double()
    answer = zoo.run(LoopyBP(tolerance=1e-10, restarts=0), laid_out(batch))
    with torch.no_grad():
        found = net.log_z(net.prepare(batch)).item()
    assert found == pytest.approx(answer.log_z, abs=1e-6)
