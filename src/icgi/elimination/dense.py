"""Exact elimination with dense log tables, of all variables or of some, where tables are small."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from icgi.clock import Deadline
from icgi.errors import EvidenceError
from icgi.model.graph import FactorGraph, FloatArray, IntArray

Factor = tuple[tuple[int, ...], FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """What eliminating the variables of `order` leaves behind.

    A clique is a variable, its neighbours when it goes, and ψ, the product of all that contains it.
    """

    order: IntArray
    scopes: dict[int, tuple[int, ...]]  # the variable first, then in order, those that stay last
    tables: dict[int, FloatArray]  # log ψ
    messages: dict[int, FloatArray]  # log Σ_v ψ, over the rest of the scope
    rest: list[Factor]  # factors of the variables that stay
    log_constant: float


def eliminate_dense(
    model: FactorGraph, order: IntArray, deadline: Deadline | None = None
) -> tuple[FloatArray, float] | None:
    """Marginals n k and log Z along an order: collect into buckets, then distribute.

    Works on logarithms throughout, so any range of potentials and true zeros are fine. None where
    the deadline passes meanwhile.
    """
    collected = collect(model, order, deadline)
    if collected is None:
        return None
    probs = np.zeros((model.n_variables, model.max_states))
    if not distribute(collected, {}, probs, deadline):
        return None
    return probs, collected.log_constant


def collect(
    model: FactorGraph, order: IntArray, deadline: Deadline | None = None
) -> Collected | None:
    """Eliminate the variables of `order`, all or some of the model's; None if out of time."""
    deadline = deadline or Deadline()
    n = model.n_variables
    when = n + np.arange(n)
    when[order] = np.arange(len(order))
    rank = when.tolist()
    buckets: list[list[Factor]] = [[] for _ in range(n)]
    constant = 0.0
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if not scope:
            constant += float(table)
            continue
        axes = sorted(range(len(scope)), key=lambda a: rank[scope[a]])
        ordered = tuple(scope[a] for a in axes)
        buckets[ordered[0]].append((ordered, table.transpose(axes)))
    scopes: dict[int, tuple[int, ...]] = {}
    tables: dict[int, FloatArray] = {}
    messages: dict[int, FloatArray] = {}
    for v in order.tolist():
        if deadline.passed:
            return None
        scope = tuple(sorted({v}.union(*(s for s, _ in buckets[v])), key=rank.__getitem__))
        table = np.zeros([int(model.cards[i]) for i in scope])
        for part, values in buckets[v]:
            table = table + _aligned(part, values, scope)
        tables[v], scopes[v] = table, scope
        messages[v] = _log_sum(table, (0,))
        if len(scope) > 1:
            buckets[scope[1]].append((scope[1:], messages[v]))
        else:
            constant += float(messages[v])
    if constant == -np.inf or any(np.isneginf(m).all() for m in messages.values()):
        raise EvidenceError(
            "no configuration has non-zero probability; check the evidence against the zeros of "
            "the model"
        )
    rest = [factor for i in range(n) if i not in scopes for factor in buckets[i]]
    return Collected(order, scopes, tables, messages, rest, constant)


def distribute(
    collected: Collected,
    given: Mapping[int, FloatArray],
    probs: FloatArray,
    deadline: Deadline | None = None,
) -> bool:
    """Fill in the marginals n k of all eliminated variables, last one first; False if out of time.

    Without a deadline of its own it is the end of an answer, and not stopped with the work.

    p(v, N) = p(N) · ψ(v, N) / Σ_v ψ(v, N); `given` holds log p(N), up to a constant, for each v all
    of whose neighbours stay.
    """
    beliefs: dict[int, FloatArray] = {}
    for v in collected.order[::-1].tolist():
        if deadline is not None and deadline.passed:
            return False
        scope, message = collected.scopes[v], collected.messages[v]
        belief: FloatArray = np.zeros(())
        if len(scope) > 1 and scope[1] in beliefs:
            above = collected.scopes[scope[1]]
            belief = _log_sum(
                beliefs[scope[1]], tuple(a for a, i in enumerate(above) if i not in scope)
            )
        elif len(scope) > 1:
            belief = given[v]
        with np.errstate(invalid="ignore"):
            correction = np.where(np.isneginf(message), -np.inf, belief - message)
        beliefs[v] = collected.tables[v] + correction
        mass = np.exp(_log_sum(beliefs[v], tuple(range(1, len(scope)))))
        probs[v, : mass.size] = mass / mass.sum()
    return True


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
