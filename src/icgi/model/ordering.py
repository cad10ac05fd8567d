"""Elimination orders: greedy rules, a search by counted work, and the exact cost of any order.

Eliminating a variable joins its neighbours. The table of that step ranges over the variable and its
neighbours of the moment (its clique); the least sum of these tables is what a search looks for.
"""

import math
import time
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.random import Generator

from icgi.errors import IcgiError
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.randomness import kernel_seed

# A rule scores a variable by α·fill + β·log₂ table + γ·degree, least first, where fill adds up the
# products of the two variables' weights over missing edges: weight one, or number of states.
RULES: dict[str, tuple[float, float, float, bool]] = {
    "min-fill": (1.0, 1e-3, 0.0, False),
    "weighted-min-fill": (1.0, 1e-3, 0.0, True),
    "min-weight": (0.0, 1.0, 0.0, False),
    "min-degree": (0.0, 1e-3, 1.0, False),
}
SWEEPS = ("smallest-front", "reverse-cuthill-mckee")
HEURISTICS = (*RULES, *SWEEPS)

_TINY = 16.5  # log₂ of the total entries below which no search pays
_ENTRIES_PER_SECOND = 5e8  # of exact inference: a search may take as long as that
_SECONDS_PER_VARIABLE = 1e-5  # of exact inference, however small its tables
_WORK_PER_SECOND = 3e8  # of the kernels, as measured on one core
_MOST_SECONDS = 3.0  # of counted work, whatever the clock allows
_CHUNK = 1e7  # work between two looks at the clock
_BITSET_LIMIT = 2048  # variables up to which adjacency is a bit matrix
_FILL_LIMIT = 10_000_000  # members of all cliques, up to which they are listed
_SMALLEST_PIECE, _LARGEST_PIECE = 6, 128  # variables that are ordered anew at a time
_TRIES = 2  # random orders of a piece
_SLACK = 0.1  # log₂ by which a piece may get worse while the search is hot
_RESTART_SHARE = 0.1  # of the work goes into whole orders, the rest into pieces of the best one


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """An elimination sequence over all variables, and what eliminating in it costs.

    Variables of one state are free: they count neither for the width nor for tables.
    """

    variables: IntArray  # n        in order of elimination
    width: int  # largest number of neighbours at elimination (induced width)
    log2_table: float  # largest clique table, the eliminated variable included
    log2_entries: float  # log₂ of the sum of all clique tables
    message_entries: float  # sum of all separator tables (cliques without their variable)
    heuristic: str


def find_order(
    model: FactorGraph,
    rng: Generator,
    seconds: float = 10.0,
    restarts: int = 1_000_000,
    hopeless: float = math.inf,
) -> Order:
    """Order of least total table entries, by a search in proportion to that total.

    The search is limited by counted work, so the same seed gives the same order; the clock
    (`seconds`) decides only if it runs out first. The variables come in a postorder of the
    elimination tree.

    Parameters
    ----------
    restarts
        Most random eliminations to try, of the whole model or of a part; 0: greedy rules only.
    hopeless
        log₂ of the total entries above which greedy rules are enough, too.
    """
    seed = kernel_seed(rng)
    core = _core(model, peel=True)
    found = _greedy_search(core, seconds)
    if restarts > 0 and _TINY < found.total <= hopeless and not core.complete:
        found = _random_search(core, found, seed, seconds, restarts)
    return _whole(model, core, found.order, found.name)


def greedy_order(model: FactorGraph, heuristic: str, rng: Generator | None = None) -> Order:
    """Order by one of `HEURISTICS`; with `rng`, ties and the start of a sweep are left to chance.

    Rules come in a postorder of their elimination tree, sweeps as they are.
    """
    if heuristic not in HEURISTICS:
        raise IcgiError(f"unknown heuristic {heuristic!r}; choose one of {', '.join(HEURISTICS)}")
    core = _core(model, peel=heuristic in RULES)
    n = core.size
    jitter = np.zeros(n) if rng is None else rng.random(n)
    if n == 0:
        order = np.empty(0, np.int64)
    elif heuristic == "smallest-front":
        root = -1 if rng is None else int(rng.integers(n))
        order = _smallest_front(core.start, core.neighbour, core.logs, 1e-3 * jitter, root)
    elif heuristic == "reverse-cuthill-mckee":
        order = _cuthill_mckee(core)
    else:
        most = _MOST_SECONDS * _WORK_PER_SECOND if n > _BITSET_LIMIT else np.inf
        order, _ = _greedy(core, heuristic, 0.5 * jitter, np.inf, most)
    return _whole(model, core, order, heuristic)


def cost(model: FactorGraph, variables: IntArray, heuristic: str = "given") -> Order:
    """Exact cost of eliminating all variables in a given order, without forming the fill."""
    order = np.array(variables, dtype=np.int64)
    n = model.n_variables
    if order.shape != (n,) or not np.array_equal(np.sort(order), np.arange(n)):
        raise IcgiError(f"an elimination order names each of the {n} variables exactly once")
    return _costed(*neighbours(model), np.log2(model.cards), order, heuristic, tidy=False)


def neighbours(model: FactorGraph) -> tuple[IntArray, IntArray]:
    """Primal graph: neighbours of variable i are `neighbour[start[i]:start[i + 1]]`, ascending."""
    arity = np.fromiter(map(len, model.scopes), np.int64, model.n_factors)
    scope = np.fromiter(chain.from_iterable(model.scopes), np.int64, int(arity.sum()))
    start, neighbour = _neighbours(model.n_variables, arity, scope)
    return start, neighbour


@dataclass(frozen=True, slots=True, eq=False)
class _Core:
    """What is left of the primal graph after the eliminations that cannot be wrong."""

    whole_start: IntArray
    whole_neighbour: IntArray
    before: IntArray  # variables eliminated first
    variables: IntArray  # n        variables of the core, in the model's numbers
    after: IntArray  # variables of one state: free if eliminated last
    start: IntArray  # n+1
    neighbour: IntArray
    logs: FloatArray  # n        log₂ of the number of states

    @property
    def size(self) -> int:
        return len(self.variables)

    @property
    def complete(self) -> bool:
        return len(self.neighbour) == self.size * (self.size - 1)

    @property
    def mixed(self) -> bool:
        return self.size > 0 and bool(self.logs.min() < self.logs.max())


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    order: IntArray  # of the core
    total: float  # log₂ of the entries of all its tables
    name: str


def _core(model: FactorGraph, peel: bool) -> _Core:
    start, neighbour = neighbours(model)
    logs = np.log2(model.cards)
    before, variables, after, core_start, core_neighbour = _peel(
        start, neighbour, logs, 2 if peel else -1
    )
    return _Core(
        start, neighbour, before, variables, after, core_start, core_neighbour, logs[variables]
    )


def _whole(model: FactorGraph, core: _Core, order: IntArray, heuristic: str) -> Order:
    variables = np.concatenate([core.before, core.variables[order], core.after])
    graph = core.whole_start, core.whole_neighbour, np.log2(model.cards)
    return _costed(*graph, variables, heuristic, tidy=heuristic not in SWEEPS)


def _costed(
    start: IntArray,
    neighbour: IntArray,
    logs: FloatArray,
    order: IntArray,
    heuristic: str,
    tidy: bool,
) -> Order:
    parent, tables, _, *totals = _cost(start, neighbour, order, logs)
    width, table, entries, messages = totals
    if tidy:
        order = order[_heavy_first(parent, tables)]
    order.flags.writeable = False
    return Order(order, width, table, entries, messages, heuristic)


def _greedy_search(core: _Core, seconds: float) -> _Found:
    """Best of the deterministic orders; the total of one ends a worse one early."""
    best = _Found(np.arange(core.size), np.inf if core.size else -np.inf, "peeling")
    rules = ("min-weight", "min-fill", "weighted-min-fill" if core.mixed else "")
    # Sweeps always end soon, so with many variables they come first.
    names = (*SWEEPS, *rules) if core.size > _BITSET_LIMIT else (*rules, *SWEEPS)
    for name in filter(None, names):
        if name in SWEEPS and best.total <= _TINY:
            continue
        if name == "smallest-front":
            zeros = np.zeros(core.size)
            order = _smallest_front(core.start, core.neighbour, core.logs, zeros, -1)
            total = _total(core, order)
        elif name == "reverse-cuthill-mckee":
            order = _cuthill_mckee(core)
            total = _total(core, order)
        else:
            most = max(_allowed(core, best.total, seconds), 1e7 + 2e3 * core.size)
            most = most if best.total < np.inf else np.inf
            order, total = _greedy(core, name, np.zeros(core.size), best.total, most)
        if total < best.total:
            best = _Found(order, total, name)
    return best


def _random_search(core: _Core, best: _Found, seed: int, seconds: float, runs: int) -> _Found:
    """Random greedy orders, then pieces of the best one anew, until the allowed work is done."""
    _compile_search()
    end = time.perf_counter() + seconds
    graph = (core.start, core.neighbour, core.logs, core.mixed)
    state = np.array([seed], np.uint64)
    work = 0.0
    while core.size <= _BITSET_LIMIT and runs > 0 and time.perf_counter() < end:
        left = _RESTART_SHARE * _allowed(core, best.total, seconds) - work
        if left <= 0:
            break
        order, total, spent, tried = _restart(*graph, best.total, runs, min(left, _CHUNK), state)
        work += spent
        runs -= tried
        if total < best.total:
            best = _Found(order, total, "search")
    order = best.order
    if _cost(core.start, core.neighbour, order, core.logs)[2] > _FILL_LIMIT:
        return best
    while runs > 0 and time.perf_counter() < end:
        most = _allowed(core, best.total, seconds)
        if work >= most:
            break
        order, kept, total, spent, tried = _refine(
            *graph,
            order,
            best.order,
            best.total,
            1.0 - work / most,
            runs,
            min(_CHUNK, most / 16),
            state,
        )
        work += spent
        runs -= tried
        if total < best.total:
            best = _Found(kept, total, "search")
    return best


@cache
def _compile_search() -> None:
    """Compile the search, on a machine's first use, before a clock runs."""
    graph = (np.zeros(2, np.int64), np.empty(0, np.int64), np.ones(1), False)
    order, state = np.zeros(1, np.int64), np.zeros(1, np.uint64)
    _restart(*graph, 0.0, 0, 0.0, state)
    _refine(*graph, order, order, 0.0, 0.0, 0, 0.0, state)


def _allowed(core: _Core, total: float, seconds: float) -> float:
    """Work that a search may spend when exact inference needs 2^total entries."""
    predicted = math.exp2(min(total, 64.0)) / _ENTRIES_PER_SECOND
    predicted += core.size * _SECONDS_PER_VARIABLE
    patience = _MOST_SECONDS * math.exp2(min(0.0, (64.0 - total) / 16.0))  # hope fades
    # Half of what the clock allows, so that on a busy machine, too, it seldom decides.
    return _WORK_PER_SECOND * min(predicted, seconds / 2, patience)


def _total(core: _Core, order: IntArray) -> float:
    return float(_cost(core.start, core.neighbour, order, core.logs)[5])


def _greedy(
    core: _Core, rule: str, jitter: FloatArray, limit: float, most: float
) -> tuple[IntArray, float]:
    alpha, beta, gamma, weighted = RULES[rule]
    pairs = np.exp2(core.logs) if weighted else np.ones(core.size)
    weights = (core.logs, pairs, jitter, alpha, beta, gamma)
    if core.size > _BITSET_LIMIT:
        order, total = _greedy_lists(core.start, core.neighbour, *weights, limit, most)
    else:
        rows = _bit_rows(core.start, core.neighbour)
        order, total, _ = _greedy_bits(rows, core.size, *weights, limit, most)
    return order, total


def _cuthill_mckee(core: _Core) -> IntArray:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ones = np.ones(len(core.neighbour), np.int8)
    graph = csr_array((ones, core.neighbour, core.start), shape=(core.size, core.size))
    return np.ascontiguousarray(reverse_cuthill_mckee(graph, symmetric_mode=True), dtype=np.int64)


@kernel
def _neighbours(n, arity, scope):  # type: ignore[no-untyped-def]
    start = np.zeros(n + 1, np.int64)
    at = 0
    for f in range(len(arity)):
        for a in range(at, at + arity[f]):
            start[scope[a] + 1] += arity[f] - 1
        at += arity[f]
    start = np.cumsum(start)
    end = start[:n].copy()
    listed = np.empty(start[n], np.int64)
    at = 0
    for f in range(len(arity)):
        for a in range(at, at + arity[f]):
            i = scope[a]
            for b in range(at, at + arity[f]):
                if a != b:
                    listed[end[i]] = scope[b]
                    end[i] += 1
        at += arity[f]
    seen = np.full(n, -1, np.int64)
    first = np.zeros(n + 1, np.int64)
    for i in range(n):
        kept = start[i]
        for e in range(start[i], end[i]):
            j = listed[e]
            if seen[j] != i:
                seen[j] = i
                listed[kept] = j
                kept += 1
        end[i] = kept
        first[i + 1] = kept - start[i]
    first = np.cumsum(first)
    # Transposing a symmetric graph leaves it as it is, but sorts every list.
    ascending = np.empty(first[n], np.int64)
    place = first[:n].copy()
    for i in range(n):
        for e in range(start[i], end[i]):
            j = listed[e]
            ascending[place[j]] = i
            place[j] += 1
    return first, ascending


@kernel
def _log2_add(a, b):  # type: ignore[no-untyped-def]
    if a < b:
        a, b = b, a
    if b < a - 60.0:
        return a
    return a + np.log2(1.0 + 2.0 ** (b - a))


@kernel
def _postorder(parent, entered):  # type: ignore[no-untyped-def]
    """Postorder of a forest; among siblings, the last in the sequence `entered` comes first."""
    n = len(parent)
    child = np.full(n, -1, np.int64)
    sibling = np.full(n, -1, np.int64)
    for p in entered:
        if parent[p] >= 0:
            sibling[p] = child[parent[p]]
            child[parent[p]] = p
    post = np.empty(n, np.int64)
    stack = np.empty(n, np.int64)
    k = 0
    for root in range(n):
        if parent[root] >= 0:
            continue
        top = 0
        stack[0] = root
        while top >= 0:
            p = stack[top]
            c = child[p]
            if c >= 0:
                child[p] = sibling[c]
                top += 1
                stack[top] = c
            else:
                post[k] = p
                k += 1
                top -= 1
    return post


@kernel
def _heavy_first(parent, table):  # type: ignore[no-untyped-def]
    """Postorder that enters the branch of the largest table first, while few messages wait."""
    heaviest = table.copy()
    for p in range(len(parent)):  # children come before parents in any elimination order
        if parent[p] >= 0:
            heaviest[parent[p]] = max(heaviest[parent[p]], heaviest[p])
    return _postorder(parent, np.argsort(heaviest, kind="mergesort"))


@kernel
def _elimination_tree(start, neighbour, order):  # type: ignore[no-untyped-def]
    """Parent of each position: the first position that its clique still holds after it, or −1."""
    n = len(order)
    position = np.empty(n, np.int64)
    for p in range(n):
        position[order[p]] = p
    parent = np.full(n, -1, np.int64)
    ancestor = np.full(n, -1, np.int64)
    for p in range(n):
        i = order[p]
        for e in range(start[i], start[i + 1]):
            q = position[neighbour[e]]
            while q != -1 and q < p:
                above = ancestor[q]
                ancestor[q] = p
                if above == -1:
                    parent[q] = p
                q = above
    return position, parent


@kernel
def _cost(start, neighbour, order, logs):  # type: ignore[no-untyped-def]
    """Sizes of all cliques by weighted column counts (Gilbert, Ng, Peyton 1994), nearly linear.

    Row i of the triangular factor is a subtree of the elimination tree. Its weight is added at the
    leaves of that subtree and taken off where two of its branches meet and above its root, so that
    sums over descendants give every column.
    """
    n = len(order)
    position, parent = _elimination_tree(start, neighbour, order)
    post = _postorder(parent, np.arange(n)[::-1])
    table = np.zeros(n)  # log₂ of the clique table
    count = np.zeros(n, np.int64)  # variables in the clique of more than one state
    first = np.full(n, -1, np.int64)  # postorder rank of the first descendant
    for k in range(n):
        p = post[k]
        if first[p] == -1:
            table[p] = logs[order[p]]
            count[p] = logs[order[p]] > 0
        while p != -1 and first[p] == -1:
            first[p] = k
            p = parent[p]
    ancestor = np.arange(n)
    latest = np.full(n, -1, np.int64)
    leaf = np.full(n, -1, np.int64)
    for k in range(n):
        p = post[k]
        i = order[p]
        if parent[p] != -1:
            table[parent[p]] -= logs[i]
            count[parent[p]] -= logs[i] > 0
        for e in range(start[i], start[i + 1]):
            j = neighbour[e]
            q = position[j]
            if q <= p or first[p] <= latest[q]:
                continue
            latest[q] = first[p]
            table[p] += logs[j]
            count[p] += logs[j] > 0
            previous = leaf[q]
            leaf[q] = p
            if previous == -1:
                continue
            meet = previous
            while meet != ancestor[meet]:
                meet = ancestor[meet]
            while previous != meet:
                above = ancestor[previous]
                ancestor[previous] = meet
                previous = above
            table[meet] -= logs[j]
            count[meet] -= logs[j] > 0
        if parent[p] != -1:
            ancestor[p] = parent[p]
    width, fill, largest, entries, messages = 0, 0, 0.0, -np.inf, 0.0
    for k in range(n):
        p = post[k]
        own = logs[order[p]]
        if parent[p] != -1:
            table[parent[p]] += table[p]
            count[parent[p]] += count[p]
        width = max(width, count[p] - (own > 0))
        fill += count[p]
        largest = max(largest, table[p])
        entries = _log2_add(entries, table[p])
        messages += 2.0 ** (table[p] - own)
    return parent, table, fill, width, largest, entries, messages


@kernel
def _peel(start, neighbour, logs, most):  # type: ignore[no-untyped-def]
    """Eliminate what no better order would keep: degree 0 and 1, triangles, and series.

    Only degrees up to `most` are looked at. A variable of degree two may join its neighbours if it
    has no fewer states than one of them (the weighted almost-simplicial rule); variables of one
    state leave the graph.
    """
    n = len(logs)
    twin = np.empty(len(neighbour), np.int64)  # the same edge seen from its other end; −1 if gone
    at = start[:n].copy()
    degree = np.zeros(n, np.int64)
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            j = neighbour[e]
            twin[at[j]] = e
            at[j] += 1
    other = neighbour.copy()
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            if logs[i] == 0.0 or logs[other[e]] == 0.0:
                twin[e] = -1
            else:
                degree[i] += 1
    alive = logs > 0.0
    before = np.empty(n, np.int64)
    k = 0
    # Degrees 0 and 1 wait in the first row and go first: in a tree, joining would be wrong.
    waiting = np.empty((2, 3 * n), np.int64)
    top = np.zeros(2, np.int64)
    for i in range(n - 1, -1, -1):
        if alive[i] and degree[i] <= most:
            row = degree[i] // 2
            waiting[row, top[row]] = i
            top[row] += 1
    while top.sum() > 0:
        row = 0 if top[0] > 0 else 1
        top[row] -= 1
        i = waiting[row, top[row]]
        if not alive[i]:
            continue
        ends = (-1, -1)
        for e in range(start[i], start[i + 1]):
            if twin[e] >= 0:
                ends = (ends[1], e)
        if degree[i] == 2:
            a, b = other[ends[0]], other[ends[1]]
            if degree[b] < degree[a]:
                a, b = b, a
            joined = False
            for e in range(start[a], start[a + 1]):
                if twin[e] >= 0 and other[e] == b:
                    joined = True
                    break
            if not joined:
                if logs[i] < min(logs[a], logs[b]):
                    continue
                e, g = twin[ends[0]], twin[ends[1]]
                other[e], other[g] = other[ends[1]], other[ends[0]]
                twin[e], twin[g] = g, e
                alive[i] = False
                before[k] = i
                k += 1
                continue
        alive[i] = False
        before[k] = i
        k += 1
        for e in ends:
            if e >= 0:
                j = other[e]
                twin[twin[e]] = -1
                degree[j] -= 1
                if degree[j] <= most:
                    row = degree[j] // 2
                    waiting[row, top[row]] = j
                    top[row] += 1
    number = np.full(n, -1, np.int64)
    size = 0
    for i in range(n):
        if alive[i]:
            number[i] = size
            size += 1
    variables = np.empty(size, np.int64)
    core_start = np.zeros(size + 1, np.int64)
    for i in range(n):
        if alive[i]:
            variables[number[i]] = i
            core_start[number[i] + 1] = core_start[number[i]] + degree[i]
    core_neighbour = np.empty(core_start[size], np.int64)
    at = core_start[:size].copy()
    for i in range(n):  # by transposition, so that lists are ascending
        if alive[i]:
            for e in range(start[i], start[i + 1]):
                if twin[e] >= 0:
                    j = number[other[e]]
                    core_neighbour[at[j]] = number[i]
                    at[j] += 1
    return before[:k], variables, np.flatnonzero(logs == 0.0), core_start, core_neighbour


@intrinsic
def _count_bits(typing: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def _lowest_bit(typing: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), generate


@kernel
def _bit(i):  # type: ignore[no-untyped-def]
    return np.uint64(1) << np.uint64(i & 63)


@kernel
def _bit_rows(start, neighbour):  # type: ignore[no-untyped-def]
    n = len(start) - 1
    rows = np.zeros((n, (n + 63) // 64), np.uint64)
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            j = neighbour[e]
            rows[i, j >> 6] |= _bit(j)
    return rows


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
def _fill_of(rows, k, pairs, unit):  # type: ignore[no-untyped-def]
    """Weighted number of missing edges among the neighbours of each of the first k vertices."""
    n, words = rows.shape
    fill = np.zeros(n)
    for i in range(k):
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
def _greedy_bits(rows, k, logs, pairs, jitter, alpha, beta, gamma, limit, most):  # type: ignore[no-untyped-def]
    """Eliminate the first k vertices, least score first.

    Returns the order, log₂ of the total of the clique tables, and the work done. The total is inf
    and the order worthless if it would reach the limit, or if the work exceeds `most`.
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
        score = _fill_of(rows, k, pairs, unit)
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
    for step in range(k):
        v = 0
        for i in range(1, k):
            if score[i] < score[v]:
                v = i
        order[step] = v
        total = _log2_add(total, table[v])
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
                total = _log2_add(total, everything)
                everything -= logs[v]
            work += (k - step) * k
            return order, total if total < limit else np.inf, work
        mask = ~_bit(v)
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
            a = near[m]
            for w in range(a >> 6, words):
                missing = row[w] & ~rows[a, w]
                if w == a >> 6:  # pairs once only: a < b
                    missing &= ~(_bit(a) | (_bit(a) - np.uint64(1)))
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
                    rows[a, b >> 6] |= _bit(b)
                    rows[b, a >> 6] |= _bit(a)
                    table[a] += logs[b]
                    table[b] += logs[a]
                    score[a] += beta * logs[b] + gamma
                    score[b] += beta * logs[a] + gamma
                    work += 4
    return order, total, work


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


@kernel
def _joined_neighbours(start, neighbour, pairs):  # type: ignore[no-untyped-def]
    """Weighted number of edges among the neighbours of each vertex: every triangle found once."""
    n = len(start) - 1
    joined = np.zeros(n)
    mark = np.full(n, -1, np.int64)
    degree = start[1:] - start[:-1]
    for i in range(n):  # from its vertex of largest degree, so that hubs are scanned seldom
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
def _greedy_lists(start, neighbour, logs, pairs, jitter, alpha, beta, gamma, limit, most):  # type: ignore[no-untyped-def]
    """`_greedy_bits` with neighbour lists, for large sparse graphs, and with an end to the work.

    Once the work exceeds `most` the rest is eliminated in the order of its present scores, and the
    total is reported as inf although the order is complete.
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
        if work > most:
            return np.argsort(score), np.inf
        joined = _joined_neighbours(start, neighbour, pairs)
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
        total = _log2_add(total, table[v])
        if total >= limit:
            return order, np.inf
        if degree[v] == n - step - 1 or work > most:
            rest = np.flatnonzero(alive)
            done = degree[v] == n - step - 1
            key = -logs[rest] if done else score[rest]
            order[step + 1 :] = rest[np.argsort(key, kind="mergesort")]
            everything = logs[rest].sum()
            for i in order[step + 1 :]:
                total = _log2_add(total, everything)
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
            if work > most:
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
def _farthest(start, neighbour, root, level):  # type: ignore[no-untyped-def]
    """A vertex of least degree among those farthest from `root`; `level` is scratch, all −1."""
    n = len(start) - 1
    queue = np.empty(n, np.int64)
    queue[0] = root
    level[root] = 0
    size, at = 1, 0
    while at < size:
        i = queue[at]
        at += 1
        for e in range(start[i], start[i + 1]):
            j = neighbour[e]
            if level[j] == -1:
                level[j] = level[i] + 1
                queue[size] = j
                size += 1
    best = queue[size - 1]
    for m in range(size - 1, -1, -1):
        i = queue[m]
        if level[i] < level[best]:
            break
        if start[i + 1] - start[i] < start[best + 1] - start[best]:
            best = i
    for m in range(size):
        level[queue[m]] = -1
    return best


@kernel
def _smallest_front(start, neighbour, logs, jitter, seed):  # type: ignore[no-untyped-def]
    """Sweep: eliminate the front variable that brings fewest new states into the front.

    The front holds the variables that have met an eliminated neighbour. Ties go to the variable
    that has waited longest; a sweep starts at the far end of each component.
    """
    n = len(logs)
    order = np.empty(n, np.int64)
    met = np.zeros(n, np.bool_)
    front = np.empty(n, np.int64)  # in order of arrival
    level = np.full(n, -1, np.int64)
    growth = jitter - logs  # log₂ states of the neighbours not yet met
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            growth[i] += logs[neighbour[e]]
    size = 0
    root = 0
    for step in range(n):
        if size == 0:
            while met[root]:
                root += 1
            first = _farthest(start, neighbour, _farthest(start, neighbour, root, level), level)
            if step == 0 and seed >= 0:
                first = seed
            met[first] = True
            front[0] = first
            size = 1
            for e in range(start[first], start[first + 1]):
                growth[neighbour[e]] -= logs[first]
        at = 0
        for m in range(1, size):
            if growth[front[m]] < growth[front[at]] - 1e-9:
                at = m
        v = front[at]
        order[step] = v
        size -= 1
        for m in range(at, size):
            front[m] = front[m + 1]
        for e in range(start[v], start[v + 1]):
            j = neighbour[e]
            if not met[j]:
                met[j] = True
                front[size] = j
                size += 1
                for g in range(start[j], start[j + 1]):
                    growth[neighbour[g]] -= logs[j]
    return order


@kernel
def _random(state):  # type: ignore[no-untyped-def]
    """Uniform number in [0, 1): splitmix64, its state in an array of one word."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * 2.0**-53


@kernel
def _random_greedy(rows, k, logs, cards, mixed, limit, state):  # type: ignore[no-untyped-def]
    """`_greedy_bits` by a random rule near min-fill, with random preferences between variables."""
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
    return _greedy_bits(rows, k, logs, pairs, jitter, alpha, beta, gamma, limit, np.inf)


@kernel
def _restart(start, neighbour, logs, mixed, limit, runs, most, state):  # type: ignore[no-untyped-def]
    """Best of random orders, every fourth a sweep, within so many runs and so much work."""
    n = len(logs)
    rows = _bit_rows(start, neighbour)
    cards = 2.0**logs
    best = np.empty(0, np.int64)
    work = 0
    tried = 0
    while work < most and tried < runs:
        tried += 1
        if tried % 4 == 0:
            jitter = np.empty(n)
            for i in range(n):
                jitter[i] = 0.3 * _random(state)
            order = _smallest_front(start, neighbour, logs, jitter, int(n * _random(state)))
            total = _cost(start, neighbour, order, logs)[5]
            spent = 10 * (n + len(neighbour))
        else:
            order, total, spent = _random_greedy(rows, n, logs, cards, mixed, limit, state)
        work += spent + n
        if total < limit:
            limit = total
            best = order
    return best, limit, work, tried


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
def _refine(  # type: ignore[no-untyped-def]
    start, neighbour, logs, mixed, order, kept, least, heat, runs, most, state
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
    while work < most and tried < runs:
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
                    rows[a, b >> 6] |= _bit(b)
                    rows[b, a >> 6] |= _bit(a)
        row = np.empty(words, np.uint64)
        for t in range(edges + 1):  # what is below leaves cliques; the separator becomes one
            row[:] = 0
            q = position[edge[t]] if t < edges else p
            for e in range(begin[q], begin[q + 1]):
                b = local[members[e]]
                row[b >> 6] |= _bit(b)
            for e in range(begin[q], begin[q + 1]):
                b = local[members[e]]
                for w in range(words):
                    rows[b, w] |= row[w]
            work += (begin[q + 1] - begin[q] + 2) * (words + 2)
        for a in range(m):
            rows[a, a >> 6] &= ~_bit(a)
        limit = -np.inf
        for a in range(k):
            limit = _log2_add(limit, table[piece[a]])
        limit += 1e-9 - _SLACK * heat * np.log(1.0 - _random(state))
        found = np.empty(0, np.int64)
        for _ in range(_TRIES):
            new, total, spent = _random_greedy(
                rows, k, logs[vertices], cards[vertices], mixed, limit, state
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
                total = _log2_add(total, table[i])
            if total < least - 1e-9:
                least = total
                kept = order
    return order, kept, least, work, tried
