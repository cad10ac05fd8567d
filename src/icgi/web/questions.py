"""Questions of people to a model, answered by the public functions: the one place that calls them.

Soft evidence and excluded states become a factor of one variable each. Where `icgi` has no `joint`
of its own, the chain rule over marginals gives it; where it has no `mpe`, there is none.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import icgi
from icgi.answer import Answer
from icgi.errors import EvidenceError, IcgiError
from icgi.inference import Budget
from icgi.model.condition import resolve_evidence
from icgi.model.graph import FactorGraph, assembled, log_of, state_names, variable_name
from icgi.web.payload import answer_facts
from icgi.wording import shown

MOST_CELLS = 4096  # of a joint table
MOST_QUESTIONS = 256  # that the chain rule may ask


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


def can() -> dict[str, bool]:
    """Which kinds of question this installation answers."""
    return {"joint": True, "mpe": hasattr(icgi, "mpe")}


def marginals(
    model: FactorGraph, asked: Question, heard: Callable[[Answer], None] | None = None
) -> Answer:
    """Every marginal; `heard` is given each complete answer of an engine that improves."""
    given = with_weights(model, asked)

    def named(answer: Answer) -> Answer:
        return replace(answer, model=model)

    told = None if heard is None else (lambda answer: heard(named(answer)))
    return named(
        icgi.marginals(given, asked.evidence, asked.engine, asked.budget, asked.seed, told)
    )


def joint(model: FactorGraph, asked: Question, variables: Sequence[str]) -> dict[str, Any]:
    """Joint table of a few variables: p(a, b, …) = p(a) p(b | a) …, each factor one question."""
    which = [number_of(model, v) for v in variables]
    if not 2 <= len(set(which)) == len(which):
        raise IcgiError(f"a joint of {shown(', '.join(variables))}; name two or more variables")
    sizes = [int(model.cards[i]) for i in which]
    if math.prod(sizes) > MOST_CELLS or math.prod(sizes[:-1]) > MOST_QUESTIONS:
        raise IcgiError(
            f"a joint table of {math.prod(sizes)} cells ({' × '.join(map(str, sizes))}); name "
            "fewer variables, those of most states last"
        )
    table = np.zeros(sizes)
    worst: Answer | None = None
    plain = resolve_evidence(model, asked.evidence)

    def fill(held: tuple[int, ...], weight: float) -> None:
        nonlocal worst
        known = {**plain, **dict(zip(which, held, strict=False))}
        if any(plain.get(i, x) != x for i, x in known.items()):
            return
        names: dict[int | str, int | str] = {
            variable_name(model, i): state_names(model, i)[x] for i, x in known.items()
        }
        found = marginals(model, replace(asked, evidence=names))
        if worst is None or not found.status.trusted:
            worst = found
        row = found[which[len(held)]]
        for x, p in enumerate(row.tolist()):
            if len(held) == len(which) - 1:
                table[(*held, x)] = weight * p
            elif p > 0:
                fill((*held, x), weight * p)

    fill((), 1.0)
    assert worst is not None
    facts = answer_facts(worst, asked.level)
    keys = ("engine", "engine_name", "engine_words", "status", "advice", "seconds")
    return {
        "variables": [variable_name(model, i) for i in which],
        "states": [list(state_names(model, i)) for i in which],
        "table": table.ravel().tolist(),
        **{key: facts[key] for key in keys},
    }


def mpe(model: FactorGraph, asked: Question) -> dict[str, Any]:
    """Most probable configuration, where this installation has it."""
    if not can()["mpe"]:
        raise IcgiError(
            "this version of icgi has no most probable configuration; ask for marginals"
        )
    found = icgi.mpe(
        with_weights(model, asked), asked.evidence, budget=asked.budget, seed=asked.seed
    )
    return dict(found.to_dict())


def with_weights(model: FactorGraph, asked: Question) -> FactorGraph:
    """Model with one more factor for every variable with soft evidence or excluded states."""
    weights: dict[int, np.ndarray] = {}
    for name, values in asked.likelihood.items():
        i = number_of(model, name)
        weight = np.asarray(values, np.float64)
        if weight.shape != (int(model.cards[i]),):
            raise EvidenceError(
                f"{weight.size} weights for the {int(model.cards[i])} states of variable "
                f"{shown(variable_name(model, i))}; give one for each"
            )
        if not (np.isfinite(weight).all() and weight.min() >= 0 and weight.max() > 0):
            raise EvidenceError(
                f"the weights of variable {shown(variable_name(model, i))} should be finite, not "
                "negative, and not all zero"
            )
        weights[i] = weight / weight.max()
    for name, states in asked.exclude.items():
        i = number_of(model, name)
        weight = weights.setdefault(i, np.ones(int(model.cards[i])))
        for state in states:
            weight[_state(model, i, state)] = 0.0
        if not weight.max() > 0:
            raise EvidenceError(
                f"every state of variable {shown(variable_name(model, i))} is excluded; leave one"
            )
    if not weights:
        return model
    tables = [log_of(weight, "soft evidence") for weight in weights.values()]
    for table in tables:
        table.flags.writeable = False
    return assembled(
        model.cards,
        (*model.scopes, *((i,) for i in weights)),
        tuple(itertools.chain(model.log_tables, tables)),
        model.names,
        model.states,
    )


def number_of(model: FactorGraph, name: str) -> int:
    """Number of a variable given by name or number."""
    given: dict[int | str, int | str] = {name: 0}
    i = next(iter(resolve_evidence(model, given)))
    if not 0 <= i < model.n_variables:
        raise EvidenceError(
            f"there is no variable {i}; the model has the variables 0 to {model.n_variables - 1}"
        )
    return i


def _state(model: FactorGraph, i: int, state: str) -> int:
    given: dict[int | str, int | str] = {i: state}
    x = resolve_evidence(model, given)[i]
    if not 0 <= x < model.cards[i]:
        raise EvidenceError(
            f"variable {shown(variable_name(model, i))} has no state {x}; its states are 0 to "
            f"{int(model.cards[i]) - 1}"
        )
    return x
