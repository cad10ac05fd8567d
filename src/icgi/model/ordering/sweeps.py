"""Orders that sweep through a graph from one end to the other, behind a small front."""

import numpy as np

from icgi.kernels import kernel
from icgi.model.graph import IntArray
from icgi.model.ordering.graph import Remainder


@kernel
def smallest_front(start, neighbour, logs, jitter, seed, stop):  # type: ignore[no-untyped-def]
    """Sweep: eliminate the front variable that brings fewest new states into the front.

    The front holds the variables that have met an eliminated neighbour. Ties go to the variable
    that has waited longest; a sweep starts at the far end of each component. When asked to stop,
    the rest follows by number.
    """
    n = len(logs)
    order = np.empty(n, np.int64)
    met = np.zeros(n, np.bool_)
    done = np.zeros(n, np.bool_)
    front = np.empty(n, np.int64)  # in order of arrival
    level = np.full(n, -1, np.int64)
    growth = jitter - logs  # log₂ states of the neighbours not yet met
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            growth[i] += logs[neighbour[e]]
    size = 0
    root = 0
    for step in range(n):
        if stop[0]:
            order[step:] = np.flatnonzero(~done)
            return order
        if size == 0:
            while met[root]:
                root += 1
            first = _farthest(start, neighbour, _farthest(start, neighbour, root, level), level)
            if step == 0 and seed >= 0:
                first = seed
            met[first] = True
            front[0] = first
            size = 1
            for e in range(start[first], start[first + 1]):
                growth[neighbour[e]] -= logs[first]
        at = 0
        for m in range(1, size):
            if growth[front[m]] < growth[front[at]] - 1e-9:
                at = m
        v = front[at]
        order[step] = v
        done[v] = True
        size -= 1
        for m in range(at, size):
            front[m] = front[m + 1]
        for e in range(start[v], start[v + 1]):
            j = neighbour[e]
            if not met[j]:
                met[j] = True
                front[size] = j
                size += 1
                for g in range(start[j], start[j + 1]):
                    growth[neighbour[g]] -= logs[j]
    return order


@kernel
def _farthest(start, neighbour, root, level):  # type: ignore[no-untyped-def]
    """A vertex of least degree among those farthest from `root`; `level` is scratch, all −1."""
    n = len(start) - 1
    queue = np.empty(n, np.int64)
    queue[0] = root
    level[root] = 0
    size, at = 1, 0
    while at < size:
        i = queue[at]
        at += 1
        for e in range(start[i], start[i + 1]):
            j = neighbour[e]
            if level[j] == -1:
                level[j] = level[i] + 1
                queue[size] = j
                size += 1
    best = queue[size - 1]
    for m in range(size - 1, -1, -1):
        i = queue[m]
        if level[i] < level[best]:
            break
        if start[i + 1] - start[i] < start[best + 1] - start[best]:
            best = i
    for m in range(size):
        level[queue[m]] = -1
    return best


def cuthill_mckee(remainder: Remainder) -> IntArray:
    """Reverse Cuthill–McKee order of the remainder: breadth first, so that bands stay narrow."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ones = np.ones(len(remainder.neighbour), np.int8)
    graph = csr_array(
        (ones, remainder.neighbour, remainder.start), shape=(remainder.size, remainder.size)
    )
    return np.ascontiguousarray(reverse_cuthill_mckee(graph, symmetric_mode=True), dtype=np.int64)
