"""Messages with signs in wide arithmetic, each entry with a bound of its error.

Leaves to root, root to leaves, then the extra states of each group of stars. The arithmetic is that
of `signed_tables`; messages are scaled by powers of two, and nothing is ever divided.
"""

import numpy as np

from icgi.exact.signed_classes import chunk_size, classes, inside, of_group
from icgi.exact.signed_tables import (
    FLOOR,
    copy,
    fold,
    plus_row,
    power_of,
    scale,
    sum_into,
    times,
    times_row,
    walk,
)
from icgi.kernels import kernel
from icgi.model.structure.wide import add, multiply, unit


@kernel
def load(cards, scope_start, permuted, scopes, table_start, high, low, H, L, E):  # type: ignore[no-untyped-def]
    """Tables of all factors, axes sorted by time."""
    step, digits = np.empty(64, np.int64), np.empty(64, np.int64)
    for f in range(len(scope_start) - 1):
        begin, arity = scope_start[f], scope_start[f + 1] - scope_start[f]
        for a in range(arity):
            step[a], digits[a] = 1, 0
            b = begin + arity - 1
            while scopes[b] != permuted[begin + a]:
                step[a] *= cards[scopes[b]]
                b -= 1
        at = table_start[f]
        for j in range(table_start[f], table_start[f + 1]):
            H[at], L[at], E[at] = high[j], low[j], 0.0
            a = arity - 1
            while a >= 0:
                digits[a] += 1
                at += step[a]
                if digits[a] < cards[permuted[begin + a]]:
                    break
                at -= digits[a] * step[a]
                digits[a] = 0
                a -= 1


@kernel
def _operand(tree, cards, m, c, data, h, l, e, H, L, E, od, os, begun):  # type: ignore[no-untyped-def]  # noqa: E741
    """Multiply a node's product by one operand, or begin it with that."""
    k = walk(tree, cards, m, tree.op_scope[m, c], tree.op_arity[m, c], od, os)
    if begun:
        times(h, l, e, H, L, E, data, od, os, k)
    else:
        copy(h, l, e, H, L, E, data, od, os, k)


@kernel
def _sum_out(h, l, e, states, H, L, E, base):  # type: ignore[no-untyped-def]  # noqa: E741
    """Sum over the slowest axis of a product; returns the number of entries that are left."""
    size = len(h) // states
    uh, ul, ue = H[base : base + size], L[base : base + size], E[base : base + size]
    uh[:], ul[:], ue[:] = h[:size], l[:size], e[:size]
    for x in range(1, states):
        a, b = x * size, (x + 1) * size
        plus_row(uh, ul, ue, h[a:b], l[a:b], e[a:b])
    return size


@kernel
def collect(tree, H, L, E, power, scratch, stop):  # type: ignore[no-untyped-def]
    """Messages to all parents; 1 when a table vanished, 2 when the time was over, else 0."""
    od, os = np.empty(65, np.int64), np.empty(65, np.int64)
    for m in range(len(tree.parent)):
        if stop[0]:
            return 2
        entries = tree.entries[m]
        h, l, e = scratch[0, :entries], scratch[1, :entries], scratch[2, :entries]  # noqa: E741
        if tree.op_count[m] == 0:
            h[:], l[:], e[:] = 1.0, 0.0, 0.0
        for c in range(tree.op_count[m]):
            _operand(tree, tree.cards, m, c, tree.op_data[m, c], h, l, e, H, L, E, od, os, c > 0)
        states = tree.cards[tree.variable[m]] if tree.variable[m] >= 0 else 1
        low = tree.up[m]
        high = low + _sum_out(h, l, e, states, H, L, E, low)
        power[m] = power_of(H[low:high])
        if power[m] == -10000:
            return 1
        scale(H[low:high], L[low:high], E[low:high], power[m])
    return 0


@kernel
def _send_down(tree, m, c, h, l, e, H, L, E, od, os):  # type: ignore[no-untyped-def]  # noqa: E741
    """Message to the node behind an operand: a product without it, summed to its scope."""
    q = tree.op_node[m, c]
    size = tree.entries[q] // (tree.cards[tree.variable[q]] if tree.variable[q] >= 0 else 1)
    low, high = tree.down[q], tree.down[q] + size
    H[low:high], L[low:high], E[low:high] = 0.0, 0.0, 0.0
    k = walk(tree, tree.cards, m, tree.op_scope[m, c], tree.op_arity[m, c], od, os)
    sum_into(H, L, E, low, h, l, e, od, os, k)
    power = power_of(H[low:high])
    if power == -10000:
        return False
    scale(H[low:high], L[low:high], E[low:high], power)
    return True


@kernel
def distribute(tree, H, L, E, scratch, mass, stop):  # type: ignore[no-untyped-def]
    """Messages to all operands, and the mass of every state of every variable."""
    od, os = np.empty(65, np.int64), np.empty(65, np.int64)
    for m in range(len(tree.parent) - 1, -1, -1):
        if stop[0]:
            return 2
        n = tree.entries[m]
        h, l, e = scratch[0, :n], scratch[1, :n], scratch[2, :n]  # noqa: E741
        oh, ol, oe = scratch[0, n : 2 * n], scratch[1, n : 2 * n], scratch[2, n : 2 * n]
        summed = tree.variable[m] >= 0
        states = tree.cards[tree.variable[m]] if summed else 1
        size, low = n // states, tree.down[m]
        for x in range(states):
            a, b = x * size, (x + 1) * size
            if tree.parent[m] >= 0:
                h[a:b], l[a:b], e[a:b] = (
                    H[low : low + size], L[low : low + size], E[low : low + size],
                )  # fmt: skip
            else:
                h[a:b], l[a:b], e[a:b] = 1.0, 0.0, 0.0
        count = tree.op_count[m]
        if count == 2 and tree.op_node[m, 1] >= 0:
            oh[:], ol[:], oe[:] = h, l, e
            _operand(tree, tree.cards, m, 0, tree.op_data[m, 0], oh, ol, oe, H, L, E, od, os, True)
            if not _send_down(tree, m, 1, oh, ol, oe, H, L, E, od, os):
                return 1
        if count == 2 and (summed or tree.op_node[m, 0] >= 0):
            _operand(tree, tree.cards, m, 1, tree.op_data[m, 1], h, l, e, H, L, E, od, os, True)
        if (
            count > 0
            and tree.op_node[m, 0] >= 0
            and not _send_down(tree, m, 0, h, l, e, H, L, E, od, os)
        ):
            return 1
        if not summed:
            continue
        if count > 0:
            _operand(tree, tree.cards, m, 0, tree.op_data[m, 0], h, l, e, H, L, E, od, os, True)
        t = tree.variable[m]
        for x in range(states):
            a, b = x * size, (x + 1) * size
            mass[0, t, x], mass[1, t, x], mass[2, t, x] = fold(h[a:b], l[a:b], e[a:b])
    return 0


@kernel
def extra_masses(  # type: ignore[no-untyped-def]
    tree, group, count, scope_start, permuted, factor_start, high, low, chunk,
    H, L, E, tail, power, scratch, mass, offset, stop,
):  # fmt: skip
    """Mass of the extra states of one group's variable, from the part of the tree that holds it.

    Messages into that part from outside, above included, are those of the two passes. Each node
    works on the classes of extra states that it can tell apart, one after the other: its tables
    are as if the group's variable had one state.
    """
    dims, strides = np.empty((2, 65), np.int64), np.empty((2, 65), np.int64)
    axes = np.zeros(2, np.int64)
    nodes = inside(tree, group)
    cards = tree.cards.copy()
    cards[group] = 1
    number = np.full(len(tree.parent), -1, np.int64)
    for r in range(len(nodes)):
        number[nodes[r]] = r
    place, length = np.empty(len(nodes), np.int64), np.empty(len(nodes), np.int64)
    data, step = np.zeros(2, np.int64), np.zeros(2, np.int64)
    first = 0
    while first < count:
        here, _ = chunk_size(
            tree, group, nodes, first, count, scope_start, permuted, factor_start, high, low, chunk
        )
        amount, of_state, parts, _, stands = classes(
            tree, group, nodes, first, here, count, scope_start, permuted, factor_start, high, low
        )
        free = tail
        for r in range(len(nodes)):
            if stop[0]:
                return 2
            m = nodes[r]
            for c in range(tree.op_count[m]):
                q, f = tree.op_node[m, c], tree.op_factor[m, c]
                data[c], step[c] = tree.op_data[m, c], 0
                if q >= 0 and number[q] >= 0:
                    data[c], step[c] = place[number[q]], length[number[q]]
                elif f >= 0 and of_group(scope_start, permuted, factor_start, f, group):
                    card = (factor_start[f + 1] - factor_start[f]) // count
                    data[c], step[c] = free, card
                    for k in range(parts[r, : amount[r], c].max() + 1):
                        for x in range(card):
                            j = factor_start[f] + x * count + first + stands[r, c, k]
                            H[free], L[free], E[free] = high[j], low[j], 0.0
                            free += 1
            entries = tree.entries[m] // tree.cards[group]
            h, l, e = scratch[0, :entries], scratch[1, :entries], scratch[2, :entries]  # noqa: E741
            t = tree.variable[m]
            states = cards[t] if t >= 0 else 1
            place[r], length[r] = free, entries // states
            for c in range(tree.op_count[m]):
                axes[c] = walk(
                    tree, cards, m, tree.op_scope[m, c], tree.op_arity[m, c], dims[c], strides[c]
                )
            for k in range(amount[r]):
                at = data[0] + parts[r, k, 0] * step[0]
                copy(h, l, e, H, L, E, at, dims[0], strides[0], axes[0])
                if tree.op_count[m] == 2:
                    at = data[1] + parts[r, k, 1] * step[1]
                    times(h, l, e, H, L, E, at, dims[1], strides[1], axes[1])
                if t == group:
                    if tree.parent[m] >= 0:
                        times_row(
                            h, l, e, H[tree.down[m] : tree.down[m] + entries],
                            L[tree.down[m] : tree.down[m] + entries],
                            E[tree.down[m] : tree.down[m] + entries],
                        )  # fmt: skip
                    th, tl, te = fold(h, l, e)
                    for s in range(here):
                        if of_state[r, s] == k:
                            j = offset + first + s
                            mass[0, j], mass[1, j], mass[2, j] = th, tl, te
                    continue
                size = _sum_out(h, l, e, states, H, L, E, free)
                scale(H[free : free + size], L[free : free + size], E[free : free + size], power[m])
                free += size
        first += here
    return 0


@kernel
def link_masses(  # type: ignore[no-untyped-def]
    own_start, own_high, own_low, group_states, own, link_extra, extra_high, extra_low, extra,
    cards, out,
):  # fmt: skip
    """Masses of the states of all collapsed variables: Σ coefficient · mass of a group's state."""
    for link in range(len(cards)):
        count = group_states[link]
        for x in range(cards[link]):
            for s in range(count):
                j = own_start[link] + x * count + s
                _accumulate(out, link, x, own_high[j], own_low[j], own[0, link, s],
                            own[1, link, s], own[2, link, s])  # fmt: skip
    for j in range(len(link_extra)):
        link = link_extra[j]
        for x in range(cards[link]):
            _accumulate(out, link, x, extra_high[j, x], extra_low[j, x], extra[0, j], extra[1, j],
                        extra[2, j])  # fmt: skip


@kernel
def _accumulate(out, link, x, ch, cl, h, l, e):  # type: ignore[no-untyped-def]  # noqa: E741
    ph, pl = multiply(ch, cl, h, l)
    out[2, link, x] += abs(ch) * e + (2.0 * abs(ph) + abs(out[0, link, x])) * unit(h) + FLOOR
    out[0, link, x], out[1, link, x] = add(out[0, link, x], out[1, link, x], ph, pl)
