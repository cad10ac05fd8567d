"""Tables of regions as flat arrays: what the sweeps of generalised belief propagation read.

Entries that zeros exclude are not stored, so that every belief is positive and needs no case for
zero. Links between a maximal region and the inner regions below it carry a map from the entries
of the one to the states of the other; without zeros, links of the same shape share one map.
"""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from icgi.approx.regions import RegionGraph
from icgi.errors import BudgetError, EvidenceError
from icgi.inference import Budget
from icgi.kernels import kernel
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray
from icgi.model.wiring import Wiring, wiring

READ = 7e-9  # seconds of a sweep for each entry of each link, measured on one core of 2026
FEWEST = (
    10  # sweeps that the time must allow; building the tables and reading them out cost as many
)
FLOOR = -1e8  # of finite log tables below their largest entry: far sums keep their precision


class Tables(NamedTuple):
    """Regions as compiled sweeps read them; entries that zeros exclude are not stored."""

    constant: float  # log Z of constants and of the largest entries
    entry_start: IntArray  # a+1   where each maximal region's entries begin
    theta: FloatArray  # log table of each entry, at most 0
    code: IntArray  # number of each entry in the full table, the last variable fastest
    state_start: IntArray  # b+1   where each inner region's states begin
    state_code: IntArray  # number of each state in the full table
    counting: FloatArray  # b     c_β
    link_start: IntArray  # b+1   where each inner region's links to its parents begin
    link_outer: IntArray  # l     parent of each link
    map_start: IntArray  # l     where each link's map begins in `maps`
    maps: NDArray[np.int32]  # state of the inner region, for each entry of the parent
    message_start: IntArray  # l+1   where each link's multipliers begin
    outer_start: IntArray  # a+1   where each maximal region's links begin in `outer_link`
    outer_link: IntArray  # l


def compile_regions(model: FactorGraph, graph: RegionGraph, budget: Budget, advice: str) -> Tables:
    """Flat tables of all regions; `BudgetError` before anything large is allocated."""
    cards = model.cards.tolist()
    sizes = [math.prod([cards[i] for i in r]) for r in graph.outer]
    states = [math.prod([cards[i] for i in r]) for r in graph.inner]
    counts = [len(p) for p in graph.parents]
    outers = np.array([a for parents in graph.parents for a in parents], np.int64)
    patterns, map_start = _patterns(cards, graph)
    used = sum(math.prod(shape) for shape, _ in patterns)
    needed = 24 * sum(sizes) + 4 * used
    if any(np.isneginf(t).any() for t in model.log_tables):
        needed += 4 * sum(sizes[a] for a in outers)  # each link then has a map of its own
    seconds = READ * sum(sizes[a] for a in outers.tolist())
    if FEWEST * seconds > budget.seconds:
        raise BudgetError(
            f"a sweep over {len(sizes)} regions (the largest has {max(sizes):.3g} entries) takes "
            f"about {seconds:.2g} s, so {budget.seconds:g} s are not worth beginning; give more "
            f"--seconds, or {advice}"
        )
    if needed > budget.table_bytes:
        raise BudgetError(
            f"the tables of {len(sizes)} regions need {needed:.3g} bytes (the largest has "
            f"{max(sizes):.3g} entries), the budget is {budget.table_bytes}; {advice}"
        )
    entry_start = _starts(sizes)
    theta, constant = _log_tables(wiring(model), graph, entry_start)
    tables = Tables(
        constant,
        entry_start,
        theta,
        _numbers(sizes),
        _starts(states),
        _numbers(states),
        graph.counting,
        _starts(counts),
        outers,
        map_start,
        np.concatenate([np.empty(0, np.int32), *(_projection(*p) for p in patterns)]),
        _starts(np.repeat(np.array(states, np.int64), counts)),
        _starts(np.bincount(outers, minlength=len(sizes))),
        np.argsort(outers, kind="stable"),
    )
    return without_zeros(tables) if np.isneginf(theta).any() else tables


Pattern: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape of a maximal region's table, and those of its axes that an inner region has."""


def _patterns(cards: list[int], graph: RegionGraph) -> tuple[list[Pattern], IntArray]:
    """Different maps between regions, and where the map of every link begins."""
    shapes = [tuple([cards[i] for i in r]) for r in graph.outer]
    place = [{i: a for a, i in enumerate(r)} for r in graph.outer]
    begin: dict[Pattern, int] = {}
    starts, used = [], 0
    for region, parents in zip(graph.inner, graph.parents, strict=True):
        for a in parents:
            pattern = (shapes[a], tuple([place[a][i] for i in region]))
            if pattern not in begin:
                begin[pattern] = used
                used += math.prod(shapes[a])
            starts.append(begin[pattern])
    return list(begin), np.array(starts, np.int64)


def without_zeros(t: Tables) -> Tables:
    """Only entries and states that are possible in every region that knows of them."""
    alive = np.asarray(t.theta > -np.inf)
    state_alive = np.ones(t.state_start[-1], bool)
    _propagate(t, alive, state_alive)
    entries = _counts(t.entry_start, alive)
    if (entries == 0).any():
        raise EvidenceError(
            "no configuration has non-zero probability: a region is left without a possible "
            "state; check the evidence against the zeros of the model"
        )
    states = _counts(t.state_start, state_alive)
    maps, map_start = _compress(t, alive, state_alive, entries)
    return t._replace(
        entry_start=_starts(entries),
        theta=t.theta[alive],
        code=t.code[alive],
        state_start=_starts(states),
        state_code=t.state_code[state_alive],
        map_start=map_start,
        maps=maps,
        message_start=_starts(np.repeat(states, np.diff(t.link_start))),
    )


def _projection(shape: tuple[int, ...], axes: tuple[int, ...]) -> NDArray[np.int32]:
    """Number of the sub-configuration on some axes, for each entry of a table."""
    index = np.zeros(shape, np.int32)
    for a in axes:
        steps = np.arange(shape[a], dtype=np.int32).reshape(
            [-1 if b == a else 1 for b in range(len(shape))]
        )
        index *= shape[a]
        index += steps
    return index.ravel()


def _starts(lengths: IntArray | list[int]) -> IntArray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))])


def _numbers(lengths: list[int]) -> IntArray:
    """0, 1, … of every length, one run after the other."""
    return np.concatenate([np.empty(0, np.int64), *(np.arange(k) for k in lengths)])


def _counts(start: IntArray, alive: BoolArray) -> IntArray:
    before = _starts(alive.astype(np.int64))
    return np.asarray(before[start[1:]] - before[start[:-1]])


def _log_tables(w: Wiring, graph: RegionGraph, entry_start: IntArray) -> tuple[FloatArray, float]:
    """θ_α: sum of the factors at home in each region, largest entry of each factor taken out."""
    theta = np.zeros(entry_start[-1])
    scope_start = _starts([len(r) for r in graph.outer])
    scope = np.fromiter((i for r in graph.outer for i in r), np.int64, int(scope_start[-1]))
    constant = _add_factors(
        w.cards, w.scope_start, w.scope, w.table_start, w.values,
        np.array(graph.home, np.int64), scope_start, scope, entry_start, theta,
    )  # fmt: skip
    return theta, float(constant)


@kernel
def _add_factors(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, table_start, values, home, region_start, region, entry_start, theta
):
    constant = 0.0
    digit, stride = np.zeros(64, np.int64), np.zeros(64, np.int64)
    for f in range(len(home)):
        top = values[table_start[f] : table_start[f + 1]].max()
        constant += top
        a = home[f]
        if a < 0:
            continue
        begin, arity = region_start[a], region_start[a + 1] - region_start[a]
        for v in range(arity):
            digit[v], stride[v], step = 0, 0, 1
            for u in range(scope_start[f + 1] - 1, scope_start[f] - 1, -1):
                if scope[u] == region[begin + v]:
                    stride[v] = step
                step *= cards[scope[u]]
        at = table_start[f]
        for k in range(entry_start[a], entry_start[a + 1]):
            if values[at] == -np.inf:
                theta[k] = -np.inf
            else:
                theta[k] += max(values[at] - top, FLOOR)
            v = arity - 1
            while v >= 0:
                digit[v] += 1
                at += stride[v]
                if digit[v] < cards[region[begin + v]]:
                    break
                at -= digit[v] * stride[v]
                digit[v] = 0
                v -= 1
    return constant


@kernel
def _propagate(t, alive, state_alive):  # type: ignore[no-untyped-def]
    """Remove states that some parent excludes, and entries that some inner region excludes."""
    support = np.empty(len(state_alive), np.bool_)
    changed = True
    while changed:
        changed = False
        for b in range(len(t.counting)):
            begin, end = t.state_start[b], t.state_start[b + 1]
            for link in range(t.link_start[b], t.link_start[b + 1]):
                a, shift = t.link_outer[link], t.map_start[link]
                first = t.entry_start[a]
                support[begin:end] = False
                for k in range(first, t.entry_start[a + 1]):
                    if alive[k]:
                        x = begin + t.maps[shift + k - first]
                        if state_alive[x]:
                            support[x] = True
                        else:
                            alive[k] = False
                            changed = True
                for x in range(begin, end):
                    if state_alive[x] and not support[x]:
                        state_alive[x] = False
                        changed = True


@kernel
def _compress(t, alive, state_alive, entries):  # type: ignore[no-untyped-def]
    """Maps between what is alive, one for each link."""
    rank = np.empty(len(state_alive), np.int32)
    for b in range(len(t.counting)):
        count = 0
        for x in range(t.state_start[b], t.state_start[b + 1]):
            rank[x] = count
            count += state_alive[x]
    map_start = np.zeros(len(t.link_outer), np.int64)
    total = 0
    for link in range(len(t.link_outer)):
        map_start[link] = total
        total += entries[t.link_outer[link]]
    maps = np.empty(total, np.int32)
    for b in range(len(t.counting)):
        for link in range(t.link_start[b], t.link_start[b + 1]):
            a, at = t.link_outer[link], map_start[link]
            shift = t.map_start[link] - t.entry_start[a]
            for k in range(t.entry_start[a], t.entry_start[a + 1]):
                if alive[k]:
                    maps[at] = rank[t.state_start[b] + t.maps[shift + k]]
                    at += 1
    return maps, map_start
