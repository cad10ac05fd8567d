"""Joint marginals of variables of one factor, from the messages at a fixed point."""

from collections.abc import Sequence

import numpy as np

from icgi.approx.flat import FlatModels
from icgi.errors import UnsupportedModelError
from icgi.inference import Scope
from icgi.model.condition import Conditioned
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray, variable_name
from icgi.wording import some


def factor_joints(
    flat: FlatModels,
    belief: FloatArray,
    messages: FloatArray,
    part: Conditioned,
    cards: IntArray,
    scopes: Sequence[Scope],
) -> tuple[FloatArray, ...]:
    """Joint tables of scopes; `part` is the model of the arrays, `cards` are the states before it.

    Raises `UnsupportedModelError` for variables that no factor has together.
    """
    found = [_joint(flat, belief, messages, part.model, scope) for scope in scopes]
    return over_all_states(found, scopes, part.alive, cards)


def over_all_states(
    tables: Sequence[FloatArray], scopes: Sequence[Scope], alive: BoolArray, cards: IntArray
) -> tuple[FloatArray, ...]:
    """Tables of the states that are left, with zeros for the others."""
    found = []
    for scope, table in zip(scopes, tables, strict=True):
        kept = [np.flatnonzero(alive[i]) for i in scope]
        full = np.zeros([int(cards[i]) for i in scope])
        full[np.ix_(*kept)] = table.reshape([len(states) for states in kept])
        found.append(full)
    return tuple(found)


def _joint(
    flat: FlatModels, belief: FloatArray, messages: FloatArray, model: FactorGraph, scope: Scope
) -> FloatArray:
    """Joint table of a scope over the states that are left."""
    free = [i for i in scope if model.cards[i] > 1]
    if not free:
        return np.ones(1)
    if len(free) == 1:
        return _marginal(flat, belief, free[0])
    factor = _factor_of(flat, free)
    if factor is None:
        named = some(variable_name(model, i) for i in scope)
        raise UnsupportedModelError(
            f"no factor has {named} together, so belief propagation says nothing about them "
            "jointly; use jt, ttve or pt"
        )
    return _factor_belief(flat, belief, messages, factor, free)


def _marginal(flat: FlatModels, belief: FloatArray, i: int) -> FloatArray:
    ratios = belief[flat.ratio_start[i] : flat.ratio_start[i + 1]]
    weight = np.concatenate([[0.0], ratios])
    weight = np.exp(weight - weight.max())
    return np.asarray(weight / weight.sum())


def _factor_of(flat: FlatModels, free: Sequence[int]) -> int | None:
    """Smallest factor that has all of some variables."""
    lists = [flat.touching[flat.touching_start[i] : flat.touching_start[i + 1]] for i in free]
    shared = set(lists[0].tolist()).intersection(*(part.tolist() for part in lists[1:]))
    width = np.diff(flat.edge_start)
    return min(shared, key=lambda f: (int(width[f]), f), default=None)


def _factor_belief(
    flat: FlatModels, belief: FloatArray, messages: FloatArray, factor: int, free: Sequence[int]
) -> FloatArray:
    """b_f ∝ exp(θ_f / ρ_f) Π_i b_i / m_{f→i}, summed to some of its variables in their order."""
    edges = range(int(flat.edge_start[factor]), int(flat.edge_start[factor + 1]))
    scope = [int(flat.variable[e]) for e in edges]
    shape = [int(flat.ratio_start[i + 1] - flat.ratio_start[i]) + 1 for i in scope]
    begin = int(flat.value_start[factor])
    log = flat.values[begin : begin + int(np.prod(shape))].reshape(shape) / flat.rho[factor]
    for a, (e, i) in enumerate(zip(edges, scope, strict=True)):
        ratios = belief[flat.ratio_start[i] : flat.ratio_start[i + 1]]
        incoming = messages[flat.message_start[e] : flat.message_start[e + 1]]
        row = np.concatenate([[0.0], ratios - incoming])
        log += row.reshape([-1 if b == a else 1 for b in range(len(shape))])
    weight = np.exp(log - log.max())
    gone = tuple(a for a, i in enumerate(scope) if i not in free)
    left = [i for i in scope if i in free]
    table = np.transpose(weight.sum(gone), [left.index(i) for i in free])
    return np.ascontiguousarray(table / table.sum())
