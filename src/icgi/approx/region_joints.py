"""Joint marginals of variables of one region, from the beliefs of generalised propagation."""

from collections.abc import Sequence

import numpy as np

from icgi.approx.region_sweeps import State
from icgi.approx.region_tables import Tables
from icgi.approx.regions import Region, RegionGraph
from icgi.errors import UnsupportedModelError
from icgi.inference import Scope
from icgi.model.graph import FactorGraph, FloatArray, variable_name
from icgi.wording import some


def region_joints(
    model: FactorGraph, graph: RegionGraph, t: Tables, s: State, scopes: Sequence[Scope]
) -> tuple[FloatArray, ...]:
    """Joint table of each scope, from the smallest region that holds its free variables.

    Raises `UnsupportedModelError` for variables that no region has together.
    """
    regions = [*graph.inner, *graph.outer]
    holders: dict[int, set[int]] = {}
    for r, region in enumerate(regions):
        for i in region:
            holders.setdefault(i, set()).add(r)
    tables = []
    for scope in scopes:
        free = [i for i in scope if model.cards[i] > 1]
        if not free:
            tables.append(np.ones([1] * len(scope)))
            continue
        shared = set.intersection(*(holders.get(i, set()) for i in free))
        chosen = min(shared, key=lambda r: (len(regions[r]), r), default=None)
        if chosen is None:
            named = some(variable_name(model, i) for i in scope)
            raise UnsupportedModelError(
                f"gbp: no region has {named} together, so it says nothing about them jointly; use "
                "larger regions (regions=clusters,ibound=…), or jt, ttve or pt"
            )
        table = _belief(model, regions[chosen], chosen, len(graph.inner), t, s)
        gone = tuple(a for a, i in enumerate(regions[chosen]) if i not in free)
        left = [i for i in regions[chosen] if i in free]
        table = np.transpose(table.sum(gone), [left.index(i) for i in free])
        tables.append(table.reshape([int(model.cards[i]) for i in scope]))
    return tuple(tables)


def _belief(
    model: FactorGraph, region: Region, number: int, inner: int, t: Tables, s: State
) -> FloatArray:
    """Belief of a region over all of its states, zero where none are kept."""
    if number < inner:
        kept = slice(t.state_start[number], t.state_start[number + 1])
        code, belief = t.state_code[kept], s.belief[kept]
    else:
        kept = slice(t.entry_start[number - inner], t.entry_start[number - inner + 1])
        code, belief = t.code[kept], s.joint[kept]
    shape = [int(model.cards[i]) for i in region]
    table = np.zeros(int(np.prod(shape)))
    table[code] = belief
    return np.asarray((table / table.sum()).reshape(shape))
