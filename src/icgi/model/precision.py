"""How finely a model's log weights can be told apart in double precision."""

from typing import NamedTuple

import numpy as np

from icgi.kernels import brief, kernel
from icgi.model.graph import FactorGraph
from icgi.model.wiring import entries_of, wiring

EPSILON = float(np.finfo(np.float64).eps)
LARGE = 1e6  # log weights beyond this are shifted: adding them up would cost digits
MANY = 4096  # mean entries of a table above which tables are looked at one by one, uncopied


class Extent(NamedTuple):
    """How large a model's finite log weights are."""

    largest: float  # magnitude of an entry
    widest: float  # difference between two entries of one table


def extent_of(model: FactorGraph) -> Extent:
    """Largest magnitude and largest range of the finite entries of a model's log tables."""
    entries = entries_of(model)
    if entries > MANY * model.n_factors:
        found = np.array([_extent_of_table(table) for table in model.log_tables])
        return Extent(*(float(x) for x in found.max(0)))
    w = wiring(model)
    with brief(4 * len(w.values)):
        largest, widest = _extent(w.table_start, w.values)
    return Extent(float(largest), float(widest))


def resolution(extent: Extent) -> float:
    """Absolute precision of log weights: ε times the largest finite range of a log table.

    A constant that all entries of a table share does not count, because `shifted` takes it out.
    """
    return EPSILON * extent.widest


def shifted(model: FactorGraph, extent: Extent) -> tuple[FactorGraph, float]:
    """Model whose tables have largest entry 0, if entries beyond ±10^6 ask for it; log of scale.

    1e16 and 1e16 + 2 in one table are told apart by every engine once the table is shifted.
    """
    if extent.largest <= LARGE:
        return model, 0.0
    tops = [float(table.max(initial=-np.inf)) for table in model.log_tables]
    tops = [top if np.isfinite(top) else 0.0 for top in tops]
    tables = tuple(np.asarray(t - top) for t, top in zip(model.log_tables, tops, strict=True))
    return FactorGraph(model.cards, model.scopes, tables, model.names, model.states), sum(tops)


def _extent_of_table(table: np.ndarray) -> tuple[float, float]:
    top = float(table.max(initial=-np.inf))
    low = float(np.min(table, initial=np.inf, where=table > -np.inf))
    return (max(abs(top), abs(low)), top - low) if top > -np.inf else (0.0, 0.0)


@kernel
def _extent(start, values):  # type: ignore[no-untyped-def]
    largest, widest = 0.0, 0.0
    for f in range(len(start) - 1):
        top, low = -np.inf, np.inf
        for e in range(start[f], start[f + 1]):
            if values[e] > -np.inf:
                top = max(top, values[e])
                low = min(low, values[e])
        if top > -np.inf:
            widest = max(widest, top - low)
            largest = max(largest, max(abs(top), abs(low)))
    return largest, widest
