"""Spin glasses on random graphs: Erdős–Rényi, Barabási–Albert, Watts–Strogatz."""

import numpy as np
from numpy.random import Generator

from icgi.data.families.disorder import Disorder, require, spin_glass
from icgi.model.graph import FactorGraph, IntArray


def er(
    rng: Generator,
    n: int = 64,
    p: float = 0.1,
    beta: float = 1.0,
    field: float = 0.5,
    disorder: Disorder = "gaussian",
) -> FactorGraph:
    """Erdős–Rényi graph G(n, p): every pair is an edge with probability p."""
    return spin_glass(rng, n, erdos_renyi_edges(rng, n, p), beta, field, disorder)


def ba(
    rng: Generator,
    n: int = 64,
    m: int = 3,
    beta: float = 1.0,
    field: float = 0.5,
    disorder: Disorder = "gaussian",
) -> FactorGraph:
    """Barabási–Albert graph: every new variable prefers m well-connected ones."""
    return spin_glass(rng, n, barabasi_albert_edges(rng, n, m), beta, field, disorder)


def ws(
    rng: Generator,
    n: int = 64,
    k: int = 6,
    p: float = 0.1,
    beta: float = 1.0,
    field: float = 0.5,
    disorder: Disorder = "gaussian",
) -> FactorGraph:
    """Watts–Strogatz graph: a ring joined to k nearest neighbours, rewired with probability p."""
    return spin_glass(rng, n, watts_strogatz_edges(rng, n, k, p), beta, field, disorder)


def erdos_renyi_edges(rng: Generator, n: int, p: float) -> IntArray:
    """Edges i < j of G(n, p): a binomial number of pairs, drawn without repetition."""
    require(n >= 1 and 0 <= p <= 1, f"er: n={n}, p={p}; p is a probability and n at least 1")
    pairs = n * (n - 1) // 2
    chosen = rng.choice(pairs, rng.binomial(pairs, p), replace=False, shuffle=False)
    chosen = np.sort(chosen).astype(np.int64)
    row_start = np.arange(n, dtype=np.int64) * (2 * n - 1 - np.arange(n, dtype=np.int64)) // 2
    i = np.searchsorted(row_start, chosen, side="right") - 1
    return np.stack([i, chosen - row_start[i] + i + 1], 1)


def barabasi_albert_edges(rng: Generator, n: int, m: int) -> IntArray:
    """Edges of preferential attachment from a star of m + 1 variables (as networkx builds it)."""
    require(1 <= m < n, f"ba: m={m}, n={n}; m is at least 1 and less than n")
    ends = [end for leaf in range(1, m + 1) for end in (0, leaf)]  # each variable degree times
    source = list(range(1, m + 1))
    target = [0] * m
    draws: list[float] = []
    for new in range(m + 1, n):
        chosen: set[int] = set()
        while len(chosen) < m:
            if not draws:
                draws = rng.random(2 * m * (n - new) + 8).tolist()
            chosen.add(ends[int(draws.pop() * len(ends))])
        picked = sorted(chosen)
        source += [new] * m
        target += picked
        ends += picked
        ends += [new] * m
    return np.array([target, source], dtype=np.int64).T.copy()


def watts_strogatz_edges(rng: Generator, n: int, k: int, p: float) -> IntArray:
    """Edges of the ring to k // 2 neighbours each side, rewired at one end with chance p."""
    require(n > k >= 2 and k % 2 == 0, f"ws: k={k}, n={n}; k is even, at least 2, less than n")
    require(0 <= p <= 1, f"ws: p={p} should be a probability")
    i = np.tile(np.arange(n, dtype=np.int64), k // 2)
    j = (i + np.repeat(np.arange(1, k // 2 + 1), n)) % n
    moved = np.flatnonzero(rng.random(len(i)) < p).tolist()
    taken = set((np.minimum(i, j) * n + np.maximum(i, j)).tolist())
    degree = np.full(n, k)
    for edge in moved:
        a, old = int(i[edge]), int(j[edge])
        if degree[a] >= n - 1:
            continue  # joined to all others: there is no free end
        new = a
        while new == a or min(a, new) * n + max(a, new) in taken:
            new = int(rng.integers(n))
        taken.remove(min(a, old) * n + max(a, old))
        taken.add(min(a, new) * n + max(a, new))
        degree[old] -= 1
        degree[new] += 1
        j[edge] = new
    return np.stack([np.minimum(i, j), np.maximum(i, j)], 1)
