"""Region graphs by the cluster variation method: which sets of variables keep a joint belief.

Maximal regions are chosen (factors, short cycles, or clusters of mini-buckets); regions below them
are all their intersections. Counting numbers c_r = 1 − Σ_{s ⊋ r} c_s make every variable
and every factor count once (Kikuchi 1951; Yedidia, Freeman, Weiss 2005, section V).
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations

import numpy as np

from icgi.approx.reading import NEVER, check, watched
from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.model.graph import FactorGraph, FloatArray

Region = tuple[int, ...]  # variables, ascending

MOST_INNER = 10**6  # intersections beyond which the closure gives up
REGION_BYTES = 1000  # of a region while graphs of regions are built, measured


@dataclass(frozen=True, slots=True, eq=False)
class RegionGraph:
    """Maximal (outer) regions, all with c = 1, and the inner regions on which they must agree."""

    outer: list[Region]
    inner: list[Region]
    counting: FloatArray  # c of each inner region
    parents: list[list[int]]  # outer regions of each inner region that must agree on it
    children: list[list[int]]  # inner regions directly below each inner region
    home: list[int]  # f   outer region that carries each factor, −1 for constants
    junction_tree: bool  # inner regions are the separators of a junction tree: beliefs are exact


def region_graph(
    model: FactorGraph,
    clusters: Collection[Iterable[int]],
    deadline: Deadline = NEVER,
    table_bytes: float = math.inf,
) -> RegionGraph:
    """Cluster variation method on the given clusters and on factors and variables outside them.

    Raises `TimeSpent` at the deadline, `BudgetError` where the regions alone are too many.
    """
    _require(len(clusters) or model.n_factors, table_bytes)
    every = {tuple(sorted(c)) for c in watched(clusters, deadline)}
    every |= {tuple(sorted(s)) for s in watched(model.scopes, deadline) if s}
    outer = maximal([*every, *((i,) for i in range(model.n_variables))], deadline)
    tree = junction_tree(model, outer, deadline)
    if tree is not None:
        return tree
    holders = _holders(outer)
    home = _homes(model, outer, holders, deadline)
    inner = sorted(_closure(outer, holders, deadline, table_bytes), key=lambda r: (-len(r), r))
    parents = [sorted(_common(r, holders)) for r in watched(inner, deadline)]
    counting = _counting(parents, _above(inner, deadline), deadline)
    keep = _needed(inner, parents, counting, deadline)
    # Neighbouring regions next to each other: sweeps then carry news along, larger regions first.
    keep.sort(key=lambda b: (inner[b][0], -len(inner[b]), inner[b]))
    inner = [inner[b] for b in keep]
    return RegionGraph(
        outer,
        inner,
        counting[keep],
        [parents[b] for b in keep],
        _children(inner, deadline),
        home,
        False,
    )


def junction_tree(
    model: FactorGraph, outer: list[Region], deadline: Deadline = NEVER
) -> RegionGraph | None:
    """Regions and the separators of a junction tree of them; None if they have no such tree."""
    holders = _holders(outer)
    edges = _junction_forest(outer, holders, deadline)
    if edges is None:
        return None
    inner = [_shared(outer[a], outer[b]) for a, b in edges]
    parents = [list(e) for e in edges]
    below: list[list[int]] = [[] for _ in inner]
    home = _homes(model, outer, holders, deadline)
    return RegionGraph(outer, inner, np.full(len(inner), -1.0), parents, below, home, True)


def maximal(clusters: Iterable[Region], deadline: Deadline = NEVER) -> list[Region]:
    """Clusters that no other one contains, in order of their variables."""
    kept: list[Region] = []
    holders: dict[int, set[int]] = {}
    for cluster in watched(sorted(set(clusters), key=lambda r: (-len(r), r)), deadline):
        if all(i in holders for i in cluster) and _common(cluster, holders):
            continue
        for i in cluster:
            holders.setdefault(i, set()).add(len(kept))
        kept.append(cluster)
    return sorted(kept)


def _holders(regions: Sequence[Region]) -> dict[int, set[int]]:
    holders: dict[int, set[int]] = {}
    for a, region in enumerate(regions):
        for i in region:
            holders.setdefault(i, set()).add(a)
    return holders


def _common(region: Region, holders: dict[int, set[int]]) -> set[int]:
    """Regions that contain all of a region, itself included where it is one of them."""
    if len(region) == 1:
        return holders[region[0]]
    return set.intersection(*sorted((holders[i] for i in region), key=len))


def _shared(a: Region, b: Region) -> Region:
    other = set(b)
    return tuple([i for i in a if i in other])


def _homes(
    model: FactorGraph, outer: list[Region], holders: dict[int, set[int]], deadline: Deadline
) -> list[int]:
    """Smallest region that contains each factor."""
    rank = [0] * len(outer)
    for place, a in enumerate(sorted(range(len(outer)), key=lambda a: len(outer[a]))):
        rank[a] = place
    return [
        min(_common(scope, holders), key=rank.__getitem__) if scope else -1
        for scope in watched(model.scopes, deadline)
    ]


def _junction_forest(
    outer: list[Region], holders: dict[int, set[int]], deadline: Deadline
) -> list[tuple[int, int]] | None:
    """Edges of a junction forest, those of children before their parents'; None if there is none.

    Take next the region with most variables seen before. A forest exists iff these always lie in
    one region taken before (Tarjan, Yannakakis 1984).
    """
    seen: set[int] = set()
    taken: set[int] = set()
    count = [0] * len(outer)
    heap = [(0, a) for a in range(len(outer))]
    edges = []
    while heap:
        if len(heap) % 512 == 0:
            check(deadline)
        before, a = heappop(heap)
        if a in taken or -before != count[a]:
            continue
        separator = [i for i in outer[a] if i in seen]
        if separator:
            above = set.intersection(*sorted((holders[i] for i in separator), key=len)) & taken
            if not above:
                return None
            edges.append((min(above), a))
        taken.add(a)
        for i in outer[a]:
            if i not in seen:
                seen.add(i)
                for b in holders[i]:
                    count[b] += 1
                    heappush(heap, (-count[b], b))
    return edges[::-1]


def _closure(
    outer: list[Region],
    holders: dict[int, set[int]],
    deadline: Deadline,
    table_bytes: float = math.inf,
) -> set[Region]:
    """All intersections of two or more regions, the empty one excepted."""
    by_subsets = sum(len(r) << len(r) for r in outer if len(r) < 20)
    by_pairs = sum(len(a) ** 2 for a in holders.values())
    if by_subsets <= max(by_pairs, 10**4) and max(map(len, outer)) < 20:
        return _closed_subsets(outer, deadline)
    if by_pairs > 50 * MOST_INNER:
        raise _too_many(by_pairs)
    found: set[Region] = set()
    fresh: set[Region] = set(outer)
    while fresh:
        made: set[Region] = set()
        for r in watched(fresh, deadline):
            met = set().union(*(holders[i] for i in r))
            made |= {_shared(outer[a], r) for a in met}
            if len(made) > MOST_INNER:
                raise _too_many(len(made))
        fresh = made - found - set(outer)
        found |= fresh
        _require(len(found) + len(outer), table_bytes)
    return found


def _require(regions: int, table_bytes: float) -> None:
    needed = REGION_BYTES * regions
    if needed > table_bytes:
        raise BudgetError(
            f"a graph of {regions} regions or more needs about {needed / 2**20:,.0f} MiB, but "
            f"the budget allows {table_bytes / 2**20:,.0f} MiB; give a larger memory budget, or "
            "use a smaller ibound or loop, or lbp"
        )


def _too_many(count: int) -> BudgetError:
    return BudgetError(
        f"the regions intersect in {count} ways or more, at most {MOST_INNER} are kept; use a "
        "smaller ibound or loop, regions=factors, or regions=join-graph, which needs none of them"
    )


def _closed_subsets(outer: list[Region], deadline: Deadline) -> set[Region]:
    """Subsets that equal the intersection of all regions around them: no variable can join."""
    count: dict[Region, int] = {}
    where: dict[Region, int] = {}
    for a, region in watched(enumerate(outer), deadline):
        for size in range(1, len(region) + 1):
            for subset in combinations(region, size):
                count[subset] = count.get(subset, 0) + 1
                where[subset] = a
    return {
        subset
        for subset, times in watched(count.items(), deadline)
        if times > 1
        and all(
            count[tuple(sorted((*subset, i)))] < times
            for i in outer[where[subset]]
            if i not in subset
        )
    }


def _above(inner: list[Region], deadline: Deadline = NEVER) -> list[set[int]]:
    """Inner regions that strictly contain each inner region."""
    holders = _holders(inner)
    return [_common(r, holders) - {b} for b, r in watched(enumerate(inner), deadline)]


def _counting(parents: list[list[int]], above: list[set[int]], deadline: Deadline) -> FloatArray:
    """c_r = 1 − Σ_{s ⊋ r} c_s, inner regions being sorted from large to small."""
    counting = np.zeros(len(parents))
    for b, larger in watched(enumerate(above), deadline):
        counting[b] = 1 - len(parents[b]) - sum(counting[a] for a in larger)
    return counting


def _children(inner: list[Region], deadline: Deadline = NEVER) -> list[list[int]]:
    above = _above(inner, deadline)
    children: list[list[int]] = [[] for _ in inner]
    for b, larger in watched(enumerate(above), deadline):
        for a in sorted(larger.difference(*(above[c] for c in larger))):
            children[a].append(b)
    return children


def _needed(
    inner: list[Region], parents: list[list[int]], counting: FloatArray, deadline: Deadline
) -> list[int]:
    """Inner regions less those that neither count nor add a constraint.

    With c = 0 a region can go if larger inner regions already make all its parents agree on it:
    if they connect the parents with each other.
    """
    holders: dict[int, set[int]] = {}
    keep = []
    for b, region in watched(enumerate(inner), deadline):
        if counting[b] == 0 and all(i in holders for i in region):
            above = _common(region, holders)
            if _connected(set(parents[b]), [parents[a] for a in sorted(above)]):
                continue
        keep.append(b)
        for i in region:
            holders.setdefault(i, set()).add(b)
    return keep


def _connected(nodes: set[int], groups: list[list[int]]) -> bool:
    """Whether groups that share members hang together and reach all nodes."""
    reached: set[int] = set()
    left = [set(g) for g in groups]
    while left:
        touching = [g for g in left if not reached or g & reached]
        if not touching:
            return False
        first = touching if reached else touching[:1]
        reached.update(*first)
        left = [g for g in left if not g <= reached]
    return reached >= nodes
