"""Choice between belief propagation and the network where the network is in a less likely mode.

Networks learned on random models. On ordered ones (the DBN of UAI 2014) they may answer, surely,
with a mode that is hardly ever taken. It shows: of the likeliest states of both answers, improved
one by one, those of belief propagation have the larger probability.
"""

import numpy as np

from icgi.clock import Deadline
from icgi.inference import Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ising import IsingArrays, as_ising
from icgi.neural import doubt
from icgi.neural.cases import Case, prepare
from icgi.neural.pace import unary_beliefs

APART = 0.5  # mean L1 distance from which answers are compared
# Inexactness of eliminating a variable first, on average, from which beliefs at rest that differ
# are better, and from which others are, too: SK of 100 spins has 76 at β = 1, where the two are
# level, and 250 at β = 1.5; SK of 200 has 750 there.
CROWDED, MOST_CROWDED = 100.0, 500.0
APART_CROWDED = 0.06  # as `APART`, on such models
LIKELIER = 0.5  # difference of log p
SWEEPS = 20


def believes(case: Case, probs: FloatArray) -> bool:
    """Whether beliefs at rest are to be preferred to the probabilities (n k) of a network."""
    if not case.at_rest or np.abs(case.prior - probs).sum(1).mean() < APART:
        return False
    ours, theirs = (_improved(case.model, p.argmax(1)) for p in (case.prior, probs))
    return ours > theirs + LIKELIER


def checked(
    model: FactorGraph, found: Marginals, deadline: Deadline, inexactness: float = 0.0
) -> Marginals:
    """A network's answer, or beliefs at rest where it is in a less likely mode than they.

    On a crowded model, where too many act on each variable for what elimination leaves out to be
    small, beliefs at rest are the answer as soon as the two differ; on one more crowded still, any.

    Parameters
    ----------
    inexactness
        Of eliminating a variable first, on average.
    """
    crowded = inexactness > CROWDED
    if found.status is not Status.ESTIMATED or deadline.passed:
        return found
    if not crowded and not suspected(model, found.probs, as_ising(model)):
        return found
    case = prepare(model, deadline)
    differ = np.abs(case.prior - found.probs).sum(1).mean() > APART_CROWDED
    known = case.at_rest or (inexactness > MOST_CROWDED and case.messages is not None)
    lost = crowded and known and bool(differ)
    if not lost and not believes(case, found.probs):
        return found
    alpha, error = doubt.unknown(case.prior)
    return Marginals(
        case.prior,
        Status.ESTIMATED,
        concentration=alpha,
        std_error=error,
        stats={"fallback": 1.0},
        note="Elimination loses too much on a model so crowded; what belief propagation says is "
        "shown instead."
        if lost
        else "The network's answer is in a less likely mode than that of belief propagation at "
        "rest, which is shown instead.",
    )


def suspected(model: FactorGraph, probs: FloatArray, spins: IsingArrays | None) -> bool:
    """Whether states far from the likeliest of an answer (n k) lead to likelier ones than these.

    They are those that the answer takes for least likely, and those that single factors prefer. It
    costs far less than belief propagation, and says when that is worth asking.
    """
    possible = np.where(probs > 0, probs, np.inf)
    starts = (probs.argmax(1), possible.argmin(1), unary_beliefs(model).argmax(1))
    if spins is None:
        ours, *others = (_improved(model, start) for start in starts)
    else:
        coupling = np.zeros((model.n_variables, model.n_variables))
        i, j = spins.edges.T
        coupling[i, j] = coupling[j, i] = spins.couplings
        ours, *others = (_improved_spins(coupling, spins.fields, start) for start in starts)
    return max(others) > ours + LIKELIER


def _improved_spins(coupling: FloatArray, fields: FloatArray, states: IntArray) -> float:
    """`_improved` of spins, from their matrix of couplings (n n) and fields (n)."""
    spin = 2.0 * states - 1.0
    force = coupling @ spin + fields
    for _ in range(SWEEPS):
        moved = False
        for i in range(len(spin)):
            if spin[i] * force[i] < 0.0:
                spin[i] = -spin[i]
                force += coupling[i] * (2.0 * spin[i])
                moved = True
        if not moved:
            break
    return float(spin @ (0.5 * (coupling @ spin) + fields))


def _improved(model: FactorGraph, states: IntArray) -> float:
    """Log probability, up to log Z, of a configuration after sweeps that improve each variable."""
    around: list[list[tuple[int, int]]] = [[] for _ in range(model.n_variables)]
    for f, scope in enumerate(model.scopes):
        for axis, i in enumerate(scope):
            around[i].append((f, axis))
    x = states.copy()
    for _ in range(SWEEPS):
        moved = False
        for i, factors in enumerate(around):
            score = np.zeros(int(model.cards[i]))
            for f, axis in factors:
                scope = model.scopes[f]
                place = tuple(slice(None) if a == axis else x[j] for a, j in enumerate(scope))
                score = score + model.log_tables[f][place]
            best = int(score.argmax())
            if score[best] > score[x[i]]:
                x[i], moved = best, True
        if not moved:
            break
    return float(
        sum(t[tuple(x[list(s)])] for s, t in zip(model.scopes, model.log_tables, strict=True))
    )
