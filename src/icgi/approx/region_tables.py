"""Tables of regions as flat arrays: what the sweeps of generalised belief propagation read.

Entries that zeros exclude are not stored, so that every belief is positive and needs no case for
zero. Links between a maximal region and the inner regions below it carry a map from the entries
of the one to the states of the other; without zeros, links of the same shape share one map.
"""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from icgi.approx.fixed_point import Stop
from icgi.approx.flat import PLAIN
from icgi.approx.reading import NEVER, TimeSpent, check, side_by_side, watched
from icgi.approx.regions import REGION_BYTES, RegionGraph
from icgi.clock import Deadline
from icgi.errors import BudgetError, EvidenceError
from icgi.inference import Budget
from icgi.kernels import kernel
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray, starts
from icgi.model.wiring import Wiring

READ = 7e-9  # seconds of a sweep for each entry of each link, measured on one processor of 2026
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
    plain: bool  # no spread of log tables that rounding would show in


def compile_regions(
    model: FactorGraph,
    graph: RegionGraph,
    budget: Budget,
    advice: str,
    deadline: Deadline = NEVER,
) -> Tables:
    """Flat tables of all regions; `BudgetError` before anything large is allocated.

    Raises `TimeSpent` at the deadline, and at once where a few sweeps would take longer.
    """
    cards = model.cards.tolist()
    sizes = [math.prod([cards[i] for i in r]) for r in watched(graph.outer, deadline)]
    states = [math.prod([cards[i] for i in r]) for r in watched(graph.inner, deadline)]
    counts = [len(p) for p in graph.parents]
    outers = np.array([a for parents in graph.parents for a in parents], np.int64)
    read = sum([sizes[a] for a in outers.tolist()])
    patterns, map_start = _patterns(cards, graph, deadline)
    zeros = any(np.isneginf(t).any() for t in watched(model.log_tables, deadline))
    needed = _bytes_needed(model, sizes, states, counts, patterns, read if zeros else 0)
    if needed > budget.table_bytes:
        raise BudgetError(
            f"the tables of {len(sizes)} regions (the largest has {max(sizes):.3g} entries) need "
            f"about {needed / 2**20:,.0f} MiB, but the budget allows "
            f"{budget.table_bytes / 2**20:,.0f} MiB; {advice}"
        )
    if FEWEST * READ * read > deadline.left:
        raise TimeSpent
    entry_start = starts(sizes)
    with deadline.flag() as stop:
        w = side_by_side([model], deadline)
        theta, constant = _log_tables(w, graph, entry_start, stop)
        check(deadline)
        tables = Tables(
            constant,
            entry_start,
            theta,
            _numbers(entry_start),
            starts(states),
            _numbers(starts(states)),
            graph.counting,
            starts(counts),
            outers,
            map_start,
            np.concatenate([np.empty(0, np.int32), *(_projection(*p) for p in patterns)]),
            starts(np.repeat(np.array(states, np.int64), counts)),
            starts(np.bincount(outers, minlength=len(sizes))),
            np.argsort(outers, kind="stable"),
            bool(_spread(w.table_start, w.values) <= PLAIN),
        )
        check(deadline)
        return without_zeros(tables, stop) if zeros else tables


def _bytes_needed(
    model: FactorGraph,
    sizes: list[int],
    states: list[int],
    counts: list[int],
    patterns: list["Pattern"],
    read_with_zeros: int,
) -> int:
    """Tables, state and scratch of a run, and what building them takes meanwhile."""
    entries = sum(sizes)
    links = sum([n * k for n, k in zip(states, counts, strict=True)])
    needed = 24 * entries + 8 * max(sizes, default=0)  # log tables, numbers, beliefs; one in logs
    needed += 8 * sum([t.size for t in model.log_tables])
    needed += 8 * sum(
        [math.prod(shape) for shape, _ in patterns]
    )  # maps, twice while they are made
    needed += 8 * links + 56 * sum(states)  # messages, beliefs and anchors
    needed += 16 * max([n * k for n, k in zip(states, counts, strict=True)], default=0)
    if read_with_zeros:  # each link then has a map of its own, and what is possible is copied
        needed += 26 * entries + 4 * read_with_zeros
    return needed + REGION_BYTES * (len(sizes) + len(states))


Pattern: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape of a maximal region's table, and those of its axes that an inner region has."""


def _patterns(
    cards: list[int], graph: RegionGraph, deadline: Deadline
) -> tuple[list[Pattern], IntArray]:
    """Different maps between regions, and where the map of every link begins."""
    shapes = [tuple([cards[i] for i in r]) for r in graph.outer]
    place = [{i: a for a, i in enumerate(r)} for r in graph.outer]
    begin: dict[Pattern, int] = {}
    first, used = [], 0
    for region, parents in watched(zip(graph.inner, graph.parents, strict=True), deadline):
        for a in parents:
            pattern = (shapes[a], tuple([place[a][i] for i in region]))
            if pattern not in begin:
                begin[pattern] = used
                used += math.prod(shapes[a])
            first.append(begin[pattern])
    return list(begin), np.array(first, np.int64)


def without_zeros(t: Tables, stop: Stop) -> Tables:
    """Only entries and states that are possible in every region that knows of them."""
    alive = np.asarray(t.theta > -np.inf)
    state_alive = np.ones(t.state_start[-1], bool)
    _propagate(t, alive, state_alive, stop)
    if stop[0]:
        raise TimeSpent
    entries = _counts(t.entry_start, alive)
    if (entries == 0).any():
        raise EvidenceError(
            "no configuration has non-zero probability: a region is left without a possible "
            "state; check the evidence against the zeros of the model"
        )
    states = _counts(t.state_start, state_alive)
    maps, map_start = _compress(t, alive, state_alive, entries)
    return t._replace(
        entry_start=starts(entries),
        theta=t.theta[alive],
        code=t.code[alive],
        state_start=starts(states),
        state_code=t.state_code[state_alive],
        map_start=map_start,
        maps=maps,
        message_start=starts(np.repeat(states, np.diff(t.link_start))),
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


def _numbers(start: IntArray) -> IntArray:
    """0, 1, … from every start to the next one."""
    numbers = np.arange(start[-1])
    numbers -= np.repeat(start[:-1], np.diff(start))
    return numbers


def _counts(start: IntArray, alive: BoolArray) -> IntArray:
    """How many are alive between each start and the next one."""
    return np.asarray(_count_alive(start, alive))


def _log_tables(
    w: Wiring, graph: RegionGraph, entry_start: IntArray, stop: Stop
) -> tuple[FloatArray, float]:
    """θ_α: sum of the factors at home in each region, largest entry of each factor taken out."""
    theta = np.zeros(entry_start[-1])
    scope_start = starts([len(r) for r in graph.outer])
    scope = np.fromiter((i for r in graph.outer for i in r), np.int64, int(scope_start[-1]))
    constant = _add_factors(
        w.cards, w.scope_start, w.scope, w.table_start, w.values,
        np.array(graph.home, np.int64), scope_start, scope, entry_start, theta,
        stop,
    )  # fmt: skip
    return theta, float(constant)


@kernel
def _add_factors(  # type: ignore[no-untyped-def]
    cards,
    scope_start,
    scope,
    table_start,
    values,
    home,
    region_start,
    region,
    entry_start,
    theta,
    stop,
):
    constant = 0.0
    digit, stride = np.zeros(64, np.int64), np.zeros(64, np.int64)
    for f in range(len(home)):
        top = values[table_start[f] : table_start[f + 1]].max()
        constant += top
        a = home[f]
        if stop[0]:
            break
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
def _spread(table_start, values):  # type: ignore[no-untyped-def]
    """Largest difference between finite entries of one log table."""
    spread = 0.0
    for f in range(len(table_start) - 1):
        low, high = np.inf, -np.inf
        for k in range(table_start[f], table_start[f + 1]):
            if values[k] > -np.inf:
                low, high = min(low, values[k]), max(high, values[k])
        spread = max(spread, high - low)
    return spread


@kernel
def _count_alive(start, alive):  # type: ignore[no-untyped-def]
    counts = np.zeros(len(start) - 1, np.int64)
    for a in range(len(counts)):
        for k in range(start[a], start[a + 1]):
            counts[a] += alive[k]
    return counts


@kernel
def _propagate(t, alive, state_alive, stop):  # type: ignore[no-untyped-def]
    """Remove states that some parent excludes, and entries that some inner region excludes."""
    support = np.empty(len(state_alive), np.bool_)
    changed = True
    while changed:
        changed = False
        for b in range(len(t.counting)):
            if stop[0]:
                return
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
