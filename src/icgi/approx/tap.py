"""Thouless-Anderson-Palmer equations: mean field less each spin's reaction on itself."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from icgi.approx.fixed_point import check_settings, deadline, fixed_point
from icgi.approx.support import supported
from icgi.errors import UnsupportedModelError
from icgi.inference import Budget, Marginals
from icgi.kernels import kernel
from icgi.model.condition import lift
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ising import IsingArrays, as_ising

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
        until = deadline(budget)
        part = supported(model)
        found = as_ising(part.model)
        if found is None:
            raise UnsupportedModelError(_refusal(part.model))
        couplings, fields = (np.clip(a, -LARGE, LARGE) for a in (found.couplings, found.fields))
        ising = replace(found, couplings=couplings, fields=fields)
        start, neighbour, coupling = _adjacency(ising)
        m = np.zeros((2, len(ising.fields)))  # magnetisations of now and of one iteration earlier

        def advance(count: int) -> tuple[int, float]:
            made, residual = iterate(
                start, neighbour, coupling, fields, m, self.damping, self.tolerance, count
            )
            return int(made), float(residual)

        outcome = fixed_point(advance, budget.sweeps(), until, self.tolerance)
        log_z = _log_z(ising, m[0]) if outcome.converged else None
        stats = {"residual": outcome.residual, "sweeps": float(outcome.sweeps)}
        answer = Marginals(_probabilities(part.model, m[0]), outcome.status, log_z, stats=stats)
        return lift(answer, part.alive)


def _refusal(model: FactorGraph) -> str:
    if model.max_states > 2:
        found = f"variables of up to {model.max_states} states"
    elif any(len(scope) > 2 for scope in model.scopes):
        found = f"factors of up to {max(map(len, model.scopes))} variables"
    else:
        found = "zeros between pairs of variables"
    return f"tap: needs an Ising model, but this one has {found}; use --engine lbp or --engine mf"


def _adjacency(ising: IsingArrays) -> tuple[IntArray, IntArray, FloatArray]:
    """Neighbours of each spin, one after the other: where they begin, which, and the couplings."""
    source, target = np.concatenate([ising.edges, ising.edges[:, ::-1]]).T
    order = np.argsort(source, kind="stable")
    degree = np.bincount(source, minlength=len(ising.fields))
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(degree)])
    return start, np.ascontiguousarray(target[order]), np.tile(ising.couplings, 2)[order]


def _probabilities(model: FactorGraph, m: FloatArray) -> FloatArray:
    probs = np.zeros((model.n_variables, model.max_states))
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
def iterate(start, neighbour, coupling, field, m, damping, tolerance, count):  # type: ignore[no-untyped-def]
    """Iterate in place up to `count` times; how often, and the last change of a probability.

    The change without damping, or that of the iteration before if larger: at rest both vanish.
    """
    n = len(field)
    new = np.empty(n)
    made, residual = 0, np.inf
    while made < count and residual > tolerance:
        made, residual = made + 1, 0.0
        for i in range(n):
            mean, reaction = field[i], 0.0
            for k in range(start[i], start[i + 1]):
                value, weight = m[0, neighbour[k]], coupling[k]
                mean += weight * value
                reaction += weight * weight * (1.0 - value * value)
            target = math.tanh(mean - m[1, i] * reaction)
            change = max(abs(target - m[0, i]), abs(m[0, i] - m[1, i]))
            residual = max(residual, 0.5 * change)
            new[i] = target + damping * (m[0, i] - target)
        for i in range(n):
            m[1, i], m[0, i] = m[0, i], new[i]
    return made, residual
