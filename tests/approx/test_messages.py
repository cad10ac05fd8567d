"""The compiled flat against plain sums over tables, entry by entry."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import zoo
from icgi.approx import messages
from icgi.approx.flat import (
    FlatModels,
    State,
    compile_models,
    initial_state,
    packs,
    probabilities,
    reweight,
)
from icgi.approx.support import supported
from icgi.errors import BudgetError
from icgi.inference import Budget
from icgi.model.graph import FactorGraph, FloatArray

GO = np.zeros(1, np.uint8)  # a stop flag that nobody raises


def random_scopes(rng: np.random.Generator, n: int, factors: int, arity: int) -> list[tuple]:
    return [
        tuple(rng.permutation(n)[: rng.integers(1, min(n, arity) + 1)].tolist())
        for _ in range(factors)
    ]


def random_flat(
    seed: int, scale: float = 1.0, zeros: float = 0.0
) -> tuple[FactorGraph, FlatModels]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    cards = rng.integers(2, 5, n).tolist()
    model = zoo.random_model(rng, cards, random_scopes(rng, n, 7, 5), scale=scale, zeros=zeros)
    model = supported(model).model
    return model, compile_models([model])


def cavity(flat: FlatModels, state: State, f: int) -> list[FloatArray]:
    """log b_i − log m_{f→i} of each variable of a factor, from the flat arrays."""
    vectors = []
    for e in range(flat.edge_start[f], flat.edge_start[f + 1]):
        i = flat.variable[e]
        belief = state.belief[flat.ratio_start[i] : flat.ratio_start[i + 1]]
        message = state.messages[flat.message_start[e] : flat.message_start[e + 1]]
        vectors.append(np.concatenate([[0.0], belief - message]))
    return vectors


def log_joint(flat: FlatModels, state: State, f: int) -> FloatArray:
    """Unnormalised log belief of a factor."""
    vectors = cavity(flat, state, f)
    shape = [len(v) for v in vectors]
    begin = flat.value_start[f]
    table = flat.values[begin : begin + math.prod(shape)].reshape(shape)
    joint = (table - flat.top[f]) / flat.rho[f]
    for axis, vector in enumerate(vectors):
        joint = joint + vector.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return joint


def log_sum(values: FloatArray, axes: tuple[int, ...] | None = None) -> FloatArray:
    top = values.max(axes, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray((np.log(np.exp(values - top).sum(axes, keepdims=True)) + top).squeeze())


def plain_messages(flat: FlatModels, state: State) -> FloatArray:
    """One flooding sweep by its definition."""
    new = np.empty_like(state.messages)
    for f in range(len(flat.rho)):
        joint, vectors = log_joint(flat, state, f), cavity(flat, state, f)
        for axis, e in enumerate(range(flat.edge_start[f], flat.edge_start[f + 1])):
            others = tuple(a for a in range(joint.ndim) if a != axis)
            out = log_sum(joint, others) - vectors[axis]
            new[flat.message_start[e] : flat.message_start[e + 1]] = out[1:] - out[0]
    return new


def advance(
    flat: FlatModels, state: State, schedule: int, count: int, damping: float = 0.0
) -> None:
    limit = np.full(len(flat.constant), 10**6)
    as_asked = flat._replace(
        forest=np.zeros(len(limit), bool)
    )  # forests have a schedule of their own
    messages.advance(as_asked, state, schedule, damping, 0.0, limit, count, 0, len(limit), GO)


def random_state(flat: FlatModels, seed: int, scale: float = 1.0) -> State:
    rng = np.random.default_rng(seed)
    return initial_state(flat, rng.normal(0, scale, flat.message_start[-1]))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("scale", "zeros", "start"), [(1.0, 0.0, 1.0), (1.0, 0.5, 1.0), (400.0, 0.3, 300.0)]
)
class TestOneSweep:
    def test_flooding_is_the_definition(
        self, seed: int, scale: float, zeros: float, start: float
    ) -> None:
        _, flat = random_flat(seed, scale, zeros)
        state = random_state(flat, seed, start)
        expected = plain_messages(flat, state)
        advance(flat, state, messages.FLOODING, 1)
        assert_allclose(state.messages, expected, rtol=1e-9, atol=1e-9)

    def test_reweighted_flooding_is_the_definition(
        self, seed: int, scale: float, zeros: float, start: float
    ) -> None:
        _, flat = random_flat(seed, scale, zeros)
        rho = np.random.default_rng(seed).uniform(0.2, 1.0, len(flat.rho))
        flat = reweight(flat, rho)
        state = random_state(flat, seed, start)
        expected = plain_messages(flat, state)
        advance(flat, state, messages.FLOODING, 1)
        assert_allclose(state.messages, expected, rtol=1e-9, atol=1e-8)

    def test_measuring_changes_nothing(
        self, seed: int, scale: float, zeros: float, start: float
    ) -> None:
        _, flat = random_flat(seed, scale, zeros)
        state = random_state(flat, seed, start)
        before, expected = state.messages.copy(), plain_messages(flat, state)
        advance(flat, state, messages.FLOODING, 1, damping=1.0)
        assert_allclose(state.messages, before, rtol=0, atol=0)
        assert state.residual[0] == pytest.approx(largest_change(flat, before, expected), abs=1e-9)

    def test_log_partition_is_the_sum_of_beliefs(
        self, seed: int, scale: float, zeros: float, start: float
    ) -> None:
        _, flat = random_flat(seed, scale, zeros)
        state = random_state(flat, seed, start)
        singles = [
            float(log_sum(np.concatenate([[0.0], state.belief[a:b]])))
            for a, b in zip(flat.ratio_start[:-1], flat.ratio_start[1:], strict=True)
        ]
        expected = float(flat.constant[0]) + sum(singles)
        for f in range(len(flat.rho)):
            around = flat.variable[flat.edge_start[f] : flat.edge_start[f + 1]]
            expected += float(log_sum(log_joint(flat, state, f))) - sum(singles[i] for i in around)
        assert messages.log_partitions(flat, state, GO)[0] == pytest.approx(expected, rel=1e-9)


def largest_change(flat: FlatModels, a: FloatArray, b: FloatArray) -> float:
    def normalised(ratios: FloatArray) -> FloatArray:
        logs = np.concatenate([[0.0], ratios])
        return np.asarray(np.exp(logs - log_sum(logs)))

    spans = zip(flat.message_start[:-1], flat.message_start[1:], strict=True)
    return max((np.abs(normalised(a[s:t]) - normalised(b[s:t])).max() for s, t in spans), default=0)


@pytest.mark.parametrize("schedule", [messages.SEQUENTIAL, messages.RESIDUAL])
@pytest.mark.parametrize("seed", range(4))
def test_beliefs_follow_the_messages(schedule: int, seed: int) -> None:
    _, flat = random_flat(seed, zeros=0.3)
    state = initial_state(flat)
    advance(flat, state, schedule, 30)
    again = initial_state(flat, state.messages)
    assert_allclose(state.belief, again.belief, atol=1e-9)


@given(
    st.lists(st.tuples(*[st.floats(-30, 30)] * 2), min_size=1, max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_change_of_probabilities_is_at_most_a_quarter_of_the_spread(
    pairs: list[tuple[float, float]],
) -> None:
    """The bound that spares the sweep most of its residuals."""
    a, b = np.array([(0.0, 0.0), *pairs]).T
    p, q = (np.exp(v - log_sum(v)) for v in (a, b))
    assert np.abs(p - q).max() <= (a - b).max() / 4 - (a - b).min() / 4 + 1e-12


def test_a_backward_and_a_forward_sweep_solve_a_tree() -> None:
    rng = np.random.default_rng(1)
    scopes = [(int(rng.integers(i)), i) for i in range(1, 60)]
    order = rng.permutation(len(scopes))
    model = zoo.random_model(rng, [3] * 60, [scopes[k] for k in order])
    flat = compile_models([model])
    state = initial_state(flat)
    advance(flat, state, messages.SEQUENTIAL, 2)
    assert largest_change(flat, state.messages, plain_messages(flat, state)) < 1e-12


def test_models_side_by_side_do_not_touch() -> None:
    models = [random_flat(seed, zeros=0.2)[0] for seed in range(5)]
    flat = compile_models(models)
    together = initial_state(flat)
    advance(flat, together, messages.SEQUENTIAL, 9)
    probs = probabilities(flat, together.belief, 4)
    for m, model in enumerate(models):
        alone = compile_models([model])
        state = initial_state(alone)
        advance(alone, state, messages.SEQUENTIAL, 9)
        rows = slice(flat.model_variable[m], flat.model_variable[m + 1])
        assert (probabilities(alone, state.belief, 4) == probs[rows]).all()
        assert messages.log_partitions(alone, state, GO)[0] == pytest.approx(
            messages.log_partitions(flat, together, GO)[m], rel=1e-12
        )


def test_memory_is_checked_before_it_is_taken() -> None:
    with pytest.raises(BudgetError, match=r"needs? about .* allows"):
        packs([zoo.MODELS["grid-3x3"]], Budget(table_bytes=100), "lbp", 2)
