"""The work of `speed`: the least of three timings of an answer, with everything loaded."""

import math
import warnings
from typing import Any

import numpy as np

from icgi import clock
from icgi.data.jobs.answers import alone
from icgi.data.jobs.job import Question
from icgi.engines import parse_engine
from icgi.extras import require_extra
from icgi.inference import Budget, infer
from icgi.model.condition import condition
from icgi.model.graph import FloatArray

REPEATS, QUICK = 3, 1.0  # an answer that took less than a second is timed again


def timed(
    question: Question,
    engine: str,
    seed: int,
    seconds: float | None,
    table_bytes: int,
    identity: str = "",
    iterations: int | None = None,
) -> dict[str, Any]:
    """Line of the quickest answer; the first one also loads what the engine needs."""
    made = alone(parse_engine(engine))
    budget = Budget(iterations, math.inf if seconds is None else seconds, table_bytes)
    best = math.inf
    for _ in range(REPEATS):
        began = clock.now()
        found = infer(question.model, question.evidence, made, budget, np.random.default_rng(seed))
        best = min(best, spent := clock.now() - began)
        if spent > QUICK:
            break
    return {"status": found.status.value, "seconds": best, **_sizes(question)}


def pyagrum(
    question: Question,
    engine: str,
    seed: int,
    seconds: float | None,
    table_bytes: int,
    identity: str = "",
) -> dict[str, Any]:
    """The same of pyAgrum's exact inference on one thread; building its model is not timed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyAgrum dies where its own warnings become exceptions
        gum = require_extra("pyagrum", "bn", "the comparison with pyAgrum")
        gum.setNumberOfThreads(1)
        field = _field(gum, question)
        best = math.inf
        for _ in range(REPEATS):
            began = clock.now()
            asked = gum.ShaferShenoyMRFInference(field)
            asked.makeInference()
            for name in field.names():
                asked.posterior(name)
            best = min(best, spent := clock.now() - began)
            if spent > QUICK:
                break
    return {"status": "exact", "seconds": best, **_sizes(question)}


def _sizes(question: Question) -> dict[str, int]:
    model = question.model
    return {
        "n": model.n_variables,
        "pairs": sum(len(scope) == 2 for scope in model.scopes),
        "states": model.max_states,
    }


def _field(gum: Any, question: Question) -> Any:
    """Markov random field of a question, through the API: the reader transposes tables."""
    model = condition(question.model, question.evidence).model
    tables: dict[tuple[int, ...], FloatArray] = {}
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if scope:
            axes = np.argsort(scope)
            key = tuple(scope[a] for a in axes)
            tables[key] = tables.get(key, 0.0) + table.transpose(axes)
    field = gum.MarkovRandomField()
    for i in sorted({i for key in tables for i in key}):
        field.add(gum.LabelizedVariable(f"v{i}", "", int(model.cards[i])))
    for key, table in tables.items():
        factor = field.addFactor([f"v{i}" for i in key])
        # pyAgrum's numpy view has the first variable of the factor as the last axis
        order = [key.index(int(v.name()[1:])) for v in reversed(factor.variablesSequence())]
        factor[:] = np.ascontiguousarray(np.exp(table - table.max()).transpose(order))
    return field
