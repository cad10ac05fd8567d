"""Large models in pieces: overlapping patches of the graph, and what the rest says to each.

Attention and elimination on dense arrays grow with n². Beyond some size every variable is answered
inside a patch of its neighbourhood; across the patch's border stand the messages of belief
propagation, as fields.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

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
    said: FloatArray  # part of its fields that is what the rest says
    members: IntArray  # numbers of its variables in the whole model
    answered: BoolArray  # whose answers are taken from here; each variable has one such patch


def whole(arrays: IsingArrays) -> Patch:
    """The model as one patch."""
    n = len(arrays.fields)
    return Patch(arrays, np.zeros(n), np.arange(n), np.ones(n, dtype=np.bool_))


def cut(arrays: IsingArrays, inside: int = INSIDE, size: int = SIZE) -> list[Patch]:
    """Cover a model with patches of up to `size` variables, `inside` of which are answered."""
    starts, ends = np.concatenate([arrays.edges, arrays.edges[:, ::-1]]).T
    order = np.argsort(starts, kind="stable")
    n = len(arrays.fields)
    bounds = np.searchsorted(starts[order], np.arange(n + 1))
    near = [ends[order[a:b]] for a, b in pairwise(bounds)]
    message = outside_fields(arrays)
    free = np.ones(n, dtype=np.bool_)
    found: list[Patch] = []
    while free.any():
        own, core = _take(near, free, inside, (inside + size) // 2)
        members = np.array(_nearest(core, near, size))
        found.append(_patch(arrays, members, np.isin(members, own), message))
    return found


def outside_fields(arrays: IsingArrays) -> FloatArray:
    """Messages (2m) along the edges and against them: the field that the far end gives the other.

    Belief propagation, damped after a third of the sweeps. Where it does not come to rest, its
    average over the last third is still a fair guess.
    """
    n, (i, j) = len(arrays.fields), arrays.edges.T
    starts, ends = np.concatenate([i, j]), np.concatenate([j, i])
    t = np.tanh(np.concatenate([arrays.couplings, arrays.couplings]))
    back = np.roll(np.arange(len(t)), len(i))
    u, total = np.zeros(len(t)), np.zeros(len(t))
    for sweep in range(SWEEPS):
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
    near: list[IntArray], free: BoolArray, inside: int, reach: int
) -> tuple[list[int], list[int]]:
    """Take up to `inside` free variables; also what joins them, connected in each component.

    They lie within `reach` variables of one, or in components so small that several fit.
    """
    own: list[int] = []
    core: list[int] = []
    while len(own) < inside and free.any():
        walk = _nearest([int(np.flatnonzero(free)[0])], near, reach - len(core))
        new = [v for v in walk if free[v]][: inside - len(own)]
        free[new] = False
        own, core = own + new, core + walk
        if len(core) >= reach:  # there may be more of this component: leave it to other patches
            break
    return own, core


def _nearest(seeds: list[int], near: list[IntArray], count: int) -> list[int]:
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
    arrays: IsingArrays, members: IntArray, answered: BoolArray, message: FloatArray
) -> Patch:
    n, m = len(arrays.fields), len(arrays.edges)
    place = np.full(n, -1)
    place[members] = np.arange(len(members))
    i, j = place[arrays.edges].T
    kept = (i >= 0) & (j >= 0)
    said = np.zeros(len(members))
    for inner, outer, u in ((j, i, message[:m]), (i, j, message[m:])):
        border = (inner >= 0) & (outer < 0)
        np.add.at(said, inner[border], u[border])
    edges = np.sort(np.stack([i[kept], j[kept]], 1), 1)
    part = IsingArrays(edges, arrays.couplings[kept], arrays.fields[members] + said, 0.0)
    return Patch(part, said, members, answered)
