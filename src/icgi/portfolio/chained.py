"""Joint marginals from single ones: p(a, b) = p(a) p(b | a), one question for every state of a.

Used where exact inference rests on structure that only single marginals and log Z know about.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from icgi.errors import BudgetError, EvidenceError
from icgi.inference import Budget, Engine, JointTables, Scope, Status, infer
from icgi.model.graph import FactorGraph, FloatArray
from icgi.units import readable_seconds

MOST_QUESTIONS = 10_000  # for one joint


def chained_joints(
    model: FactorGraph,
    scopes: Sequence[Scope],
    engine: Engine,
    seconds: float,
    budget: Budget,
    rng: Generator,
) -> JointTables:
    """Exact joint marginals: all variables but that of most states are observed in turn.

    `engine` is exact and takes `seconds` for an answer.
    """
    deadline = budget.deadline()
    parts = [_split(model, scope) for scope in scopes]
    questions = sum(int(np.prod(axes)) for _, _, axes in parts)
    if questions > MOST_QUESTIONS or questions * seconds > deadline.left:
        raise BudgetError(
            f"these joints take {questions:,} exact answers, one for each state of all variables "
            f"but one, or about {readable_seconds(questions * seconds)}; ask for fewer variables, "
            "give more seconds, or use pt or ttve"
        )
    whole = infer(model, {}, engine, budget, rng)
    tables: list[FloatArray] = []
    for scope, (others, last, axes) in zip(scopes, parts, strict=True):
        table = np.zeros((*axes, int(model.cards[last])))
        for states in np.ndindex(*axes):
            held = dict(zip(others, states, strict=True))
            try:
                found = infer(model, held, engine, budget.until(deadline), rng)
            except EvidenceError:  # impossible together
                continue
            assert found.log_z is not None
            assert whole.log_z is not None
            share = np.exp(found.log_z - whole.log_z)
            table[states] = share * found.probs[last, : table.shape[-1]]
        place = [(*others, last).index(i) for i in scope]
        tables.append(np.ascontiguousarray(np.transpose(table / table.sum(), place)))
    return JointTables(tuple(tables), Status.EXACT, whole.log_z, note="by conditioning")


def _split(model: FactorGraph, scope: Scope) -> tuple[Scope, int, tuple[int, ...]]:
    """Variables to observe, the one left free, and the states of the former."""
    last = max(scope, key=lambda i: (int(model.cards[i]), i))
    others = tuple(i for i in scope if i != last)
    return others, last, tuple(int(model.cards[i]) for i in others)
