"""Moves of many variables at once: Swendsen-Wang clusters, Houdayer's exchange between replicas.

Both leave the distribution at their level unchanged and are used between heat-bath sweeps, which
make the chain ergodic.
"""

from typing import NamedTuple

import numpy as np

from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.sampling.spins import refresh
from icgi.sampling.streams import below, uniform


class Graph(NamedTuple):
    """Which variables share a factor."""

    start: IntArray  # n+1
    neighbour: IntArray


class Marks(NamedTuple):
    """Buffers of one thread."""

    label: IntArray  # n
    queue: IntArray  # n
    total: FloatArray  # n


def interaction_graph(model: FactorGraph | None) -> Graph:
    """Neighbour lists of the graph that joins variables of a common factor; empty for None."""
    if model is None:
        return Graph(np.zeros(1, np.int64), np.zeros(0, np.int64))
    n = model.n_variables
    found = {(i, j) for scope in model.scopes for i in scope for j in scope if i != j}
    ends = np.array(sorted(found), np.int64).reshape(-1, 2)
    return Graph(np.searchsorted(ends[:, 0], np.arange(n + 1)).astype(np.int64), ends[:, 1].copy())


def marks(n: int) -> Marks:
    """Fresh buffers for a model of n variables."""
    return Marks(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n))


@kernel
def swendsen_wang(model, state, r, scale, stream, marks):  # type: ignore[no-untyped-def]
    """Flip clusters of an Ising replica, each by the heat bath of its total field.

    Satisfied bonds are kept with probability 1 − exp(−2λ|J|); given the bonds, a cluster can only
    turn as a whole, so p(flip) = 1 / (1 + exp(2λ Σ_{i∈C} h_i s_i)).
    """
    x = state.x[r]
    n = len(x)
    label, queue, total = marks.label, marks.queue, marks.total
    label[:] = -1
    total[:] = 0.0
    for root in range(n):
        if label[root] >= 0:
            continue
        label[root] = root
        queue[0] = root
        filled = 1
        done = 0
        while done < filled:
            i = queue[done]
            done += 1
            total[root] += model.fields[i] * (2 * x[i] - 1)
            for q in range(model.start[i], model.start[i + 1]):
                j = model.neighbour[q]
                if label[j] >= 0:
                    continue
                strength = model.coupling[q] * (2 * x[i] - 1) * (2 * x[j] - 1)
                if strength > 0.0 and uniform(stream.one) < -np.expm1(-2.0 * scale * strength):
                    label[j] = root
                    queue[filled] = j
                    filled += 1
        flip = uniform(stream.one) * (1.0 + np.exp(2.0 * scale * total[root])) < 1.0
        total[root] = 1.0 if flip else 0.0
    for i in range(n):
        if total[label[i]] > 0.0:
            x[i] = 1 - x[i]
    refresh(model, state, r)


@kernel
def differing_cluster(x, y, graph, stream, marks):  # type: ignore[no-untyped-def]
    """Connected variables on which two replicas differ, grown from a random one; returns how many.

    They are listed in `marks.queue`. Exchanging them between the replicas keeps the sum of both
    log weights for any model, because every factor sees either both or none of its differing
    variables exchanged (Houdayer 2001; with fields and any arity the argument is the same).
    """
    n = len(x)
    label, queue = marks.label, marks.queue
    count = 0
    for i in range(n):
        label[i] = 0
        if x[i] != y[i]:
            queue[count] = i
            label[i] = 1
            count += 1
    if count == 0:
        return 0
    queue[0] = queue[below(stream.one, count)]
    label[queue[0]] = 0
    filled = 1
    done = 0
    while done < filled:
        i = queue[done]
        done += 1
        for q in range(graph.start[i], graph.start[i + 1]):
            j = graph.neighbour[q]
            if label[j] == 1:
                label[j] = 0
                queue[filled] = j
                filled += 1
    return filled
