"""Large models in pieces: overlapping patches of the graph, with a boundary field for the rest.

Attention and elimination on dense arrays grow with n². Beyond some size every variable is answered
inside a patch of its neighbourhood; across the patch's border stand the messages of belief
propagation, as fields.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from icgi.clock import Deadline
from icgi.model.graph import BoolArray, FloatArray, IntArray
from icgi.model.ising import IsingArrays

INSIDE, SIZE = 48, 128  # variables that a patch answers, and has
SWEEPS = 300
DAMPING = 0.5
AT_REST = 1e-10
LARGEST = 1.0 - 1e-12  # |tanh| in a message


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """A part of a model, with fields for what was cut off."""

    arrays: IsingArrays
    boundary: FloatArray  # part of its fields that stands for the rest
    members: IntArray  # numbers of its variables in the whole model
    answered: BoolArray  # whose answers are taken from here; each variable has one such patch


def whole(arrays: IsingArrays) -> Patch:
    """The model as one patch."""
    n = len(arrays.fields)
    return Patch(arrays, np.zeros(n), np.arange(n), np.ones(n, dtype=np.bool_))


class _Near:
    """Neighbours of every variable, and the edges that lead to them."""

    def __init__(self, arrays: IsingArrays) -> None:
        starts, self.ends = np.concatenate([arrays.edges, arrays.edges[:, ::-1]]).T
        self.order = np.argsort(starts, kind="stable")  # numbers of directed edges, 2m
        self.bounds = np.searchsorted(starts[self.order], np.arange(len(arrays.fields) + 1))

    def edges(self, i: int) -> IntArray:
        """Directed edges that leave a variable; m more is the way back of the first m."""
        return np.asarray(self.order[self.bounds[i] : self.bounds[i + 1]])

    def __getitem__(self, i: int) -> IntArray:
        return np.asarray(self.ends[self.edges(i)])


def cut(
    arrays: IsingArrays,
    inside: int = INSIDE,
    size: int = SIZE,
    message: FloatArray | None = None,
) -> Iterator[Patch]:
    """Cover a model with patches of up to `size` variables, `inside` of which are answered.

    They are made as they are asked for: a large model has thousands. `message` are those of
    `outside_fields`, computed if absent.
    """
    near = _Near(arrays)
    message = outside_fields(arrays) if message is None else message
    free = np.ones(len(arrays.fields), dtype=np.bool_)
    place = np.full(len(arrays.fields), -1)
    first = 0
    while True:
        while first < len(free) and not free[first]:
            first += 1
        if first == len(free):
            return
        own, interior = _take(near, free, first, inside, (inside + size) // 2)
        members = np.array(_nearest(interior, near, size))
        yield _patch(arrays, near, members, np.isin(members, own), message, place)


def outside_fields(
    arrays: IsingArrays, deadline: Deadline | None = None, mean: FloatArray | None = None
) -> FloatArray:
    """Messages (2m) along the edges and against them: the field that the far end gives the other.

    Belief propagation, damped after a third of the sweeps. Where it does not come to rest, its
    average over the last third is still a fair guess. Past the deadline: the messages so far.
    It starts near the means (n) of a fixed point, if there are some.
    """
    n, (i, j) = len(arrays.fields), arrays.edges.T
    starts, ends = np.concatenate([i, j]), np.concatenate([j, i])
    t = np.tanh(np.concatenate([arrays.couplings, arrays.couplings]))
    back = np.roll(np.arange(len(t)), len(i))
    u, total = np.zeros(len(t)), np.zeros(len(t))
    if mean is not None:
        u = np.arctanh(np.clip(t * mean[starts], -LARGEST, LARGEST))
    for sweep in range(SWEEPS):
        if deadline is not None and deadline.passed:
            return u
        field = arrays.fields + np.bincount(ends, u, minlength=n)
        new = np.arctanh(np.clip(t * np.tanh(field[starts] - u[back]), -LARGEST, LARGEST))
        if np.abs(new - u).max(initial=0.0) < AT_REST:
            return np.asarray(new)
        damping = DAMPING if sweep >= SWEEPS // 3 else 0.0
        u = damping * u + (1.0 - damping) * new
        if sweep >= SWEEPS - SWEEPS // 3:
            total += u
    return np.asarray(total / (SWEEPS // 3))


def _take(
    near: _Near, free: BoolArray, first: int, inside: int, reach: int
) -> tuple[list[int], list[int]]:
    """Take up to `inside` free variables; also what joins them, connected in each component.

    They lie within `reach` variables of one, or in components so small that several fit.
    """
    own: list[int] = []
    interior: list[int] = []
    while len(own) < inside:
        while first < len(free) and not free[first]:
            first += 1
        if first == len(free):
            break
        walk = _nearest([first], near, reach - len(interior))
        new = [v for v in walk if free[v]][: inside - len(own)]
        free[new] = False
        own, interior = own + new, interior + walk
        if len(interior) >= reach:  # there may be more of this component: leave it to other patches
            break
    return own, interior


def _nearest(seeds: list[int], near: _Near, count: int) -> list[int]:
    """Breadth first from the seeds, which come first."""
    found, queue = list(seeds), deque(seeds)
    seen = set(seeds)
    while queue and len(found) < count:
        for v in near[queue.popleft()].tolist():
            if v not in seen and len(found) < count:
                seen.add(v)
                found.append(v)
                queue.append(v)
    return found


def _patch(
    arrays: IsingArrays,
    near: _Near,
    members: IntArray,
    answered: BoolArray,
    message: FloatArray,
    place: IntArray,
) -> Patch:
    """One patch; `place` is −1 everywhere, and is again afterwards."""
    m = len(arrays.edges)
    place[members] = np.arange(len(members))
    leaving = [near.edges(i) for i in members.tolist()]
    inner = np.repeat(np.arange(len(members)), [len(x) for x in leaving])
    edge = np.concatenate([np.zeros(0, np.int64), *leaving])
    outer = place[near.ends[edge]]
    place[members] = -1
    border = outer < 0
    back = np.where(edge < m, edge + m, edge - m)  # the message comes against the edge that leaves
    boundary = np.zeros(len(members))
    np.add.at(boundary, inner[border], message[back[border]])
    kept = ~border & (edge < m)
    edges = np.sort(np.stack([inner[kept], outer[kept]], 1), 1)
    part = IsingArrays(edges, arrays.couplings[edge[kept]], arrays.fields[members] + boundary, 0.0)
    return Patch(part, boundary, members, answered)
