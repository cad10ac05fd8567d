"""Errors of eliminated factors and of the marginal in the end, for the theorem on their relation.

Small binary models are eliminated with dense tables; every new factor is normalised, replaced by a
worse one, and normalised again (the paper's approximate operator). Beside Σ_t ε_t stands a bound
that is true: with ψ_t what the new factor will be multiplied with, summed over all later
variables, and Z_t = Σ φ^(t) ψ_t,

    ‖p̂ − p‖₁ ≤ Σ_t 2 ε_t max ψ_t / Z_t.

Each term bounds what one replacement changes, the division by Z included; the paper leaves out
max ψ_t / Z_t, which is large where the factor and the rest disagree.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.model.graph import FactorGraph, FloatArray
from icgi.tt.train import decompose, dense

Worse = Callable[[FloatArray], FloatArray]
"""A factor that sums to one → another one over the same variables."""

Factor = tuple[tuple[int, ...], FloatArray]


@dataclass(frozen=True, slots=True)
class Propagated:
    """What became of the errors of every step in the marginal of one variable."""

    error: float  # ‖p̂ − p‖₁
    steps: FloatArray  # t  ε_t = ‖φ^(t) − φ̃^(t)‖₁
    amplification: FloatArray  # t  max ψ_t / Z_t

    @property
    def linear(self) -> float:
        """Σ_t ε_t, the bound of the paper."""
        return float(self.steps.sum())

    @property
    def divided(self) -> float:
        """Σ_t 2 ε_t max ψ_t / Z_t."""
        return float((2 * self.steps * self.amplification).sum())


def rounding(rank: int) -> Worse:
    """Tensor train of at most so much rank; negative entries are set to zero."""

    def worse(factor: FloatArray) -> FloatArray:
        if factor.ndim < 2:
            return factor
        kept = np.maximum(dense(decompose(factor, rank=rank)), 0.0)
        return np.asarray(kept if kept.sum() > 0 else np.ones_like(factor))

    return worse


def mixing(share: float, rng: Generator) -> Worse:
    """Mix in a share of a random distribution, as a prediction might err."""
    return lambda factor: np.asarray(
        (1 - share) * factor + share * rng.dirichlet(np.ones(factor.size)).reshape(factor.shape)
    )


def propagate(model: FactorGraph, order: Sequence[int], worse: Worse) -> Propagated:
    """Eliminate along an order, the last of which is the variable whose marginal is wanted."""
    exact = [(s, np.exp(t)) for s, t in zip(model.scopes, model.log_tables, strict=True)]
    factors: list[Factor] = list(exact)
    steps, amplification = [], []
    for k, v in enumerate(order[:-1]):
        touched = [f for f in factors if v in f[0]]
        rest = [f for f in factors if v not in f[0]]
        scope = tuple(sorted({i for s, _ in touched for i in s} - {v}))
        new = _sum(touched, scope)
        new = new / new.sum()
        other = worse(new)
        other = other / other.sum()
        steps.append(float(np.abs(new - other).sum()))
        later = [i for i in order[k + 1 :] if i not in scope]
        context = _sum([*rest, *[((i,), np.ones(int(model.cards[i]))) for i in later]], scope)
        context = np.broadcast_to(context, new.shape)
        amplification.append(float(context.max() / (context * new).sum()))
        factors = [*rest, (scope, other)]
    target = (order[-1],)
    found, truth = _sum(factors, target), _sum(exact, target)
    error = np.abs(found / found.sum() - truth / truth.sum()).sum()
    return Propagated(float(error), np.array(steps), np.array(amplification))


def _sum(factors: Sequence[Factor], keep: tuple[int, ...]) -> FloatArray:
    """Product of factors, summed over everything but some variables; scaled against overflow."""
    operands: list[object] = []
    present = {i for scope, _ in factors for i in scope}
    for scope, table in factors:
        operands += [table / table.max(), list(scope)]
    out = [i for i in keep if i in present]
    shape = [
        next(t.shape[s.index(i)] for s, t in factors if i in s) if i in present else 1 for i in keep
    ]
    if not operands:
        return np.ones([1] * len(keep))
    return np.asarray(np.einsum(*operands, out, optimize="greedy")).reshape(shape)  # type: ignore[call-overload]
