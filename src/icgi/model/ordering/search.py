"""Search of elimination orders: greedy rules and sweeps, then random ones by counted work."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.clock import Deadline
from icgi.errors import IcgiError
from icgi.kernels import brief
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ordering.anneal import refine, restart
from icgi.model.ordering.bits import bit_rows, greedy_bits
from icgi.model.ordering.costs import clique_costs, heavy_first
from icgi.model.ordering.graph import Remainder, neighbours, remainder_of
from icgi.model.ordering.lists import greedy_lists
from icgi.model.ordering.sweeps import cuthill_mckee, smallest_front
from icgi.randomness import kernel_seed

Stop = NDArray[np.uint8]

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
_WORTH_A_SORT = 19.0  # likewise for a sweep that scipy makes: it takes 0.1 ms for any model
_ENTRIES_PER_SECOND = 1e9  # of exact inference: a search may take as long as that
_SECONDS_PER_VARIABLE = 3e-6  # of exact inference, however small its tables
_WORK_PER_SECOND = 3e8  # of the kernels, as measured on one processor
_LEAST_SECONDS = 0.05  # by the clock: greedy rules on a small model end within it
_MOST_SECONDS = 3.0  # of counted work, whatever the clock allows
_CHUNK = 1e7  # work between two looks at the clock
_BITSET_LIMIT = 2048  # variables up to which adjacency is a bit matrix
_FILL_LIMIT = 10_000_000  # members of all cliques, up to which they are listed
_RESTART_SHARE = 0.1  # of the work goes into whole orders, the rest into pieces of the best one
# A search ends when it has found nothing for so much of the work that the answer takes, before its
# first gain and after it; of that the same share goes into whole orders.
_PATIENCE, _PATIENCE_AFTER_GAIN = 0.1, 0.25
_LEAST_SHARE = 0.1  # of the square of the variables: one whole order takes more work than that
_GAIN = 0.03  # log₂ of the entries: less is no gain that is worth waiting for


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
    finished: bool = True  # false: no rule ended in time, so that the cost says little


def find_order(
    model: FactorGraph,
    rng: Generator,
    seconds: float = 10.0,
    restarts: int = 1_000_000,
    hopeless: float = math.inf,
    work: float = math.inf,
) -> Order:
    """Order of least total table entries, by a search in proportion to that total.

    The search is limited by counted work, so the same seed gives the same order; the clock
    (`seconds`) decides only if it runs out first, and then ends even a greedy rule half way: what
    is left is eliminated by its scores of that moment. The variables come in a postorder of the
    elimination tree.

    Parameters
    ----------
    restarts
        Most random eliminations to try, of the whole model or of a part; 0: greedy rules only.
    hopeless
        log₂ of the total entries above which greedy rules are enough, too.
    work
        Most seconds of counted work, besides: unlike the clock they are the same on busy machines.
    """
    seed = kernel_seed(rng)
    # Half of what the clock allows, so that on a busy machine, too, it seldom decides.
    work = min(work, seconds / 2)
    with Deadline.after(max(seconds, _LEAST_SECONDS)).flag() as stop:
        with brief(20.0 * model.n_variables**2):
            remainder = remainder_of(model, forced=True)
            found = _greedy_search(remainder, work, stop)
        if restarts > 0 and _TINY < found.total <= hopeless and not remainder.complete:
            found = _random_search(remainder, found, seed, work, restarts, stop)
    with brief(20.0 * model.n_variables**2):
        whole = _whole(model, remainder, found.order, found.name)
    return whole if found.finished else replace(whole, finished=False)


def greedy_order(
    model: FactorGraph, heuristic: str, rng: Generator | None = None, seconds: float = math.inf
) -> Order:
    """Order by one of `HEURISTICS`; with `rng`, ties and the start of a sweep are left to chance.

    Rules come in a postorder of their elimination tree, sweeps as they are. When the seconds are
    over the rest is eliminated by the scores of that moment.
    """
    if heuristic not in HEURISTICS:
        raise IcgiError(f"unknown heuristic {heuristic!r}; choose one of {', '.join(HEURISTICS)}")
    with Deadline.after(seconds).flag() as stop:
        remainder = remainder_of(model, forced=heuristic in RULES)
        n = remainder.size
        jitter = np.zeros(n) if rng is None else rng.random(n)
        if n == 0:
            order = np.empty(0, np.int64)
        elif heuristic == "smallest-front":
            root = -1 if rng is None else int(rng.integers(n))
            order = smallest_front(
                remainder.start, remainder.neighbour, remainder.logs, 1e-3 * jitter, root, stop
            )
        elif heuristic == "reverse-cuthill-mckee":
            order = cuthill_mckee(remainder)
        else:
            most = _MOST_SECONDS * _WORK_PER_SECOND if n > _BITSET_LIMIT else np.inf
            order, _ = _greedy(remainder, heuristic, 0.5 * jitter, np.inf, most, stop)
    return _whole(model, remainder, order, heuristic)


def cost(model: FactorGraph, variables: IntArray, heuristic: str = "given") -> Order:
    """Exact cost of eliminating all variables in a given order, without forming the fill."""
    order = np.array(variables, dtype=np.int64)
    n = model.n_variables
    if order.shape != (n,) or not np.array_equal(np.sort(order), np.arange(n)):
        raise IcgiError(f"an elimination order names each of the {n} variables exactly once")
    return _costed(*neighbours(model), np.log2(model.cards), order, heuristic, tidy=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    order: IntArray  # of the remainder
    total: float  # log₂ of the entries of all its tables
    name: str
    finished: bool = True


def _whole(model: FactorGraph, remainder: Remainder, order: IntArray, heuristic: str) -> Order:
    variables = np.concatenate([remainder.before, remainder.variables[order], remainder.after])
    graph = remainder.whole_start, remainder.whole_neighbour, np.log2(model.cards)
    return _costed(*graph, variables, heuristic, tidy=heuristic not in SWEEPS)


def _costed(
    start: IntArray,
    neighbour: IntArray,
    logs: FloatArray,
    order: IntArray,
    heuristic: str,
    tidy: bool,
) -> Order:
    parent, tables, _, *totals = clique_costs(start, neighbour, order, logs)
    width, table, entries, messages = totals
    if tidy:
        order = order[heavy_first(parent, tables)]
    order.flags.writeable = False
    return Order(order, width, table, entries, messages, heuristic)


def _greedy_search(remainder: Remainder, work: float, stop: Stop) -> _Found:
    """Best of the deterministic orders; the total of one ends a worse one early."""
    best = _Found(np.arange(remainder.size), np.inf if remainder.size else -np.inf, "forced")
    if not remainder.size:
        return best
    rules = ("min-weight", "min-fill", "weighted-min-fill" if remainder.mixed else "")
    # Sweeps always end soon, so with many variables they come first.
    names = (*SWEEPS, *rules) if remainder.size > _BITSET_LIMIT else (*rules, *SWEEPS)
    for name in filter(None, names):
        least = _WORTH_A_SORT if name == "reverse-cuthill-mckee" else _TINY
        if (name in SWEEPS and best.total <= least) or (stop[0] and best.total < np.inf):
            continue
        if name == "smallest-front":
            zeros = np.zeros(remainder.size)
            order = smallest_front(
                remainder.start, remainder.neighbour, remainder.logs, zeros, -1, stop
            )
            total = _total(remainder, order)
        elif name == "reverse-cuthill-mckee":
            order = cuthill_mckee(remainder)
            total = _total(remainder, order)
        else:
            most = max(_allowed(remainder, best.total, work), 1e7 + 2e3 * remainder.size)
            most = most if best.total < np.inf else np.inf
            order, total = _greedy(
                remainder, name, np.zeros(remainder.size), best.total, most, stop
            )
            if stop[0] and best.total == np.inf:  # ended half way, but it is all there is
                total = _total(remainder, order)
        if total < best.total or (stop[0] and best.total == np.inf):
            best = _Found(order, total, name, finished=not (stop[0] and best.total == np.inf))
    return best


def _random_search(
    remainder: Remainder, best: _Found, seed: int, allowed: float, runs: int, stop: Stop
) -> _Found:
    """Random greedy orders, then pieces of the best one anew, until the allowed work is done."""
    graph = (remainder.start, remainder.neighbour, remainder.logs, remainder.mixed)
    state = np.array([seed], np.uint64)
    work = idle = 0.0
    first = best.total
    while remainder.size <= _BITSET_LIMIT and runs > 0 and not stop[0]:
        left = _RESTART_SHARE * _allowed(remainder, best.total, allowed) - work
        wait = _RESTART_SHARE * _patience(remainder, first, best.total) - idle
        if min(left, wait) <= _LEAST_SHARE * remainder.size**2:
            break
        order, total, spent, tried = restart(
            *graph, best.total, runs, min(left, wait, _CHUNK), state, stop
        )
        work += spent
        idle = 0.0 if total < best.total - _GAIN else idle + spent
        runs -= tried
        if total < best.total:
            best = _Found(order, total, "search")
    order = best.order
    if (
        stop[0]
        or clique_costs(remainder.start, remainder.neighbour, order, remainder.logs)[2]
        > _FILL_LIMIT
    ):
        return best
    idle = 0.0
    while runs > 0 and not stop[0]:
        most = _allowed(remainder, best.total, allowed)
        wait = _patience(remainder, first, best.total) - idle
        if work >= most or wait <= 0:
            break
        order, kept, total, spent, tried = refine(
            *graph,
            order,
            best.order,
            best.total,
            1.0 - idle / (idle + wait),
            runs,
            min(_CHUNK, most / 16, wait),
            state,
            stop,
        )
        work += spent
        idle = 0.0 if total < best.total - _GAIN else idle + spent
        runs -= tried
        if total < best.total:
            best = _Found(kept, total, "search")
    return best


def _patience(remainder: Remainder, first: float, total: float) -> float:
    """Work without a gain after which a search ends, which began at 2^first entries."""
    share = _PATIENCE if total > first - _GAIN else _PATIENCE_AFTER_GAIN
    return share * _WORK_PER_SECOND * _predicted(remainder, total)


def _predicted(remainder: Remainder, total: float) -> float:
    """Seconds of exact inference with 2^total entries."""
    entries = math.exp2(min(total, 64.0)) / _ENTRIES_PER_SECOND
    return entries + remainder.size * _SECONDS_PER_VARIABLE


def _allowed(remainder: Remainder, total: float, seconds: float) -> float:
    """Work that a search of so many seconds may spend when inference needs 2^total entries."""
    predicted = _predicted(remainder, total)
    patience = _MOST_SECONDS * math.exp2(min(0.0, (64.0 - total) / 16.0))  # hope fades
    return _WORK_PER_SECOND * min(predicted, seconds, patience)


def _total(remainder: Remainder, order: IntArray) -> float:
    return float(clique_costs(remainder.start, remainder.neighbour, order, remainder.logs)[5])


def _greedy(
    remainder: Remainder, rule: str, jitter: FloatArray, limit: float, most: float, stop: Stop
) -> tuple[IntArray, float]:
    alpha, beta, gamma, weighted = RULES[rule]
    pairs = np.exp2(remainder.logs) if weighted else np.ones(remainder.size)
    weights = (remainder.logs, pairs, jitter, alpha, beta, gamma)
    if remainder.size > _BITSET_LIMIT:
        order, total = greedy_lists(
            remainder.start, remainder.neighbour, *weights, limit, most, stop
        )
    else:
        rows = bit_rows(remainder.start, remainder.neighbour)
        order, total, _ = greedy_bits(rows, remainder.size, *weights, limit, most, stop)
    return order, total
