"""Private variables, those of a single factor, are summed into it, again and again.

What is left is the remainder of a model: one table for every set of variables that still share a
factor. No table grows, and the joint of a scope of the remainder leads back to every variable that
was summed out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from icgi.clock import Deadline
from icgi.model.graph import FactorGraph, FloatArray

Scope = tuple[int, ...]  # ascending numbers of variables
Joint = Callable[[Scope], FloatArray]  # probabilities of the states of a scope


@dataclass(frozen=True, eq=False, slots=True)
class Remainder:
    """What is left of a model, and the conditionals that lead back to the rest."""

    tables: dict[Scope, FloatArray]  # log tables, one for each scope, largest entry zero
    constant: float  # logarithm of what was taken out of all of them
    steps: tuple[tuple[int, Scope, FloatArray], ...]  # variable, its neighbours, p(x | neighbours)

    def wanted(self) -> list[Scope]:
        """Scopes of the remainder whose joints lead back to the variables that were summed out."""
        gone = {i for i, _, _ in self.steps}
        scopes = {scope for _, scope, _ in self.steps if scope and gone.isdisjoint(scope)}
        return sorted(scopes)

    def descend(self, joint: Joint, probs: FloatArray) -> None:
        """Write the marginals of all variables that were summed out into their rows."""
        joints: dict[int, tuple[Scope, FloatArray]] = {}
        turn = {step[0]: t for t, step in enumerate(self.steps)}
        for i, scope, conditional in reversed(self.steps):
            above = _joint_above(scope, joint, joints, turn)
            both = conditional * above
            probs[i] = 0.0
            probs[i, : len(both)] = both.reshape(len(both), -1).sum(1)
            joints[i] = (i, *scope), both


def find_remainder(model: FactorGraph, deadline: Deadline | None = None) -> Remainder | None:
    """Sum out private variables until none is left; None when the time is over."""
    within = deadline or Deadline()
    tables, unary, constant = _together(model)
    holders: list[set[Scope]] = [set() for _ in unary]
    for scope in tables:
        for i in scope:
            holders[i].add(scope)
    free = model.cards > 1
    waiting = [i for i in range(len(unary)) if free[i] and len(holders[i]) <= 1]
    steps = []
    gone = set()
    while waiting:
        if within.passed:
            return None
        i = waiting.pop()
        if i in gone:
            continue
        gone.add(i)
        scope, table = (i,), unary[i]
        if holders[i]:
            scope = holders[i].pop()
            axis = scope.index(i)
            table = np.moveaxis(tables.pop(scope), axis, 0)
            table = table + unary[i].reshape(-1, *[1] * (table.ndim - 1))
        rest = tuple([j for j in scope if j != i])
        message, conditional = _summed(table)
        steps.append((i, rest, conditional))
        if len(rest) == 0:
            constant += float(message)
        elif len(rest) == 1:
            unary[rest[0]] = unary[rest[0]] + message
        else:
            tables[rest] = tables[rest] + message if rest in tables else message
        for j in rest:
            holders[j].discard(scope)
            if len(rest) > 1:
                holders[j].add(rest)
            if len(holders[j]) <= 1:
                waiting.append(j)
    tables |= {(i,): unary[i] for i in np.flatnonzero(free).tolist() if i not in gone}
    constant += sum(float(unary[i][0]) for i in np.flatnonzero(~free).tolist())
    for scope, table in tables.items():
        top = float(table.max())
        if np.isfinite(top):
            tables[scope] = table - top
            constant += top
    return Remainder(tables, constant, tuple(steps))


def _together(model: FactorGraph) -> tuple[dict[Scope, FloatArray], list[FloatArray], float]:
    """One table for each set of variables, in ascending order; one for each variable; the rest."""
    tables: dict[Scope, FloatArray] = {}
    unary = [np.zeros(card) for card in model.cards.tolist()]
    constant = 0.0
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if len(scope) == 0:
            constant += float(table)
        elif len(scope) == 1:
            unary[scope[0]] = unary[scope[0]] + table
        else:
            order = sorted(range(len(scope)), key=scope.__getitem__)
            ascending = tuple([scope[a] for a in order])
            moved = table if ascending == scope else table.transpose(order)
            known = tables.get(ascending)
            tables[ascending] = moved if known is None else known + moved
    return tables, unary, constant


def _summed(table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithm of the sum over the first axis, and each entry's share of it."""
    top = table.max(0)
    shift = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(table - shift)
    total = weights.sum(0)
    with np.errstate(divide="ignore"):
        return np.log(total) + shift, weights / np.where(total > 0, total, 1.0)


def _joint_above(
    scope: Scope, joint: Joint, joints: dict[int, tuple[Scope, FloatArray]], turn: dict[int, int]
) -> FloatArray:
    """Joint of a scope: from the remainder, or from the first of its variables to be summed out."""
    gone = [i for i in scope if i in turn]
    if not gone:
        return joint(scope) if scope else np.ones(())
    held, table = joints[min(gone, key=turn.__getitem__)]
    order = [held.index(i) for i in scope]
    rest = tuple(a for a in range(len(held)) if a not in order)
    return np.asarray(table.sum(rest)).transpose(np.argsort(np.argsort(order)))
