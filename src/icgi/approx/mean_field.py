"""Naive mean field: the best product distribution, and with it a lower bound of log Z."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numba
import numpy as np
from numpy.random import Generator

from icgi.approx.core import Core, lay_out
from icgi.approx.fixed_point import check_settings, deadline, fixed_point
from icgi.approx.support import possible_configuration, supported
from icgi.inference import Budget, Marginals, Status
from icgi.model.condition import lift
from icgi.model.graph import FactorGraph, FloatArray, IntArray

SOFT = -10.0  # log of what stands for a zero while a run looks for a region without zeros


@dataclass(frozen=True, slots=True)
class MeanField:
    """Factorised q minimising KL(q‖p): log q_i(x) = E_q[Σ_{f∋i} θ_f | x_i = x] + const.

    Coordinate ascent of the lower bound Σ_f E_q[θ_f] + Σ_i H(q_i) ≤ log Z, which is `log_z`; of
    several runs the one with the largest bound is the answer. A product that puts weight on a
    zero of the model has bound −inf: where there are zeros, a run ascends with small weights in
    their place, takes a possible configuration nearby, and ascends from there with the true
    zeros. If no configuration is found, the status says that the answer is not to be used.
    """

    restarts: int = 3  # further runs, from random starts; all of them share the budget
    tolerance: float = 1e-6  # on probabilities

    def __post_init__(self) -> None:
        check_settings(0.0, self.restarts)

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Ascend from a uniform start and from random ones."""
        until = deadline(budget)
        part = supported(model)
        core = lay_out([part.model])
        zeros = bool(np.isneginf(core.values).any())
        runs: list[_Run] = []
        for attempt in range(self.restarts + 1):
            if runs and perf_counter() >= until:
                break  # the search of a possible configuration alone may take a second
            left = budget.iterations - sum(run.sweeps for run in runs)
            limit = left // (self.restarts + 1 - attempt)
            q = starting_point(core, [rng] if attempt else None)
            if zeros:
                soft = self._ascend(core, q, SOFT, limit // 2, until)
                limit -= soft.sweeps
                q, possible = _inside(core, part.model, q, rng)
                runs.append(self._ascend(core, q, -math.inf if possible else SOFT, limit, until))
                runs[-1].sweeps += soft.sweeps
            else:
                runs.append(self._ascend(core, q, -math.inf, limit, until))
        best = max(runs, key=lambda run: run.bound)
        stats = {
            "residual": best.residual,
            "sweeps": float(sum(run.sweeps for run in runs)),
            "restarts": float(len(runs) - 1),
            "chosen_run": float(runs.index(best)),
            "possible": float(best.bound > -math.inf),
        }
        if best.bound == -math.inf:
            status = Status.DIVERGED
        else:
            converged = best.residual <= self.tolerance
            status = Status.CONVERGED if converged else Status.BUDGET_SPENT
        log_z = best.bound if best.bound > -math.inf else None
        answer = Marginals(_dense(core, best.q, part.model.max_states), status, log_z, stats=stats)
        return lift(answer, part.alive)

    def _ascend(self, core: Core, q: FloatArray, zero: float, limit: int, until: float) -> "_Run":
        """Coordinate ascent in place, with `zero` for the logarithm of zero."""

        def advance(count: int) -> tuple[int, float]:
            made, residual = ascend(core, q, zero, self.tolerance, count)
            return int(made), float(residual)

        outcome = fixed_point(advance, limit, until, self.tolerance)
        bound = float(lower_bound(core, q))
        return _Run(q, bound, outcome.residual, outcome.sweeps)


@dataclass(slots=True, eq=False)
class _Run:
    q: FloatArray  # probabilities, all states of all variables in a row
    bound: float
    residual: float
    sweeps: int


def _state_start(core: Core) -> IntArray:
    return np.asarray(core.ratio_start + np.arange(len(core.ratio_start)))


def starting_point(core: Core, streams: Sequence[Generator] | None) -> FloatArray:
    """Uniform q, or drawn evenly from all distributions, by one stream for each model."""
    start = _state_start(core)
    if streams is None:
        q = np.ones(start[-1])
    else:
        sizes = np.diff(start[core.model_variable])
        q = np.concatenate([r.exponential(size=k) for r, k in zip(streams, sizes, strict=True)])
    sums = np.add.reduceat(q, start[:-1]) if len(q) else q
    return np.asarray(q / np.repeat(sums, np.diff(start)))


def _inside(
    core: Core, model: FactorGraph, q: FloatArray, rng: Generator
) -> tuple[FloatArray, bool]:
    """Point masses at a possible configuration, drawn by q, wherever there are zeros around."""
    states = possible_configuration(model, q, rng)
    if states is None:
        return q, False
    start = _state_start(core)
    fixed = states >= 0
    inside = np.where(np.repeat(fixed, np.diff(start)), 0.0, q)
    inside[start[:-1][fixed] + states[fixed]] = 1.0
    return inside, True


def _dense(core: Core, q: FloatArray, width: int) -> FloatArray:
    start = _state_start(core)
    probs = np.zeros((len(start) - 1, width))
    probs[np.arange(width) < np.diff(start)[:, None]] = q
    return probs


@numba.njit(cache=True, nogil=True)
def ascend(c, q, zero, tolerance, count):  # type: ignore[no-untyped-def]
    """Renew every variable's distribution in turn, up to `count` times; sweeps and last change."""
    n = len(c.ratio_start) - 1
    width = 1
    for i in range(n):
        width = max(width, c.ratio_start[i + 1] - c.ratio_start[i] + 1)
    mean, digit, prefix = np.empty(width), np.empty(c.largest[1], np.int64), np.empty(c.largest[1])
    made, residual = 0, np.inf
    while made < count and residual > tolerance:
        made, residual = made + 1, 0.0
        for i in range(n):
            begin = c.ratio_start[i] + i
            card = c.ratio_start[i + 1] - c.ratio_start[i] + 1
            mean[0] = 0.0
            for x in range(1, card):
                mean[x] = c.field[c.ratio_start[i] + x - 1]
            for t in range(c.touching_start[i], c.touching_start[i + 1]):
                f = c.touching[t]
                e = c.edge_start[f]
                if c.edge_start[f + 1] - e > 2:
                    _expect(c, f, i, q, zero, mean, digit, prefix)
                    continue
                k, top = c.value_start[f], c.top[f]
                first = c.variable[e] == i
                j = c.variable[e + 1] if first else c.variable[e]
                other, size = c.ratio_start[j] + j, c.ratio_start[j + 1] - c.ratio_start[j] + 1
                by_x, by_y = (size, 1) if first else (1, card)
                for y in range(size):
                    w = q[other + y]
                    if w > 0.0:  # 0 · log 0 = 0
                        for x in range(card):
                            value = c.values[k + x * by_x + y * by_y] - top
                            mean[x] += w * (value if value != -np.inf else zero)
            best = mean[:card].max()
            if best == -np.inf:
                continue  # only where zeros surround the start, which then is no possible one
            total = 0.0
            for x in range(card):
                mean[x] = math.exp(mean[x] - best)
                total += mean[x]
            for x in range(card):
                residual = max(residual, abs(mean[x] / total - q[begin + x]))
                q[begin + x] = mean[x] / total
    return made, residual


@numba.njit(cache=True, nogil=True)
def _expect(c, f, i, q, zero, mean, digit, prefix):  # type: ignore[no-untyped-def]
    """Add E_q[θ_f − top | x_i] to `mean`: rows along the last axis, products of q carried along."""
    e0, arity = c.edge_start[f], c.edge_start[f + 1] - c.edge_start[f]
    last, k = arity - 1, c.value_start[f]
    axis = 0
    while c.variable[e0 + axis] != i:
        axis += 1
    digit[:arity] = 0
    prefix[0] = 1.0
    final = c.variable[e0 + last]
    end, width = c.ratio_start[final] + final, c.ratio_start[final + 1] - c.ratio_start[final] + 1
    a = 0
    while a >= 0:
        for b in range(a, last):
            j = c.variable[e0 + b]
            share = 1.0 if b == axis else q[c.ratio_start[j] + j + digit[b]]
            prefix[b + 1] = prefix[b] * share
        if prefix[last] > 0.0:
            for y in range(width):
                w = prefix[last] if axis == last else prefix[last] * q[end + y]
                if w > 0.0:
                    value = c.values[k + y] - c.top[f]
                    value = value if value != -np.inf else zero
                    mean[y if axis == last else digit[axis]] += w * value
        k += width
        a = last - 1
        while a >= 0:
            j = c.variable[e0 + a]
            digit[a] += 1
            if digit[a] <= c.ratio_start[j + 1] - c.ratio_start[j]:
                break
            digit[a] = 0
            a -= 1


@numba.njit(cache=True, nogil=True)
def mean_messages(c, q, zero):  # type: ignore[no-untyped-def]
    """E_q[θ_f | x_i] of every edge, as log ratios: the messages that mean field passes."""
    digit, prefix = np.empty(c.largest[1], np.int64), np.empty(c.largest[1])
    mean = np.empty(c.largest[0])
    found = np.empty(c.message_start[-1])
    for f in range(len(c.rho)):
        for e in range(c.edge_start[f], c.edge_start[f + 1]):
            begin, end = c.message_start[e], c.message_start[e + 1]
            mean[: end - begin + 1] = 0.0
            _expect(c, f, c.variable[e], q, zero, mean, digit, prefix)
            for k in range(begin, end):
                found[k] = mean[k - begin + 1] - mean[0]
    return found


@numba.njit(cache=True, nogil=True)
def lower_bound(c, q):  # type: ignore[no-untyped-def]
    """Σ_f E_q[θ_f] + Σ_i H(q_i), −inf where q has weight on a zero."""
    n = len(c.ratio_start) - 1
    total = c.constant[0]
    for i in range(n):
        begin = c.ratio_start[i] + i
        for x in range(c.ratio_start[i + 1] - c.ratio_start[i] + 1):
            p = q[begin + x]
            if p > 0.0:
                total -= p * math.log(p)
                if x > 0:
                    total += p * c.field[c.ratio_start[i] + x - 1]
    digit, prefix = np.empty(c.largest[1], np.int64), np.empty(c.largest[1])
    mean = np.empty(c.largest[0])
    for f in range(len(c.rho)):
        i = c.variable[c.edge_start[f]]
        begin, card = c.ratio_start[i] + i, c.ratio_start[i + 1] - c.ratio_start[i] + 1
        mean[:card] = 0.0
        _expect(c, f, i, q, -np.inf, mean, digit, prefix)
        for x in range(card):
            if q[begin + x] > 0.0:
                total += q[begin + x] * mean[x]
    return total
