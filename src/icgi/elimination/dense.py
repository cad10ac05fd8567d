"""Exact elimination with dense log tables, for the parts where these are small."""

import numpy as np

from icgi.errors import EvidenceError
from icgi.model.graph import FactorGraph, FloatArray, IntArray


def eliminate_dense(model: FactorGraph, order: IntArray) -> tuple[FloatArray, float]:
    """Marginals n k and log Z along an order: collect into buckets, then distribute.

    Works on logarithms throughout, so any range of potentials and true zeros are fine.
    """
    n = model.n_variables
    when = np.empty(n, np.int64)
    when[order] = np.arange(n)
    rank = when.tolist()
    buckets: list[list[tuple[tuple[int, ...], FloatArray]]] = [[] for _ in range(n)]
    log_z = 0.0
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if not scope:
            log_z += float(table)
            continue
        axes = sorted(range(len(scope)), key=lambda a: rank[scope[a]])
        ordered = tuple(scope[a] for a in axes)
        buckets[ordered[0]].append((ordered, table.transpose(axes)))
    joint: list[FloatArray] = [np.empty(0)] * n
    message: list[FloatArray] = [np.empty(0)] * n
    scopes: list[tuple[int, ...]] = [()] * n
    for v in order.tolist():
        scope = tuple(sorted({v}.union(*(s for s, _ in buckets[v])), key=rank.__getitem__))
        table = np.zeros([int(model.cards[i]) for i in scope])
        for part, values in buckets[v]:
            table = table + _aligned(part, values, scope)
        joint[v], scopes[v] = table, scope
        message[v] = _log_sum(table, (0,))
        if len(scope) > 1:
            buckets[scope[1]].append((scope[1:], message[v]))
        else:
            log_z += float(message[v])
    if log_z == -np.inf:
        raise EvidenceError(
            "no configuration has non-zero probability; check the evidence against the zeros of "
            "the model"
        )
    probs = np.zeros((n, model.max_states))
    for v in order[::-1].tolist():
        scope, table = scopes[v], joint[v]
        if len(scope) > 1:
            above = scopes[scope[1]]
            gone = tuple(a for a, i in enumerate(above) if i not in scope)
            belief = _log_sum(joint[scope[1]], gone)
            with np.errstate(invalid="ignore"):
                correction = np.where(np.isneginf(message[v]), -np.inf, belief - message[v])
            table = table + correction
        else:
            table = table - message[v]
        joint[v] = table
        mass = np.exp(_log_sum(table, tuple(range(1, table.ndim))))
        probs[v, : mass.size] = mass / mass.sum()
    return probs, log_z


def _aligned(part: tuple[int, ...], values: FloatArray, scope: tuple[int, ...]) -> FloatArray:
    shape = [values.shape[part.index(i)] if i in part else 1 for i in scope]
    return values.reshape(shape)


def _log_sum(table: FloatArray, axes: tuple[int, ...]) -> FloatArray:
    if not axes:
        return table
    top = table.max(axes, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(table - top).sum(axes)) + top.squeeze(axes))
