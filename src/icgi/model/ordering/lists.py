"""Greedy elimination on neighbour lists, for large sparse graphs."""

import numpy as np

from icgi.kernels import kernel
from icgi.model.ordering.costs import log2_add


@kernel
def greedy_lists(start, neighbour, logs, pairs, jitter, alpha, beta, gamma, limit, most, stop):  # type: ignore[no-untyped-def]
    """`greedy_bits` with neighbour lists, for large sparse graphs, and with an end to the work.

    Once the work exceeds `most`, or when asked to stop, the rest is eliminated in the order of its
    present scores, and the total is reported as inf although the order is complete.
    """
    n = len(logs)
    begin = np.empty(n, np.int64)
    length = start[1:] - start[:-1]
    room = length + 4
    pool = np.empty(2 * (len(neighbour) + 4 * n), np.int32)
    used = 0
    near_pairs = np.zeros(n)  # Σ of pair weights over the neighbours
    near_squares = np.zeros(n)
    table = logs.copy()
    for i in range(n):
        begin[i] = used
        for e in range(length[i]):
            j = neighbour[start[i] + e]
            pool[used + e] = j
            near_pairs[i] += pairs[j]
            near_squares[i] += pairs[j] ** 2
            table[i] += logs[j]
        used += room[i]
    degree = length.copy()
    score = beta * table + gamma * degree + jitter
    work = 0
    if alpha > 0:
        for i in range(n):
            for e in range(start[i], start[i + 1]):
                work += min(degree[i], degree[neighbour[e]])
        if work > most or stop[0]:
            return np.argsort(score), np.inf
        joined = _joined_neighbours(start, neighbour, pairs, stop)
        score += alpha * (0.5 * (near_pairs**2 - near_squares) - joined)
    heap = np.argsort(score)
    place = np.empty(n, np.int64)
    place[heap] = np.arange(n)
    alive = np.ones(n, np.bool_)
    mark = np.zeros(n, np.int64)
    stamp = 0
    changed = np.zeros(n, np.int64)
    touched = np.empty(n, np.int64)
    near = np.empty(n, np.int64)
    order = np.empty(n, np.int64)
    total = -np.inf
    for step in range(n):
        v = heap[0]
        last = heap[len(heap) - 1]
        heap = heap[:-1]
        if len(heap):
            heap[0] = last
            place[last] = 0
            _sift(heap, place, score, 0)
        order[step] = v
        alive[v] = False
        total = log2_add(total, table[v])
        if total >= limit:
            return order, np.inf
        if degree[v] == n - step - 1 or work > most or stop[0]:
            rest = np.flatnonzero(alive)
            done = degree[v] == n - step - 1
            key = -logs[rest] if done else score[rest]
            order[step + 1 :] = rest[np.argsort(key, kind="mergesort")]
            everything = logs[rest].sum()
            for i in order[step + 1 :]:
                total = log2_add(total, everything)
                everything -= logs[i]
            return order, total if done and total < limit else np.inf
        d = 0
        for e in range(begin[v], begin[v] + length[v]):
            if alive[pool[e]]:
                near[d] = pool[e]
                d += 1
        length[v] = 0
        changes = 0
        stamp += 1
        clique = stamp
        for m in range(d):
            mark[near[m]] = clique
        for m in range(d):
            u = near[m]
            touched[changes] = u
            changed[u] = step + 1
            changes += 1
            degree[u] -= 1
            table[u] -= logs[v]
            near_pairs[u] -= pairs[v]
            score[u] -= beta * logs[v] + gamma
            if length[u] > 2 * degree[u] or (alpha > 0 and d > 1):
                end = begin[u]
                inside = 0.0
                for e in range(begin[u], begin[u] + length[u]):
                    j = pool[e]
                    if alive[j]:
                        pool[end] = j
                        end += 1
                        if mark[j] == clique:
                            inside += pairs[j]
                work += length[u]
                length[u] = end - begin[u]
                score[u] -= alpha * pairs[v] * (near_pairs[u] - inside)
            elif alpha > 0:
                score[u] -= alpha * pairs[v] * near_pairs[u]
        for m in range(d):
            if work > most or stop[0]:
                break
            a = near[m]
            stamp += 1
            mark[a] = stamp
            for e in range(begin[a], begin[a] + length[a]):
                mark[pool[e]] = stamp
            work += length[a] + d - m
            for t in range(m + 1, d):
                b = near[t]
                if mark[b] == stamp:
                    continue
                if alpha > 0:
                    gain = alpha * pairs[a] * pairs[b]
                    common = 0.0
                    for e in range(begin[b], begin[b] + length[b]):
                        j = pool[e]
                        if mark[j] == stamp and alive[j]:
                            common += pairs[j]
                            score[j] -= gain
                            if changed[j] != step + 1:
                                changed[j] = step + 1
                                touched[changes] = j
                                changes += 1
                    score[a] += alpha * pairs[b] * (near_pairs[a] - common)
                    score[b] += alpha * pairs[a] * (near_pairs[b] - common)
                    work += 3 * length[b]
                mark[b] = stamp
                for i, j in ((a, b), (b, a)):
                    if length[i] == room[i]:
                        if used + 2 * room[i] > len(pool):
                            larger = np.empty(2 * len(pool) + 2 * room[i], np.int32)
                            larger[:used] = pool[:used]
                            pool = larger
                        for e in range(length[i]):
                            pool[used + e] = pool[begin[i] + e]
                        begin[i] = used
                        room[i] *= 2
                        used += room[i]
                    pool[begin[i] + length[i]] = j
                    length[i] += 1
                    degree[i] += 1
                    table[i] += logs[j]
                    near_pairs[i] += pairs[j]
                    score[i] += beta * logs[j] + gamma
                work += 4
        for m in range(changes):
            _sift(heap, place, score, place[touched[m]])
    return order, total


@kernel
def _joined_neighbours(start, neighbour, pairs, stop):  # type: ignore[no-untyped-def]
    """Weighted number of edges among the neighbours of each vertex: every triangle found once."""
    n = len(start) - 1
    joined = np.zeros(n)
    mark = np.full(n, -1, np.int64)
    degree = start[1:] - start[:-1]
    for i in range(n):  # from its vertex of largest degree, so that hubs are scanned seldom
        if stop[0]:
            break
        for e in range(start[i], start[i + 1]):
            mark[neighbour[e]] = i
        for e in range(start[i], start[i + 1]):
            j = neighbour[e]
            if degree[j] > degree[i] or (degree[j] == degree[i] and j > i):
                continue
            for g in range(start[j], start[j + 1]):
                h = neighbour[g]
                lower = degree[h] < degree[j] or (degree[h] == degree[j] and h < j)
                if lower and mark[h] == i:
                    joined[i] += pairs[j] * pairs[h]
                    joined[j] += pairs[i] * pairs[h]
                    joined[h] += pairs[i] * pairs[j]
    return joined


@kernel
def _sift(heap, place, score, p):  # type: ignore[no-untyped-def]
    """Restore the heap after the score of its element at p has changed."""
    size = len(heap)
    i = heap[p]
    while p > 0 and score[i] < score[heap[(p - 1) >> 1]]:
        heap[p] = heap[(p - 1) >> 1]
        place[heap[p]] = p
        p = (p - 1) >> 1
    while True:
        c = 2 * p + 1
        if c + 1 < size and score[heap[c + 1]] < score[heap[c]]:
            c += 1
        if c >= size or score[i] <= score[heap[c]]:
            break
        heap[p] = heap[c]
        place[heap[p]] = p
        p = c
    heap[p] = i
    place[i] = p
