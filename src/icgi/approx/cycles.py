"""Short cycles of a model's graph: the loops that become regions.

Chordless cycles are listed by length, and of these a basis of the cycle space is kept, by Gaussian
elimination over GF(2) with one bit per edge; where that would take too long, only cycles with an
edge that no earlier one has, which are independent as well.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from icgi.approx.fixed_point import Stop
from icgi.approx.reading import NEVER, check
from icgi.approx.regions import Region
from icgi.clock import Deadline
from icgi.kernels import kernel
from icgi.model.graph import BoolArray, FactorGraph, IntArray
from icgi.model.ordering import neighbours

SEARCH_STEPS = 2 * 10**8  # path extensions in the search for cycles, about a second
MOST_CANDIDATES = 10**6  # cycles that are tried; those kept are independent, so at most e − n + 1
BASIS_WORDS = 2**25  # size of the matrix over GF(2) that decides on independence
BASIS_STEPS = 10**9  # words that it may add, about half a second


@dataclass(frozen=True, slots=True, eq=False)
class Cycles:
    """Cycles of the primal graph, and whether the search was cut short."""

    regions: list[Region]
    found: int
    cut: bool


def cycles(
    model: FactorGraph, longest: int, deadline: Deadline = NEVER, table_bytes: float = np.inf
) -> Cycles:
    """Independent chordless cycles of up to `longest` variables, shortest first.

    Cycles with a chord are sums of shorter ones. Of all cycles a basis is kept, because regions
    that repeat what others say make the counting numbers large and the beliefs worse (Welling 2004;
    Gelfand, Welling 2012); each region lies at variables of many neighbours where it can, which on
    complete graphs gives the star of triangles. A quarter of the bytes may go into the matrix that
    decides on independence. Raises `TimeSpent` at the deadline.
    """
    start, neighbour = neighbours(model)
    n = model.n_variables
    rank = np.empty(n, np.int64)
    rank[np.argsort(-np.diff(start), kind="stable")] = np.arange(n)
    edge = _edge_numbers(start, neighbour)
    check(deadline)
    scopes = [s for s in model.scopes if len(s) > 2]
    covered = [(s[0], *pair) for s in scopes for pair in combinations(s[1:], 2)]
    words = int(min(BASIS_WORDS, table_bytes / 32))
    most = int(min(MOST_CANDIDATES, max(table_bytes / (64 * longest), 64)))
    basis = _Basis.of(len(neighbour) // 2, start, neighbour, edge, words)
    kept: list[Region] = []
    found, cut = 0, False
    with deadline.flag() as stop:
        basis.add_all(np.array(covered, np.int64).reshape(-1, 3), stop)
        for length in range(3, longest + 1):
            paths, stopped = _cycles(start, neighbour, rank, length, most, SEARCH_STEPS, stop)
            found += len(paths)
            cut = cut or stopped
            chosen = basis.add_all(paths, stop)
            check(deadline)
            kept += [tuple(sorted(path)) for path in paths[chosen].tolist()]
    return Cycles(kept, found, cut)


@dataclass(slots=True, eq=False)
class _Basis:
    """Cycles as rows over GF(2) in echelon form, one column per edge; none without room."""

    rows: NDArray[np.uint64]  # r w   bits
    pivot: IntArray  # e    row whose leading edge this is, −1 for none
    count: IntArray  # rows in use, and words that may still be added
    seen: BoolArray  # e    edges of all cycles so far
    start: IntArray
    neighbour: IntArray
    edge: IntArray

    @classmethod
    def of(
        cls, edges: int, start: IntArray, neighbour: IntArray, edge: IntArray, most: int
    ) -> "_Basis":
        words = (edges + 63) // 64
        rank = max(edges - len(start) + 1, 0) + _parts(start, neighbour)
        rank = rank if rank * words <= most else 0
        rows = np.zeros((rank, words), np.uint64)
        count, seen = np.array([0, BASIS_STEPS]), np.zeros(edges, np.bool_)
        return cls(rows, np.full(edges, -1), count, seen, start, neighbour, edge)

    def add_all(self, paths: IntArray, stop: Stop) -> BoolArray:
        """Mask of the cycles that are independent of those before them."""
        chosen: BoolArray = _add_cycles(
            paths, self.start, self.neighbour, self.edge,
            self.rows, self.pivot, self.count, self.seen, stop,
        )  # fmt: skip
        return chosen


def _parts(start: IntArray, neighbour: IntArray) -> int:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(start) - 1
    graph = csr_array((np.ones(len(neighbour), np.int8), neighbour, start), shape=(n, n))
    return int(connected_components(graph, directed=False)[0])


@kernel
def _find(start, neighbour, i, j):  # type: ignore[no-untyped-def]
    """Place of j in the ascending list of i's neighbours."""
    low, high = start[i], start[i + 1]
    while high - low > 1:
        middle = (low + high) // 2
        if neighbour[middle] <= j:
            low = middle
        else:
            high = middle
    return low


@kernel
def _edge_numbers(start, neighbour):  # type: ignore[no-untyped-def]
    """Number of the undirected edge at each place of the neighbour lists."""
    edge = np.empty(len(neighbour), np.int64)
    count = 0
    for i in range(len(start) - 1):
        for e in range(start[i], start[i + 1]):
            if neighbour[e] > i:
                edge[e] = count
                count += 1
            else:
                edge[e] = edge[_find(start, neighbour, neighbour[e], i)]
    return edge


@kernel
def _add_cycles(paths, start, neighbour, edge, rows, pivot, count, seen, stop):  # type: ignore[no-untyped-def]
    """Reduce each cycle by the rows there are; what is left of it, if anything, is a new row.

    Without room or time for that, a cycle is chosen if it has an edge that was not seen before.
    """
    chosen = np.zeros(len(paths), np.bool_)
    row, along = np.empty(rows.shape[1], np.uint64), np.empty(paths.shape[1], np.int64)
    for p in range(len(paths)):
        if stop[0]:
            break
        fresh = False
        for a in range(paths.shape[1]):
            i, j = paths[p, a], paths[p, (a + 1) % paths.shape[1]]
            along[a] = edge[_find(start, neighbour, i, j)]
            fresh = fresh or not seen[along[a]]
        if len(rows) == 0 or count[1] < 0:
            chosen[p] = fresh
        elif count[0] < len(rows):  # else there are as many as there can be
            chosen[p] = _reduce(along, rows, pivot, count, row)
        if chosen[p]:
            seen[along] = True
    return chosen


@kernel
def _reduce(along, rows, pivot, count, row):  # type: ignore[no-untyped-def]
    """Add a cycle to the echelon form; false if the rows there are add up to it."""
    row[:] = 0
    one, first = np.uint64(1), len(row)
    for e in along:
        row[e >> 6] ^= one << np.uint64(e & 63)
        first = min(first, e >> 6)
    for w in range(first, len(row)):
        while row[w] != 0:
            low = 0
            while not (row[w] >> np.uint64(low)) & one:
                low += 1
            r = pivot[64 * w + low]
            if r < 0:
                pivot[64 * w + low] = count[0]
                rows[count[0]] = row
                count[0] += 1
                return True
            for v in range(w, len(row)):
                row[v] ^= rows[r, v]
            count[1] -= len(row) - w
    return False


@kernel
def _cycles(start, neighbour, rank, length, most, steps, stop):  # type: ignore[no-untyped-def]
    """Chordless cycles of one length, each once: from its vertex of least rank, one direction.

    The second value says that the search stopped early, at `most` cycles or after so many steps.
    """
    n = len(rank)
    found = np.empty((64, length), np.int64)
    count = 0
    root_near = np.full(n, -1, np.int64)  # last root that has this neighbour
    chords = np.zeros(n, np.int64)  # path vertices next to it, root and tip excepted
    inside = np.zeros(n, np.bool_)
    path, place = np.empty(length, np.int64), np.empty(length, np.int64)
    by_rank = np.argsort(rank)
    for s in range(n):
        root = by_rank[s]
        for e in range(start[root], start[root + 1]):
            root_near[neighbour[e]] = root
        path[0], place[0] = root, start[root]
        inside[root] = True
        depth = 0
        while depth >= 0:
            tip = path[depth]
            if place[depth] == start[tip + 1]:
                inside[tip] = False
                depth -= 1
                if depth > 0:  # the tip before is the tip again
                    for e in range(start[path[depth]], start[path[depth] + 1]):
                        chords[neighbour[e]] -= 1
                continue
            v = neighbour[place[depth]]
            place[depth] += 1
            steps -= 1
            if stop[0]:
                return found[:count], True
            if rank[v] < s or inside[v] or chords[v] > 0:
                continue
            closes = depth > 0 and root_near[v] == root
            if depth + 2 == length:
                if closes and rank[path[1]] < rank[v]:
                    if count == most or steps < 0:
                        return found[:count], True
                    if count == len(found):
                        larger = np.empty((2 * count, length), np.int64)
                        larger[:count] = found
                        found = larger
                    found[count, : depth + 1] = path[: depth + 1]
                    found[count, depth + 1] = v
                    count += 1
            elif not closes:
                if steps < 0:
                    return found[:count], True
                if depth > 0:
                    for e in range(start[tip], start[tip + 1]):
                        chords[neighbour[e]] += 1
                depth += 1
                path[depth], place[depth] = v, start[v]
                inside[v] = True
    return found[:count], False
