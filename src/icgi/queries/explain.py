"""How a marginal changes with each observation removed, one by one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from icgi.answer import Answer
from icgi.api import GivenEvidence, marginals_batch
from icgi.errors import EvidenceError
from icgi.inference import Budget, Engine, Status
from icgi.lookup import chosen_variables
from icgi.model.condition import resolve_evidence
from icgi.model.graph import FactorGraph, FloatArray, state_names, variable_name

_ORDER = tuple(Status)


@dataclass(frozen=True, eq=False)
class Removal:
    """The target's marginal without one observation."""

    variable: int
    state: int
    probs: FloatArray
    change: float  # total variation between the marginals with and without it, 0 to 1


@dataclass(frozen=True, eq=False)
class Explained:
    """A marginal with all evidence, with none, and with each observation removed."""

    model: FactorGraph
    target: int
    probs: FloatArray  # with all evidence
    prior: FloatArray  # with none
    removals: tuple[Removal, ...]  # the largest change first
    status: Status  # the worst of all answers
    std_error: float | None  # the largest of any probability; None where some answer has none

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""

        def named(row: FloatArray) -> dict[str, float]:
            return dict(zip(state_names(self.model, self.target), row.tolist(), strict=True))

        return {
            "target": variable_name(self.model, self.target),
            "status": self.status.value,
            "std_error": self.std_error,
            "with_evidence": named(self.probs),
            "without_evidence": named(self.prior),
            "removed": [
                {
                    "variable": variable_name(self.model, r.variable),
                    "state": state_names(self.model, r.variable)[r.state],
                    "change": r.change,
                    "without_it": named(r.probs),
                }
                for r in self.removals
            ],
        }


def explain(
    model: FactorGraph,
    evidence: GivenEvidence,
    target: int | str,
    engine: str | Engine = "auto",
    budget: Budget | None = None,
    seed: int | Generator | None = 0,
) -> Explained:
    """Marginal of a target variable with each observation removed in turn, from one batch.

    The change is the total variation, ½ Σ |p − p'|: how much probability moves.
    """
    (i,) = chosen_variables(model, [target])
    observed = dict(resolve_evidence(model, evidence))
    if not observed:
        raise EvidenceError("there is no evidence to explain; give at least one observation")
    if i in observed:
        raise EvidenceError(
            f"the target {variable_name(model, i)} is observed itself, so it is certain; choose a "
            "variable that is not"
        )
    without = [{j: x for j, x in observed.items() if j != gone} for gone in observed]
    answers = marginals_batch(model, [observed, {}, *without], engine, budget, seed)
    full, prior, *others = [np.array(answer[i]) for answer in answers]
    removals = [
        Removal(j, observed[j], p, float(0.5 * np.abs(full - p).sum()))
        for j, p in zip(observed, others, strict=True)
    ]
    return Explained(
        model,
        i,
        full,
        prior,
        tuple(sorted(removals, key=lambda r: -r.change)),
        max((a.status for a in answers), key=_ORDER.index),
        _worst(answers, i),
    )


def _worst(answers: list[Answer], i: int) -> float | None:
    """Largest standard error of the target in any answer."""
    found = []
    for answer in answers:
        if answer.status is Status.EXACT:
            found.append(0.0)
            continue
        if answer.std_error is None:
            return None
        found.append(float(answer.std_error[i].max()))
    return max(found)
