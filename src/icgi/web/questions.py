"""Questions of people to a model, answered by the functions of the Python interface."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import icgi
from icgi import clock
from icgi.answer import Answer
from icgi.engines import parse_engine
from icgi.errors import EvidenceError, IcgiError
from icgi.inference import Budget
from icgi.joint import ask_joints
from icgi.lookup import chosen_variables, variable_number
from icgi.model.findings import Findings, enter, resolve
from icgi.model.graph import FactorGraph
from icgi.portfolio.impossible import explained
from icgi.randomness import generator
from icgi.web.payload import engine_name, engine_words
from icgi.wording import shown

MOST_CELLS = 4096  # of a joint table


@dataclass(frozen=True)
class Question:
    """What is known, and how the answer is to be found; variables and states by name or number."""

    evidence: Mapping[int | str, int | str] = field(default_factory=dict)
    likelihood: Mapping[str, Sequence[float]] = field(default_factory=dict)  # weight of each state
    exclude: Mapping[str, Sequence[str]] = field(default_factory=dict)
    engine: str = "auto"
    seconds: float | None = None
    iterations: int | None = None
    memory_bytes: int = 2**31
    level: float = 0.9
    seed: int = 0

    @property
    def budget(self) -> Budget:
        """What the engine may spend."""
        seconds = math.inf if self.seconds is None else self.seconds
        return Budget(self.iterations, seconds, self.memory_bytes)

    def findings(self, model: FactorGraph) -> Findings:
        """What is known, by number."""
        return resolve(model, self.evidence, self.likelihood, self.exclude)


def marginals(
    model: FactorGraph, asked: Question, on_answer: Callable[[Answer], None] | None = None
) -> Answer:
    """Every marginal; `on_answer` is given each complete answer of an engine that improves."""
    return icgi.marginals(
        model,
        asked.evidence,
        asked.engine,
        asked.budget,
        asked.seed,
        on_answer,
        likelihood=asked.likelihood,
        exclude=asked.exclude,
    )


def joint(model: FactorGraph, asked: Question, variables: Sequence[str]) -> dict[str, Any]:
    """Joint table of a few variables, from the engine asked."""
    if len(variables) < 2:
        raise IcgiError(f"a joint of {shown(', '.join(variables))}; name two or more variables")
    scope = chosen_variables(model, variables)
    sizes = [int(model.cards[i]) for i in scope]
    if math.prod(sizes) > MOST_CELLS:
        raise IcgiError(
            f"a joint table of {math.prod(sizes)} cells ({' × '.join(map(str, sizes))}), at most "
            f"{MOST_CELLS} are shown; name fewer variables"
        )
    findings, engine, began = asked.findings(model), parse_engine(asked.engine), clock.now()
    rng, entered = generator(asked.seed), enter(model, findings)
    try:
        (found,) = ask_joints(entered, findings.observed, [scope], engine, asked.budget, rng)
    except EvidenceError as error:
        raise explained(model, findings, error, asked.budget) from error
    plain = found.to_dict()
    return {
        "variables": plain["variables"],
        "states": plain["states"],
        "table": found.probs.ravel().tolist(),
        "std_error": None if found.std_error is None else float(found.std_error.max()),
        "engine": repr(engine),
        "engine_name": engine_name(repr(engine)),
        "engine_words": engine_words(repr(engine)),
        "status": plain["status"],
        "advice": found.status.advice,
        "note": found.note,
        "seconds": clock.now() - began,
    }


def mpe(model: FactorGraph, asked: Question) -> dict[str, Any]:
    """Most probable configuration."""
    found = icgi.mpe(
        model,
        asked.evidence,
        budget=asked.budget,
        seed=asked.seed,
        likelihood=asked.likelihood,
        exclude=asked.exclude,
    )
    return dict(found.to_dict())


def number_of(model: FactorGraph, name: str) -> int:
    """Number of a variable given by name or number; `EvidenceError` where there is none."""
    try:
        return variable_number(model, name)
    except (KeyError, IndexError) as unknown:
        raise EvidenceError(str(unknown.args[0])) from unknown
