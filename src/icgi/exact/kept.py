"""A bucket tree with its messages kept: what joints, explanations and draws are read from."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from icgi.errors import BudgetError, EvidenceError
from icgi.exact import walks
from icgi.exact.forecast import Forecast, along
from icgi.exact.tree import Plan, fill_store, plan
from icgi.inference import Budget
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ordering import Order
from icgi.units import readable_seconds

SLOWER = 8.0  # times the seconds of the linear passes: logarithms, and every clique formed


@dataclass(frozen=True, eq=False, slots=True)
class Kept:
    """Messages towards the root of a model's bucket tree, and what they add up to."""

    made: Plan
    order: IntArray
    store: FloatArray
    log_total: float  # log Z, or the log weight of the likeliest configuration

    def likeliest(self) -> IntArray:
        """Configuration of largest weight; `collected` must have maximised."""
        x = np.zeros(len(self.order), np.int64)
        if len(x):
            walks.decode(self.made.tree, self.store, x)
        return self._by_number(x)

    def draws(self, n: int, rng: Generator) -> IntArray:
        """Independent configurations s n; `collected` must have summed."""
        x = np.zeros((n, len(self.order)), np.int64)
        if x.size:
            walks.draw(self.made.tree, self.store, rng.random((len(self.order), n)), x)
        return self._by_number(x)

    def _by_number(self, x: IntArray) -> IntArray:
        found = np.empty_like(x)
        found[..., self.order] = x
        return found


def forecast_kept(model: FactorGraph, order: Order, both: bool) -> Forecast:
    """Cost of messages on logarithms that are kept, in one direction or in both."""
    ahead = along(model, order).logarithms
    extra = 0.0
    if ahead.plan is not None and both:
        extra = 8.0 * (ahead.plan.store_entries + ahead.plan.largest_clique)
    return replace(ahead, table_bytes=ahead.table_bytes + extra, seconds=SLOWER * ahead.seconds)


def collected(model: FactorGraph, ahead: Forecast, budget: Budget, maximise: bool = False) -> Kept:
    """Messages towards the root as forecast; `BudgetError` where that is beyond the budget."""
    ahead.refuse_beyond(budget)
    made = ahead.plan or plan(model, ahead.order.variables)
    store, shift = fill_store(model, made, log=True)
    buffer = np.empty(made.largest_clique)
    with budget.deadline().flag() as stop:
        total = walks.collect(made.tree, store, buffer, maximise, stop)
    if math.isnan(total):
        raise BudgetError(
            f"exact inference did not end within the {readable_seconds(budget.seconds)} that were "
            "left for it; give more seconds, or use an approximate engine (ttve, pt, lbp)"
        )
    if total == -np.inf or shift == -np.inf:
        raise EvidenceError(
            "no configuration has non-zero probability; check the evidence against the zeros of "
            "the model"
        )
    return Kept(made, ahead.order.variables, store, float(total) + shift)
