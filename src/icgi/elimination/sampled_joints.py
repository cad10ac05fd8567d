"""Joint marginals from reweighted draws of an elimination, with the error of the draws."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.random import Generator

from icgi.elimination.run import OutOfTimeError
from icgi.elimination.sampling import Samples, sample
from icgi.errors import BudgetError
from icgi.inference import UNKNOWN_ERROR, Budget, JointTables, Scope, Status
from icgi.model.graph import FactorGraph, FloatArray
from icgi.units import readable_bytes

DRAWS = 4000
SMALL = 0.05  # largest standard error of what is called converged
ENOUGH = 0.05  # effective share of the draws below which errors are themselves uncertain
_HELD = 6  # numbers held for a variable of a draw


def sampled_joints(
    model: FactorGraph,
    scopes: Sequence[Scope],
    rank: int,
    max_rank: int,
    budget: Budget,
    rng: Generator,
) -> JointTables:
    """Joint marginals of any variables; the rank is doubled while the draws are too unequal."""
    deadline = budget.deadline()
    if (needed := 8 * _HELD * DRAWS * model.n_variables) > budget.table_bytes:
        raise BudgetError(
            f"ttve: {DRAWS} configurations of {model.n_variables} variables need "
            f"{readable_bytes(needed)}, the budget is {readable_bytes(budget.table_bytes)}; give "
            "a larger memory budget"
        )
    try:
        drawn = sample(model, DRAWS, rng, rank, deadline=deadline)
    except OutOfTimeError as error:
        raise BudgetError("ttve: the seconds were over before it could draw; give more") from error
    with suppress(OutOfTimeError):
        while drawn.share < ENOUGH and 2 * rank <= max_rank and not deadline.passed:
            rank *= 2
            more = sample(model, DRAWS, rng, rank, deadline=deadline)
            drawn = max(drawn, more, key=lambda each: each.share)
    found = [_counted(model, drawn, scope) for scope in scopes]
    worst = max((float(error.max()) for _, error in found), default=0.0)
    sound = drawn.share >= ENOUGH and worst <= SMALL
    return JointTables(
        tuple(table for table, _ in found),
        Status.CONVERGED if sound else Status.DIVERGED,
        drawn.log_z,
        tuple(error for _, error in found),
        note=f"{DRAWS} draws worth {drawn.share * DRAWS:.0f}",
    )


def _counted(model: FactorGraph, drawn: Samples, scope: Scope) -> tuple[FloatArray, FloatArray]:
    """Reweighted joint table of a scope, and its standard error to first order.

    What was never drawn may still have a probability of one over the effective number of draws.
    """
    shape = [int(model.cards[i]) for i in scope]
    entries = int(np.prod(shape))
    code = np.ravel_multi_index(tuple(drawn.states[:, i] for i in scope), shape)
    w = drawn.weights
    p = np.asarray(np.bincount(code, w, entries), np.float64)
    squares = np.asarray(np.bincount(code, w**2, entries), np.float64)
    # Σ w² (1[x] − p)²
    variance = squares * (1 - 2 * p) + p**2 * float(np.square(w).sum())
    least = 1.0 / (drawn.share * DRAWS)
    error = np.clip(np.sqrt(np.maximum(variance, 0.0)), least, UNKNOWN_ERROR)
    return p.reshape(shape), error.reshape(shape)
