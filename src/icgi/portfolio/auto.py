"""`auto`: say what exact inference would cost, and take it whenever it fits the budget."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.errors import BudgetError
from icgi.exact.junction_tree import AlongOrder, JunctionTree, check_memory, readable_bytes, solve
from icgi.exact.tree import plan
from icgi.inference import Budget, Engine, Marginals
from icgi.model.graph import FactorGraph
from icgi.model.ordering import Order, find_order

BEYOND = 2.0**24  # times the budget: the longest searches were seen to save a factor of 2^16
PLANNED = 2**36  # separator entries up to which the exact memory is worked out
YEAR = 365.25 * 86400
ENTRIES_PER_SECOND = 3e8  # both passes of the junction tree, measured low on two cores


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """What exact inference would cost, known before anything is allocated."""

    order: Order
    table_bytes: float
    seconds: float

    def fits(self, budget: Budget) -> bool:
        """Whether exact inference keeps within the budget's memory and time."""
        return self.table_bytes <= budget.table_bytes and self.seconds <= budget.seconds

    def __str__(self) -> str:
        return (
            f"induced width {self.order.width}, largest table 2^{self.order.log2_table:.1f}, "
            f"tables {readable_bytes(self.table_bytes)}, about {readable_seconds(self.seconds)}"
        )


def forecast(
    model: FactorGraph, rng: Generator, seconds: float = np.inf, hopeless: float = np.inf
) -> Forecast:
    """Search an elimination order and predict what exact inference along it would cost."""
    order = find_order(model, rng, seconds=seconds, hopeless=hopeless)
    if order.message_entries < PLANNED:
        needed: float = plan(model, order.variables).bytes_needed
    else:
        needed = 8 * order.message_entries  # the plan itself would be large, and cannot help
    work = 2.0 * 2.0 ** min(order.log2_entries, 1000.0)
    return Forecast(order, needed, work / ENTRIES_PER_SECOND)


def hopeless(budget: Budget) -> float:
    """log₂ of the entries of a greedy order that no search would bring down to any memory."""
    # With a small budget a search still tells how much memory to ask for instead.
    return float(np.log2(BEYOND * max(budget.table_bytes, Budget().table_bytes) / 8))


def readable_seconds(count: float) -> str:
    """Format a duration as a person says it: 0.01 s, 12 min, 10^12 years."""
    if count < 0.01:
        return "0.01 s"
    if count >= 1e9 * YEAR:
        return f"10^{np.log10(count / YEAR):.0f} years"
    units = (("years", YEAR), ("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
    unit, size = next((u for u in units if count >= 2 * u[1]), units[-1])
    value = count / size
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"


@dataclass(frozen=True, slots=True)
class Auto:
    """Exact whenever it fits the budget; otherwise a clear refusal that says what it would take."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Forecast, then the junction tree or `BudgetError`."""
        share = JunctionTree().search_share
        ahead = forecast(model, rng, share * budget.seconds, hopeless(budget))
        refuse_beyond(ahead, budget)
        return solve(model, ahead.order, budget)

    def prepared(self, model: FactorGraph, budget: Budget, rng: Generator) -> Engine:
        """Same engine with one order for many evidences, where exact fits without any evidence."""
        share = JunctionTree().search_share
        ahead = forecast(model, rng, share * budget.seconds, hopeless(budget))
        return AlongOrder(ahead.order) if ahead.fits(budget) else self


def refuse_beyond(ahead: Forecast, budget: Budget) -> None:
    """Raise `BudgetError` when exact inference would exceed the memory or the time."""
    check_memory(ahead.order, ahead.table_bytes, budget)
    if not ahead.fits(budget):
        raise BudgetError(
            f"exact inference would take about {readable_seconds(ahead.seconds)} ({ahead}), "
            f"the budget is {readable_seconds(budget.seconds)}; raise --seconds, or use an "
            "approximate engine (ttve, pt, gbp, lbp)"
        )
