"""What is known without trains: a few sweeps of messages over pairs, for answers out of time."""

import numpy as np

from icgi.clock import Deadline
from icgi.elimination.potentials import Potentials
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray

_SWEEPS = 50
_AT_REST = 1e-3  # largest change of a message in the last sweep


def unary_factors(model: FactorGraph) -> FloatArray:
    """Marginals n k of the factors of one variable alone, without taking the model apart."""
    log = np.where(np.arange(model.max_states) < model.cards[:, None], 0.0, -np.inf)
    for f in [f for f, scope in enumerate(model.scopes) if len(scope) == 1]:
        log[model.scopes[f][0], : model.log_tables[f].size] += model.log_tables[f]
    return _normalised(log)


def unary_marginals(pots: Potentials) -> FloatArray:
    """Marginals n k of the unary parts alone."""
    return _normalised(pots.unary)


def _normalised(log: FloatArray) -> FloatArray:
    top = log.max(1, keepdims=True)
    weight = np.exp(log - np.where(np.isfinite(top), top, 0.0))
    return np.asarray(weight / weight.sum(1, keepdims=True))


def message_marginals(pots: Potentials, deadline: Deadline) -> tuple[FloatArray, bool]:
    """Beliefs n k of sequential sum-product over the pairs, and whether they came to rest.

    Larger factors count by their effects on single variables only, which are in the unary parts.
    """
    if not pots.pair.size or deadline.passed:
        return unary_marginals(pots), False
    sizes = np.diff(pots.pair_start)
    peaks = np.maximum.reduceat(pots.pair, pots.pair_start[:-1])
    pair = np.exp(pots.pair - np.repeat(np.where(np.isfinite(peaks), peaks, 0.0), sizes))
    order = np.argsort(pots.near_pair, kind="stable").reshape(-1, 2)
    back = np.empty(len(pots.near), np.int64)  # the same pair, seen from its other end
    back[order[:, 0]], back[order[:, 1]] = order[:, 1], order[:, 0]
    unary = unary_marginals(pots)
    with deadline.flag() as stop:
        probs, change = _messages(
            pots.cards, unary, pots.near_start, pots.near, pots.near_pair, back,
            pots.pair_first, pots.pair_start, pair, _SWEEPS, stop,
        )  # fmt: skip
        return np.asarray(probs), change < _AT_REST and not stop[0]


@kernel
def _messages(  # type: ignore[no-untyped-def]
    cards, unary, start, near, which, back, first, pair_start, pair, sweeps, stop
):
    """Send from one variable after the other, forwards and backwards in turn."""
    n, k = unary.shape
    messages = np.zeros((len(near), k))  # logarithm of the message to the entry's owner
    cavity = np.empty(k)
    belief = np.empty(k)
    sent = np.empty(k)
    change = np.inf
    for sweep in range(sweeps):
        change = 0.0
        for t in range(n):
            if stop[0]:
                break
            v = t if sweep % 2 == 0 else n - 1 - t
            d = cards[v]
            for x in range(d):
                belief[x] = np.log(max(unary[v, x], 1e-300))
            for e in range(start[v], start[v + 1]):
                for x in range(d):
                    belief[x] += messages[e, x]
            for e in range(start[v], start[v + 1]):
                u, at = near[e], pair_start[which[e]]
                top = -np.inf
                for x in range(d):
                    cavity[x] = belief[x] - messages[e, x]
                    top = max(top, cavity[x])
                for x in range(d):
                    cavity[x] = np.exp(cavity[x] - top) if unary[v, x] > 0.0 else 0.0
                peak, to = -np.inf, back[e]
                for y in range(cards[u]):
                    total = 0.0
                    for x in range(d):
                        if first[which[e]] == v:
                            total += cavity[x] * pair[at + x * cards[u] + y]
                        else:
                            total += cavity[x] * pair[at + y * d + x]
                    sent[y] = np.log(max(total, 1e-300))
                    peak = max(peak, sent[y])
                for y in range(cards[u]):
                    change = max(change, abs(np.exp(sent[y] - peak) - np.exp(messages[to, y])))
                    messages[to, y] = sent[y] - peak
        if stop[0] or change < 1e-9:
            break
    out = np.zeros((n, k))
    for v in range(n):
        top = -np.inf
        for x in range(cards[v]):
            belief[x] = np.log(max(unary[v, x], 1e-300))
            for e in range(start[v], start[v + 1]):
                belief[x] += messages[e, x]
            top = max(top, belief[x])
        total = 0.0
        for x in range(cards[v]):
            out[v, x] = np.exp(belief[x] - top) if unary[v, x] > 0.0 else 0.0
            total += out[v, x]
        for x in range(cards[v]):
            out[v, x] /= total
    return out, change
