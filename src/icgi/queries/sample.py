"""Configurations drawn from a model: exactly where that fits, else by elimination or tempering."""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.random import Generator

from icgi.api import GivenEvidence, GivenExclusion, GivenLikelihood
from icgi.clock import Deadline
from icgi.elimination.run import OutOfTimeError
from icgi.elimination.sampling import Samples, log_potential
from icgi.elimination.sampling import sample as eliminate
from icgi.errors import BudgetError, IcgiError
from icgi.exact.forecast import forecast
from icgi.exact.kept import Kept, collected, forecast_kept
from icgi.inference import Budget, budget_of
from icgi.model.condition import condition
from icgi.model.findings import enter, resolve
from icgi.model.graph import FactorGraph, IntArray
from icgi.randomness import generator
from icgi.sampling.snapshots import tempered_states
from icgi.sampling.tempering import ParallelTempering
from icgi.units import readable_bytes

How = Literal["auto", "exact", "ttve", "pt"]
PATIENCE = 60.0  # seconds that exact draws may be forecast to take, where no time is named
DRAWING = 20.0  # seconds of an elimination, where neither time nor rank is named
RANK = 16


def sample(
    model: FactorGraph,
    n: int,
    evidence: GivenEvidence = None,
    seed: int | Generator | None = 0,
    rank: int | None = None,
    engine: How = "auto",
    budget: Budget | None = None,
    *,
    likelihood: GivenLikelihood = None,
    exclude: GivenExclusion = None,
) -> Samples:
    """Configurations from p(x | evidence), each with its probability as far as that is known.

    `how` says what they were drawn by. `exact`: independent and from p itself, by a junction tree.
    `ttve`: independent, from an elimination q with tensor trains of the given rank, or a lower one
    that the seconds allow (20 where neither is given); `weights` turn
    averages over q into averages over p, `log_z` is an unbiased estimate of Z with `log_z_error`,
    and `share` says how close q is to p. `pt`: snapshots of tempering, of equal weight, neighbours
    correlated, and of unknown `log_q` (NaN). `auto` takes the first that fits; a rank asks for
    `ttve`.
    """
    if n < 1:
        raise IcgiError(f"{n} samples asked for; ask for at least one")
    if engine not in ("auto", "exact", "ttve", "pt"):
        raise IcgiError(f"samples are drawn by exact, ttve or pt, not by {engine!r}")
    budget, rng = budget_of(budget), generator(seed)
    findings = resolve(model, evidence, likelihood, exclude)
    conditioned = condition(enter(model, findings), findings.observed, budget.table_bytes)
    drawn = _drawn(conditioned.model, n, rng, rank, engine, budget)
    kept = np.argsort(~conditioned.alive, axis=1, kind="stable")  # n k  kept states come first
    return replace(drawn, states=kept[np.arange(model.n_variables), drawn.states])


def _drawn(
    model: FactorGraph, n: int, rng: Generator, rank: int | None, engine: How, budget: Budget
) -> Samples:
    needed = 16 * n * model.n_variables
    if needed > budget.table_bytes:
        raise BudgetError(
            f"{n} configurations of {model.n_variables} variables need {readable_bytes(needed)}, "
            f"the budget is {readable_bytes(budget.table_bytes)}; ask for fewer, or give a larger "
            "memory budget"
        )
    if engine == "exact" or (engine == "auto" and rank is None):
        found = _summed(model, rng, budget, patient=engine == "auto")
        if found is not None:
            states = found.draws(n, rng)
            log_p = log_potential(model, states)
            return Samples(states, log_p - found.log_total, log_p, "exact")
    if engine == "pt":
        return _tempered(model, n, rng, budget)
    deadline = budget.deadline()
    if rank is None and math.isinf(budget.seconds):
        deadline = Deadline.after(DRAWING)
    try:
        return eliminate(model, n, rng, RANK if rank is None else rank, deadline=deadline)
    except OutOfTimeError as error:
        raise BudgetError(
            "the seconds were over before configurations could be drawn; give more, or ask pt"
        ) from error


def _summed(model: FactorGraph, rng: Generator, budget: Budget, patient: bool) -> Kept | None:
    """Messages of a junction tree; where they do not fit None, or a refusal if not `patient`."""
    deadline = budget.deadline()
    limit = replace(budget, seconds=min(budget.seconds, PATIENCE)) if patient else budget
    order = forecast(model, limit, rng).order
    ahead = forecast_kept(model, order, both=False)
    if patient and not ahead.fits(limit):
        return None
    return collected(model, ahead, budget.until(deadline))


def _tempered(model: FactorGraph, n: int, rng: Generator, budget: Budget) -> Samples:
    """Snapshots of a tempering run, spread evenly over it and its ensembles."""
    settings = ParallelTempering()
    per = -(-n // settings.ensembles)
    if budget.iterations is None and budget.seconds == float("inf"):
        budget = replace(budget, iterations=max(1000, 10 * per))
    _, x, _ = tempered_states(model, settings, budget, rng, most=2 * per)
    flat: IntArray = x.reshape(-1, model.n_variables)
    if len(flat) < n:
        raise BudgetError(
            f"tempering came to {len(flat)} configurations of the {n} asked for; give more "
            "seconds or iterations"
        )
    states = flat[np.linspace(0, len(flat) - 1, n).round().astype(np.int64)]
    log_p = log_potential(model, states)
    return Samples(states, np.full(n, np.nan), log_p, "pt")
