"""Random search: whole orders by random rules, then pieces of the best one ordered anew."""

import numpy as np

from icgi.kernels import kernel
from icgi.model.ordering.bits import bit, bit_rows, greedy_bits
from icgi.model.ordering.costs import clique_costs, log2_add
from icgi.model.ordering.sweeps import smallest_front

_SMALLEST_PIECE, _LARGEST_PIECE = 6, 128  # variables that are ordered anew at a time
_TRIES = 2  # random orders of a piece
_SLACK = 0.1  # log₂ by which a piece may get worse while the search is hot


@kernel
def restart(start, neighbour, logs, mixed, limit, runs, most, state, stop):  # type: ignore[no-untyped-def]
    """Best of random orders, every fourth a sweep, within so many runs and so much work."""
    n = len(logs)
    rows = bit_rows(start, neighbour)
    cards = 2.0**logs
    best = np.empty(0, np.int64)
    work = 0
    tried = 0
    while work < most and tried < runs and not stop[0]:
        tried += 1
        if tried % 4 == 0:
            jitter = np.empty(n)
            for i in range(n):
                jitter[i] = 0.3 * _random(state)
            order = smallest_front(start, neighbour, logs, jitter, int(n * _random(state)), stop)
            total = clique_costs(start, neighbour, order, logs)[5]
            spent = 10 * (n + len(neighbour))
        else:
            order, total, spent = _random_greedy(rows, n, logs, cards, mixed, limit, state, stop)
        work += spent + n
        if total < limit:
            limit = total
            best = order
    return best, limit, work, tried


@kernel
def refine(  # type: ignore[no-untyped-def]
    start, neighbour, logs, mixed, order, kept, least, heat, runs, most, state, stop
):
    """Improve an order by eliminating connected pieces of its elimination tree anew.

    A piece is a variable and part of the tree below it, without gaps. What hangs below the piece
    can go before it, so only the piece's own order is open: a small problem, in which the separator
    of the piece's top stays. Somewhat worse pieces are accepted while there is heat; the best order
    seen is kept.
    """
    n = len(order)
    cards = 2.0**logs
    largest = min(_LARGEST_PIECE, n)
    smallest = min(_SMALLEST_PIECE, n)
    local = np.full(n, -1, np.int64)
    piece = np.empty(largest, np.int64)
    edge = np.empty(n, np.int64)
    position, parent, child, sibling, begin, members, table = _cliques(
        start, neighbour, logs, order
    )
    ranked = np.argsort(-table)
    work = 20 * n + len(members)
    tried = 0
    while work < most and tried < runs and not stop[0]:
        size = int(smallest * (largest / smallest) ** _random(state))
        top = ranked[min(int(n ** _random(state)), n) - 1]  # the largest tables most often
        for _ in range(int(_random(state) * size / 2)):
            if parent[top] >= 0:
                top = parent[top]
        edge[0] = top
        edges = 1  # variables below the piece so far
        k = 0
        while k < size and edges > 0:
            at = 0
            for t in range(1, edges):
                if table[edge[t]] > table[edge[at]]:
                    at = t
            work += edges
            v = edge[at]
            edges -= 1
            edge[at] = edge[edges]
            local[v] = k
            piece[k] = v
            k += 1
            c = child[v]
            while c >= 0:
                edge[edges] = c
                edges += 1
                c = sibling[c]
        p = position[top]
        vertices = np.concatenate((piece[:k], members[begin[p] : begin[p + 1]]))
        m = len(vertices)
        words = (m + 63) // 64
        rows = np.zeros((m, words), np.uint64)
        for a in range(k, m):
            local[vertices[a]] = a
        for a in range(k):
            v = vertices[a]
            for e in range(start[v], start[v + 1]):
                b = local[neighbour[e]]
                if b >= 0:
                    rows[a, b >> 6] |= bit(b)
                    rows[b, a >> 6] |= bit(a)
        row = np.empty(words, np.uint64)
        for t in range(edges + 1):  # what is below leaves cliques; the separator becomes one
            row[:] = 0
            q = position[edge[t]] if t < edges else p
            for e in range(begin[q], begin[q + 1]):
                b = local[members[e]]
                row[b >> 6] |= bit(b)
            for e in range(begin[q], begin[q + 1]):
                b = local[members[e]]
                for w in range(words):
                    rows[b, w] |= row[w]
            work += (begin[q + 1] - begin[q] + 2) * (words + 2)
        for a in range(m):
            rows[a, a >> 6] &= ~bit(a)
        limit = -np.inf
        for a in range(k):
            limit = log2_add(limit, table[piece[a]])
        limit += 1e-9 - _SLACK * heat * np.log(1.0 - _random(state))
        found = np.empty(0, np.int64)
        for _ in range(_TRIES):
            new, total, spent = _random_greedy(
                rows, k, logs[vertices], cards[vertices], mixed, limit, state, stop
            )
            work += spent
            tried += 1
            if total < limit:
                limit = total - 1e-9
                found = new
        work += n + 4 * m * words
        if len(found):
            renewed = np.empty(n, np.int64)
            at = 0
            for q in range(p + 1):
                a = local[order[q]]
                if a < 0 or a >= k:
                    renewed[at] = order[q]
                    at += 1
            for a in range(k):
                renewed[at + a] = vertices[found[a]]
            renewed[p + 1 :] = order[p + 1 :]
            order = renewed
        for a in range(m):
            local[vertices[a]] = -1
        if len(found):
            position, parent, child, sibling, begin, members, table = _cliques(
                start, neighbour, logs, order
            )
            ranked = np.argsort(-table)
            work += 20 * n + len(members)
            total = -np.inf
            for i in range(n):
                total = log2_add(total, table[i])
            if total < least - 1e-9:
                least = total
                kept = order
    return order, kept, least, work, tried


@kernel
def _cliques(start, neighbour, logs, order):  # type: ignore[no-untyped-def]
    """Separator of every variable, its parent in the elimination tree (−1: none), log₂ tables."""
    n = len(order)
    position = np.empty(n, np.int64)
    for p in range(n):
        position[order[p]] = p
    parent = np.full(n, -1, np.int64)
    child = np.full(n, -1, np.int64)
    sibling = np.full(n, -1, np.int64)
    begin = np.zeros(n + 1, np.int64)  # by position
    members = np.empty(4 * len(neighbour) + 16, np.int64)
    table = np.zeros(n)
    mark = np.full(n, -1, np.int64)
    used = 0
    for p in range(n):
        v = order[p]
        begin[p] = used
        if used + n > len(members):
            larger = np.empty(2 * len(members) + n, np.int64)
            larger[:used] = members[:used]
            members = larger
        mark[v] = p
        table[v] = logs[v]
        above = n
        for e in range(start[v], start[v + 1]):
            j = neighbour[e]
            if position[j] > p:
                mark[j] = p
                members[used] = j
                used += 1
                table[v] += logs[j]
                above = min(above, position[j])
        c = child[v]
        while c >= 0:
            q = position[c]
            for e in range(begin[q], begin[q + 1]):
                j = members[e]
                if mark[j] != p:
                    mark[j] = p
                    members[used] = j
                    used += 1
                    table[v] += logs[j]
                    above = min(above, position[j])
            c = sibling[c]
        begin[p + 1] = used
        if above < n:
            parent[v] = order[above]
            sibling[v] = child[parent[v]]
            child[parent[v]] = v
    return position, parent, child, sibling, begin, members[:used], table


@kernel
def _random_greedy(rows, k, logs, cards, mixed, limit, state, stop):  # type: ignore[no-untyped-def]
    """`greedy_bits` by a random rule near min-fill, with random preferences between variables."""
    n = len(logs)
    weighted = mixed and _random(state) < 0.5
    alpha, beta, gamma = 1.0, 0.0, 0.0
    if weighted:
        beta = 2.0 * _random(state) - 1.0
    else:
        gamma = 2.0 * _random(state) - 1.0
    heat = 0.3 * 30.0 ** _random(state)
    if _random(state) < 0.1:
        alpha, beta, gamma, heat = 0.0, 1.0, 0.0, 2.0 * _random(state)
    jitter = np.empty(n)
    for i in range(n):
        jitter[i] = heat * _random(state)
    pairs = cards if weighted else np.ones(n)
    return greedy_bits(rows, k, logs, pairs, jitter, alpha, beta, gamma, limit, np.inf, stop)


@kernel
def _random(state):  # type: ignore[no-untyped-def]
    """Uniform number in [0, 1): splitmix64, its state in an array of one word."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * 2.0**-53
