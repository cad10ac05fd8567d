"""Search of the configuration of largest weight: tempering of the sharpened model, then polishing.

The model's log weights are multiplied, so that the last level of the ladder is nearly frozen while
the first still takes everything; the best configuration that any replica visits is kept.
"""

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.inference import Budget
from icgi.model.graph import FactorGraph, IntArray, assembled
from icgi.model.wiring import wiring
from icgi.sampling.ensembles import Ensembles
from icgi.sampling.replicas import weight_of
from icgi.sampling.targets import arranging_bytes, prepare, refuse
from icgi.sampling.tempering import ParallelTempering, burnt_in

SHARPER = 5.0  # times the log weights of the model


def best_found(model: FactorGraph, budget: Budget, rng: Generator) -> IntArray:
    """Best configuration of a (conditioned) model that was come across; possible where one was."""
    deadline = budget.deadline()
    if (needed := arranging_bytes(model)) > budget.table_bytes:
        raise refuse("pt", needed, budget)
    sharp = assembled(
        model.cards, model.scopes, tuple(np.asarray(SHARPER * t) for t in model.log_tables)
    )
    aim = prepare(sharp, deadline)
    if aim is not None and aim.model.n_variables == 0:
        return np.asarray(aim.states(np.zeros((1, 0), np.int64))[0])
    best: IntArray | None = None
    if aim is not None:
        with burnt_in(aim, ParallelTempering(), budget, deadline, rng) as (ensembles, ready):
            left = max(1, budget.sweeps() - ensembles.sweeps) if ready else 0
            best = _visited(ensembles, left, deadline)
    if best is None or aim is None:
        raise BudgetError("the seconds were over before a configuration was found; give more")
    return polished(model, aim.states(best[None])[0], deadline)


def _visited(ensembles: Ensembles, sweeps: int, deadline: Deadline) -> IntArray | None:
    """Best possible configuration of any replica, now and after each sweep."""
    best, height = None, -np.inf
    while True:
        for member in ensembles.members:
            possible = np.where(member.walk.broken == 0, member.walk.weight, -np.inf)
            r = int(possible.argmax())
            weight = weight_of(ensembles.aim.kernel, member.state, r)
            if possible[r] > -np.inf and weight > height:
                best, height = member.state.x[r].astype(np.int64), weight
        if sweeps <= 0 or deadline.passed or not ensembles.sweep(1, recording=True):
            return best
        sweeps -= 1


def polished(model: FactorGraph, states: IntArray, deadline: Deadline) -> IntArray:
    """Change one variable at a time while that makes the configuration likelier."""
    w = wiring(model)
    touching: list[list[int]] = [[] for _ in range(model.n_variables)]
    for f, scope in enumerate(model.scopes):
        for i in scope:
            touching[i].append(f)
    states = states.copy()
    waiting = [i for i in range(model.n_variables) if model.cards[i] > 1]
    while waiting and not deadline.passed:
        i = waiting.pop()
        log = np.zeros(int(w.cards[i]))
        for f in touching[i]:
            at = tuple(slice(None) if j == i else int(states[j]) for j in model.scopes[f])
            log += model.log_tables[f][at]
        if log.max() > log[states[i]] + 1e-12 * (1.0 + abs(log[states[i]])):
            states[i] = int(log.argmax())
            near = {j for f in touching[i] for j in model.scopes[f]} - {i, *waiting}
            waiting.extend(sorted(near))
    return states
