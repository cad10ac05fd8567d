"""Compiled sweeps of mean field, log q_i(x) = E_q[Σ_{f∋i} θ_f | x_i = x], variable by variable.

Probabilities q are all states of all variables in a row; models are laid out by `flat.lay_out`.
"""

import math

import numpy as np

from icgi.approx.messages import POLL
from icgi.kernels import kernel


@kernel
def ascend(c, q, zero, tolerance, limit, count, first, last, sweeps, residual, stop):  # type: ignore[no-untyped-def]
    """Renew the distributions of the models first ≤ m < last in turn.

    Each model until it is at rest, at its limit, or has made `count` sweeps more. Once stop[0] is
    set, the variables that follow keep their distributions.
    """
    width = 1
    for i in range(c.model_variable[first], c.model_variable[last]):
        width = max(width, c.ratio_start[i + 1] - c.ratio_start[i] + 1)
    mean, digit, prefix = np.empty(width), np.empty(c.largest[1], np.int64), np.empty(c.largest[1])
    for m in range(first, last):
        for _ in range(count):
            if residual[m] <= tolerance or sweeps[m] >= limit[m] or stop[0]:
                break
            change = _ascend(c, q, zero[m], m, mean, digit, prefix, stop)
            if stop[0]:
                break
            residual[m] = change
            sweeps[m] += 1


@kernel
def _ascend(c, q, zero, m, mean, digit, prefix, stop):  # type: ignore[no-untyped-def]
    """One sweep of one model; the largest change of a probability."""
    residual = 0.0
    for i in range(c.model_variable[m], c.model_variable[m + 1]):
        begin = c.ratio_start[i] + i
        card = c.ratio_start[i + 1] - c.ratio_start[i] + 1
        mean[0] = 0.0
        for x in range(1, card):
            mean[x] = c.field[c.ratio_start[i] + x - 1]
        for t in range(c.touching_start[i], c.touching_start[i + 1]):
            f = c.touching[t]
            e = c.edge_start[f]
            if c.edge_start[f + 1] - e > 2:
                _expect(c, f, i, q, zero, mean, digit, prefix, stop)
                continue
            k, top = c.value_start[f], c.top[f]
            first = c.variable[e] == i
            j = c.variable[e + 1] if first else c.variable[e]
            other, size = c.ratio_start[j] + j, c.ratio_start[j + 1] - c.ratio_start[j] + 1
            by_x, by_y = (size, 1) if first else (1, card)
            for y in range(size):
                w = q[other + y]
                if w > 0.0:  # 0 · log 0 = 0
                    for x in range(card):
                        value = c.values[k + x * by_x + y * by_y] - top
                        mean[x] += w * (value if value != -np.inf else zero)
        if stop[0]:  # the means may be incomplete
            return np.inf
        best = mean[:card].max()
        if best == -np.inf:
            continue  # only where zeros surround the start, which then is no possible one
        total = 0.0
        for x in range(card):
            mean[x] = math.exp(mean[x] - best)
            total += mean[x]
        for x in range(card):
            residual = max(residual, abs(mean[x] / total - q[begin + x]))
            q[begin + x] = mean[x] / total
    return residual


@kernel
def _expect(c, f, i, q, zero, mean, digit, prefix, stop):  # type: ignore[no-untyped-def]
    """Add E_q[θ_f − top | x_i] to `mean`: rows along the last axis, products of q carried along."""
    e0, arity = c.edge_start[f], c.edge_start[f + 1] - c.edge_start[f]
    last, k = arity - 1, c.value_start[f]
    axis = 0
    while c.variable[e0 + axis] != i:
        axis += 1
    digit[:arity] = 0
    prefix[0] = 1.0
    final = c.variable[e0 + last]
    end, width = c.ratio_start[final] + final, c.ratio_start[final + 1] - c.ratio_start[final] + 1
    a = 0
    while a >= 0:
        for b in range(a, last):
            j = c.variable[e0 + b]
            share = 1.0 if b == axis else q[c.ratio_start[j] + j + digit[b]]
            prefix[b + 1] = prefix[b] * share
        if prefix[last] > 0.0:
            for y in range(width):
                w = prefix[last] if axis == last else prefix[last] * q[end + y]
                if w > 0.0:
                    value = c.values[k + y] - c.top[f]
                    value = value if value != -np.inf else zero
                    mean[y if axis == last else digit[axis]] += w * value
        k += width
        a = last - 1
        while a >= 0:
            j = c.variable[e0 + a]
            digit[a] += 1
            if digit[a] <= c.ratio_start[j + 1] - c.ratio_start[j]:
                break
            digit[a] = 0
            a -= 1
        if a < last - POLL and stop[0]:
            break


@kernel
def mean_messages(c, q, zero, stop):  # type: ignore[no-untyped-def]
    """E_q[θ_f | x_i] of every edge, as log ratios: the messages that mean field passes."""
    digit, prefix = np.empty(c.largest[1], np.int64), np.empty(c.largest[1])
    mean = np.empty(c.largest[0])
    found = np.zeros(c.message_start[-1])
    for f in range(len(c.rho)):
        if stop[0]:
            break
        for e in range(c.edge_start[f], c.edge_start[f + 1]):
            begin, end = c.message_start[e], c.message_start[e + 1]
            mean[: end - begin + 1] = 0.0
            _expect(c, f, c.variable[e], q, zero, mean, digit, prefix, stop)
            for k in range(begin, end):
                found[k] = mean[k - begin + 1] - mean[0]
    return found


@kernel
def lower_bounds(c, q, stop):  # type: ignore[no-untyped-def]
    """Σ_f E_q[θ_f] + Σ_i H(q_i) of every model, −inf where q has weight on a zero; NaN: no time."""
    bound = c.constant.copy()
    digit, prefix = np.empty(c.largest[1], np.int64), np.empty(c.largest[1])
    mean = np.empty(c.largest[0])
    for m in range(len(bound)):
        for i in range(c.model_variable[m], c.model_variable[m + 1]):
            begin = c.ratio_start[i] + i
            for x in range(c.ratio_start[i + 1] - c.ratio_start[i] + 1):
                p = q[begin + x]
                if p > 0.0:
                    bound[m] -= p * math.log(p)
                    if x > 0:
                        bound[m] += p * c.field[c.ratio_start[i] + x - 1]
        for f in range(c.model_factor[m], c.model_factor[m + 1]):
            i = c.variable[c.edge_start[f]]
            begin, card = c.ratio_start[i] + i, c.ratio_start[i + 1] - c.ratio_start[i] + 1
            mean[:card] = 0.0
            _expect(c, f, i, q, -np.inf, mean, digit, prefix, stop)
            if stop[0]:
                bound[m:] = np.nan
                return bound
            for x in range(card):
                if q[begin + x] > 0.0:
                    bound[m] += q[begin + x] * mean[x]
    return bound
