"""What exact inference would cost: the one figure that is printed, compared and kept.

The order search may take `SEARCH_SHARE` of the time, everywhere. Along the order it finds, the
tables are laid out (not allocated) and counted: messages, factors, the sums of both halves of a
sweep, and the marginals. The few models whose numbers leave the range of doubles need the largest
clique besides; that is checked against the budget when it comes to it.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from icgi.errors import BudgetError
from icgi.exact.axes import HALVES
from icgi.exact.tree import Plan, plan
from icgi.inference import Budget
from icgi.model.graph import FactorGraph
from icgi.model.ordering import Order, cost, find_order
from icgi.model.wiring import entries_of
from icgi.units import readable_bytes, readable_seconds

if TYPE_CHECKING:
    from icgi.exact.forms import Form

SEARCH_SHARE = 0.1  # of the seconds that are left, for the search of an order
BEYOND = 2.0**24  # times the budget: the longest searches were seen to save a factor of 2^16
PLANNED = 2**36  # separator entries up to which the exact memory is worked out

# Seconds of both passes, on one processor that others use, too: see benchmarks/memory.py.
ENTRIES_PER_SECOND = 2e8  # clique entries, each visited twice
SECONDS_PER_NODE = 4e-6  # of the tree, however small its tables
SECONDS_PER_FACTOR = 1e-6  # copied one by one
VALUES_PER_SECOND = 4e7  # exponentials of table entries


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """What exact inference would cost along an order, known before anything is allocated."""

    order: Order
    table_bytes: float  # peak of all that is held at once
    seconds: float
    plan: Plan | None = None  # the layout, where it was worked out
    forms: "tuple[Form, ...]" = ()  # what structure allows; the first is what is forecast here
    plain: "Forecast | None" = None  # of the model as it is, where `forms` has a cheaper one

    @property
    def log2_table(self) -> float:
        """log₂ of the entries of the largest table."""
        return self.forms[0].log2_table if self.forms else self.order.log2_table

    @property
    def structure(self) -> str:
        """What was found in the factors, in words; empty where the model is taken as it is."""
        return self.forms[0].words if self.forms else ""

    @property
    def logarithms(self) -> "Forecast":
        """Same along logarithms, which form the largest clique."""
        extra = 0
        if self.plan is not None:
            sums = int(self.plan.tree.size.max(initial=1))  # and the largest terms of as many
            extra = 8 * (self.plan.largest_clique + 2 * sums)
        return replace(self, table_bytes=self.table_bytes + extra)

    def stats(self, made: Plan) -> dict[str, float]:
        """What an answer along this order says of its tables."""
        return {
            "width": self.order.width,
            "log2_largest_table": self.order.log2_table,
            "table_entries": made.clique_entries,
            "bytes": self.table_bytes,
        }

    def fits(self, budget: Budget) -> bool:
        """Whether exact inference keeps within the budget's memory and time."""
        return self.table_bytes <= budget.table_bytes and self.seconds <= budget.seconds

    def _widths(self) -> str:
        width, largest = self.order.width, self.order.log2_table
        return f"induced width {width}, largest table 2^{largest:.1f} entries"

    def refuse_beyond(self, budget: Budget) -> None:
        """Raise `BudgetError` when exact inference would exceed the memory or the time."""
        if self.table_bytes > budget.table_bytes:
            raise BudgetError(
                f"exact inference needs {readable_bytes(self.table_bytes)} for its tables "
                f"({self.structure or self._widths()}), "
                f"the budget is {readable_bytes(budget.table_bytes)}; give a larger memory budget, "
                "or use an approximate engine (ttve, pt, gbp, lbp)"
            )
        if self.seconds > budget.seconds:
            raise BudgetError(
                f"exact inference would take about {readable_seconds(self.seconds)} ({self}), of "
                f"the budget {readable_seconds(budget.seconds)} are left; give more seconds, or "
                "use an approximate engine (ttve, pt, gbp, lbp)"
            )

    def __str__(self) -> str:
        if self.forms:
            return (
                f"{self.structure}, tables {readable_bytes(self.table_bytes)}, about "
                f"{readable_seconds(self.seconds)}"
            )
        return (
            f"induced width {self.order.width}, largest table 2^{self.order.log2_table:.1f}, "
            f"tables {readable_bytes(self.table_bytes)}, about {readable_seconds(self.seconds)}"
        )


def forecast(
    model: FactorGraph,
    budget: Budget,
    rng: Generator,
    share: float = SEARCH_SHARE,
    work: float = math.inf,
) -> Forecast:
    """Search an elimination order and predict what exact inference along it would cost.

    The search may take that share of the time, and at most so many seconds of counted `work`.
    """
    seconds = share * budget.seconds
    order = find_order(model, rng, seconds=seconds, hopeless=hopeless(budget), work=work)
    return along(model, order)


def along(model: FactorGraph, order: Order) -> Forecast:
    """Cost of exact inference along an order whose own cost is known."""
    entries = entries_of(model)
    overhead = model.n_factors * SECONDS_PER_FACTOR + entries / VALUES_PER_SECOND
    if not order.message_entries < PLANNED:  # the plan itself would be large, and cannot help
        work = 2.0 * 2.0**order.log2_entries if order.log2_entries < 1000 else math.inf
        return Forecast(order, 8 * order.message_entries, overhead + work / ENTRIES_PER_SECOND)
    made = plan(model, order.variables)
    seconds = 2.0 * made.clique_entries / ENTRIES_PER_SECOND
    seconds += SECONDS_PER_NODE * len(made.tree.nodes) + overhead
    return Forecast(order, bytes_needed(model, made), seconds, made)


def recosted(model: FactorGraph, order: Order) -> Forecast:
    """Cost of an order on another model of the same variables, such as a conditioned one."""
    return along(model, cost(model, order.variables, order.heuristic))


def hopeless(budget: Budget) -> float:
    """log₂ of the entries of a greedy order that no search would bring down to any memory."""
    # With a small budget a search still tells how much memory to ask for instead.
    return float(np.log2(BEYOND * max(budget.table_bytes, Budget().table_bytes) / 8))


def bytes_needed(model: FactorGraph, made: Plan) -> float:
    """Peak of what `junction_tree.solve` holds at once.

    Filling the store needs the factors twice; the passes need the store, the sums of two halves,
    and either a small clique or what two halves know of a block. Marginals are held twice: by time
    and by number.
    """
    tree = made.tree
    factors = entries_of(model)
    formed = made.formed_entries
    passes = made.store_entries + HALVES * made.scratch_entries + max(formed, made.sweep_entries)
    marginals = 2 * model.n_variables * max(model.max_states, 1)
    layout = sum(array.nbytes for array in tree) + made.time.nbytes + made.factor_data.nbytes
    return float(8 * (max(passes, 2 * factors) + marginals) + layout)
