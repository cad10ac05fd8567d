"""Belief propagation of many models of spins on one graph: ratios instead of their logarithms.

A message is kept as m(1) / m(0). Where no product of messages can leave the range of doubles,
sweeps then need neither exp nor log:

    m_{f→i} = (w10 + w11 c_j) / (w00 + w01 c_j),   c_j = b_j / m_{f→j},   b_i = h_i Π_f m_{f→i}.

Schedules, damping and residuals are those of `messages.py`, and the runs are the same up to
rounding.
"""

import math
from typing import NamedTuple

import numpy as np

from icgi.approx.fixed_point import Stop, fixed_points
from icgi.approx.flat import FlatModels, State
from icgi.clock import Deadline
from icgi.kernels import kernel
from icgi.model.graph import BoolArray, FloatArray, IntArray

RANGE = 200.0  # of log ratios: products of two beliefs stay finite, sums of weights above e^−200


class SpinModels(NamedTuple):
    """Models of spins on one graph, views into the `FlatModels` that holds them in turn."""

    pairs: IntArray  # f 2    variables of each factor
    share: FloatArray  # n    1 − number of factors of each variable
    touching_start: IntArray  # n+1
    touching: IntArray  # e    factors of each variable
    field: FloatArray  # b n    exp of the log ratios of unary factors
    log_field: FloatArray  # b n
    weights: FloatArray  # b f 4    entries 00, 01, 10, 11; the largest is 1
    constant: FloatArray  # b
    forest: BoolArray  # b


def spin_models(flat: FlatModels, n_models: int) -> SpinModels | None:
    """Views of models of one graph; None where a number is too large for ratios."""
    n, f = (len(flat.ratio_start) - 1) // n_models, len(flat.rho) // n_models
    pairs = flat.variable[: 2 * f].reshape(f, 2)
    log_field = flat.field.reshape(n_models, n)
    weights = flat.weights.reshape(n_models, f, 4)
    with np.errstate(divide="ignore"):
        reach = -np.log(weights.min(2, initial=1.0))  # b f    of the log ratio of any message
    bound = np.abs(log_field)
    np.add.at(bound.T, pairs[:, 0], reach.T)
    np.add.at(bound.T, pairs[:, 1], reach.T)
    if not bound.max(initial=0.0) <= RANGE:
        return None
    return SpinModels(
        pairs,
        np.asarray(1.0 - np.bincount(pairs.ravel(), minlength=n), np.float64),
        flat.touching_start[: n + 1],
        flat.touching[: 2 * f],
        np.exp(log_field),
        log_field,
        weights,
        flat.constant,
        flat.forest,
    )


def sweep_spins(
    c: SpinModels,
    state: State,
    flooding: bool,
    damping: float,
    tolerance: float,
    limit: IntArray,
    deadline: Deadline,
    threads: int | None = None,
) -> None:
    """`messages.sweep` of such models, in sequence or flooding."""
    count, n = c.field.shape
    messages = np.exp(state.messages).reshape(count, -1)
    belief = np.exp(state.belief).reshape(count, n)

    def some(most: int, first: int, last: int, stop: Stop) -> None:
        _advance(
            c, messages, belief, state.sweeps, state.residual, flooding, damping, tolerance, limit,
            most, first, last, stop,
        )  # fmt: skip

    work = np.full(count, messages.shape[1])
    fixed_points(some, work, state.sweeps, state.residual, limit, deadline, tolerance, threads)
    state.messages[:], state.belief[:] = np.log(messages.ravel()), np.log(belief.ravel())


def mean_field_messages(c: SpinModels, sweeps: IntArray, deadline: Deadline) -> FloatArray:
    """Log ratios E_q[θ_f | x_i] after so many sweeps of mean field that begin at uniform q."""
    found = np.zeros((len(c.field), 2 * len(c.pairs)))
    with deadline.flag() as stop:
        _mean_field(c, sweeps, found, stop)
    return found.ravel()


def spin_log_partitions(c: SpinModels, state: State, stop: Stop) -> FloatArray:
    """Bethe log Z of every model, as `messages.log_partitions`; NaN where there was no time."""
    count, n = c.field.shape
    found = np.full(count, np.nan)
    messages = np.exp(state.messages).reshape(count, -1)
    _log_partitions(c, messages, np.exp(state.belief).reshape(count, n), found, stop)
    return found


@kernel
def _advance(  # type: ignore[no-untyped-def]
    c, messages, belief, sweeps, residual, flooding, damping, tolerance, limit, most, first, last,
    stop,
):  # fmt: skip
    """Sweep the models first ≤ m < last, each until it is at rest, its limit, or `most` sweeps.

    Beliefs agree with the messages of a model before and after each of its sweeps.
    """
    spare = np.empty(belief.shape[1])
    for m in range(first, last):
        w, h, mes, b = c.weights[m], c.field[m], messages[m], belief[m]
        flood, kept = (False, 0.0) if c.forest[m] else (flooding, damping)
        for _ in range(most):
            if residual[m] <= tolerance or sweeps[m] >= limit[m] or stop[0]:
                break
            if flood:
                worst = _sweep_flooding(c.pairs, w, h, mes, b, spare, kept)
            else:
                if sweeps[m] % 8 == 7:  # beliefs that are kept up to date collect rounding errors
                    _gather(c.pairs, h, mes, b)
                worst = _sweep_sequence(c.pairs, w, mes, b, kept, sweeps[m] % 2 == 0)
            sweeps[m] += 1
            if c.forest[m] and sweeps[m] == 1 and limit[m] > 1 and worst > 0.0:
                continue  # only half of a solution, however little it changed
            if not flood and (worst <= tolerance or sweeps[m] == limit[m]):
                _gather(c.pairs, h, mes, b)
                worst = _change(c.pairs, w, mes, b)
            residual[m] = worst


@kernel(no_cpython_wrapper=True, inline="always")
def _renewed(w, one, other, both, c):  # type: ignore[no-untyped-def]
    """Message from the cavity ratio c of the other variable, whose state 1 gives w[other]."""
    return (w[one] + w[both] * c) / (w[0] + w[other] * c)


@kernel(no_cpython_wrapper=True, inline="always")
def _distance(new, old):  # type: ignore[no-untyped-def]
    """Difference of two messages that are normalised."""
    return abs(new - old) / ((1.0 + new) * (1.0 + old))


@kernel(no_cpython_wrapper=True)
def _sweep_sequence(pairs, weights, messages, belief, damping, backward):  # type: ignore[no-untyped-def]
    """Every factor once, each with the beliefs of now; the largest undamped change."""
    worst, count = 0.0, len(pairs)
    for number in range(count):
        f = count - 1 - number if backward else number
        i, j, w = pairs[f, 0], pairs[f, 1], weights[f]
        old_i, old_j = messages[2 * f], messages[2 * f + 1]
        c_i, c_j = belief[i] / old_i, belief[j] / old_j
        new_i, new_j = _renewed(w, 2, 1, 3, c_j), _renewed(w, 1, 2, 3, c_i)
        worst = max(worst, _distance(new_i, old_i), _distance(new_j, old_j))
        if damping > 0.0:
            new_i, new_j = _damped(new_i, old_i, damping), _damped(new_j, old_j, damping)
        messages[2 * f], messages[2 * f + 1] = new_i, new_j
        belief[i], belief[j] = c_i * new_i, c_j * new_j
    return worst


@kernel(no_cpython_wrapper=True)
def _sweep_flooding(pairs, weights, field, messages, belief, spare, damping):  # type: ignore[no-untyped-def]
    """Every factor once, all with the beliefs of before; the largest undamped change."""
    worst = 0.0
    spare[:] = field
    for f in range(len(pairs)):
        i, j, w = pairs[f, 0], pairs[f, 1], weights[f]
        old_i, old_j = messages[2 * f], messages[2 * f + 1]
        new_i = _renewed(w, 2, 1, 3, belief[j] / old_j)
        new_j = _renewed(w, 1, 2, 3, belief[i] / old_i)
        worst = max(worst, _distance(new_i, old_i), _distance(new_j, old_j))
        if damping > 0.0:
            new_i, new_j = _damped(new_i, old_i, damping), _damped(new_j, old_j, damping)
        messages[2 * f], messages[2 * f + 1] = new_i, new_j
        spare[i] *= new_i
        spare[j] *= new_j
    belief[:] = spare
    return worst


@kernel(no_cpython_wrapper=True)
def _damped(new, old, damping):  # type: ignore[no-untyped-def]
    return old * math.pow(new / old, 1.0 - damping)


@kernel(no_cpython_wrapper=True)
def _change(pairs, weights, messages, belief):  # type: ignore[no-untyped-def]
    """Largest change that an undamped update of any message would make."""
    worst = 0.0
    for f in range(len(pairs)):
        i, j, w = pairs[f, 0], pairs[f, 1], weights[f]
        old_i, old_j = messages[2 * f], messages[2 * f + 1]
        new_i = _renewed(w, 2, 1, 3, belief[j] / old_j)
        new_j = _renewed(w, 1, 2, 3, belief[i] / old_i)
        worst = max(worst, _distance(new_i, old_i), _distance(new_j, old_j))
    return worst


@kernel(no_cpython_wrapper=True)
def _gather(pairs, field, messages, belief):  # type: ignore[no-untyped-def]
    """Beliefs from messages: field · Π_f m_{f→i}."""
    belief[:] = field
    for f in range(len(pairs)):
        belief[pairs[f, 0]] *= messages[2 * f]
        belief[pairs[f, 1]] *= messages[2 * f + 1]


@kernel
def _mean_field(c, sweeps, found, stop):  # type: ignore[no-untyped-def]
    """Mean field: log q_i(1)/q_i(0) = field + Σ_f E_q[θ_f(1, ·) − θ_f(0, ·)], one by one."""
    count, n = c.field.shape
    t, q = np.empty((len(c.pairs), 4)), np.empty(n)
    for m in range(count):
        if stop[0]:
            break
        if sweeps[m] == 0:
            continue
        for f in range(len(c.pairs)):
            for x in range(4):
                t[f, x] = math.log(c.weights[m, f, x])
        q[:] = 0.5
        for _ in range(sweeps[m]):
            for i in range(n):
                ratio = c.log_field[m, i]
                for k in range(c.touching_start[i], c.touching_start[i + 1]):
                    f = c.touching[k]
                    first = c.pairs[f, 0] == i
                    ratio += _expected(t[f], first, q[c.pairs[f, 1 if first else 0]])
                q[i] = 1.0 / (1.0 + math.exp(-ratio))
        for f in range(len(c.pairs)):
            found[m, 2 * f] = _expected(t[f], True, q[c.pairs[f, 1]])
            found[m, 2 * f + 1] = _expected(t[f], False, q[c.pairs[f, 0]])


@kernel(no_cpython_wrapper=True, inline="always")
def _expected(t, first, q):  # type: ignore[no-untyped-def]
    """E_q[θ(1, ·) − θ(0, ·)] to the first or second variable of a pair."""
    up = t[2] - t[0] if first else t[1] - t[0]
    return up + q * (t[3] - t[2] - t[1] + t[0])


@kernel
def _log_partitions(c, messages, belief, found, stop):  # type: ignore[no-untyped-def]
    for m in range(len(found)):
        if stop[0]:
            break
        total = c.constant[m]
        for i in range(belief.shape[1]):
            total += c.share[i] * math.log1p(belief[m, i])
        for f in range(len(c.pairs)):
            w = c.weights[m, f]
            c_i = belief[m, c.pairs[f, 0]] / messages[m, 2 * f]
            c_j = belief[m, c.pairs[f, 1]] / messages[m, 2 * f + 1]
            total += math.log(w[0] + w[1] * c_j + c_i * (w[2] + w[3] * c_j))
        found[m] = total
