"""Where everything goes: elimination order and positions turned into steps over ranges of a train.

The frontier holds the variables that are touched but not yet eliminated, in the order of their
positions. A step multiplies tables into the sites from the first to the last variable they touch
(its range), and possibly sums one variable out. All of that is known before a number is computed.
"""

from dataclasses import dataclass

import numpy as np

from icgi.clock import Deadline
from icgi.kernels import kernel
from icgi.model.graph import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Steps of an elimination. Sites of all steps are listed one after the other."""

    order: IntArray  # n        variables in order of elimination
    position: IntArray  # n
    step_variable: IntArray  # s        variable summed out by the step, −1 for a mere product
    step_factor: IntArray  # s        factor multiplied by the step, −1 where it sums out
    site_start: IntArray  # s+1      where the sites of a step begin
    site: IntArray  # variables of the range, in order of position, newly touched ones included
    fresh: IntArray  # 1 where the step is the first to touch the variable
    before: IntArray  # s        frontier sites left of the range
    frontier: int  # largest number of sites at a time
    caps: FloatArray  # log₂ of the largest possible bond right of each site, −1 at a range's end
    cost: float  # predicted Σ over bonds in ranges at the rank laid out for, see `bond_cost`


def lay_out(
    cards: IntArray,
    stars: tuple[IntArray, IntArray],
    wide: tuple[IntArray, IntArray],
    order: IntArray,
    position: IntArray,
    rank: int,
    deadline: Deadline | None = None,
    most_sites: int = 2**62,
) -> Layout | None:
    """Lay an elimination out. `stars` are pairs, `wide` larger scopes, both as (starts, flat).

    None where the deadline passed, or the ranges have more than `most_sites` sites together.
    """
    with (deadline or Deadline()).flag() as stop:
        parts = _lay_out(cards, *stars, *wide, order, position, most_sites, stop)
    (variables, factors, site_start, sites, fresh, before, frontier, caps) = parts
    if frontier < 0:
        return None
    cost = bond_cost(cards, variables, site_start, caps, rank)
    return Layout(
        order, position, variables, factors, site_start, sites, fresh, before, int(frontier), caps,
        cost,
    )  # fmt: skip


def bond_cost(
    cards: IntArray,
    variables: IntArray,
    site_start: IntArray,
    caps: FloatArray,
    rank: int,
) -> float:
    """Σ over bonds inside ranges of (d · min(r, largest possible bond))³ for the carried d states.

    `caps` holds log₂ of the largest possible bond right of each site, −1 at the end of a range.
    """
    owner = np.repeat(np.arange(len(variables)), np.diff(site_start))
    carried = np.where(variables >= 0, cards[np.maximum(variables, 0)], 2)[owner]
    inside = caps >= 0
    bonds = np.minimum(np.log2(rank), caps)[inside]
    return float(np.sum(np.exp2(3.0 * (bonds + np.log2(carried[inside])))))


@kernel
def _lay_out(  # type: ignore[no-untyped-def]
    cards, near_start, near, wide_start, wide, order, position, most_sites, stop
):
    """Steps as arrays; with a frontier of −1 where it was left early."""
    n = len(order)
    rank_of = np.empty(n, np.int64)
    for t in range(n):
        rank_of[order[t]] = t
    # a wide factor is multiplied in just before the first of its variables goes
    f = len(wide_start) - 1
    head = np.full(n, -1, np.int64)
    following = np.full(f, -1, np.int64)
    for g in range(f):
        first = wide[wide_start[g]]
        for e in range(wide_start[g], wide_start[g + 1]):
            if rank_of[wide[e]] < rank_of[first]:
                first = wide[e]
        following[g] = head[first]
        head[first] = g
    steps = n + f
    variables = np.full(steps, -1, np.int64)
    factors = np.full(steps, -1, np.int64)
    site_start = np.zeros(steps + 1, np.int64)
    before = np.zeros(steps, np.int64)
    capacity = 16 * steps + 16
    sites = np.empty(capacity, np.int64)
    fresh = np.empty(capacity, np.int64)
    caps = np.empty(capacity)
    act = np.empty(n, np.int64)
    live = np.zeros(n, np.int64)  # 0 untouched, 1 in the frontier, 2 gone
    count, widest, s = 0, 0, 0
    members = np.empty(n, np.int64)
    touched = np.full(n, -1, np.int64)  # last step that a variable was a member of
    for t in range(n):
        if stop[0] or site_start[s] > most_sites:
            return variables, factors, site_start, sites, fresh, before, -1, caps
        v = order[t]
        g = head[v]
        while True:
            k = 0
            if g >= 0:
                for e in range(wide_start[g], wide_start[g + 1]):
                    members[k] = wide[e]
                    k += 1
                factors[s] = g
            else:
                members[0] = v
                k = 1
                for e in range(near_start[v], near_start[v + 1]):
                    if live[near[e]] < 2:
                        members[k] = near[e]
                        k += 1
                variables[s] = v
            old = count
            lowest, highest = n, -1
            new = 0
            for i in range(k):
                u = members[i]
                touched[u] = s
                if live[u] == 0:
                    j = count
                    while j > 0 and position[act[j - 1]] > position[u]:
                        act[j] = act[j - 1]
                        j -= 1
                    act[j] = u
                    count += 1
                    live[u] = 3  # fresh
                    new += 1
            for j in range(count):
                if touched[act[j]] == s:
                    lowest = min(lowest, j)
                    highest = max(highest, j)
            # the range keeps a site that was there before, and one that stays
            while old > 0 and highest - lowest + 1 == new and new < count:
                if highest + 1 < count:
                    highest += 1
                    new += live[act[highest]] == 3
                else:
                    lowest -= 1
                    new += live[act[lowest]] == 3
            if lowest == highest and count > 1:
                if highest + 1 < count:
                    highest += 1
                else:
                    lowest -= 1
            length = highest - lowest + 1
            if site_start[s] + length > capacity:
                capacity = 2 * capacity + length
                more = np.empty(capacity, np.int64)
                more[: len(sites)] = sites
                sites = more
                more = np.empty(capacity, np.int64)
                more[: len(fresh)] = fresh
                fresh = more
                room = np.empty(capacity)
                room[: len(caps)] = caps
                caps = room
            widest = max(widest, count)
            before[s] = lowest
            total = 0.0
            for j in range(count):
                total += np.log2(cards[act[j]])
            left = 0.0
            for j in range(highest + 1):
                left += np.log2(cards[act[j]])
                if j >= lowest:
                    at = site_start[s] + j - lowest
                    sites[at] = act[j]
                    fresh[at] = live[act[j]] == 3
                    caps[at] = min(left, total - left) if j < highest else -1.0
            site_start[s + 1] = site_start[s] + length
            for i in range(k):
                live[members[i]] = 1
            s += 1
            if g < 0:
                break
            g = following[g]
        gone = 0
        for j in range(count):
            if act[j] == v:
                gone = j
        for j in range(gone, count - 1):
            act[j] = act[j + 1]
        count -= 1
        live[v] = 2
    end = site_start[steps]
    return (
        variables, factors, site_start, sites[:end].copy(), fresh[:end].copy(), before, widest,
        caps[:end].copy(),
    )  # fmt: skip
