"""What elimination leaves, summed exactly as soon as a junction tree of it is small.

Every step in closed form may lose something, and the last steps, among spins that many others have
left couplings on, lose most. So elimination stops at the first look at which the rest fits: a
lattice of moderate width is never approximated at all, a sparse graph hardly.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.exact.forecast import ENTRIES_PER_SECOND, along
from icgi.exact.joints import exact_joints
from icgi.exact.junction_tree import AlongForecast
from icgi.inference import Budget, Marginals
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ising import ising_model
from icgi.model.ordering import Order, find_order

EVERY = 4  # eliminations between two looks at what is left
SHARE = 0.3  # of the time of an answer for models that are summed as they are
HOPELESS = 6.0  # log₂ of how much larger than allowed a first order may be, to search a better one
SCALE, LEAST = 1e8, 1e-6  # α₀ of answers that are exact, and α of a state that is all but excluded


@dataclass(frozen=True, slots=True)
class ExactRest:
    """Junction trees whose largest table has at most 2^`log2_table` entries.

    A whole model may also have a larger one where that is forecast to take no longer than one
    approximate elimination of it.
    """

    log2_table: int
    deadline: Deadline
    table_bytes: int = 2**32  # of all tables of a tree

    def whole(self, model: FactorGraph, worth: float = 0.0) -> Marginals | None:
        """Exact marginals of a model as it is; None where its tree is too large.

        `worth` are the seconds that an approximation would take.
        """
        rng = np.random.default_rng(0)
        worth = min(worth, self.deadline.left)
        most = max(float(self.log2_table), math.log2(max(worth * ENTRIES_PER_SECOND, 1.0)))
        order = find_order(model, rng, self.deadline.left, hopeless=most + HOPELESS)
        if order.log2_table > most:
            return None
        ahead = along(model, order)
        if order.log2_table > self.log2_table and ahead.seconds > worth:
            return None
        budget = Budget(table_bytes=self.table_bytes).until(self.deadline)
        try:
            found = AlongForecast(ahead)(model, budget, rng)
        except BudgetError:
            return None
        stats = {"orders": 0.0, "core": float(model.n_variables), "patches": 0.0,
                 "answered": 1.0, "fallback": 0.0}  # fmt: skip
        alpha = np.maximum(SCALE * found.probs, LEAST) * (found.probs > 0)
        return replace(found, concentration=alpha, stats=stats)

    def split(
        self, models: Sequence[FactorGraph], worth: Callable[[FactorGraph], float]
    ) -> tuple[dict[int, Marginals], list[int]]:
        """Answers of the models that can be summed, and the numbers of the others."""
        found = {k: self.whole(model, worth(model)) for k, model in enumerate(models)}
        done = {k: answer for k, answer in found.items() if answer is not None}
        return done, [k for k in found if k not in done]

    def _order(self, model: FactorGraph) -> Order | None:
        """Order whose tables fit."""
        rng = np.random.default_rng(0)
        order = find_order(model, rng, self.deadline.left, restarts=0)
        return order if order.log2_table <= self.log2_table else None

    def spins(
        self, couplings: FloatArray, fields: FloatArray
    ) -> tuple[FloatArray, FloatArray] | None:
        """Means (n) and covariances (n n) of an Ising model; None where its tree is too large.

        Covariances of spins that are not coupled stay zero: spins that come back have neighbours
        that are coupled to each other, and read no others.
        """
        i, j = np.nonzero(np.triu(couplings, 1))
        model = ising_model((np.stack([i, j], 1), couplings[i, j]), fields)
        order = self._order(model)
        if order is None:
            return None
        scopes = [(k,) for k in range(len(fields))] + list(zip(i.tolist(), j.tolist(), strict=True))
        budget = Budget(table_bytes=self.table_bytes).until(self.deadline)
        try:
            found = exact_joints(model, scopes, budget, np.random.default_rng(0), order)
        except BudgetError:
            return None
        tables = found.tables
        n = len(fields)
        mean = np.array([p[1] - p[0] for p in tables[:n]])
        covariance = np.diag(1.0 - mean * mean)
        if len(i):
            both = np.stack(tables[n:])
            together = both[:, 1, 1] + both[:, 0, 0] - both[:, 0, 1] - both[:, 1, 0]
            covariance[i, j] = covariance[j, i] = together - mean[i] * mean[j]
        return mean, covariance
