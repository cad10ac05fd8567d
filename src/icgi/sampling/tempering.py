"""Parallel tempering: marginals, their standard errors and log Z of any factor graph."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.random import Generator

from icgi import clock
from icgi.clock import Deadline
from icgi.errors import IcgiError, UnsupportedModelError
from icgi.inference import UNKNOWN_ERROR, Budget, JointTables, Marginals, Scope, Status
from icgi.model.graph import FactorGraph, FloatArray
from icgi.sampling import bridge, exchange, ladder
from icgi.sampling.diagnostics import Summary, compared, grouped_rhat, moments, series_rhat
from icgi.sampling.ensembles import Ensembles, room
from icgi.sampling.repair import repair
from icgi.sampling.replicas import reach, renew
from icgi.sampling.spins import Spins
from icgi.sampling.targets import (
    Target,
    arranging_bytes,
    as_tables,
    guess,
    prepare,
    refuse,
)

BURN_IN = 0.25  # share of the budget
AGAIN = 0.1  # share of what is left of it, where the ladder has changed after that
FIRST_ROUND = 8  # sweeps between the first two placements of the ladder; doubled every round
RHAT = 1.05
SMALL = 0.05  # largest standard error under CONVERGED
FEW_TRIPS = 10  # round trips of an ensemble below which draws are counted by them
LOST_RHAT = 1.2  # beyond this no error of log Z can be believed
SLOWEST_SWAP = 0.01  # a mean acceptance below this breaks the ladder in two
LATE = 0.2  # seconds after the end that a last look may take
BLOCK = 4096  # slots judged together: their batches fit into the processor's cache
JUDGING = 2e-8  # seconds that a batch of one slot takes to be judged
BRIDGING = 2.5e-7  # seconds that a draw of one level takes on the way to log Z
HOT_RHAT = 1.2  # hot end: replicas that differ more than this have not forgotten their past
PACE = {True: 1e8, False: 2e7}  # neighbours looked at in a core-second: of spins, of anything else


@dataclass(frozen=True, slots=True)
class ParallelTempering:
    """Heat-bath sweeps at p(x) ∝ exp λ_t Σ_f θ_f(x_f), λ from 0 to 1, and swaps between levels.

    Marginals are means of p(x_i | rest) over the sweeps at λ = 1 (Rao-Blackwell), from independent
    ensembles. The first quarter of the budget is burn-in, in which the ladder is placed. One
    iteration is one sweep of every replica of every ensemble.

    `std_error` is the larger of the batch-means error and of the deviation between ensembles over
    √m, times Student's t over normal quantiles where the latter decides. CONVERGED means: no
    standard error above 0.05, split R-hat below 1.05 for every variable and for the log weight,
    round trips between both ends of the ladder in every ensemble, and no gap between its levels.
    `work` counts sweeps, not time: a busy machine does less of it in the same seconds.
    `log_z` comes from Bennett's ratio between neighbours, anchored at λ = 0,
    where Z is the number of configurations; None where the ladder does not reach down to it, has a
    gap, or did not mix.
    """

    replicas: int | None = None  # levels of the ladder; None: as many as its barrier asks for
    ensembles: int = 4
    clusters: Literal["none", "swendsen-wang", "houdayer"] = "none"
    hottest: float = 0.0  # λ of the first level; above 0 it must mix by itself, which is checked
    most_replicas: int = 64  # where their number is chosen
    threads: int | None = None  # None: one per processor; the answer does not depend on it

    def __post_init__(self) -> None:
        if self.replicas is not None and self.replicas < 2:
            raise IcgiError(f"pt: replicas={self.replicas}; a ladder has at least 2 levels")
        if self.ensembles < 2:
            raise IcgiError(f"pt: ensembles={self.ensembles}; errors need at least 2, better 4")
        if not 0.0 <= self.hottest < 1.0:
            raise IcgiError(f"pt: hottest={self.hottest} should be at least 0 and below 1")
        if self.threads is not None and self.threads < 1:
            raise IcgiError(f"pt: threads={self.threads}; give 1 or more, or leave it out")

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Burn in, measure until the budget is spent, judge."""
        deadline = budget.deadline()
        if (needed := arranging_bytes(model)) > budget.table_bytes:
            raise refuse("pt", needed, budget)
        aim = prepare(model, deadline)
        if aim is None:
            return guess(model)
        if aim.model.n_variables == 0:
            return aim.fixed()
        return aim.answer(temper(aim, self, budget, deadline, rng))

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Joint marginals of any variables, counted in configurations, with standard errors."""
        from icgi.sampling.snapshots import tempered_joints

        return tempered_joints(model, scopes, self, budget, rng)


def temper(
    aim: Target, settings: ParallelTempering, budget: Budget, deadline: Deadline, rng: Generator
) -> Marginals:
    """Marginals of a target's variables."""
    iterations = budget.sweeps()
    with burnt_in(aim, settings, budget, deadline, rng) as (ensembles, ready):
        if not ready:
            return _last_look(ensembles)
        judging = JUDGING * len(ensembles.members) * exchange.BATCHES * aim.slots
        if ensembles.pace and math.isfinite(deadline.left):
            kept = min(ensembles.room.trace, deadline.left / ensembles.pace)
            judging += BRIDGING * len(ensembles.members) * ensembles.levels * kept
        until = replace(deadline, at=deadline.at - min(judging, 0.25 * deadline.left))
        if not ensembles.sweep(max(1, iterations - ensembles.sweeps), recording=True, until=until):
            return guess(aim.model, ensembles.sweeps)
    return _judge(ensembles, settings.hottest)


def _last_look(ensembles: Ensembles) -> Marginals:
    """What a few sweeps after the end say, who know nothing of their error.

    Where even they take long, or zeros may be violated still: what the unary factors say.
    """
    aim, pace = ensembles.aim, ensembles.pace
    if aim.has_zeros or pace is None or pace > LATE:
        return guess(aim.model, ensembles.sweeps)
    ensembles.start_record()
    # a part of its own: who asks to stop gets this, too
    until = Deadline(clock.now() + LATE, clock.Part())
    if not ensembles.sweep(max(1, int(0.5 * LATE / pace)), recording=True, until=until):
        return guess(aim.model, ensembles.sweeps)
    mean = _summary(ensembles).mean
    error = aim.stated(np.full_like(mean, UNKNOWN_ERROR))
    stats = {"sweeps": float(ensembles.sweeps), "std_error": float(error.max(initial=0.0))}
    probs, errors = aim.spread(mean, 1.0 - mean), aim.spread(error, error)
    return Marginals(probs, Status.BUDGET_SPENT, std_error=errors, stats=stats)


@contextmanager
def burnt_in(
    aim: Target,
    settings: ParallelTempering,
    budget: Budget,
    deadline: Deadline,
    rng: Generator,
    through: FloatArray | None = None,
) -> Iterator[tuple[Ensembles, bool]]:
    """Ensembles on their final ladder, about to record, and whether there was time for that.

    `through` are levels that the ladder has to have besides those that it is given.
    """
    if settings.clusters == "swendsen-wang" and not isinstance(aim.kernel, Spins):
        raise UnsupportedModelError(
            "pt: Swendsen-Wang clusters need a binary pairwise model without zeros and without "
            "couplings beyond a thousand; use clusters=houdayer, which takes any model, or none"
        )
    copies = 2 if settings.clusters == "houdayer" else 1
    extra = 0 if through is None else len(through)
    most = (settings.replicas or settings.most_replicas) + extra
    space = room(aim, budget, copies, settings.ensembles, most)
    iterations = budget.sweeps()
    with ThreadPoolExecutor(settings.threads) as pool:
        ensembles = Ensembles(
            aim,
            rng,
            pool,
            space,
            deadline,
            levels=settings.replicas,
            hottest=settings.hottest,
            clusters=settings.clusters,
        )
        if len(ensembles.members) < space.ensembles:
            yield ensembles, False
            return
        burn_in(ensembles, settings, iterations)
        if through is not None:
            ensembles.replace_ladder(np.unique(np.concatenate([ensembles.ladder, through])))
            until = deadline.share(AGAIN)
            ensembles.sweep(max(1, int(AGAIN * (iterations - ensembles.sweeps))), until=until)
        if aim.has_zeros and not _make_sound(ensembles):
            yield ensembles, False
            return
        ready = not deadline.passed
        if ready:
            ensembles.start_record()
        yield ensembles, ready


def burn_in(ensembles: Ensembles, settings: ParallelTempering, iterations: int) -> None:
    """Rounds of doubling length; after each but the last the levels are placed anew."""
    left, size = int(BURN_IN * iterations), FIRST_ROUND
    until = ensembles.deadline.share(BURN_IN)
    while left > 0 and not until.passed:
        last = left < 3 * size
        done = ensembles.sweep(left if last else size, until=until)
        if last or done < size:
            return
        left -= done
        size *= 2
        rejection = ensembles.rejection()[: len(ensembles.ladder) - 1]
        count = len(ensembles.ladder)
        if settings.replicas is None:
            count = ladder.wanted_levels(rejection, ensembles.room.levels - ensembles.top)
        ensembles.replace_ladder(ladder.respaced(ensembles.ladder, rejection, count))


def _make_sound(ensembles: Ensembles) -> bool:
    """Give every replica of the last level a configuration that violates nothing.

    False where the time ends before there is one.
    """
    aim = ensembles.aim
    model = as_tables(aim.model)
    moves = max(50_000, 500 * aim.model.n_factors)
    sound, fewest = None, aim.model.n_factors
    rows = [(each, r) for each in ensembles.members for r in each.walk.at[:, -1].tolist()]
    missing = []
    # the first solution may take all the time there is, further ones half of what is left
    until = ensembles.deadline
    for member, r in rows:
        with until.flag() as stop:
            x, left = repair(model, member.state.x[r], moves, member.stream, stop)
        fewest = min(fewest, left)
        if left:
            missing.append((member, r))
            continue
        member.state.x[r] = x
        if sound is None:
            sound, until = x.copy(), ensembles.deadline.share(0.5)
    if sound is None:
        if ensembles.deadline.passed:
            return False
        with_zeros = sum(bool(np.isneginf(table).any()) for table in aim.model.log_tables)
        raise UnsupportedModelError(
            f"pt: no configuration of non-zero probability was found; the best violates {fewest} "
            f"of {with_zeros} factors with zeros after {ensembles.sweeps} sweeps and {moves} "
            "repairs a replica; allow more iterations, or use an exact engine (exact), which says "
            "whether there is one"
        )
    for member, r in missing:
        member.state.x[r] = sound
    for member, r in rows:
        renew(aim.kernel, member.state, r)
    return True


def _judge(ensembles: Ensembles, hottest: float) -> Marginals:
    """Marginals, log Z and a status from the record."""
    aim = ensembles.aim
    summary = _summary(ensembles)
    swaps = 1.0 - ensembles.rejection()
    records = [member.record for member in ensembles.members]
    kept = int(records[0].tally[exchange.KEPT])
    trace = np.stack([record.trace[:kept] for record in records])  # m s c t
    trips = np.array([member.walk.tally[exchange.TRIPS] for member in ensembles.members])
    rhat, rhat_weight = float(summary.rhat.max()), series_rhat(trace[..., -1].mean(2))
    mixed = max(rhat, rhat_weight) < RHAT
    cut = swaps.min() <= SLOWEST_SWAP
    whole = trips.min() > 0 and not cut
    error = summary.std_error
    if not mixed and trips.min() < FEW_TRIPS:
        # Only what came back from the hot end is a new draw. Of n draws, those of a state follow
        # a binomial, whose error at p = 0 or 1 is that of one draw more on either side.
        # With zeros ensembles may share their start: one draw, and that they agree says little.
        n = (1 if aim.has_zeros else len(trips)) + trips.sum()
        p = (n * summary.mean + 1.0) / (n + 2.0)
        by_trips = reach(aim.kernel) * np.sqrt(p * (1.0 - p) / (n + 2.0))
        apart = (summary.rhat > RHAT) | ~summary.moving | aim.has_zeros
        error = np.maximum(error, np.where(apart & ~aim.symmetric_slots, by_trips, 0.0))
    if cut and trips.sum() == 0:
        # Nothing ever came down from where states change: what stands still may be anywhere.
        stuck = ~summary.moving
        error = np.maximum(error, np.where(stuck, UNKNOWN_ERROR * reach(aim.kernel), 0.0))
    error = aim.stated(error)
    small = float(error.max()) <= SMALL
    stats = {
        "sweeps": float(ensembles.sweeps),
        "replicas": float(ensembles.levels),
        "ensembles": float(len(ensembles.members)),
        "rhat": rhat,
        "rhat_log_weight": rhat_weight,
        "ess": float(summary.ess.min()),
        "std_error": float(error.max()),
        "deviation_max": float(summary.deviation.max()),
        "deviation_mean": float(summary.deviation.mean()),
        "swap_rate_min": float(swaps.min()),
        "swap_rate_mean": float(swaps.mean()),
        "round_trips": float(trips.sum()),
        "round_trips_min": float(trips.min()),
        "barrier": ladder.barrier(1.0 - swaps),
        "work": _work(ensembles),
    }
    log_z = None
    if hottest > 0:
        stats["rhat_hot_end"] = _hot_rhat(records, kept)
        whole = whole and stats["rhat_hot_end"] < HOT_RHAT
    elif not cut and (mixed or (trips.min() > 0 and rhat < LOST_RHAT)):
        sound = np.stack([record.sound[:kept] for record in records]).astype(np.float64)  # m s c
        found = bridge.log_z(trace, ensembles.all_levels, sound if aim.has_zeros else None)
        if found is not None:
            log_z = found[0] + aim.log_count + aim.constant
            # before it has mixed, a mode that none of the draws met may hold 2/n of all
            unseen = 0.0 if mixed else 2.0 / (len(trips) + float(trips.sum()))
            stats["log_z_std_error"] = math.hypot(found[1], unseen)
    return Marginals(
        aim.spread(summary.mean, 1.0 - summary.mean),
        Status.CONVERGED if mixed and whole and small else Status.BUDGET_SPENT,
        log_z,
        std_error=aim.spread(error, error),
        deviation=aim.spread(summary.deviation, summary.deviation).max(1),
        ess=aim.spread(summary.ess, summary.ess),
        rhat=aim.spread(summary.rhat, summary.rhat),
        stats=stats,
    )


def _summary(ensembles: Ensembles) -> Summary:
    """Means and errors of all slots; where symmetry decides, its answer without error."""
    records = [member.record for member in ensembles.members]
    full, inside, length = records[0].tally[[exchange.FULL, exchange.INSIDE, exchange.LENGTH]]
    slots = len(records[0].origin)
    parts = []
    for begin in range(0, slots, BLOCK):
        block = slice(begin, begin + BLOCK)
        parts.append(
            moments(
                np.stack([record.total[:full, block] for record in records]),
                np.stack([record.square[:full, block] for record in records]),
                int(length),
                np.stack([record.total[full, block] for record in records]),
                int(inside),
            )
        )
    found = compared(parts, reach(ensembles.aim.kernel))
    known = ensembles.aim.symmetric_slots
    return Summary(
        np.where(known, 0.5, records[0].origin + found.mean),
        np.where(known, 0.0, found.std_error),
        np.where(known, 0.0, found.deviation),
        np.where(known, 1.0, found.rhat),
        np.where(known, float(found.ess.max()), found.ess),
        found.moving | known,
    )


def _work(ensembles: Ensembles) -> float:
    """About how many core-seconds of an ordinary machine the sweeps are, however long they took."""
    aim = ensembles.aim
    looks = ensembles.sweeps * ensembles.levels * len(ensembles.members)
    return looks * int(aim.model.arity.sum()) / PACE[isinstance(aim.kernel, Spins)]


def _hot_rhat(records: list[exchange.Record], kept: int) -> float:
    """Largest R-hat between the replicas that visit the hot end, over random projections."""
    values = np.concatenate([r.projected[:kept].reshape(-1, exchange.PROJECTIONS) for r in records])
    names = [r.hottest[:kept].ravel() + k * 10**6 for k, r in enumerate(records)]
    group = np.concatenate(names)
    return max(grouped_rhat(values[:, k], group) for k in range(exchange.PROJECTIONS))
