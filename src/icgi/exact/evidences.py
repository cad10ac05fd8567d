"""Many evidences on one model: one order and one layout, and anew only what evidence changes.

Every variable that some question observes has a table of its own, of ones, and of zeros for the
states that are not observed. What a node says upwards depends on the evidence below it only, so
that it is kept where that evidence is the same as in the question before.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from icgi.exact.forecast import recosted
from icgi.exact.passes import collect_one, distribute, open_roots
from icgi.exact.tree import LARGE, fill_store
from icgi.inference import EXACT_RESOLUTION, Budget, Marginals, Status
from icgi.kernels import kernel
from icgi.model.condition import Conditioned, Evidence, condition
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray
from icgi.model.ordering import Order
from icgi.model.precision import LARGE as LARGE_WEIGHT
from icgi.model.precision import extent_of, resolution

CHUNK = 64  # questions that one call answers, between two looks at memory and threads
_FREE = -1


def many_evidences(
    model: FactorGraph,
    evidences: Sequence[Evidence],
    order: Order,
    budget: Budget,
    threads: int | None = None,
) -> list[Marginals | None] | None:
    """Exact answers to many evidences; None, of one or of all, where one by one is the way.

    That is where tables are too large to be formed at once (evidence makes them smaller), where
    numbers may have lost digits, and where evidence is impossible, which has then to be explained.
    """
    extent = extent_of(model)
    precise = extent.largest <= LARGE_WEIGHT and resolution(extent) <= EXACT_RESOLUTION
    if len(evidences) < 2 or not precise:
        return None
    deadline = budget.deadline()
    whole = condition(model, {}, budget.table_bytes)
    asked = sorted({i for evidence in evidences for i in evidence if _open(whole, i)})
    observable = _with_tables(whole.model, asked)
    ahead = recosted(observable, order)
    made = ahead.plan
    if made is None or made.largest_clique > LARGE or not ahead.fits(budget.until(deadline)):
        return None
    observed, possible = _observed(whole, evidences, made.time)
    store, shift = fill_store(observable, made, log=False)
    places = np.full(model.n_variables, _FREE, np.int64)
    places[made.time[np.array(asked, np.int64)]] = made.factor_data[whole.model.n_factors :]
    stats = ahead.stats(made)

    def chunk(first: int) -> list[Marginals | None]:
        part = observed[first : first + CHUNK]
        mass = np.zeros((len(part), model.n_variables, max(whole.model.max_states, 1)))
        log_z = np.full(len(part), np.nan)
        _answer(made.tree, places, part, store, made.scratch_entries, mass, log_z, stop)
        probs = _spread(mass, whole, made.time)
        return [
            Marginals(p, Status.EXACT, shift + float(z), stats=stats) if good else None
            for p, z, good in zip(
                probs, log_z, ~np.isnan(log_z) & possible[first : first + CHUNK], strict=True
            )
        ]

    until = budget.until(deadline)
    with (
        Budget(seconds=until.seconds * len(evidences)).deadline().flag() as stop,
        ThreadPoolExecutor(threads or os.cpu_count()) as pool,
    ):
        found = pool.map(chunk, range(0, len(evidences), CHUNK))
        return [answer for part in found for answer in part]


def _open(whole: Conditioned, i: int) -> bool:
    """Whether observing a variable says anything; what is wrong with a number is said elsewhere."""
    return 0 <= i < whole.model.n_variables and whole.model.cards[i] > 1


def _with_tables(model: FactorGraph, asked: list[int]) -> FactorGraph:
    """Model with a table of ones for each of some variables, after its own tables."""
    scopes = (*model.scopes, *((i,) for i in asked))
    ones = tuple(np.zeros(model.cards[i]) for i in asked)
    return FactorGraph(model.cards, scopes, (*model.log_tables, *ones))


def _observed(
    whole: Conditioned, evidences: Sequence[Evidence], time: IntArray
) -> tuple[IntArray, BoolArray]:
    """State of each variable in each question, by time; and whether all of them are possible."""
    observed = np.full((len(evidences), whole.model.n_variables), _FREE, np.int64)
    possible = np.ones(len(evidences), np.bool_)
    number = np.cumsum(whole.alive, 1) - 1  # of each state among those that are left
    n, most = whole.alive.shape
    for q, evidence in enumerate(evidences):
        for i, x in evidence.items():
            if not (0 <= i < n and 0 <= x < most and whole.alive[i, x]):
                possible[q] = False
            elif whole.model.cards[i] > 1:
                observed[q, time[i]] = number[i, x]
    return observed, possible


def _spread(mass: FloatArray, whole: Conditioned, time: IntArray) -> FloatArray:
    """Marginals over all states of the model, from the masses by time."""
    with np.errstate(invalid="ignore"):  # of questions that were left undone
        probs = (mass / mass.sum(2, keepdims=True))[:, time]
    left = np.arange(mass.shape[2]) < whole.model.cards[:, None]
    if left.shape == whole.alive.shape and (left == whole.alive).all():
        return np.asarray(probs)
    full = np.zeros((len(mass), *whole.alive.shape))
    full[:, whole.alive] = probs[:, left]
    return full


@kernel
def _answer(tree, places, observed, given, scratch_entries, mass, log_z, stop):  # type: ignore[no-untyped-def]
    """Both passes for every question; log Z stays NaN where digits may be lost, or stopped.

    `up` holds what nodes say upwards, for the evidence `current`, unless they are marked `stale`.
    """
    count = len(tree.nodes)
    up, down = given.copy(), np.empty(len(given))
    inverse, log_scale = np.ones(count), np.zeros(count)
    stale = np.ones(count, np.bool_)
    current = np.full(len(places), _FREE)
    scratch = np.empty(scratch_entries)
    buffer = np.empty(tree.clique.max() if count else 1)
    digits = np.empty(64, np.int64)
    home = np.zeros(len(places), np.int64)
    for node in range(count):
        if tree.variable[node] >= 0:
            home[tree.variable[node]] = node
    for q in range(len(observed)):
        for t in range(len(places)):
            x = observed[q, t]
            if x != current[t]:
                for y in range(tree.cards[t]):
                    up[places[t] + y] = 1.0 if x in (_FREE, y) else 0.0
                current[t] = x
                stale[home[t]] = True
        good = True
        for node in range(count):
            for o in range(tree.op_start[node], tree.op_start[node + 1]):
                if tree.op_child[o] >= 0 and stale[tree.op_child[o]]:
                    stale[node] = True
        for node in range(count):
            if stale[node]:
                good = not stop[0] and collect_one(
                    tree, node, up, inverse, log_scale, buffer, digits, stop
                )
                if not good:
                    break
        if not good:  # what was not computed, and all above it, stays stale
            continue
        stale[:] = False
        down[:] = up
        kept = inverse.copy()
        open_roots(tree, down, kept)
        if distribute(tree, 0, count, down, kept, scratch, mass[q], stop):
            log_z[q] = log_scale.sum()
