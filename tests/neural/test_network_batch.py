"""The networks' batch: models laid out side by side have the distributions that they had."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import zoo
from icgi.data.families import FAMILIES
from icgi.exact.enumeration import Enumerate
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising, ising_model
from icgi.neural import closed_form, general_algebra
from icgi.neural.batch import Batch, collate, joined, prepared, spins_of, tables_of
from icgi.neural.possible import possible_states


def batch_of(*models: FactorGraph, pairwise: bool = False, **sizes: int) -> Batch:
    return collate([prepared(m, possible_states(m), pairwise) for m in models], **sizes)


def laid_out(batch: Batch, number: int = 0) -> FactorGraph:
    """One model of a batch, read back from its tensors."""
    one = batch[number : number + 1]
    cards = one.states[0].sum(-1).numpy().astype(np.int64)
    scopes = [(i,) for i in range(len(cards))]
    tables = [one.unary[0, i, :c].numpy().astype(float) for i, c in enumerate(cards)]
    for group in one.factors:
        for scope, table in zip(group.scopes.numpy(), group.log_tables.numpy(), strict=True):
            scopes.append(tuple(int(i) for i in scope))
            tables.append(table[tuple(slice(cards[i]) for i in scope)].astype(float))
    return FactorGraph(cards, tuple(scopes), tuple(tables))


def assert_same_answers(batch: Batch, number: int, model: FactorGraph) -> None:
    found = zoo.run(Enumerate(), laid_out(batch, number)).probs[: model.n_variables]
    exact = zoo.run(Enumerate(), model).probs
    for i, alive in enumerate(possible_states(model)):
        assert_allclose(found[i, : alive.sum()], exact[i, alive], atol=2e-5)


WEAK = [name for name in zoo.MODELS if name != "strong"]


@pytest.mark.parametrize("pairwise", [False, True])
@pytest.mark.parametrize("name", WEAK)
def test_a_batch_has_the_distribution_of_its_model(name: str, pairwise: bool) -> None:
    model = zoo.MODELS[name]  # gauge, zeros, one state, factors of three, auxiliary variables
    batch = batch_of(model, pairwise=pairwise)
    assert_same_answers(batch, 0, model)
    assert batch.own.sum() == model.n_variables
    assert pairwise <= all(group.arity == 2 for group in batch.factors)


@pytest.mark.parametrize("scale", [0.3, 2.0, 8.0])
def test_fields_inside_strong_tables_of_spins_are_kept(scale: float) -> None:
    rng = np.random.default_rng(1)
    scopes = [(i,) for i in range(7)] + [(i, i + 1) for i in range(6)]
    model = zoo.random_model(rng, [2] * 7, scopes, scale=scale)
    batch = batch_of(model)
    assert_same_answers(batch, 0, model)
    for group in batch.factors:  # exp of a gauged table has rows and columns of mean one
        assert_allclose(group.log_tables.exp().mean(1), 1.0, rtol=1e-4)
        assert_allclose(group.log_tables.exp().mean(2), 1.0, rtol=1e-4)
    spins = spins_of(batch)
    mean, *_ = closed_form.enumerate_core(spins.couplings.double(), spins.fields.double())
    assert_allclose(0.5 * (1 + mean[0, :7]), zoo.run(Enumerate(), model).probs[:, 0], atol=2e-5)


def test_models_of_a_batch_are_those_of_batches_of_one() -> None:
    names = ["loop", "zeros", "ternary-factors", "one-state-variable", "no-factors", "mixed-cards"]
    models = [zoo.MODELS[name] for name in names]
    together = batch_of(*models)
    alone = joined([batch_of(m, variables=together.sizes[1], states=together.sizes[2])
                    for m in models])  # fmt: skip
    chosen = [4, 1, 1, 5]
    for batch, order in (
        (together, range(len(models))),
        (alone, range(len(models))),
        (together[torch.tensor(chosen)], chosen),
        (alone[torch.tensor(chosen)][torch.tensor([3, 0])], [5, 4]),
        (together[2:4], [2, 3]),
    ):
        assert len(batch.states) == len(order)
        for number, which in enumerate(order):
            assert_same_answers(batch, number, models[which])


def test_flat_numbers_and_graphs_of_factors_agree() -> None:
    batch = batch_of(zoo.MODELS["loop"], zoo.MODELS["no-factors"], zoo.MODELS["chain"])
    (pairs,) = batch.factors
    n = batch.sizes[1]
    assert pairs.graph.tolist() == [0] * 4 + [2] * 5
    assert ((batch.flat(pairs) // n) == pairs.graph[:, None]).all()
    assert ((batch.flat(pairs) % n) == pairs.scopes).all()


@pytest.mark.parametrize("name", ["loop", "mixed-cards", "zeros", "ternary-factors"])
def test_dense_tables_have_the_same_marginals(name: str) -> None:
    model = zoo.MODELS[name]
    batch = batch_of(model, pairwise=True)
    tables = tables_of(batch)
    p, _ = general_algebra.enumerate_core(tables.tables.double(), tables.unary.double())
    for i, alive in enumerate(possible_states(model)):
        exact = zoo.run(Enumerate(), model).probs[i, alive]
        assert_allclose(p[0, i, : alive.sum()], exact, atol=2e-5)


def test_spins_are_those_of_the_model() -> None:
    rng = np.random.default_rng(0)
    model = FAMILIES["er"].sample(rng, n=9, p=0.4, beta=1.3, field=0.4)
    arrays = as_ising(model)
    assert arrays is not None
    again = ising_model((arrays.edges, arrays.couplings), arrays.fields, 1.0)
    spins = spins_of(batch_of(model))
    mean, *_ = closed_form.enumerate_core(spins.couplings.double(), spins.fields.double())
    assert_allclose(0.5 * (1 + mean[0]), zoo.run(Enumerate(), again).probs[:, 0], atol=1e-5)
    i, j = np.asarray(arrays.edges).T
    assert_allclose(spins.couplings[0, i, j], arrays.couplings, atol=1e-5)
