"""Extra states of groups of stars: what the marginals of collapsed variables need besides.

States (s, t) of the two stars of a link that C does not match send nothing to anybody else, but
some state of the variable between them needs their sum over everything else.
"""

import numpy as np

from icgi.kernels import kernel
from icgi.model.structure.fuse import adjacent, axis_start, by_group, spread
from icgi.model.structure.wide import divide, multiply


@kernel
def extra_states(  # type: ignore[no-untyped-def]
    cards, terms, start, high, low, scope_start, scope, variable, ends, axes, match, link_high,
    link_low, weight_high, weight_low, members, number, group, groups, state_of, states, own_start,
):  # fmt: skip
    """Pairs of states (s, t) that C does not match but some state of a collapsed variable needs.

    Returns their number by group, the link of each, the states of all stars by their slot in the
    group, the slots, the product of C over all other links, and the coefficients of extra and of
    own states.
    """
    count, links = len(number), len(variable)
    head, follow = adjacent(ends, count)
    first, listed = by_group(groups, members, number)
    slot = np.full(count, -1, np.int64)
    widest = 1
    for g in range(groups):
        widest = max(widest, first[g + 1] - first[g])
        for m in range(first[g], first[g + 1]):
            slot[listed[m]] = m - first[g]
    now, stack = np.full(count, -1, np.int64), np.empty((count + 1, 2), np.int64)
    most = 1
    for link in range(links):
        most = max(most, cards[variable[link]])
    own_high = np.zeros(own_start[links], high.dtype)
    own_low = np.zeros_like(own_high)
    for link in range(links):
        a, b, d = ends[link, 0], ends[link, 1], cards[variable[link]]
        for e in range(states[group[link]]):
            s, t = state_of[a, e], state_of[b, e]
            for x in range(d):
                h, l = _coefficient(  # noqa: E741
                    cards, terms, start, high, low, scope_start, scope, variable, ends, axes,
                    weight_high, weight_low, link, s, t, x,
                )  # fmt: skip
                j = own_start[link] + x * states[group[link]] + e
                own_high[j], own_low[j] = divide(h, l, link_high[link, s], link_low[link, s])
    in_turn = np.argsort(group, kind="mergesort")
    extra = np.zeros(groups, np.int64)
    room = 16
    which, assigned = np.empty(room, np.int64), np.empty((room, widest), np.int64)
    wh, wl = np.empty(room, high.dtype), np.empty(room, high.dtype)
    ch, cl = np.zeros((room, most), high.dtype), np.zeros((room, most), high.dtype)
    made = 0
    for link in in_turn:
        a, b, g = ends[link, 0], ends[link, 1], group[link]
        for s in range(terms[a]):
            left, lh, ll = spread(
                head, follow, ends, match, link_high, link_low, a, s, link, now, stack
            )
            if not left:
                continue
            for t in range(terms[b]):
                if match[link, 0, s] == t:
                    continue
                right, rh, rl = spread(
                    head, follow, ends, match, link_high, link_low, b, t, link, now, stack
                )
                if not right:
                    continue
                if made == room:
                    room *= 2
                    which, assigned = _grown(which, room), _grown_rows(assigned, room)
                    wh, wl = _grown(wh, room), _grown(wl, room)
                    ch, cl = _grown_rows(ch, room), _grown_rows(cl, room)
                needed = False
                for x in range(cards[variable[link]]):
                    h, l = _coefficient(  # noqa: E741
                        cards, terms, start, high, low, scope_start, scope, variable, ends, axes,
                        weight_high, weight_low, link, s, t, x,
                    )  # fmt: skip
                    ch[made, x], cl[made, x] = h, l
                    needed = needed or h != 0.0
                if not needed:
                    continue
                which[made] = link
                wh[made], wl[made] = multiply(lh, ll, rh, rl)
                for m in range(first[g], first[g + 1]):
                    assigned[made, m - first[g]] = now[listed[m]]
                extra[g] += 1
                made += 1
    return (
        extra, which[:made], assigned[:made], slot, wh[:made], wl[:made], ch[:made], cl[:made],
        own_high, own_low,
    )  # fmt: skip


@kernel
def _coefficient(  # type: ignore[no-untyped-def]
    cards, terms, start, high, low, scope_start, scope, variable, ends, axes, weight_high,
    weight_low, link, s, t, x,
):  # fmt: skip
    """A[s, x] w(x) B[t, x] of a link."""
    i = variable[link]
    at = axis_start(cards, scope_start, scope, terms, start, ends[link, 0], axes[link, 0])
    to = axis_start(cards, scope_start, scope, terms, start, ends[link, 1], axes[link, 1])
    p, q = at + s * cards[i] + x, to + t * cards[i] + x
    h, l = multiply(high[p], low[p], weight_high[i, x], weight_low[i, x])  # noqa: E741
    return multiply(h, l, high[q], low[q])


@kernel
def extra_tables(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, leaf_star, leaf_axis, leaf_pair, pair_group, table_start,
    extra_start, assigned, slot, terms, start, high, low, out_high, out_low,
):  # fmt: skip
    """The same for the extra states of each group; `assigned` says which state each star is in."""
    for a in range(len(leaf_star)):
        f, p = leaf_star[a], leaf_pair[a]
        g = pair_group[p]
        first, count = extra_start[g], extra_start[g + 1] - extra_start[g]
        card = cards[scope[scope_start[f] + leaf_axis[a]]]
        source = axis_start(cards, scope_start, scope, terms, start, f, leaf_axis[a])
        for x in range(card):
            for e in range(count):
                j = table_start[p] + x * count + e
                c = source + assigned[first + e, slot[f]] * card + x
                out_high[j], out_low[j] = multiply(out_high[j], out_low[j], high[c], low[c])


@kernel
def _grown(values, room):  # type: ignore[no-untyped-def]
    out = np.zeros(room, values.dtype)
    out[: len(values)] = values
    return out


@kernel
def _grown_rows(values, room):  # type: ignore[no-untyped-def]
    out = np.zeros((room, values.shape[1]), values.dtype)
    out[: len(values)] = values
    return out
