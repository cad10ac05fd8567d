"""Joint marginals from single ones: p(a, b) = p(a) p(b | a), one question for every state of a.

For engines that know single marginals only, approximate ones and those that are exact by structure
hidden in the factors. Questions are asked once, whatever the number of joints that they serve.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.errors import BudgetError, EvidenceError
from icgi.inference import Budget, Engine, JointTables, Marginals, Scope, Status, infer
from icgi.model.graph import FactorGraph, FloatArray
from icgi.units import readable_seconds

MOST_QUESTIONS = 10_000  # for all joints together

Held = tuple[tuple[int, int], ...]  # variables and their states, in the order of their numbers


def chained_joints(
    model: FactorGraph,
    scopes: Sequence[Scope],
    engine: Engine,
    budget: Budget,
    rng: Generator,
    seconds: float = 0.0,
) -> JointTables:
    """Joint marginals by observing all variables of a scope but that of most states in turn.

    The status is the worst of all answers. Standard errors are those of the products, the errors of
    different questions being independent. `seconds` is what an answer is forecast to take.
    """
    asked = _Questions(model, engine, budget, rng, _chains(model, scopes), seconds)
    tables, errors = [], []
    for scope, chain in asked.chains.items():
        table, variance = asked.table(chain)
        total = table.sum()
        place = [chain.index(i) for i in scope]
        tables.append(np.ascontiguousarray(np.transpose(table / total, place)))
        errors.append(np.ascontiguousarray(np.transpose(np.sqrt(variance) / total, place)))
    answers = [found for found in asked.found.values() if found is not None]
    known = all(found.status is Status.EXACT or found.errors is not None for found in answers)
    status = Status.worst(found.status for found in answers)
    exact = status is Status.EXACT
    return JointTables(
        tuple(tables),
        status,
        asked.answer(()).log_z,
        tuple(errors) if known and not exact else None,
        note=f"by conditioning: {len(asked.found):,} answers",
    )


def _chains(model: FactorGraph, scopes: Sequence[Scope]) -> Mapping[Scope, Scope]:
    """Each scope in the order of its questions: the variable that is never observed is last."""
    return {scope: tuple(sorted(scope, key=lambda i: (int(model.cards[i]), i))) for scope in scopes}


class _Questions:
    """Answers to the questions of all joints, each asked when it is first needed."""

    def __init__(
        self,
        model: FactorGraph,
        engine: Engine,
        budget: Budget,
        rng: Generator,
        chains: Mapping[Scope, Scope],
        seconds: float,
    ) -> None:
        self.model, self.engine, self.budget, self.rng = model, engine, budget, rng
        self.chains = chains
        self.deadline: Deadline = budget.deadline()
        self.found: dict[Held, Marginals | None] = {}  # None: impossible
        self.expected = self._count()
        if self.expected > MOST_QUESTIONS or self.expected * seconds > self.deadline.left:
            needed = f", or about {readable_seconds(self.expected * seconds)}" if seconds else ""
            raise BudgetError(
                f"these joints take {self.expected:,} answers, one for each state of all variables "
                f"but one{needed}; ask for fewer variables, give more seconds, or use pt or ttve"
            )

    def _count(self) -> int:
        """Questions at most; those that several joints share count once."""
        held = {frozenset(chain[:k]) for chain in self.chains.values() for k in range(len(chain))}
        return sum(math.prod(int(self.model.cards[i]) for i in group) for group in held)

    def answer(self, held: Held) -> Marginals:
        """Answer given these states; `EvidenceError` where they exclude each other."""
        if held not in self.found:
            left = max(self.expected - len(self.found), 1)
            share = self.budget.until(self.deadline.share(1 / left))
            try:
                self.found[held] = infer(self.model, dict(held), self.engine, share, self.rng)
            except EvidenceError:
                if not held:
                    raise
                self.found[held] = None  # an approximation had not noticed
        answer = self.found[held]
        if answer is None:
            raise EvidenceError("impossible together")
        return answer

    def table(self, chain: Scope, held: Held = ()) -> tuple[FloatArray, FloatArray]:
        """p(chain | held), axes in its order, and the variance of every entry."""
        i, rest = chain[0], chain[1:]
        card = int(self.model.cards[i])
        answer = self.answer(held)
        p = answer.probs[i, :card]
        error = np.zeros(card) if answer.errors is None else answer.errors[i, :card]
        if not rest:
            return p.copy(), error**2
        shape = (card, *(int(self.model.cards[j]) for j in rest))
        table, variance = np.zeros(shape), np.zeros(shape)
        for x in np.flatnonzero(p > 0).tolist():
            try:
                below, doubt = self.table(rest, tuple(sorted((*held, (i, x)))))
            except EvidenceError:
                continue
            table[x] = p[x] * below
            variance[x] = p[x] ** 2 * doubt + error[x] ** 2 * below**2
        return table, variance
