"""Thouless-Anderson-Palmer equations: mean field less each spin's reaction on itself."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from icgi.approx.fixed_point import Stop, check_settings, fixed_point
from icgi.approx.flat import PLAIN
from icgi.approx.reading import TimeSpent, check, from_fields, patient, require_bytes
from icgi.approx.support import supported_all
from icgi.clock import Deadline
from icgi.errors import UnsupportedModelError
from icgi.inference import Budget, Marginals, Status
from icgi.kernels import kernel
from icgi.model.condition import lift
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ising import IsingArrays, ising_arrays

LARGE = 1e100  # couplings beyond it would have infinite squares


@dataclass(frozen=True, slots=True)
class ThoulessAndersonPalmer:
    """m_i ← tanh(h_i + Σ_j J_ij m_j − m_i' Σ_j J_ij² (1 − m_j²)), Ising models only.

    m' is the magnetisation of one iteration earlier: with it the iteration converges in the whole
    high-temperature phase of Sherrington and Kirkpatrick's model (Bolthausen 2014), for which the
    equations are right when spins are many. Elsewhere they are right to second order in the
    couplings. `log_z` is Plefka's expansion (1982), given where magnetisations are at rest.
    """

    damping: float = 0.5  # share of the old magnetisation
    tolerance: float = 1e-6  # on probabilities

    def __post_init__(self) -> None:
        check_settings(self.damping)

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Iterate from zero magnetisation until it is at rest or the budget is spent."""
        deadline = budget.deadline()
        needed = 200 * model.n_factors + 100 * model.n_variables
        require_bytes(needed, budget, "the neighbours of all spins", "give a larger memory budget")
        try:
            [part], w = supported_all([model], patient([model], deadline))
            ising = ising_arrays(w)
            if ising is None:
                raise UnsupportedModelError(_refusal(part.model))
            adjacency = _adjacency(ising, patient([model], deadline))
        except TimeSpent:
            return from_fields(model)
        return lift(self._solved(part.model, ising, adjacency, budget, deadline), part.alive)

    def _solved(
        self,
        model: FactorGraph,
        found: IsingArrays,
        adjacency: tuple[IntArray, IntArray, FloatArray],
        budget: Budget,
        deadline: Deadline,
    ) -> Marginals:
        start, neighbour, coupling = adjacency
        couplings, fields = (np.clip(a, -LARGE, LARGE) for a in (found.couplings, found.fields))
        ising = replace(found, couplings=couplings, fields=fields)
        m = np.zeros((2, len(fields)))  # magnetisations of now and of one iteration earlier
        if not len(coupling):
            m[0] = np.tanh(fields)  # independent spins
            largest = max((float(np.abs(t).max()) for t in model.log_tables), default=0.0)
            status = Status.EXACT if largest <= PLAIN else Status.AT_REST
            stats = {"residual": 0.0, "sweeps": 0.0}
            return Marginals(_probabilities(model, m[0]), status, _log_z(ising, m[0]), stats=stats)

        def advance(count: int, stop: Stop) -> tuple[int, float]:
            made, residual = iterate(
                start, neighbour, coupling, fields, m, self.damping, self.tolerance, count, stop
            )
            return int(made), float(residual)

        outcome = fixed_point(advance, budget.sweeps(), deadline, self.tolerance)
        log_z = _log_z(ising, m[0]) if outcome.at_rest else None
        stats = {"residual": outcome.residual, "sweeps": float(outcome.sweeps)}
        return Marginals(_probabilities(model, m[0]), outcome.status, log_z, stats=stats)


def _refusal(model: FactorGraph) -> str:
    if model.max_states > 2:
        found = f"variables of up to {model.max_states} states"
    elif any(len(scope) > 2 for scope in model.scopes):
        found = f"factors of up to {max(map(len, model.scopes))} variables"
    else:
        found = "zeros between pairs of variables"
    return f"tap: needs an Ising model, but this one has {found}; use lbp or mf"


def _adjacency(ising: IsingArrays, deadline: Deadline) -> tuple[IntArray, IntArray, FloatArray]:
    """Neighbours of each spin, one after the other: where they begin, which, and the couplings."""
    check(deadline)
    couplings = np.clip(ising.couplings, -LARGE, LARGE)
    start, neighbour, coupling = _neighbours(ising.edges, couplings, len(ising.fields))
    check(deadline)
    return start, neighbour, coupling


@kernel
def _neighbours(edges, couplings, n):  # type: ignore[no-untyped-def]
    start = np.zeros(n + 1, np.int64)
    for e in range(len(edges)):
        start[edges[e, 0] + 1] += 1
        start[edges[e, 1] + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    place = start[:-1].copy()
    neighbour, coupling = np.empty(start[n], np.int64), np.empty(start[n])
    for side in range(2):  # first those that come later in a pair, then those that come first
        for e in range(len(edges)):
            i = edges[e, side]
            neighbour[place[i]], coupling[place[i]] = edges[e, 1 - side], couplings[e]
            place[i] += 1
    return start, neighbour, coupling


def _probabilities(model: FactorGraph, m: FloatArray) -> FloatArray:
    probs = np.zeros((model.n_variables, model.max_states))
    if not model.n_variables:
        return probs
    single = model.cards == 1
    probs[single, 0] = 1.0
    if not single.all():
        probs[~single, 0], probs[~single, 1] = (1 - m[~single]) / 2, (1 + m[~single]) / 2
    return probs


def _log_z(ising: IsingArrays, m: FloatArray) -> float:
    """Σ_i H(m_i) + Σ_i h_i m_i + Σ_ij J_ij m_i m_j + ½ Σ_ij J_ij² (1 − m_i²)(1 − m_j²)."""
    up = np.clip((1 + m) / 2, 1e-300, 1.0)
    down = np.clip((1 - m) / 2, 1e-300, 1.0)
    entropy = -(up * np.log(up) + down * np.log(down)).sum()
    i, j = ising.edges.T
    pairs = ising.couplings * m[i] * m[j]
    reaction = 0.5 * ising.couplings**2 * (1 - m[i] ** 2) * (1 - m[j] ** 2)
    return float(ising.constant + entropy + ising.fields @ m + pairs.sum() + reaction.sum())


@kernel(fastmath={"contract", "reassoc", "nsz"})
def iterate(start, neighbour, coupling, field, m, damping, tolerance, count, stop):  # type: ignore[no-untyped-def]
    """Iterate in place up to `count` times; how often, and the last change of a probability.

    The change without damping, or that of the iteration before if larger: at rest both vanish. An
    iteration that `stop` interrupts is left out.
    """
    n = len(field)
    new = np.empty(n)
    made, residual = 0, np.inf
    while made < count and residual > tolerance:
        worst = 0.0
        for i in range(n):
            if stop[0]:
                return made, residual
            mean, reaction = field[i], 0.0
            for k in range(start[i], start[i + 1]):
                value, weight = m[0, neighbour[k]], coupling[k]
                mean += weight * value
                reaction += weight * weight * (1.0 - value * value)
            target = math.tanh(mean - m[1, i] * reaction)
            change = max(abs(target - m[0, i]), abs(m[0, i] - m[1, i]))
            worst = max(worst, 0.5 * change)
            new[i] = target + damping * (m[0, i] - target)
        for i in range(n):
            m[1, i], m[0, i] = m[0, i], new[i]
        made, residual = made + 1, worst
    return made, residual
