"""Which stars of a model are one: links between them, and the states they share.

A variable x that joins only two stars links them where C[s, t] = Σ_x A[s, x] w(x) B[t, x] has at
most one entry in every row and column: the state of one star then tells that of the other.
"""

from dataclasses import dataclass

import numpy as np

from icgi.kernels import kernel
from icgi.model.graph import FloatArray, IntArray
from icgi.model.structure.sums import Sums
from icgi.model.structure.wide import add, multiply
from icgi.model.wiring import Wiring

MOST_STARS = 128  # in a group: its extra states have tables of links × leaves entries


@dataclass(frozen=True, eq=False, slots=True)
class Fused:
    """Which stars are one, and through which variables."""

    variable: IntArray  # l
    ends: IntArray  # l 2  the two stars (factors)
    axes: IntArray  # l 2  axis of the variable in each
    match: IntArray  # l 2 R  state of the other star, −1 for none, seen from either end
    high: FloatArray  # l R  C[s, match] by the state of the first star
    low: FloatArray
    group_of_star: IntArray  # f  a star that stands for its group, itself where it is alone
    stars_of_group: IntArray  # f
    weight_high: FloatArray  # n k  product of a variable's unary factors
    weight_low: FloatArray


def fuse(w: Wiring, sums: Sums, star: np.ndarray) -> Fused:
    """Links between stars, and which stars they make one."""
    n = len(w.cards)
    weight_high, weight_low = _weights(w.cards, w.scope_start, w.scope, w.table_start, w.values)
    most = int(sums.terms[star].max())
    found = _find_links(
        w.cards, w.scope_start, w.scope, star, sums.terms, sums.start, sums.high, sums.low,
        weight_high, weight_low, most,
    )  # fmt: skip
    *parts, count, group = found
    variable, ends, axes, match, high, low = (part[:count] for part in parts)
    total = np.bincount(group, minlength=len(star)) if n else np.zeros(len(star), np.int64)
    return Fused(
        variable, ends, axes, match, high, low, group, total.astype(np.int64),
        weight_high, weight_low,
    )  # fmt: skip


@kernel
def _weights(cards, scope_start, scope, table_start, values):  # type: ignore[no-untyped-def]
    """Product of the unary factors of every variable, as potentials."""
    most = cards.max() if len(cards) else 1
    high, low = np.ones((len(cards), most)), np.zeros((len(cards), most))
    for f in range(len(scope_start) - 1):
        if scope_start[f + 1] - scope_start[f] == 1:
            i = scope[scope_start[f]]
            for x in range(cards[i]):
                value = np.exp(values[table_start[f] + x])
                high[i, x], low[i, x] = multiply(high[i, x], low[i, x], value, 0.0)
    return high, low


@kernel
def _find_links(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, star, terms, start, high, low, weight_high, weight_low, most
):
    n, count = len(cards), len(star)
    times = np.zeros(n, np.int64)  # factors of two or more variables that name a variable
    where, axis = np.full((n, 2), -1, np.int64), np.zeros((n, 2), np.int64)
    for f in range(count):
        if scope_start[f + 1] - scope_start[f] < 2:
            continue
        for a in range(scope_start[f], scope_start[f + 1]):
            i = scope[a]
            if times[i] < 2:
                where[i, times[i]] = f if star[f] else -1
                axis[i, times[i]] = a - scope_start[f]
            times[i] += 1
    parent, joined = np.arange(count), np.ones(count, np.int64)
    variable = np.empty(n, np.int64)
    ends, axes = np.empty((n, 2), np.int64), np.empty((n, 2), np.int64)
    room = 0
    for i in range(n):
        if times[i] == 2 and where[i, 0] >= 0 and where[i, 1] >= 0:
            room += 1
    match = np.full((room, 2, most), -1, np.int64)
    out_high, out_low = np.zeros((room, most), high.dtype), np.zeros((room, most), high.dtype)
    made = 0
    for i in range(n):
        f, g = where[i, 0], where[i, 1]
        if times[i] != 2 or f < 0 or g < 0 or cards[i] < 2:
            continue
        if _top(parent, f) == _top(parent, g):
            continue  # a ring of stars: one variable of it stays
        if joined[_top(parent, f)] + joined[_top(parent, g)] > MOST_STARS:
            continue
        at = axis_start(cards, scope_start, scope, terms, start, f, axis[i, 0])
        to = axis_start(cards, scope_start, scope, terms, start, g, axis[i, 1])
        match[made] = -1
        sound, matched = True, 0
        for s in range(terms[f]):
            for t in range(terms[g]):
                h, l = 0.0, 0.0  # noqa: E741
                for x in range(cards[i]):
                    p, q = at + s * cards[i] + x, to + t * cards[i] + x
                    ph, pl = multiply(high[p], low[p], weight_high[i, x], weight_low[i, x])
                    ph, pl = multiply(ph, pl, high[q], low[q])
                    h, l = add(h, l, ph, pl)  # noqa: E741
                if h == 0.0:
                    continue
                if match[made, 0, s] >= 0 or match[made, 1, t] >= 0:
                    sound = False
                    break
                match[made, 0, s], match[made, 1, t] = t, s
                out_high[made, s], out_low[made, s] = h, l
                matched += 1
            if not sound:
                break
        if not sound or matched < 2:
            continue
        variable[made] = i
        ends[made, 0], ends[made, 1] = f, g
        axes[made] = axis[i]
        joined[_top(parent, g)] += joined[_top(parent, f)]
        parent[_top(parent, f)] = _top(parent, g)
        made += 1
    group = np.empty(count, np.int64)
    for f in range(count):
        group[f] = _top(parent, f)
    return variable, ends, axes, match, out_high, out_low, made, group


@kernel
def axis_start(cards, scope_start, scope, terms, start, f, axis):  # type: ignore[no-untyped-def]
    """Where the matrix of one axis of a star begins."""
    at = start[f]
    for a in range(scope_start[f], scope_start[f] + axis):
        at += terms[f] * cards[scope[a]]
    return at


@kernel
def _top(parent, f):  # type: ignore[no-untyped-def]
    while parent[f] != f:
        parent[f] = parent[parent[f]]
        f = parent[f]
    return f


@kernel
def group_states(groups, members, number, terms, ends, match, high, low, most):  # type: ignore[no-untyped-def]
    """States of each group: those of its first star that have a partner in all others."""
    count = len(number)
    head, follow = adjacent(ends, count)
    assigned, stack = np.full(count, -1, np.int64), np.empty((count + 1, 2), np.int64)
    states = np.zeros(groups, np.int64)
    state_of = np.full((count, most), -1, np.int64)
    out_high = np.zeros((groups, most), high.dtype)
    out_low = np.zeros_like(out_high)
    begun = np.zeros(groups, np.bool_)
    start, listed = by_group(groups, members, number)
    for f in members:
        g = number[f]
        if begun[g]:
            continue
        begun[g] = True
        for s in range(terms[f]):
            sound, h, l = spread(  # noqa: E741
                head, follow, ends, match, high, low, f, s, -1, assigned, stack
            )
            if not sound:
                continue
            e = states[g]
            for m in range(start[g], start[g + 1]):
                state_of[listed[m], e] = assigned[listed[m]]
            out_high[g, e], out_low[g, e] = h, l
            states[g] += 1
    return states, state_of, out_high, out_low


@kernel
def spread(head, follow, ends, match, high, low, f, s, barred, assigned, stack):  # type: ignore[no-untyped-def]
    """Assign states to all stars reached from star f in state s, not over the link `barred`.

    Returns whether every one has a state, and the product of the C on the way.
    """
    h, l = 1.0, 0.0  # noqa: E741
    assigned[f] = s
    stack[0, 0], stack[0, 1] = f, barred
    top = 1
    while top > 0:
        top -= 1
        g, came = stack[top, 0], stack[top, 1]
        e = head[g]
        while e >= 0:
            link, end = e // 2, e % 2
            if link != came and link != barred:
                t = match[link, end, assigned[g]]
                if t < 0:
                    return False, 0.0, 0.0
                first = assigned[g] if end == 0 else t
                h, l = multiply(h, l, high[link, first], low[link, first])  # noqa: E741
                other = ends[link, 1 - end]
                assigned[other] = t
                stack[top, 0], stack[top, 1] = other, link
                top += 1
            e = follow[e]
    return True, h, l


@kernel
def adjacent(ends, count):  # type: ignore[no-untyped-def]
    """Links of every star, as linked lists: entry 2l + end; the other end is that number ^ 1."""
    head, follow = np.full(count, -1, np.int64), np.full(2 * len(ends), -1, np.int64)
    for e in range(2 * len(ends)):
        f = ends[e // 2, e % 2]
        follow[e] = head[f]
        head[f] = e
    return head, follow


@kernel
def by_group(groups, members, number):  # type: ignore[no-untyped-def]
    """Stars of all groups one after the other, and where each group begins."""
    start = np.zeros(groups + 1, np.int64)
    for f in members:
        start[number[f] + 1] += 1
    start = np.cumsum(start)
    at = start[:groups].copy()
    listed = np.empty(len(members), np.int64)
    for f in members:
        listed[at[number[f]]] = f
        at[number[f]] += 1
    return start, listed
