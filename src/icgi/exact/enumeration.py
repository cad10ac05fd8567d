"""Every configuration, one after the other: the oracle that the other engines are tested by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.errors import BudgetError, EvidenceError, UnsupportedModelError
from icgi.inference import Budget, JointTables, Marginals, Scope, Status
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.units import readable_bytes

LIMIT = 2**22
_HELD = 5  # numbers held for a configuration: weight, number, index, and two on the way


@dataclass(frozen=True, slots=True)
class Enumerate:
    """p(x_i) by summing all configurations; refuses models of more than 2^22 of them."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Sum exp Σ_f θ_f(x_f) over every configuration."""
        count, deadline = _allowed(model, budget), budget.deadline()
        weights, log_z = _weights(model, deadline)
        axes = model.cards.tolist()
        probs = np.zeros((model.n_variables, model.max_states))
        for i, card in enumerate(axes):
            # reshape first: numpy sums over at most 64 axes, and three are enough
            _check(deadline)
            block = weights.reshape(int(np.prod(axes[:i])), card, -1)
            probs[i, :card] = block.sum((0, 2))
        return Marginals(probs, Status.EXACT, log_z, stats={"configurations": count})

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Joint marginals by adding the weight of every configuration to its entry."""
        _allowed(model, budget)
        deadline = budget.deadline()
        weights, log_z = _weights(model, deadline)
        numbers = np.arange(len(weights))
        tables = []
        for scope in scopes:
            _check(deadline)
            cards = [int(model.cards[i]) for i in scope]
            entry = np.bincount(_entries(model, scope, numbers), weights, math.prod(cards))
            tables.append(np.asarray(entry, np.float64).reshape(cards))
        return JointTables(tuple(tables), Status.EXACT, log_z)


def _allowed(model: FactorGraph, budget: Budget) -> float:
    """Return the number of configurations, or refuse."""
    with np.errstate(over="ignore"):  # beyond 10^308 there are infinitely many
        count = float(np.prod(model.cards, dtype=np.float64))
    if count > LIMIT:
        raise UnsupportedModelError(
            f"enumerate: {count:.3g} configurations are more than {LIMIT}; use jt"
        )
    needed = 8 * (_HELD * count + model.n_variables * model.max_states)
    if needed > budget.table_bytes:
        raise BudgetError(
            f"enumerate: {count:.3g} configurations need {readable_bytes(needed)}, the budget "
            f"is {readable_bytes(budget.table_bytes)}; give a larger memory budget, or use jt"
        )
    return count


def _weights(model: FactorGraph, deadline: Deadline) -> tuple[FloatArray, float]:
    """Probability of every configuration, the last variable fastest, and log Z."""
    log_joint = joint(model, deadline)
    top = log_joint.max()
    if top == -np.inf:
        raise EvidenceError(
            "no configuration has non-zero probability; check the evidence against the "
            "zeros of the model"
        )
    weights = np.exp(log_joint - top)
    total = weights.sum()
    return weights / total, float(top + np.log(total))


def _entries(model: FactorGraph, scope: Scope, numbers: IntArray) -> IntArray:
    """Entry of a scope's table for every numbered configuration, the last variable fastest."""
    cards = model.cards
    strides = np.concatenate([np.cumprod(cards[::-1])[::-1][1:], [1]]) if len(cards) else cards
    index = np.zeros(numbers.size, np.int64)
    for i in scope:
        index = index * cards[i] + numbers // strides[i] % cards[i]
    return index


def joint(model: FactorGraph, deadline: Deadline | None = None) -> np.ndarray:
    """Log weight of every configuration, the last variable fastest."""
    total = np.zeros(int(np.prod(model.cards)))
    numbers = np.arange(total.size)
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        _check(deadline)
        total += table.ravel()[_entries(model, scope, numbers)]
    return total


def _check(deadline: Deadline | None) -> None:
    if deadline is not None and deadline.passed:
        raise BudgetError(
            "enumerate: the seconds were over before all configurations were summed; give more "
            "seconds, or use jt"
        )
