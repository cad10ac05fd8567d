"""Reading models into flat arrays within a deadline, and the answer where there was no time to.

A model may have millions of factors, each a Python object: copying their tables takes a second.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import TypeAlias, TypeVar

import numpy as np

from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray, starts
from icgi.model.reduce import all_states
from icgi.model.wiring import Wiring, wiring

CHUNK = 2**15  # tables copied between two looks at the clock
NEVER = Deadline()
SMALL = 2**16  # factors and table entries of models that are prepared whatever the clock says

T = TypeVar("T")
Scopes: TypeAlias = Sequence[tuple[int, ...]]
Tables: TypeAlias = Sequence[FloatArray]


class TimeSpent(Exception):
    """The deadline passed during a preparation; never leaves this room."""


def check(deadline: Deadline) -> None:
    """Raise `TimeSpent` once the deadline has passed."""
    if deadline.passed:
        raise TimeSpent


def watched(items: Iterable[T], deadline: Deadline) -> Iterator[T]:
    """The same items; `TimeSpent` as soon as the deadline has passed."""
    for count, item in enumerate(items):
        if count % 512 == 0 and deadline.passed:
            raise TimeSpent
        yield item


def patient(models: Sequence[FactorGraph], deadline: Deadline) -> Deadline:
    """Deadline of the preparation: none for small models, which take milliseconds."""
    factors = sum(model.n_factors for model in models)
    if factors > SMALL or sum(t.size for model in models for t in model.log_tables) > SMALL:
        return deadline
    return Deadline()


def side_by_side(models: Sequence[FactorGraph], deadline: Deadline = NEVER) -> Wiring:
    """All models as one: variables and factors are renumbered one model after the other."""
    if len(models) == 1 and models[0].flat is not None:
        return wiring(models[0])
    scopes, tables = _listed(models)
    arity = np.fromiter(map(len, scopes), np.int64, len(scopes))
    first = starts(np.array([model.n_variables for model in models], np.int64))[:-1]
    scope = np.fromiter(chain.from_iterable(scopes), np.int64, int(arity.sum()))
    if len(models) > 1:
        scope += np.repeat(np.repeat(first, [model.n_factors for model in models]), arity)
    check(deadline)
    cuts = starts(np.fromiter(map(attrgetter("size"), tables), np.int64, len(tables)))
    values = np.empty(cuts[-1])
    for a in range(0, len(tables), CHUNK):
        b = min(a + CHUNK, len(tables))
        np.concatenate(tables[a:b], axis=None, out=values[cuts[a] : cuts[b]])
        check(deadline)
    cards = np.concatenate([np.empty(0, np.int64), *(model.cards for model in models)])
    return Wiring(cards, starts(arity), scope, cuts, values)


def _listed(models: Sequence[FactorGraph]) -> tuple[Scopes, Tables]:
    if len(models) == 1:
        return models[0].scopes, models[0].log_tables
    scopes = tuple(chain.from_iterable(model.scopes for model in models))
    return scopes, tuple(chain.from_iterable(model.log_tables for model in models))


def from_fields(model: FactorGraph) -> Marginals:
    """What unary factors alone say, p_i(x) ∝ exp Σ θ_i(x): the answer without time for any other.

    The engines are given models without impossible states; only zeros that unary factors still
    show are heeded here.
    """
    score = np.where(all_states(model), 0.0, -np.inf)
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if len(scope) == 1:
            score[scope[0], : table.size] += table
    top = score.max(1, initial=-np.inf, keepdims=True)
    possible = np.where(all_states(model), 0.0, -np.inf)
    score = np.where(top > -np.inf, score - np.where(top > -np.inf, top, 0.0), possible)
    probs = np.exp(score)
    probs /= probs.sum(1, keepdims=True)
    stats = {"sweeps": 0.0, "residual": math.inf}
    return Marginals(probs, Status.BUDGET_SPENT, stats=stats)


def require_bytes(needed: float, budget: Budget, what: str, advice: str) -> None:
    """Raise `BudgetError` before an engine allocates more than it may."""
    if needed > budget.table_bytes:
        raise BudgetError(
            f"{what} need about {needed / 2**20:,.0f} MiB, but the budget allows "
            f"{budget.table_bytes / 2**20:,.0f} MiB; {advice}"
        )
