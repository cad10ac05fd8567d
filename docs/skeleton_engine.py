"""A whole engine on one screen: copy it, say its idea in this line, change the three functions."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray


@dataclass(frozen=True, slots=True)
class Skeleton:
    """q_i(x) ∝ exp Σ_{f∋i} mean θ_f: every variable on its own, neighbours averaged out."""

    damping: float = 0.0
    tolerance: float = 1e-6

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Estimate every marginal; an ordinary model, no evidence."""
        probs = start(model)
        residual, sweeps = np.inf, 0
        while residual > self.tolerance and sweeps < budget.iterations:
            updated = self.damping * probs + (1.0 - self.damping) * sweep(model, probs)
            residual = float(np.abs(updated - probs).max(initial=0.0))
            probs, sweeps = updated, sweeps + 1
        status = Status.CONVERGED if residual <= self.tolerance else Status.BUDGET_SPENT
        return Marginals(probs, status, stats={"sweeps": sweeps, "residual": residual})


def start(model: FactorGraph) -> FloatArray:
    """Uniform over the states of each variable."""
    has = np.arange(model.max_states) < model.cards[:, None]  # n k
    return np.asarray(has / model.cards[:, None])


def sweep(model: FactorGraph, probs: FloatArray) -> FloatArray:
    """One update of all variables from their factors alone."""
    score = np.where(probs > 0, 0.0, -np.inf)  # n k
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        for axis, i in enumerate(scope):
            others = tuple(a for a in range(len(scope)) if a != axis)
            score[i, : table.shape[axis]] += np.log(np.exp(table).mean(axis=others) + 1e-300)
    weights = np.exp(score - score.max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True))
