"""The junction tree of a model without its barren variables, which come back in batches."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.exact.junction_tree import JunctionTree, solve
from icgi.inference import Budget, Marginals
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ordering import find_order
from icgi.model.structure.barren import find_barren, plan_batches
from icgi.model.structure.split import split_products


@dataclass(frozen=True, slots=True)
class BarrenJunctionTree:
    """All marginals and log Z, exact: barren variables are never in the way of the others."""

    search_seconds: float = 1.0  # for the order of one batch

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Solve the model without barren variables, then every batch with some put back."""
        deadline = budget.deadline()
        barren = find_barren(model)  # before products split: a split factor sums to nothing plain
        if barren is None:
            return JunctionTree()(model, budget, rng)
        batches, _ = plan_batches(barren, lambda part: _cost(part, rng))
        first = self._solve(barren.model, budget.until(deadline), rng)
        probs = np.zeros((model.n_variables, max(model.max_states, 1)))
        known = np.ones(model.n_variables, np.bool_)
        known[list(barren.variables)] = False
        _enter(probs, first.probs, np.flatnonzero(known))
        stats = dict(first.stats) | {"batches": len(batches), "barren": len(barren.variables)}
        for batch in batches:
            found = self._solve(barren.including(batch), budget.until(deadline), rng)
            _enter(probs, found.probs, np.array(sorted(batch)))
            for name in ("log2_largest_table", "bytes"):
                stats[name] = max(stats[name], found.stats[name])
        return Marginals(probs, first.status, first.log_z, stats=stats)

    def _solve(self, part: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        split = split_products(part)
        return solve(split, find_order(split, rng, self.search_seconds), budget)


def _cost(part: FactorGraph, rng: Generator) -> float:
    return find_order(split_products(part), rng, restarts=0).log2_entries


def _enter(probs: FloatArray, found: FloatArray, rows: np.ndarray) -> None:
    probs[rows, : found.shape[1]] = found[rows]
