"""Spins in a ring of equal columns, each joined to the next by as many couplings as it has spins.

A torus of L × L spins is the common case. Couplings that lie opposite each other in a square belong
to one gap between two columns, so the gaps are classes of an equivalence, and the columns are what
stays connected when the gaps of one direction are opened.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from icgi.model.graph import FloatArray, IntArray
from icgi.model.ising import IsingArrays

MOST_NEIGHBOURS = 8  # of a spin; squares are looked for among all pairs of them
MOST_EDGES = 5000

Edge = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Ring:
    """Columns 0 … T − 1 of w spins each; spin i of one is joined to spin i of the next."""

    spins: IntArray  # t w
    gaps: FloatArray  # t w  couplings between (t − 1, i) and (t, i); column −1 is the last one
    fields: FloatArray  # t w
    inner: tuple[tuple[tuple[int, int, float], ...], ...]  # t  couplings within a column


def ring_of(model: IsingArrays) -> Ring | None:
    """Columns of a connected model, the narrower way where there are two; None if it has none."""
    n = len(model.fields)
    if not 9 <= len(model.edges) <= MOST_EDGES or len(np.unique(model.edges)) < n:
        return None
    near: list[set[int]] = [set() for _ in range(n)]
    for i, j in model.edges.tolist():
        near[i].add(j)
        near[j].add(i)
    if max(map(len, near)) > MOST_NEIGHBOURS:
        return None
    group, crossing = _gaps(near)
    members: dict[Edge, list[Edge]] = defaultdict(list)
    for edge, root in group.items():
        members[root].append(edge)
    rings = []
    tried: set[Edge] = set()
    for root in members:
        if root in tried:
            continue
        parallel = {other for other in members if other not in crossing[root]}
        tried |= parallel
        found = _ring(model, near, {e for other in parallel for e in members[other]})
        if found is not None:
            rings.append(found)
    return min(rings, key=lambda ring: ring.spins.shape[1], default=None)


def _gaps(near: list[set[int]]) -> tuple[dict[Edge, Edge], dict[Edge, set[Edge]]]:
    """The class of every edge, named by one of its edges, and which classes share a square."""
    parent = {(i, j): (i, j) for i, row in enumerate(near) for j in row if i < j}

    def root(edge: Edge) -> Edge:
        while parent[edge] != edge:
            parent[edge] = parent[parent[edge]]
            edge = parent[edge]
        return edge

    corners = []
    for i, row in enumerate(near):
        for j in row:
            for k in row:
                if j < k:
                    corners += [(i, j, k, m) for m in near[j] & near[k] if m != i]
    for i, j, k, m in corners:  # the square i – j – m – k
        parent[root(_edge(i, j))] = root(_edge(k, m))
        parent[root(_edge(i, k))] = root(_edge(j, m))
    crossing: dict[Edge, set[Edge]] = defaultdict(set)
    for i, j, k, _ in corners:
        first, second = root(_edge(i, j)), root(_edge(i, k))
        crossing[first].add(second)
        crossing[second].add(first)
    return {edge: root(edge) for edge in parent}, crossing


def _edge(i: int, j: int) -> Edge:
    return (i, j) if i < j else (j, i)


def _ring(model: IsingArrays, near: list[set[int]], opened: set[Edge]) -> Ring | None:
    """The ring whose gaps are these edges, if they are those of one."""
    across: list[list[int]] = [[] for _ in near]
    for i, j in opened:
        across[i].append(j)
        across[j].append(i)
    if any(len(row) != 2 for row in across):
        return None
    column = [_reached(near, 0, opened)]
    behind: set[int] = set()
    rows = [list(column[0])]
    # one of the two ways round, then always on
    ahead = next((j for j in across[rows[0][0]]), 0)
    there = _reached(near, ahead, opened)
    while True:
        here = rows[-1]
        following = [[j for j in across[i] if j in there] for i in here]
        if any(len(found) != 1 for found in following) or len(there) != len(here):
            return None
        row = [found[0] for found in following]
        if len(set(row)) != len(row):
            return None
        if there == column[0]:
            break
        rows.append(row)
        behind |= set(here)
        beyond = next((j for j in across[row[0]] if j not in here), None)
        if beyond is None or (beyond in behind and beyond not in column[0]):
            return None
        there = _reached(near, beyond, opened)
    spins = np.array(rows)
    closed = row == rows[0]  # not joined with a twist
    if not closed or len(rows) < 3 or spins.size != len(near):
        return None
    return _filled(model, spins, opened)


def _reached(near: list[set[int]], start: int, opened: set[Edge]) -> set[int]:
    """What is connected with a spin without the opened edges."""
    found, waiting = {start}, [start]
    while waiting:
        i = waiting.pop()
        for j in near[i] - found:
            if _edge(i, j) not in opened:
                found.add(j)
                waiting.append(j)
    return found


def _filled(model: IsingArrays, spins: IntArray, opened: set[Edge]) -> Ring:
    """Couplings and fields by column and place."""
    columns, width = spins.shape
    place = np.empty(spins.size, np.int64)
    place[spins.ravel()] = np.arange(spins.size)
    gaps = np.zeros((columns, width))
    inner: list[list[tuple[int, int, float]]] = [[] for _ in range(columns)]
    for (i, j), coupling in zip(model.edges.tolist(), model.couplings.tolist(), strict=True):
        (s, a), (t, b) = divmod(int(place[i]), width), divmod(int(place[j]), width)
        if (i, j) in opened:
            gaps[t if (t - s) % columns == 1 else s, a] = coupling
        else:
            inner[s].append((a, b, coupling))
    return Ring(spins, gaps, model.fields[spins], tuple(map(tuple, inner)))
