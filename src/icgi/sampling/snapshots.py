"""Configurations of a tempering run, looked at every few sweeps, evenly over the whole run."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.inference import UNKNOWN_ERROR, Budget, JointTables, Scope, Status
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.sampling.diagnostics import summarise
from icgi.sampling.ensembles import Ensembles
from icgi.sampling.exchange import BATCHES, TRIPS
from icgi.sampling.targets import Target, arranging_bytes, prepare, refuse
from icgi.sampling.tempering import (
    FEW_TRIPS,
    RHAT,
    SLOWEST_SWAP,
    SMALL,
    ParallelTempering,
    burnt_in,
)

MOST = 4096  # snapshots kept; a longer run leaves out every other one, again and again
SHARE = 0.25  # of the memory, for what is kept of them
CERTAIN = 2**31  # round trips of a model that has one configuration only

Seen = Callable[[NDArray[np.int32]], NDArray[Any]]
"""From the states of all replicas, m c t n, to what is kept of them."""


def watched(
    ensembles: Ensembles, sweeps: int, until: Deadline, most: int, seen: Seen
) -> NDArray[Any]:
    """What was seen at every snapshot, s …; between half of `most` and all of it in a long run."""
    kept: list[NDArray[Any]] = []
    gap = max(1, sweeps // most) if sweeps < 2**40 else 1
    while sweeps > 0 and not until.passed:
        done = ensembles.sweep(min(gap, sweeps), recording=True, until=until)
        sweeps -= done
        if done < gap:
            break
        kept.append(seen(np.stack([m.state.x[m.walk.at] for m in ensembles.members])))
        if len(kept) == most:
            kept, gap = kept[1::2], 2 * gap
    return np.stack(kept) if kept else np.zeros(0)


def tempered_states(
    model: FactorGraph,
    settings: ParallelTempering,
    budget: Budget,
    rng: Generator,
    most: int = MOST,
) -> tuple[Target, IntArray, int]:
    """Configurations s m n of the model at the last level, and round trips of the laziest ensemble.

    Without the time for one, s is zero. A ladder with a gap counts as no round trips.
    """
    deadline = budget.deadline()
    if (needed := arranging_bytes(model)) > budget.table_bytes:
        raise refuse("pt", needed, budget)
    aim = prepare(model, deadline)
    if aim is None:
        raise BudgetError("pt: the seconds were over before a sweep was made; give more seconds")
    nothing = np.zeros((0, settings.ensembles, model.n_variables), np.int64)
    if aim.model.n_variables == 0:
        fixed = np.zeros((most, settings.ensembles, 0), np.int64)
        return aim, aim.states(fixed), CERTAIN
    each = settings.ensembles * aim.model.n_variables
    most = int(min(most, max(64, SHARE * budget.table_bytes / (8 * each))))
    with burnt_in(aim, settings, budget, deadline, rng) as (ensembles, ready):
        if not ready:
            return aim, nothing, 0
        left = max(1, budget.sweeps() - ensembles.sweeps)
        x = watched(ensembles, left, deadline, most, lambda x: x[:, 0, -1].astype(np.int16))
        trips = min(int(member.walk.tally[TRIPS]) for member in ensembles.members)
        if 1.0 - float(ensembles.rejection().max(initial=0.0)) <= SLOWEST_SWAP:
            trips = 0
    return aim, aim.states(x) if len(x) else nothing, trips


def tempered_joints(
    model: FactorGraph,
    scopes: Sequence[Scope],
    settings: ParallelTempering,
    budget: Budget,
    rng: Generator,
) -> JointTables:
    """Joint marginals counted in snapshots, with standard errors."""
    aim, x, trips = tempered_states(model, settings, budget, rng)
    found = [_counted(model, aim, x, scope, trips) for scope in scopes]
    worst = max((float(error.max()) for _, error, _ in found), default=0.0)
    rhat = max((r for _, _, r in found), default=1.0)
    sound = trips > 0 and worst <= SMALL and rhat < RHAT
    return JointTables(
        tuple(table for table, _, _ in found),
        Status.CONVERGED if sound else Status.BUDGET_SPENT,
        std_errors=tuple(error for _, error, _ in found),
        note=f"{x.shape[0] * x.shape[1]} configurations",
    )


def _counted(
    model: FactorGraph, aim: Target, x: IntArray, scope: Scope, trips: int
) -> tuple[FloatArray, FloatArray, float]:
    """Joint table of a scope, its errors, and R-hat of its worst entry."""
    shape = [int(model.cards[i]) for i in scope]
    entries = math.prod(shape)
    s, m = x.shape[:2]
    if s < 2 * BATCHES:  # too few to say anything about them
        return np.full(shape, 1.0 / entries), np.full(shape, UNKNOWN_ERROR), math.inf
    length = s // BATCHES
    code = np.ravel_multi_index(tuple(x[-BATCHES * length :, :, i] for i in scope), shape)  # s m
    batch = np.arange(BATCHES * length) // length
    place = (np.arange(m) * BATCHES + batch[:, None]) * entries + code
    total = np.bincount(place.ravel(), minlength=m * BATCHES * entries).astype(np.float64)
    total = total.reshape(m, BATCHES, entries)
    square = total
    if aim.symmetric[list(scope)].all():  # a configuration and its mirror image count half each
        total = 0.5 * (total + total[..., ::-1])
        square = 0.5 * total
    found = summarise(total, square, length, np.zeros((m, entries)), 0, np.ones(entries))
    error, rhat = found.std_error, float(found.rhat.max())
    if rhat >= RHAT and trips < FEW_TRIPS:  # only what came back from the hot end is a new draw
        n = (1 if aim.has_zeros else m) * (1 + trips)
        p = (n * found.mean + 1.0) / (n + 2.0)
        error = np.maximum(error, np.sqrt(p * (1.0 - p) / (n + 2.0)))
    return found.mean.reshape(shape), np.minimum(error, UNKNOWN_ERROR).reshape(shape), rhat
