"""Belief propagation on the factors of any model: the start of `icgi:fast`, and its borders.

m_{f→i}(x_i) ∝ Σ_{x_f∖x_i} exp θ_f(x_f) Π_{j∈f∖i} Π_{g≠f} m_{g→j}(x_j), one factor after the other,
to and fro; damped where that does not come to rest. Ordered models have several fixed points:
further runs start at the messages of mean field and at the reverse of what was found, and the
largest Bethe log Z of those at rest counts.
"""

from dataclasses import dataclass, replace

import numpy as np

from icgi.clock import Deadline
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.wiring import wiring

PLAN = ((0.0, 150), (0.5, 350), (0.8, 500))  # damping, and sweeps with it
MEAN_FIELD = 20  # sweeps of mean field before a run
AT_REST = 1e-6  # largest change of a normalised message
LEAST = -460.0  # log of a message's entry
CLOSE = 1e-6  # of two Bethe log Z
SOFT = -30.0  # log of a zero in mean field


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Messages from factors to variables, and what they say together."""

    beliefs: FloatArray  # n k
    logs: FloatArray  # one after the other: of each factor, to each of its variables, of each state
    start: IntArray  # where the messages to each place of each scope begin
    place: IntArray  # f+1    where the places of each factor begin
    fields: FloatArray  # log beliefs, one variable after the other
    first: IntArray  # n+1    where those of each variable begin
    residual: float
    sweeps: int

    @property
    def at_rest(self) -> bool:
        """Whether no message would change any more."""
        return self.residual <= AT_REST

    def to(self, factor: int, axis: int) -> FloatArray:
        """Logs of the message from a factor to one of its variables."""
        p = self.place[factor] + axis
        return self.logs[self.start[p] : self.start[p + 1]]

    def cavity(self, factor: int, axis: int, variable: int) -> FloatArray:
        """Belief of a variable without the message of one of its factors."""
        log = self.fields[self.first[variable] : self.first[variable + 1]] - self.to(factor, axis)
        weight = np.exp(log - log.max())
        return np.asarray(weight / weight.sum())


def sum_product(model: FactorGraph, deadline: Deadline) -> Messages:
    """Messages at rest, or as they are when the time is over.

    States that no factor supports must be gone (`possible_states`, `restrict`).
    """
    w = wiring(model)
    start = np.concatenate([[0], np.cumsum(w.cards[w.scope])]).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(w.cards)]).astype(np.int64)
    tops = np.maximum.reduceat(w.values, w.table_start[:-1]) if len(w.values) else w.values
    weights = np.exp(w.values - np.repeat(tops, np.diff(w.table_start)))
    graph = (w.cards, w.scope_start, w.scope, w.table_start, weights, first, start)
    best = Messages(
        np.zeros((0, 0)), np.zeros(start[-1]), start, w.scope_start, np.zeros(first[-1]), first,
        np.inf, 0,
    )  # fmt: skip
    lengths = np.diff(start)
    holder = np.arange(start[-1]) + np.repeat(first[w.scope] - start[:-1], lengths)  # of a message
    highest = -np.inf
    for begin in ("even", "mean field", "reversed"):
        logs = -best.logs if begin == "reversed" else np.zeros(start[-1])
        fields = np.bincount(holder, logs, first[-1]).astype(np.float64)
        residual, done = np.inf, 0
        with deadline.flag() as stop:
            if begin == "mean field":
                _sweeps(*graph, fields, logs, 0.0, MEAN_FIELD, True, stop)
            for damping, sweeps in PLAN:
                if residual > AT_REST and not stop[0]:
                    made, residual = _sweeps(*graph, fields, logs, damping, sweeps, False, stop)
                    done += made
        log_z = _bethe(*graph, fields, logs) if residual <= AT_REST else -np.inf
        if done and (not best.sweeps or log_z > highest + CLOSE):
            best = replace(best, logs=logs, fields=fields, residual=float(residual), sweeps=done)
            highest = log_z
    return replace(best, beliefs=_beliefs(model, best.fields))


def _beliefs(model: FactorGraph, fields: FloatArray) -> FloatArray:
    full = np.full((model.n_variables, model.max_states), -np.inf)
    full[np.arange(model.max_states) < model.cards[:, None]] = fields
    p = np.exp(full - full.max(1, initial=-np.inf, keepdims=True))
    return np.asarray(p / p.sum(1, keepdims=True))


@kernel
def _sweeps(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, table_start, weights, first, start, belief, logs, damping, sweeps,
    mean_field, stop,
):  # fmt: skip
    """Renew messages factor by factor; in mean field they are means of log tables under beliefs."""
    factors = len(scope_start) - 1
    most, arity = 1, 1
    for g in range(factors):
        n = scope_start[g + 1] - scope_start[g]
        arity = max(arity, n)
        most = max(most, start[scope_start[g + 1]] - start[scope_start[g]])
    cavity, new = np.empty(most), np.empty(most)
    before, digit = np.ones(arity + 1), np.zeros(arity, np.int64)
    residual = np.inf
    for s in range(sweeps):
        moved = 0.0
        for number in range(factors):
            if stop[0]:
                return s, residual
            g = number if s % 2 == 0 else factors - 1 - number
            low, n = scope_start[g], scope_start[g + 1] - scope_start[g]
            base = start[low]
            for a in range(n):
                i, at = scope[low + a], start[low + a]
                top, total = -np.inf, 0.0
                for x in range(cards[i]):
                    log = belief[first[i] + x] - (0.0 if mean_field else logs[at + x])
                    cavity[at - base + x] = log
                    top = max(top, log)
                for x in range(cards[i]):
                    cavity[at - base + x] = np.exp(cavity[at - base + x] - top)
                    total += cavity[at - base + x]
                    new[at - base + x] = 0.0
                for x in range(cards[i]):
                    cavity[at - base + x] /= total
                digit[a] = 0
            for entry in range(table_start[g], table_start[g + 1]):
                weight = weights[entry]
                if mean_field:
                    weight = max(np.log(weight), SOFT) if weight > 0.0 else SOFT
                if weight != 0.0:
                    for a in range(n):
                        before[a + 1] = before[a] * cavity[start[low + a] - base + digit[a]]
                    for a in range(n - 1, -1, -1):
                        at = start[low + a] - base + digit[a]
                        new[at] += weight * before[a]
                        weight *= cavity[at]
                a = n - 1
                while a >= 0:
                    digit[a] += 1
                    if digit[a] < cards[scope[low + a]]:
                        break
                    digit[a] = 0
                    a -= 1
            for a in range(n):
                i, at = scope[low + a], start[low + a]
                if mean_field:
                    top = -np.inf
                    for x in range(cards[i]):
                        top = max(top, new[at - base + x])
                    for x in range(cards[i]):
                        new[at - base + x] = np.exp(new[at - base + x] - top)
                total = 0.0
                for x in range(cards[i]):
                    total += new[at - base + x]
                if total <= 0.0:
                    continue
                old = 0.0
                for x in range(cards[i]):
                    old += np.exp(logs[at + x])
                for x in range(cards[i]):
                    p = new[at - base + x] / total
                    moved = max(moved, abs(p - np.exp(logs[at + x]) / old))
                    log = np.log(p) if p > 0.0 else LEAST
                    log = damping * logs[at + x] + (1.0 - damping) * max(log, LEAST)
                    belief[first[i] + x] += log - logs[at + x]
                    logs[at + x] = log
        residual = moved
        if residual <= AT_REST:
            return s + 1, residual
    return sweeps, residual


@kernel
def _bethe(cards, scope_start, scope, table_start, weights, first, start, belief, logs):  # type: ignore[no-untyped-def]
    """Bethe's log Z, up to a constant of the model.

    Σ_f log Σ_x ψ_f Π_j n_{j→f} + Σ_i log Σ_x Π_g m_{g→i} − Σ_{i∈f} log Σ_x m_{f→i} n_{i→f}.
    """
    total = 0.0
    for i in range(len(cards)):
        total += _log_sum(belief[first[i] : first[i + 1]])
    for g in range(len(scope_start) - 1):
        low, n = scope_start[g], scope_start[g + 1] - scope_start[g]
        base = start[low]
        cavity = np.empty(start[low + n] - base)
        digit = np.zeros(n, np.int64)
        for a in range(n):
            i, at = scope[low + a], start[low + a] - base
            end = at + cards[i]
            cavity[at:end] = belief[first[i] : first[i + 1]] - logs[at + base : end + base]
            total -= _log_sum(belief[first[i] : first[i + 1]])
            top = cavity[at:end].max()
            total += top
            cavity[at:end] = np.exp(cavity[at:end] - top)
        z = 0.0
        for entry in range(table_start[g], table_start[g + 1]):
            weight = weights[entry]
            for a in range(n):
                weight *= cavity[start[low + a] - base + digit[a]]
            z += weight
            a = n - 1
            while a >= 0:
                digit[a] += 1
                if digit[a] < cards[scope[low + a]]:
                    break
                digit[a] = 0
                a -= 1
        total += np.log(z) if z > 0.0 else LEAST
    return total


@kernel
def _log_sum(x):  # type: ignore[no-untyped-def]
    top = x.max()
    return top + np.log(np.exp(x - top).sum())
