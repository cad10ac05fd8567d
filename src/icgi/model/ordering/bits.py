"""Greedy elimination on a bit matrix, for graphs of up to a few thousand variables."""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from icgi.kernels import kernel
from icgi.model.ordering.costs import log2_add


@kernel
def greedy_bits(rows, k, logs, pairs, jitter, alpha, beta, gamma, limit, most, stop):  # type: ignore[no-untyped-def]
    """Eliminate the first k vertices, least score first.

    Returns the order, log₂ of the total of the clique tables, and the work done. The total is inf
    and the order worthless if it would reach the limit, or if the work exceeds `most`. When asked
    to stop, the total is inf, too, but the order is complete: the rest by its present scores.
    """
    rows = rows.copy()
    n, words = rows.shape
    unit = (pairs == 1.0).all()
    order = np.empty(k, np.int64)
    score = np.zeros(n)
    work = 0
    if alpha > 0:
        work = _fill_work(rows, k)
        if work > most:
            return order, np.inf, work
        score = _fill_of(rows, k, pairs, unit, stop)
    table = logs.copy()
    everything = 0.0
    for i in range(n):
        everything += logs[i]
        degree = 0
        for w in range(words):
            left = rows[i, w]
            while left:
                table[i] += logs[64 * w + _lowest_bit(left)]
                degree += 1
                left &= left - np.uint64(1)
        score[i] = alpha * score[i] + beta * table[i] + gamma * degree
        score[i] += jitter[i]
    near = np.empty(n, np.int64)
    total = -np.inf
    for step in range(k):  # score is inf for what is eliminated, and up to date for the rest
        if stop[0]:
            order[step:] = np.argsort(score[:k])[: k - step]
            return order, np.inf, work
        v = 0
        for i in range(1, k):
            if score[i] < score[v]:
                v = i
        order[step] = v
        total = log2_add(total, table[v])
        work += k
        if total >= limit or work > most:
            return order, np.inf, work
        score[v] = np.inf
        row = rows[v]
        d = 0
        for w in range(words):
            left = row[w]
            while left:
                near[d] = 64 * w + _lowest_bit(left)
                d += 1
                left &= left - np.uint64(1)
        everything -= logs[v]
        if d == n - step - 1:  # all that is left is now one clique: most states first
            for later in range(step + 1, k):
                v = -1
                for i in range(k):
                    if score[i] < np.inf and (v < 0 or logs[i] > logs[v]):
                        v = i
                order[later] = v
                score[v] = np.inf
                total = log2_add(total, everything)
                everything -= logs[v]
            work += (k - step) * k
            return order, total if total < limit else np.inf, work
        mask = ~bit(v)
        for m in range(d):
            u = near[m]
            rows[u, v >> 6] &= mask
            table[u] -= logs[v]
            score[u] -= beta * logs[v] + gamma
            if alpha > 0:
                outside = 0.0
                for w in range(words):
                    outside += _weigh_bits(rows[u, w] & ~row[w], 64 * w, pairs, unit)
                score[u] -= alpha * pairs[v] * outside
        work += d * words
        for m in range(d):
            if stop[0]:
                break
            a = near[m]
            for w in range(a >> 6, words):
                missing = row[w] & ~rows[a, w]
                if w == a >> 6:  # pairs once only: a < b
                    missing &= ~(bit(a) | (bit(a) - np.uint64(1)))
                while missing:
                    b = 64 * w + _lowest_bit(missing)
                    missing &= missing - np.uint64(1)
                    if alpha > 0:
                        gain = alpha * pairs[a] * pairs[b]
                        only_a, only_b = 0.0, 0.0
                        for u in range(words):
                            both = rows[a, u] & rows[b, u]
                            only_a += _weigh_bits(rows[a, u] & ~both, 64 * u, pairs, unit)
                            only_b += _weigh_bits(rows[b, u] & ~both, 64 * u, pairs, unit)
                            while both:
                                score[64 * u + _lowest_bit(both)] -= gain
                                both &= both - np.uint64(1)
                                work += 1
                        score[a] += alpha * pairs[b] * only_a
                        score[b] += alpha * pairs[a] * only_b
                        work += 3 * words
                    rows[a, b >> 6] |= bit(b)
                    rows[b, a >> 6] |= bit(a)
                    table[a] += logs[b]
                    table[b] += logs[a]
                    score[a] += beta * logs[b] + gamma
                    score[b] += beta * logs[a] + gamma
                    work += 4
    return order, total, work


@kernel
def bit_rows(start, neighbour):  # type: ignore[no-untyped-def]
    """Adjacency as a matrix of bits, 64 to a word."""
    n = len(start) - 1
    rows = np.zeros((n, (n + 63) // 64), np.uint64)
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            j = neighbour[e]
            rows[i, j >> 6] |= bit(j)
    return rows


@kernel
def _fill_of(rows, k, pairs, unit, stop):  # type: ignore[no-untyped-def]
    """Weighted number of missing edges among the neighbours of each of the first k vertices."""
    n, words = rows.shape
    fill = np.zeros(n)
    for i in range(k):
        if stop[0]:
            break
        total = 0.0
        for w in range(words):
            left = rows[i, w]
            while left:
                j = 64 * w + _lowest_bit(left)
                left &= left - np.uint64(1)
                missing = -pairs[j]
                for u in range(words):
                    missing += _weigh_bits(rows[i, u] & ~rows[j, u], 64 * u, pairs, unit)
                total += pairs[j] * missing
        fill[i] = 0.5 * total
    return fill


@kernel
def _fill_work(rows, k):  # type: ignore[no-untyped-def]
    edges = 0
    for i in range(k):
        for word in rows[i]:
            edges += _count_bits(word)
    return edges * rows.shape[1]


@kernel
def _weigh_bits(word, base, weights, unit):  # type: ignore[no-untyped-def]
    if unit:
        return float(_count_bits(word))
    total = 0.0
    while word:
        total += weights[base + _lowest_bit(word)]
        word &= word - np.uint64(1)
    return total


@kernel
def bit(i):  # type: ignore[no-untyped-def]
    """Word in which only the bit of vertex i is set."""
    return np.uint64(1) << np.uint64(i & 63)


@intrinsic
def _ctpop(typing: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def _cttz(typing: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), generate


@kernel(python=lambda word: int(word).bit_count())
def _count_bits(word):  # type: ignore[no-untyped-def]
    return _ctpop(word)


@kernel(python=lambda word: (int(word) & -int(word)).bit_length() - 1)
def _lowest_bit(word):  # type: ignore[no-untyped-def]
    return _cttz(word)
