"""Parallel tempering: marginals, their standard errors and log Z of any factor graph."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from icgi.errors import IcgiError, UnsupportedModelError
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph
from icgi.sampling import bridge, exchange, ladder
from icgi.sampling.crew import Crew
from icgi.sampling.diagnostics import Summary, grouped_rhat, series_rhat, summarise
from icgi.sampling.repair import repair
from icgi.sampling.replicas import reach
from icgi.sampling.spins import Spins
from icgi.sampling.targets import Target, as_tables, target

BURN_IN = 0.25  # share of the budget
FIRST_ROUND = 8  # sweeps between the first two placements of the ladder; doubled every round
RHAT = 1.05
SLOWEST_SWAP = 0.01  # a mean acceptance below this breaks the ladder in two
HOT_RHAT = 1.2  # hot end: replicas that differ more than this have not forgotten their past


@dataclass(frozen=True, slots=True)
class ParallelTempering:
    """Heat-bath sweeps at p(x) ∝ exp λ_t Σ_f θ_f(x_f), λ from 0 to 1, and swaps between levels.

    Marginals are means of p(x_i | rest) over the sweeps at λ = 1 (Rao-Blackwell), from independent
    ensembles. The first quarter of the budget is burn-in, in which the ladder is placed. One
    iteration is one sweep of every replica of every ensemble.

    `std_error` is the larger of the batch-means error and of the deviation between ensembles over
    √m. CONVERGED means: split R-hat below 1.05 for every variable and for the log weight, round
    trips between both ends of the ladder in every ensemble, and no gap between its levels. Nothing
    is dropped otherwise. `log_z` comes from Bennett's ratio between neighbours, anchored at λ = 0,
    where Z is the number of configurations; None where the ladder does not reach down to it.
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

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Burn in, measure until the budget is spent, judge."""
        aim = target(model)
        if aim.model.n_variables == 0:
            return aim.fixed()
        return aim.answer(temper(aim, self, budget, rng))


def temper(aim: Target, settings: ParallelTempering, budget: Budget, rng: Generator) -> Marginals:
    """Marginals of a target's variables."""
    if settings.clusters == "swendsen-wang" and not isinstance(aim.kernel, Spins):
        raise UnsupportedModelError(
            "pt: Swendsen-Wang clusters need a binary pairwise model without zeros; use "
            "clusters=houdayer, which takes any model, or none"
        )
    with ThreadPoolExecutor(settings.threads) as pool:
        crew = Crew(
            aim,
            budget,
            rng,
            pool,
            ensembles=settings.ensembles,
            levels=settings.replicas,
            most_levels=settings.replicas or settings.most_replicas,
            hottest=settings.hottest,
            clusters=settings.clusters,
        )
        burn_in(crew, settings, budget.sweeps())
        if aim.has_zeros:
            _make_sound(crew)
        crew.start_record()
        crew.sweep(max(1, budget.sweeps() - crew.clock.sweeps), recording=True)
    return _judge(crew, settings.hottest)


def burn_in(crew: Crew, settings: ParallelTempering, iterations: int) -> None:
    """Rounds of doubling length; after each but the last the levels are placed anew."""
    left, size = int(BURN_IN * iterations), FIRST_ROUND
    while left > 0 and crew.clock.share() < BURN_IN:
        last = left < 3 * size
        done = crew.sweep(left if last else size, until=BURN_IN)
        if last or done < size:
            return
        left -= done
        size *= 2
        rejection = crew.rejection()[: len(crew.ladder) - 1]
        count = len(crew.ladder)
        if settings.replicas is None:
            count = ladder.wanted_levels(rejection, settings.most_replicas - crew.top)
        crew.replace_ladder(ladder.respaced(crew.ladder, rejection, count))


def _make_sound(crew: Crew) -> None:
    """Give every replica of the last level a configuration that violates nothing."""
    aim = crew.aim
    model = as_tables(aim.model)
    moves = max(50_000, 500 * aim.model.n_factors)
    sound, missing, fewest = None, [], aim.model.n_factors
    for member in crew.members:
        for r in member.walk.at[:, -1].tolist():
            x, left = repair(model, member.state.x[r], moves, member.stream)
            member.state.x[r] = x
            fewest = min(fewest, left)
            if left:
                missing.append((member, r))
            else:
                sound = x.copy()
    if sound is None:
        with_zeros = sum(bool(np.isneginf(table).any()) for table in aim.model.log_tables)
        raise UnsupportedModelError(
            f"pt: no configuration of non-zero probability was found; the best violates {fewest} "
            f"of {with_zeros} factors with zeros after {crew.clock.sweeps} sweeps and {moves} "
            "repairs a replica; give more --iterations, or use an exact engine (jt), which says "
            "whether there is one"
        )
    for member, r in missing:
        member.state.x[r] = sound


def _judge(crew: Crew, hottest: float) -> Marginals:
    """Marginals, log Z and a status from the record."""
    aim = crew.aim
    summary = _summary(crew)
    swaps = 1.0 - crew.rejection()
    records = [member.record for member in crew.members]
    kept = int(records[0].tally[exchange.KEPT])
    trace = np.stack([record.trace[:kept] for record in records])  # m s c t
    trips = np.array([member.walk.tally[exchange.TRIPS] for member in crew.members])
    rhat, rhat_weight = float(summary.rhat.max()), series_rhat(trace[..., -1].mean(2))
    mixed = max(rhat, rhat_weight) < RHAT
    whole = trips.min() > 0 and swaps.min() > SLOWEST_SWAP
    error = summary.std_error
    if not mixed and trips.min() == 0:
        # replicas that never came back from the hot end are one draw each, however long they ran
        unseen = np.where(aim.symmetric_slots, 0.0, reach(aim.kernel)) / (len(trips) + trips.sum())
        error = np.maximum(error, unseen)
    stats = {
        "sweeps": float(crew.clock.sweeps),
        "replicas": float(crew.levels),
        "ensembles": float(len(crew.members)),
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
    }
    log_z = None
    if hottest > 0:
        stats["rhat_hot_end"] = _hot_rhat(records, kept)
        whole = whole and stats["rhat_hot_end"] < HOT_RHAT
    elif swaps.min() > SLOWEST_SWAP:
        sound = np.stack([record.sound[:kept] for record in records]).astype(np.float64)  # m s c
        found = bridge.log_z(trace, crew.all_levels, sound if aim.has_zeros else None)
        if found is not None:
            log_z = found[0] + aim.log_count + aim.constant
            stats["log_z_std_error"] = found[1]
    return Marginals(
        aim.spread(summary.mean, 1.0 - summary.mean),
        Status.CONVERGED if mixed and whole else Status.BUDGET_SPENT,
        log_z,
        std_error=aim.spread(error, error),
        deviation=aim.spread(summary.deviation, summary.deviation).max(1),
        ess=aim.spread(summary.ess, summary.ess),
        rhat=aim.spread(summary.rhat, summary.rhat),
        stats=stats,
    )


def _summary(crew: Crew) -> Summary:
    """Means and errors of all slots; where symmetry decides, its answer without error."""
    records = [member.record for member in crew.members]
    full, inside, length = records[0].tally[[exchange.FULL, exchange.INSIDE, exchange.LENGTH]]
    found = summarise(
        np.stack([record.total[:full] for record in records]),
        np.stack([record.square[:full] for record in records]),
        int(length),
        np.stack([record.total[full] for record in records]),
        int(inside),
        reach(crew.aim.kernel),
    )
    known = crew.aim.symmetric_slots
    return Summary(
        np.where(known, 0.5, records[0].origin + found.mean),
        np.where(known, 0.0, found.std_error),
        np.where(known, 0.0, found.deviation),
        np.where(known, 1.0, found.rhat),
        np.where(known, float(found.ess.max()), found.ess),
    )


def _hot_rhat(records: list[exchange.Record], kept: int) -> float:
    """Largest R-hat between the replicas that visit the hot end, over random projections."""
    values = np.concatenate([r.projected[:kept].reshape(-1, exchange.PROJECTIONS) for r in records])
    names = [r.hottest[:kept].ravel() + k * 10**6 for k, r in enumerate(records)]
    group = np.concatenate(names)
    return max(grouped_rhat(values[:, k], group) for k in range(exchange.PROJECTIONS))
