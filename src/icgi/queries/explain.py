"""How a marginal changes with each observation, or piece of soft evidence, removed one by one."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from icgi.answer import Answer
from icgi.api import GivenEvidence, GivenExclusion, GivenLikelihood, marginals_batch
from icgi.errors import EvidenceError
from icgi.inference import Budget, Engine, Status
from icgi.lookup import chosen_variables
from icgi.model.findings import Findings, enter, resolve
from icgi.model.graph import FactorGraph, FloatArray, state_names, variable_name
from icgi.wording import aligned

Kind = Literal["observed", "likely", "excluded"]


@dataclass(frozen=True, eq=False)
class Removal:
    """The target's marginal without one finding."""

    variable: int
    state: int | None  # that was observed; None for soft evidence and excluded states
    probs: FloatArray
    change: float  # total variation between the marginals with and without it, 0 to 1
    kind: Kind = "observed"


@dataclass(frozen=True, eq=False)
class Explained:
    """A marginal with all evidence, with none, and with each finding removed."""

    model: FactorGraph
    target: int
    probs: FloatArray  # with all evidence
    prior: FloatArray  # with none
    removals: tuple[Removal, ...]  # the largest change first
    status: Status  # the worst of all answers
    std_error: float | None  # the largest of any probability; None where some answer has none

    def rows(self) -> list[list[str]]:
        """Cells of the table: what was removed, how much it moves, and the marginal without it."""
        target = variable_name(self.model, self.target)
        heads = (f"{target}={name}" for name in state_names(self.model, self.target))
        made = [["removed", "probability moved", *heads]]
        listed = [("nothing", "", self.probs), ("all evidence", "", self.prior)]
        for each in self.removals:
            label = variable_name(self.model, each.variable)
            if each.state is None:
                label += f" ({each.kind})"
            else:
                label += f"={state_names(self.model, each.variable)[each.state]}"
            listed.append((label, f"{each.change:.4f}", each.probs))
        return made + [[a, b, *(f"{p:.4f}" for p in row.tolist())] for a, b, row in listed]

    def __repr__(self) -> str:
        return f"{aligned(self.rows())}\n{self.status.value}"

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
                    "kind": r.kind,
                    "state": None
                    if r.state is None
                    else state_names(self.model, r.variable)[r.state],
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
    *,
    likelihood: GivenLikelihood = None,
    exclude: GivenExclusion = None,
) -> Explained:
    """Marginal of a target variable with each finding removed in turn, from one batch.

    Findings are observations, likelihoods and the excluded states of a variable. The change is the
    total variation, ½ Σ |p − p'|: how much probability moves.
    """
    (i,) = chosen_variables(model, [target])
    found = resolve(model, evidence, likelihood, exclude)
    listed: list[tuple[Kind, int]] = [
        *(("observed", j) for j in found.observed),
        *(("likely", j) for j in found.likelihood),
        *(("excluded", j) for j in found.excluded),
    ]
    if not listed:
        raise EvidenceError("there is no evidence to explain; give at least one observation")
    if i in found.observed:
        raise EvidenceError(
            f"the target {variable_name(model, i)} is observed itself, so it is certain; choose a "
            "variable that is not"
        )
    questions = [found, Findings(), *(_without(found, *finding) for finding in listed)]
    evidences = [asked.observed for asked in questions]
    if found.likelihood or found.excluded:
        models = [enter(model, asked) for asked in questions]
        answers = marginals_batch(models, evidences, engine, budget, seed)
    else:  # one model, whose elimination order serves all
        answers = marginals_batch(model, evidences, engine, budget, seed)
    full, prior, *others = [np.array(answer[i]) for answer in answers]
    removals = [
        Removal(j, found.observed.get(j) if kind == "observed" else None, p, _moved(full, p), kind)
        for (kind, j), p in zip(listed, others, strict=True)
    ]
    return Explained(
        model,
        i,
        full,
        prior,
        tuple(sorted(removals, key=lambda r: -r.change)),
        Status.worst(a.status for a in answers),
        _worst(answers, i),
    )


def _without(found: Findings, kind: Kind, gone: int) -> Findings:
    """Findings without one of them."""

    def rest(part: Any) -> Any:
        return {j: value for j, value in part.items() if j != gone}

    if kind == "observed":
        return replace(found, observed=rest(found.observed))
    if kind == "likely":
        return replace(found, likelihood=rest(found.likelihood))
    return replace(found, excluded=rest(found.excluded))


def _moved(p: FloatArray, other: FloatArray) -> float:
    return float(0.5 * np.abs(p - other).sum())


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
