"""The primal graph of a model, and the eliminations in it that cannot be wrong."""

from dataclasses import dataclass

import numpy as np

from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray


def neighbours(model: FactorGraph) -> tuple[IntArray, IntArray]:
    """Primal graph: neighbours of variable i are `neighbour[start[i]:start[i + 1]]`, ascending."""
    start, neighbour = _neighbours(model.n_variables, model.arity, model.touched)
    return start, neighbour


@dataclass(frozen=True, slots=True, eq=False)
class Remainder:
    """What is left of the primal graph after the eliminations that cannot be wrong."""

    whole_start: IntArray
    whole_neighbour: IntArray
    before: IntArray  # variables eliminated first
    variables: IntArray  # n        variables of the remainder, in the model's numbers
    after: IntArray  # variables of one state: free if eliminated last
    start: IntArray  # n+1
    neighbour: IntArray
    logs: FloatArray  # n        log₂ of the number of states

    @property
    def size(self) -> int:
        """Number of variables whose order is open."""
        return len(self.variables)

    @property
    def complete(self) -> bool:
        """Whether every pair is joined, so that all orders cost about the same."""
        return len(self.neighbour) == self.size * (self.size - 1)

    @property
    def mixed(self) -> bool:
        """Whether variables differ in their number of states."""
        return self.size > 0 and bool(self.logs.min() < self.logs.max())


def remainder_of(model: FactorGraph, forced: bool) -> Remainder:
    """Primal graph without one-state variables and, if so asked, without forced eliminations."""
    start, neighbour = neighbours(model)
    logs = np.log2(model.cards)
    before, variables, after, rest_start, rest_neighbour = _eliminate_forced(
        start, neighbour, logs, 2 if forced else -1
    )
    return Remainder(
        start, neighbour, before, variables, after, rest_start, rest_neighbour, logs[variables]
    )


@kernel
def _neighbours(n, arity, scope):  # type: ignore[no-untyped-def]
    start = np.zeros(n + 1, np.int64)
    at = 0
    for f in range(len(arity)):
        for a in range(at, at + arity[f]):
            start[scope[a] + 1] += arity[f] - 1
        at += arity[f]
    start = np.cumsum(start)
    end = start[:n].copy()
    listed = np.empty(start[n], np.int64)
    at = 0
    for f in range(len(arity)):
        for a in range(at, at + arity[f]):
            i = scope[a]
            for b in range(at, at + arity[f]):
                if a != b:
                    listed[end[i]] = scope[b]
                    end[i] += 1
        at += arity[f]
    seen = np.full(n, -1, np.int64)
    first = np.zeros(n + 1, np.int64)
    for i in range(n):
        kept = start[i]
        for e in range(start[i], end[i]):
            j = listed[e]
            if seen[j] != i:
                seen[j] = i
                listed[kept] = j
                kept += 1
        end[i] = kept
        first[i + 1] = kept - start[i]
    first = np.cumsum(first)
    # Transposing a symmetric graph leaves it as it is, but sorts every list.
    ascending = np.empty(first[n], np.int64)
    place = first[:n].copy()
    for i in range(n):
        for e in range(start[i], end[i]):
            j = listed[e]
            ascending[place[j]] = i
            place[j] += 1
    return first, ascending


@kernel
def _eliminate_forced(start, neighbour, logs, most):  # type: ignore[no-untyped-def]
    """Eliminate what no better order would keep: degree 0 and 1, triangles, and series.

    Only degrees up to `most` are looked at. A variable of degree two may join its neighbours if it
    has no fewer states than one of them (the weighted almost-simplicial rule); variables of one
    state leave the graph.
    """
    n = len(logs)
    twin = np.empty(len(neighbour), np.int64)  # the same edge seen from its other end; −1 if gone
    at = start[:n].copy()
    degree = np.zeros(n, np.int64)
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            j = neighbour[e]
            twin[at[j]] = e
            at[j] += 1
    other = neighbour.copy()
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            if logs[i] == 0.0 or logs[other[e]] == 0.0:
                twin[e] = -1
            else:
                degree[i] += 1
    alive = logs > 0.0
    before = np.empty(n, np.int64)
    k = 0
    # Degrees 0 and 1 wait in the first row and go first: in a tree, joining would be wrong.
    waiting = np.empty((2, 3 * n), np.int64)
    top = np.zeros(2, np.int64)
    for i in range(n - 1, -1, -1):
        if alive[i] and degree[i] <= most:
            row = degree[i] // 2
            waiting[row, top[row]] = i
            top[row] += 1
    while top.sum() > 0:
        row = 0 if top[0] > 0 else 1
        top[row] -= 1
        i = waiting[row, top[row]]
        if not alive[i]:
            continue
        ends = (-1, -1)
        for e in range(start[i], start[i + 1]):
            if twin[e] >= 0:
                ends = (ends[1], e)
        if degree[i] == 2:
            a, b = other[ends[0]], other[ends[1]]
            if degree[b] < degree[a]:
                a, b = b, a
            joined = False
            for e in range(start[a], start[a + 1]):
                if twin[e] >= 0 and other[e] == b:
                    joined = True
                    break
            if not joined:
                if logs[i] < min(logs[a], logs[b]):
                    continue
                e, g = twin[ends[0]], twin[ends[1]]
                other[e], other[g] = other[ends[1]], other[ends[0]]
                twin[e], twin[g] = g, e
                alive[i] = False
                before[k] = i
                k += 1
                continue
        alive[i] = False
        before[k] = i
        k += 1
        for e in ends:
            if e >= 0:
                j = other[e]
                twin[twin[e]] = -1
                degree[j] -= 1
                if degree[j] <= most:
                    row = degree[j] // 2
                    waiting[row, top[row]] = j
                    top[row] += 1
    number = np.full(n, -1, np.int64)
    size = 0
    for i in range(n):
        if alive[i]:
            number[i] = size
            size += 1
    variables = np.empty(size, np.int64)
    rest_start = np.zeros(size + 1, np.int64)
    for i in range(n):
        if alive[i]:
            variables[number[i]] = i
            rest_start[number[i] + 1] = rest_start[number[i]] + degree[i]
    rest_neighbour = np.empty(rest_start[size], np.int64)
    at = rest_start[:size].copy()
    for i in range(n):  # by transposition, so that lists are ascending
        if alive[i]:
            for e in range(start[i], start[i + 1]):
                if twin[e] >= 0:
                    j = number[other[e]]
                    rest_neighbour[at[j]] = number[i]
                    at[j] += 1
    return before[:k], variables, np.flatnonzero(logs == 0.0), rest_start, rest_neighbour
