"""Flat arrays: every factor, edge and state of every model is where the offsets say."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from test_lbp import pairwise
from test_trbp import hypergraph

import zoo
from icgi.approx.flat import (
    compile_models,
    forecast_bytes,
    initial_state,
    packs,
    probabilities,
    reweight,
)
from icgi.approx.support import supported
from icgi.inference import Budget
from icgi.model.graph import FactorGraph

MODELS = [supported(m).model for m in zoo.MODELS.values()] + [
    hypergraph(0),
    pairwise(0, 9, 3, 0.4, 1),
]


@pytest.mark.parametrize("models", [[m] for m in MODELS] + [MODELS, MODELS[::-1]])
def test_arrays_hold_the_models(models: list[FactorGraph]) -> None:
    """The joint log weight of a random configuration, from the arrays and from the models."""
    flat = compile_models(models)
    rng = np.random.default_rng(0)
    for m, model in enumerate(models):
        states = rng.integers(0, model.cards)
        expected = sum(
            float(table[tuple(states[list(scope)])])
            for scope, table in zip(model.scopes, model.log_tables, strict=True)
        )
        first = flat.model_variable[m]
        total = float(flat.constant[m])
        for i, x in enumerate(states):
            if x > 0:
                total += float(flat.field[flat.ratio_start[first + i] + x - 1])
        for f in range(flat.model_factor[m], flat.model_factor[m + 1]):
            around = flat.variable[flat.edge_start[f] : flat.edge_start[f + 1]] - first
            shape = model.cards[around]
            entry = np.ravel_multi_index(tuple(states[around]), tuple(shape))
            total += float(flat.values[flat.value_start[f] + entry] - flat.top[f])
            assert flat.weight_start[f + 1] - flat.weight_start[f] == math.prod(shape)
        assert total == pytest.approx(expected)


@pytest.mark.parametrize("model", MODELS)
def test_weights_are_scaled_tables(model: FactorGraph) -> None:
    flat = compile_models([model])
    rho = np.random.default_rng(0).uniform(0.2, 1.0, len(flat.rho))
    weighted = reweight(flat, rho)
    for f in range(len(rho)):
        size = flat.weight_start[f + 1] - flat.weight_start[f]
        table = flat.values[flat.value_start[f] : flat.value_start[f] + size]
        found = weighted.weights[flat.weight_start[f] : flat.weight_start[f + 1]]
        assert_allclose(found, np.exp((table - table.max()) / rho[f]))


def test_touching_is_the_inverse_of_edges() -> None:
    flat = compile_models(MODELS)
    pairs = {
        (int(flat.variable[e]), f)
        for f in range(len(flat.rho))
        for e in range(flat.edge_start[f], flat.edge_start[f + 1])
    }
    found = {
        (i, int(f))
        for i in range(len(flat.ratio_start) - 1)
        for f in flat.touching[flat.touching_start[i] : flat.touching_start[i + 1]]
    }
    assert found == pairs
    assert len(flat.touching) == len(flat.variable) == len(pairs)


def test_given_messages_enter_the_beliefs() -> None:
    flat = compile_models([zoo.MODELS["loop"]])
    messages = np.random.default_rng(0).normal(size=flat.message_start[-1])
    belief = initial_state(flat, messages).belief
    for i in range(4):
        incoming = sum(messages[e] for e in range(len(flat.variable)) if flat.variable[e] == i)
        assert belief[i] == pytest.approx(flat.field[i] + incoming)


def test_probabilities_survive_any_size() -> None:
    flat = compile_models([FactorGraph(np.array([3, 2, 1]), (), ())])
    probs = probabilities(flat, np.array([1e8, -1e8, -1e8]), 3)
    assert_array_equal(probs, [[0, 1, 0], [1, 0, 0], [1, 0, 0]])


def test_packs_fit_and_leave_nothing_out() -> None:
    sizes = [forecast_bytes(model, 2) for model in MODELS]
    for limit in (max(sizes), 3 * max(sizes), sum(sizes)):
        cuts = packs(MODELS, Budget(table_bytes=limit), "lbp", 2)
        assert [i for cut in cuts for i in range(len(MODELS))[cut]] == list(range(len(MODELS)))
        assert all(sum(sizes[cut]) <= limit for cut in cuts)
    assert len(packs(MODELS, Budget(table_bytes=sum(sizes)), "lbp", 2)) == 1
