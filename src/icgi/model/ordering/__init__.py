"""Elimination orders: greedy rules, a search by counted work, and the exact cost of any order.

Eliminating a variable joins its neighbours. The table of that step ranges over the variable and its
neighbours of the moment (its clique); the least sum of these tables is what a search looks for.
"""

from icgi.model.ordering.graph import neighbours
from icgi.model.ordering.search import (
    HEURISTICS,
    RULES,
    SWEEPS,
    Order,
    cost,
    find_order,
    greedy_order,
)

__all__ = [
    "HEURISTICS",
    "RULES",
    "SWEEPS",
    "Order",
    "cost",
    "find_order",
    "greedy_order",
    "neighbours",
]
