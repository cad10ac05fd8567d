"""Search over elimination orders and train positions: the least predicted cost wins.

An order alone is half of the choice. Good positions keep variables that still interact close
together, so that ranges are short: a row sweep of a lattice wants its columns side by side.
"""

from collections.abc import Iterator

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.elimination.layout import Layout, lay_out
from icgi.elimination.potentials import Potentials
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ordering import greedy_order, neighbours

_SPECTRAL_LIMIT = 1500  # variables up to which a dense eigenvector is cheap
_MORE_SITES = 8  # times the sites of the best layout: beyond, another cannot be cheaper
_PLACEMENT_WORK = 2e8  # edges looked at, beyond which positions follow the order


def find_layout(
    model: FactorGraph, pots: Potentials, rank: int, rng: Generator, restarts: int = 4
) -> Layout:
    """Layout of least predicted cost over several orders, each with several positions."""
    return find_layouts(model, pots, rank, rng, 1, restarts)[0]


def find_layouts(
    model: FactorGraph,
    pots: Potentials,
    rank: int,
    rng: Generator,
    count: int,
    restarts: int = 4,
    deadline: Deadline | None = None,
    most_sites: int = 2**62,
) -> list[Layout]:
    """Layouts of least predicted cost, at most `count`, no two alike; the best comes first.

    Orders are tried, quick ones first, while there is time; there may be none at all.
    """
    deadline = deadline or Deadline()
    start, neighbour = neighbours(model)
    chosen: list[Layout] = []
    for order in _orders(model, pots, start, neighbour, rng, restarts, count, deadline):
        for position in _positions(order, start, neighbour, deadline):
            layout = lay_out(
                model.cards, pots.stars, pots.wides, order, position, rank, deadline, most_sites
            )
            if layout is not None and not any(_alike(layout, other) for other in chosen):
                # of many layouts the lists of sites are large: only the best are held
                chosen = sorted([*chosen, layout], key=lambda layout: layout.cost)[:count]
                most_sites = min(most_sites, _MORE_SITES * len(chosen[0].site))
        if deadline.passed:
            break
    return chosen


def _alike(first: Layout, second: Layout) -> bool:
    return np.array_equal(first.order, second.order) and np.array_equal(
        np.argsort(first.position), np.argsort(second.position)
    )


def _orders(
    model: FactorGraph,
    pots: Potentials,
    start: IntArray,
    neighbour: IntArray,
    rng: Generator,
    restarts: int,
    count: int,
    deadline: Deadline,
) -> Iterator[IntArray]:
    n = model.n_variables
    if len(neighbour) == n * (n - 1):  # complete: every order costs the same
        yield np.arange(n)
        if count > 1 and n <= _SPECTRAL_LIMIT and deadline.left > 1e-9 * n**3:
            yield _spectral(pots)
        for _ in range(count - 2):
            yield rng.permutation(n)
        return
    for heuristic in ("smallest-front", "reverse-cuthill-mckee"):
        yield np.array(greedy_order(model, heuristic, seconds=deadline.left).variables)
    yield np.arange(n)
    if n <= _SPECTRAL_LIMIT and deadline.left > 1e-9 * n**3:
        yield _spectral(pots)
    # a greedy rule that is interrupted is of little use: there has to be time for it
    for rule, chance in (("min-fill", None), ("min-degree", None), *[("min-fill", rng)] * restarts):
        if deadline.left > rule_seconds(len(neighbour)):
            yield np.array(greedy_order(model, rule, chance, deadline.left).variables)


def rule_seconds(edges: int) -> float:
    """Seconds that a greedy rule may take on a sparse graph of so many directed edges."""
    return 1.5e-5 * edges


def _positions(
    order: IntArray, start: IntArray, neighbour: IntArray, deadline: Deadline
) -> Iterator[IntArray]:
    along = np.empty(len(order), np.int64)
    along[order] = np.arange(len(order))
    complete = len(neighbour) == len(order) * (len(order) - 1)
    if complete or len(neighbour) * np.sqrt(len(order)) > _PLACEMENT_WORK:
        yield along
        return
    for late in (False, True):
        with deadline.flag() as stop:
            position = place(order, start, neighbour, late, stop)
            if not stop[0]:
                yield position
    yield along


def _spectral(pots: Potentials) -> IntArray:
    """Variables along the slowest mode of the graph, edges weighted by their interaction."""
    n = len(pots.cards)
    weight = np.full((n, n), 1e-6)
    sizes = np.diff(pots.pair_start)
    finite = np.where(np.isneginf(pots.pair), -20.0, pots.pair)
    first = np.repeat(np.arange(n), np.diff(pots.near_start))
    if len(sizes):
        spread = np.maximum.reduceat(finite, pots.pair_start[:-1]) - np.minimum.reduceat(
            finite, pots.pair_start[:-1]
        )
        weight[first, pots.near] += np.tanh(spread / 4)[pots.near_pair]
    for f in range(len(pots.wide)):
        scope = pots.wide_scope[pots.wide_start[f] : pots.wide_start[f + 1]]
        weight[np.ix_(scope, scope)] += 1.0
    np.fill_diagonal(weight, 0.0)
    laplacian: FloatArray = np.diag(weight.sum(1)) - weight
    from scipy.linalg import eigh  # slow to load, and models of one variable need no order

    slowest = min(1, n - 1)
    mode = eigh(laplacian, subset_by_index=(slowest, slowest), overwrite_a=True)[1][:, 0]
    return np.argsort(mode if mode[np.argmax(np.abs(mode))] > 0 else -mode, kind="stable")


@kernel
def place(order, start, neighbour, late, stop):  # type: ignore[no-untyped-def]
    """Positions by insertion: a newly touched variable goes where it lengthens edges least.

    The cost of a gap is the distance to the variable's neighbours in the frontier, plus the edges
    between frontier variables that cross the gap. `late` inserts those eliminated last first.
    """
    n = len(order)
    when = np.empty(n, np.int64)
    for t in range(n):
        when[order[t]] = t
    following = np.full(n + 1, -1, np.int64)  # one list of all variables ever placed; n is its head
    act = np.empty(n, np.int64)
    at = np.full(n, -1, np.int64)  # index in the frontier, −1 outside
    touched = np.zeros(n, np.bool_)
    fresh = np.empty(n, np.int64)
    crossing = np.zeros(n + 2, np.int64)
    count = 0
    for t in range(n):
        if stop[0]:
            return order
        v = order[t]
        k = 0
        if not touched[v]:
            fresh[0] = v
            k = 1
        base = k
        for e in range(start[v], start[v + 1]):
            u = neighbour[e]
            if not touched[u]:
                j = k
                while j > base and (when[fresh[j - 1]] < when[u]) == late:
                    fresh[j] = fresh[j - 1]
                    j -= 1
                fresh[j] = u
                k += 1
        for i in range(k):
            u = fresh[i]
            touched[u] = True
            gaps = count + 1
            crossing[:gaps] = 0
            for j in range(count):
                a = act[j]
                for e in range(start[a], start[a + 1]):
                    b = at[neighbour[e]]
                    if b > j:
                        crossing[j + 1] += 1
                        crossing[b + 1] -= 1
            best, cost = count, 1 << 60
            run = 0
            for g in range(gaps):
                run += crossing[g]
                total = run
                for e in range(start[u], start[u + 1]):
                    b = at[neighbour[e]]
                    if b >= 0:
                        total += g - b if g > b else b - g + 1
                if total < cost or (total == cost and late):
                    best, cost = g, total
            previous = act[best - 1] if best > 0 else n
            following[u] = following[previous]
            following[previous] = u
            for j in range(count, best, -1):
                act[j] = act[j - 1]
                at[act[j]] = j
            act[best] = u
            at[u] = best
            count += 1
        for j in range(at[v], count - 1):
            act[j] = act[j + 1]
            at[act[j]] = j
        at[v] = -1
        count -= 1
    position = np.empty(n, np.int64)
    u = following[n]
    for p in range(n):
        position[u] = p
        u = following[u]
    return position
