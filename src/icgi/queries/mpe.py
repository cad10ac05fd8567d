"""The most probable explanation: the one configuration that p(x | evidence) is largest at."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from icgi import clock
from icgi.api import GivenEvidence, GivenExclusion, GivenLikelihood
from icgi.elimination.sampling import log_potential
from icgi.errors import IcgiError
from icgi.exact.forecast import forecast
from icgi.exact.kept import collected, forecast_kept
from icgi.inference import Budget, budget_of
from icgi.lookup import variable_number
from icgi.model.condition import Evidence, condition
from icgi.model.findings import enter, resolve
from icgi.model.graph import FactorGraph, IntArray, state_names, variable_name
from icgi.randomness import generator
from icgi.sampling.search import best_found

How = Literal["auto", "exact", "pt"]
PATIENCE = 60.0  # seconds that an exact answer may be forecast to take, where no time is named
SEARCHING = 20.0  # seconds of a search, where no time and no iterations are named


@dataclass(frozen=True, eq=False)
class Explanation:
    """A configuration of all variables, by number or name, and how good it is known to be."""

    model: FactorGraph
    evidence: Evidence
    states: IntArray  # n
    log_weight: float  # Σ_f θ_f(x_f); of a Bayesian network log p(x)
    log_probability: float | None  # log p(x | evidence), where log Z is known
    exact: bool
    seconds: float

    @property
    def label(self) -> str:
        """`exact`, or `best found`: nothing says that there is no better one."""
        return "exact" if self.exact else "best found"

    def __getitem__(self, variable: int | str) -> str:
        """Name of the state of one variable."""
        i = variable_number(self.model, variable)
        return state_names(self.model, i)[int(self.states[i])]

    def keys(self) -> Sequence[int | str]:
        """Names of the variables, their numbers where they have none: `dict(found)` works."""
        return self.model.names or range(len(self.states))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        names = [variable_name(self.model, i) for i in range(self.model.n_variables)]
        return {
            "status": self.label,
            "log_weight": self.log_weight,
            "log_probability": self.log_probability,
            "seconds": self.seconds,
            "configuration": {name: self[i] for i, name in enumerate(names)},
            "states": self.states.tolist(),
        }

    def save(self, path: str | Path) -> None:
        """Write a UAI result file: `MPE`, the number of variables, and the state of each."""
        words = [len(self.states), *self.states.tolist()]
        try:
            Path(path).write_text("MPE\n" + " ".join(map(str, words)) + "\n")
        except OSError as error:
            raise IcgiError(f"cannot write {path}: {error.strerror}") from error

    def __repr__(self) -> str:
        return f"Explanation({len(self.states)} variables, {self.label}: {self.log_weight:.10g})"


def mpe(
    model: FactorGraph,
    evidence: GivenEvidence = None,
    engine: How = "auto",
    budget: Budget | None = None,
    seed: int | Generator | None = 0,
    *,
    likelihood: GivenLikelihood = None,
    exclude: GivenExclusion = None,
) -> Explanation:
    """Most probable configuration given evidence, likelihoods and excluded states.

    `exact`: max-product on a junction tree; of equally probable configurations the same one every
    time. `pt`: the best that tempering of the sharpened model came across, which is the best found
    and no more. `auto`: the first where it fits the budget.
    """
    if engine not in ("auto", "exact", "pt"):
        raise IcgiError(f"explanations are found by exact or pt, not by {engine!r}")
    began, budget, rng = clock.now(), budget_of(budget), generator(seed)
    deadline = budget.deadline()
    findings = resolve(model, evidence, likelihood, exclude)
    resolved = findings.observed
    conditioned = condition(enter(model, findings), resolved, budget.table_bytes)
    small = conditioned.model
    limit = replace(budget, seconds=min(budget.seconds, PATIENCE)) if engine == "auto" else budget
    log_z: float | None = None
    exact = engine == "exact"
    if engine != "pt":
        ahead = forecast_kept(small, forecast(small, limit, rng).order, both=False)
        exact = exact or ahead.fits(limit.until(deadline))
    if exact:
        states = collected(small, ahead, budget.until(deadline), maximise=True).likeliest()
        if ahead.fits(limit.until(deadline)):
            log_z = collected(small, ahead, budget.until(deadline)).log_total
    else:
        left = budget.until(deadline)
        if left.iterations is None and math.isinf(left.seconds):
            left = replace(left, seconds=SEARCHING)
        states = best_found(small, left, rng)
    kept = np.argsort(~conditioned.alive, axis=1, kind="stable")  # n k  kept states come first
    whole = kept[np.arange(model.n_variables), states]
    weight = float(log_potential(small, states[None])[0])
    log_p = None if log_z is None else weight - log_z
    return Explanation(model, resolved, whole, weight, log_p, exact, clock.now() - began)
