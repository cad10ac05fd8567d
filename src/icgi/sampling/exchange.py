"""Replica exchange: sweeps at every level of a ladder, swaps between neighbours, and the record.

Level t of the ladder has weights λ_t θ(x). Levels are swapped, not configurations. Neighbouring
pairs are tried in turns, even ones after odd ones: without that the walk of a replica along the
ladder is a random one, with it it keeps its direction (Okabe 2001; Syed et al. 2022).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icgi.kernels import kernel
from icgi.model.graph import FloatArray, IntArray
from icgi.sampling.clusters import differing_cluster
from icgi.sampling.replicas import assign, flip_clusters, refresh, sweep, weigh
from icgi.sampling.streams import uniform

REFRESH = 64  # sweeps after which incremental fields are rebuilt
BATCHES = 32  # even; batch means kept per ensemble: 16 to 32 of them are full at any time
TRACE = 2**13  # even; log weights kept per level: at least half of this in a long run
PROJECTIONS = 4

NO_CLUSTERS, SWENDSEN_WANG, HOUDAYER = range(3)

# what the counters of a walk and of a record count
SWEEPS, TRIPS = range(2)
FULL, INSIDE, LENGTH, KEPT, STRIDE, PHASE = range(6)


class Walk(NamedTuple):
    """Where the replicas of one ensemble stand on the ladder; one row per copy of the ladder."""

    at: IntArray  # c t   replica at each level
    heading: NDArray[np.int8]  # replicas: 1 after the hot end, 2 after the cold end, 0 before both
    weight: FloatArray  # replicas: log weight with penalties
    broken: IntArray  # replicas: violated factors
    rejected: FloatArray  # t−1   sum of rejection probabilities between neighbours
    tried: IntArray  # t−1
    tally: IntArray  # SWEEPS, TRIPS


class Record(NamedTuple):
    """What is kept of the sweeps at the target: batch sums, and log weights of all levels.

    When all batches are full, neighbours are joined and the batches to come are twice as long; the
    traces do the same by dropping every other entry. So the memory is fixed, the length is not.
    Sums are those of p less its origin: a variable that is almost certain would lose its variance
    to rounding otherwise.
    """

    local: FloatArray  # c slots  p(x_i | rest) of the last sweep
    origin: FloatArray  # slots  0 or 1, from which p is measured in what follows
    total: FloatArray  # BATCHES slots
    square: FloatArray  # BATCHES slots
    trace: FloatArray  # TRACE c t  log weights
    sound: NDArray[np.int8]  # TRACE c  whether the last level but one violates nothing
    hottest: IntArray  # TRACE c  replica at the hot end
    projected: FloatArray  # TRACE c PROJECTIONS  random projections of its states
    direction: FloatArray  # PROJECTIONS n
    tally: IntArray  # FULL, INSIDE, LENGTH, KEPT, STRIDE, PHASE


def new_walk(copies: int, levels: int) -> Walk:
    """Replica r of copy c at level r."""
    replicas = copies * levels
    return Walk(
        np.arange(replicas, dtype=np.int64).reshape(copies, levels),
        np.zeros(replicas, np.int8),
        np.zeros(replicas),
        np.zeros(replicas, np.int64),
        np.zeros(levels - 1),
        np.zeros(levels - 1, np.int64),
        np.zeros(2, np.int64),
    )


def new_record(
    copies: int, levels: int, origin: FloatArray, trace: int, direction: FloatArray
) -> Record:
    """Empty record for up to `trace` entries between two thinnings."""
    slots = len(origin)
    return Record(
        np.zeros((copies, slots)),
        origin,
        np.zeros((BATCHES, slots)),
        np.zeros((BATCHES, slots)),
        np.zeros((trace, copies, levels)),
        np.zeros((trace, copies), np.int8),
        np.zeros((trace, copies), np.int64),
        np.zeros((trace, copies, len(direction))),
        direction,
        np.array([0, 0, 1, 0, 1, 0], np.int64),
    )


@kernel
def run(  # type: ignore[no-untyped-def]
    model, state, graph, ladder, hard, walk, stream, scratch, marks, record,
    moves, sweeps, recording,
):  # fmt: skip
    """Do a number of sweeps of one ensemble.

    With `hard` the last level has λ = 1 and no violations, the one before it λ = 1 and penalties.
    """
    never = np.zeros(1, np.uint8)
    for _ in range(sweeps):
        advance(
            model, state, graph, ladder, hard, walk, stream, scratch, marks, record,
            moves, recording, never,
        )  # fmt: skip
        settle(walk, record, state, ladder, hard, stream, recording)


@kernel
def advance(  # type: ignore[no-untyped-def]
    model, state, graph, ladder, hard, walk, stream, scratch, marks, record,
    moves, recording, stop,
):  # fmt: skip
    """Sweep every replica once; replicas after the moment at which `stop` is raised stay."""
    copies, levels = walk.at.shape
    top = levels - 1
    walk.tally[SWEEPS] += 1
    if walk.tally[SWEEPS] % REFRESH == 0:
        for r in range(copies * levels):
            if stop[0]:
                return
            refresh(model, state, r)
    for t in range(levels):
        for c in range(copies):
            if stop[0]:
                return
            r = walk.at[c, t]
            cold = t == top
            sweep(
                model, state, r, ladder[t], hard and cold, stream, scratch,
                record.local[c], recording and cold,
            )  # fmt: skip
            if moves == SWENDSEN_WANG:
                flip_clusters(model, state, r, ladder[t], stream, marks)
        if moves == HOUDAYER and t > 0:
            _exchange_cluster(model, state, walk.at[0, t], walk.at[1, t], graph, stream, marks)
    for r in range(copies * levels):
        walk.weight[r], walk.broken[r] = weigh(model, state, r)


@kernel
def settle(walk, record, state, ladder, hard, stream, recording):  # type: ignore[no-untyped-def]
    """Record a complete sweep, then swap."""
    if recording:
        _note(walk, record, state)
    _swap(walk, ladder, hard, stream)


@kernel
def _exchange_cluster(model, state, a, b, graph, stream, marks):  # type: ignore[no-untyped-def]
    count = differing_cluster(state.x[a], state.x[b], graph, stream, marks)
    for k in range(count):
        i = marks.queue[k]
        x, y = state.x[a, i], state.x[b, i]
        assign(model, state, a, i, y)
        assign(model, state, b, i, x)


@kernel
def _swap(walk, ladder, hard, stream):  # type: ignore[no-untyped-def]
    """Try every other pair of neighbours: accept with min(1, exp (λ_b − λ_a)(w_a − w_b))."""
    copies, levels = walk.at.shape
    for c in range(copies):
        for t in range(walk.tally[SWEEPS] % 2, levels - 1, 2):
            a, b = walk.at[c, t], walk.at[c, t + 1]
            accept = np.exp(
                min(0.0, (ladder[t + 1] - ladder[t]) * (walk.weight[a] - walk.weight[b]))
            )
            if hard and t + 1 == levels - 1 and walk.broken[a] > walk.broken[b]:
                accept = 0.0
            walk.rejected[t] += 1.0 - accept
            walk.tried[t] += 1
            if uniform(stream.one) < accept:
                walk.at[c, t], walk.at[c, t + 1] = b, a
        hot, cold = walk.at[c, 0], walk.at[c, levels - 1]
        if walk.heading[hot] == 2:
            walk.tally[TRIPS] += 1
        walk.heading[hot] = 1
        if walk.heading[cold] == 1:
            walk.heading[cold] = 2


@kernel
def _note(walk, record, state):  # type: ignore[no-untyped-def]
    """Add one sweep to the batch sums and, where its turn has come, to the traces."""
    tally = record.tally
    copies, levels = walk.at.shape
    total, square = record.total[tally[FULL]], record.square[tally[FULL]]
    for slot in range(record.local.shape[1]):
        p = 0.0
        for c in range(copies):
            p += record.local[c, slot]
        p = p / copies - record.origin[slot]
        total[slot] += p
        square[slot] += p * p
    tally[INSIDE] += 1
    if tally[INSIDE] == tally[LENGTH]:
        tally[INSIDE] = 0
        tally[FULL] += 1
        if tally[FULL] == BATCHES:
            _join_batches(record)
    if tally[PHASE] == 0:
        at = tally[KEPT]
        for c in range(copies):
            for t in range(levels):
                record.trace[at, c, t] = walk.weight[walk.at[c, t]]
            record.sound[at, c] = walk.broken[walk.at[c, max(levels - 2, 0)]] == 0
            hot = walk.at[c, 0]
            record.hottest[at, c] = hot
            for k in range(len(record.direction)):
                inner = 0.0
                for i in range(record.direction.shape[1]):
                    inner += record.direction[k, i] * state.x[hot, i]
                record.projected[at, c, k] = inner
        tally[KEPT] += 1
        if tally[KEPT] == len(record.trace):
            _thin_traces(record)
    tally[PHASE] = (tally[PHASE] + 1) % tally[STRIDE]


@kernel
def _join_batches(record):  # type: ignore[no-untyped-def]
    half = BATCHES // 2
    for b in range(half):
        record.total[b] = record.total[2 * b] + record.total[2 * b + 1]
        record.square[b] = record.square[2 * b] + record.square[2 * b + 1]
    record.total[half:] = 0.0
    record.square[half:] = 0.0
    record.tally[FULL] = half
    record.tally[LENGTH] *= 2


@kernel
def _thin_traces(record):  # type: ignore[no-untyped-def]
    half = len(record.trace) // 2
    for k in range(half):
        record.trace[k] = record.trace[2 * k]
        record.sound[k] = record.sound[2 * k]
        record.hottest[k] = record.hottest[2 * k]
        record.projected[k] = record.projected[2 * k]
    record.tally[KEPT] = half
    record.tally[STRIDE] *= 2
