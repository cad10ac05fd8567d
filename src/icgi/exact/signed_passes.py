"""Messages with signs in wide arithmetic, each entry with a bound of its error.

Three arrays run in parallel: H + L is the value of an entry, E bounds what rounding has done to it:

    product  E ← |a| E_b + |b| E_a + E_a E_b + u |ab|,        sum  E ← Σ E + u |each term added|,

with u = `unit`, the error of one wide operation. Messages are scaled by powers of two, which rounds
nothing; `FLOOR` covers what underflow can take from an entry.
"""

import math

import numpy as np

from icgi.exact.signed_tree import _of_group, chunk_size, classes, inside
from icgi.kernels import kernel
from icgi.model.structure.wide import add, multiply, unit

FLOOR = 1e-300
ROW = 32  # entries from which a run is worth a loop that is vectorised


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
def _walk(tree, cards, m, begin, arity, out_dims, out_strides):  # type: ignore[no-untyped-def]
    """How a table with sorted scope `scopes[begin:begin+arity]` is read along a node's scope.

    Neighbouring axes that it walks through evenly are joined; returns how many are left.
    """
    k, step, b = 0, 1, begin + arity - 1
    for a in range(tree.arity[m] - 1, -1, -1):  # the fastest axis first, filled from the end
        t = tree.scopes[tree.scope[m] + a]
        stride = 0
        if b >= begin and tree.scopes[b] == t:
            stride = step
            step *= cards[t]
            b -= 1
        if cards[t] == 1:
            continue
        last = 64 - k
        if k > 0 and (
            (stride == 0 and out_strides[last] == 0)
            or (stride > 0 and stride == out_strides[last] * out_dims[last])
        ):
            out_dims[last] *= cards[t]
        else:
            k += 1
            out_dims[64 - k], out_strides[64 - k] = cards[t], stride
    if k == 0:
        k = 1
        out_dims[63], out_strides[63] = 1, 0
    for a in range(k):
        out_dims[a], out_strides[a] = out_dims[64 - k + a], out_strides[64 - k + a]
    return k


@kernel
def _copy(h, l, e, H, L, E, base, dims, strides, k):  # type: ignore[no-untyped-def]  # noqa: E741
    """Fill a node's product with one table, broadcast along the axes of stride 0."""
    digits = np.zeros(k, np.int64)
    inner, step = dims[k - 1], strides[k - 1]
    offset = base
    for start in range(0, len(h), inner):
        for j in range(inner):
            h[start + j] = H[offset + j * step]
            l[start + j] = L[offset + j * step]
            e[start + j] = E[offset + j * step]
        a = k - 2
        while a >= 0:
            digits[a] += 1
            offset += strides[a]
            if digits[a] < dims[a]:
                break
            offset -= strides[a] * dims[a]
            digits[a] = 0
            a -= 1


# The bounds run in loops of their own: with three tables at once, compilers do not vectorise.
@kernel
def _times_one(h, l, e, bh, bl, be):  # type: ignore[no-untyped-def]  # noqa: E741
    """Multiply a row by one number."""
    size, u = abs(bh), unit(bh)
    for j in range(len(h)):
        a = abs(h[j])
        e[j] = a * be + (size + be) * e[j] + a * size * u + FLOOR
    for j in range(len(h)):
        h[j], l[j] = multiply(h[j], l[j], bh, bl)


@kernel
def _times_row(h, l, e, bh, bl, be):  # type: ignore[no-untyped-def]  # noqa: E741
    """Multiply a row by another."""
    u = unit(h[0])
    for j in range(len(h)):
        a, size = abs(h[j]), abs(bh[j])
        e[j] = a * be[j] + (size + be[j]) * e[j] + a * size * u + FLOOR
    for j in range(len(h)):
        h[j], l[j] = multiply(h[j], l[j], bh[j], bl[j])


@kernel
def _times(h, l, e, H, L, E, base, dims, strides, k):  # type: ignore[no-untyped-def]  # noqa: E741
    """Multiply a clique by a table, broadcast along the axes of stride 0."""
    u = unit(h[0])
    digits = np.zeros(k, np.int64)
    inner, step = dims[k - 1], strides[k - 1]
    offset = base
    for start in range(0, len(h), inner):
        if inner < ROW or step > 1:
            for j in range(inner):
                s, o = start + j, offset + j * step
                a, size = abs(h[s]), abs(H[o])
                h[s], l[s] = multiply(h[s], l[s], H[o], L[o])
                e[s] = a * E[o] + (size + E[o]) * e[s] + a * size * u + FLOOR
        elif step == 0:
            end = start + inner
            _times_one(h[start:end], l[start:end], e[start:end], H[offset], L[offset], E[offset])
        else:
            end, to = start + inner, offset + inner
            _times_row(
                h[start:end], l[start:end], e[start:end], H[offset:to], L[offset:to], E[offset:to]
            )
        a = k - 2
        while a >= 0:
            digits[a] += 1
            offset += strides[a]
            if digits[a] < dims[a]:
                break
            offset -= strides[a] * dims[a]
            digits[a] = 0
            a -= 1


@kernel
def _plus_row(h, l, e, bh, bl, be):  # type: ignore[no-untyped-def]  # noqa: E741
    """Add a row to another."""
    u = unit(h[0])
    for j in range(len(h)):
        e[j] = e[j] + be[j] + (abs(h[j]) + abs(bh[j])) * u
    for j in range(len(h)):
        h[j], l[j] = add(h[j], l[j], bh[j], bl[j])


@kernel
def _fold(h, l, e):  # type: ignore[no-untyped-def]  # noqa: E741
    """Sum of a row by halves, which are overwritten."""
    n = len(h)
    while n > 16:
        half = n // 2
        _plus_row(h[:half], l[:half], e[:half], h[n - half : n], l[n - half : n], e[n - half : n])
        n -= half
    return _total(h[:n], l[:n], e[:n])


@kernel
def _total(h, l, e):  # type: ignore[no-untyped-def]  # noqa: E741
    """Sum of a row, in four parts so that the additions overlap."""
    sh, sl, se, u = np.zeros(4, h.dtype), np.zeros(4, h.dtype), 0.0, unit(h[0])
    for j in range(len(h)):
        c = j & 3
        se += e[j] + (abs(sh[c]) + abs(h[j])) * u
        sh[c], sl[c] = add(sh[c], sl[c], h[j], l[j])
    for c in range(1, 4):
        se += (abs(sh[0]) + abs(sh[c])) * u
        sh[0], sl[0] = add(sh[0], sl[0], sh[c], sl[c])
    return sh[0], sl[0], se


@kernel
def _sum_into(H, L, E, base, h, l, e, dims, strides, k):  # type: ignore[no-untyped-def]  # noqa: E741
    """Add a clique to a table, summed over the axes of stride 0."""
    u = unit(h[0])
    digits = np.zeros(k, np.int64)
    inner, step = dims[k - 1], strides[k - 1]
    offset = base
    for start in range(0, len(h), inner):
        if step == 1 and inner >= ROW:
            end, to = start + inner, offset + inner
            _plus_row(
                H[offset:to], L[offset:to], E[offset:to], h[start:end], l[start:end], e[start:end]
            )
        else:
            for j in range(inner):
                s, o = start + j, offset + j * step
                E[o] += e[s] + (abs(H[o]) + abs(h[s])) * u
                H[o], L[o] = add(H[o], L[o], h[s], l[s])
        a = k - 2
        while a >= 0:
            digits[a] += 1
            offset += strides[a]
            if digits[a] < dims[a]:
                break
            offset -= strides[a] * dims[a]
            digits[a] = 0
            a -= 1


@kernel
def _scale(H, L, E, power):  # type: ignore[no-untyped-def]
    factor = 2.0**-power
    for j in range(len(H)):
        H[j] *= factor
        L[j] *= factor
        E[j] *= factor


@kernel
def _power(H):  # type: ignore[no-untyped-def]
    """Power of two that brings the largest entry to between ½ and 1; −10000 for a zero table."""
    top = 0.0
    for value in H:
        top = max(top, abs(value))
        if not np.isfinite(value):
            return -10000
    if top == 0.0:
        return -10000
    return max(-1000, min(1000, math.frexp(top)[1]))


@kernel
def _operand(tree, cards, m, c, data, h, l, e, H, L, E, od, os, begun):  # type: ignore[no-untyped-def]  # noqa: E741
    """Multiply a node's product by one operand, or begin it with that."""
    k = _walk(tree, cards, m, tree.op_scope[m, c], tree.op_arity[m, c], od, os)
    if begun:
        _times(h, l, e, H, L, E, data, od, os, k)
    else:
        _copy(h, l, e, H, L, E, data, od, os, k)


@kernel
def _sum_out(h, l, e, states, H, L, E, base):  # type: ignore[no-untyped-def]  # noqa: E741
    """Sum over the slowest axis of a product; returns the number of entries that are left."""
    size = len(h) // states
    uh, ul, ue = H[base : base + size], L[base : base + size], E[base : base + size]
    uh[:], ul[:], ue[:] = h[:size], l[:size], e[:size]
    for x in range(1, states):
        a, b = x * size, (x + 1) * size
        _plus_row(uh, ul, ue, h[a:b], l[a:b], e[a:b])
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
        power[m] = _power(H[low:high])
        if power[m] == -10000:
            return 1
        _scale(H[low:high], L[low:high], E[low:high], power[m])
    return 0


@kernel
def _send_down(tree, m, c, h, l, e, H, L, E, od, os):  # type: ignore[no-untyped-def]  # noqa: E741
    """Message to the node behind an operand: a product without it, summed to its scope."""
    q = tree.op_node[m, c]
    size = tree.entries[q] // (tree.cards[tree.variable[q]] if tree.variable[q] >= 0 else 1)
    low, high = tree.down[q], tree.down[q] + size
    H[low:high], L[low:high], E[low:high] = 0.0, 0.0, 0.0
    k = _walk(tree, tree.cards, m, tree.op_scope[m, c], tree.op_arity[m, c], od, os)
    _sum_into(H, L, E, low, h, l, e, od, os, k)
    power = _power(H[low:high])
    if power == -10000:
        return False
    _scale(H[low:high], L[low:high], E[low:high], power)
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
            mass[0, t, x], mass[1, t, x], mass[2, t, x] = _fold(h[a:b], l[a:b], e[a:b])
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
                elif f >= 0 and _of_group(scope_start, permuted, factor_start, f, group):
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
                axes[c] = _walk(
                    tree, cards, m, tree.op_scope[m, c], tree.op_arity[m, c], dims[c], strides[c]
                )
            for k in range(amount[r]):
                at = data[0] + parts[r, k, 0] * step[0]
                _copy(h, l, e, H, L, E, at, dims[0], strides[0], axes[0])
                if tree.op_count[m] == 2:
                    at = data[1] + parts[r, k, 1] * step[1]
                    _times(h, l, e, H, L, E, at, dims[1], strides[1], axes[1])
                if t == group:
                    if tree.parent[m] >= 0:
                        _times_row(
                            h, l, e, H[tree.down[m] : tree.down[m] + entries],
                            L[tree.down[m] : tree.down[m] + entries],
                            E[tree.down[m] : tree.down[m] + entries],
                        )  # fmt: skip
                    th, tl, te = _fold(h, l, e)
                    for s in range(here):
                        if of_state[r, s] == k:
                            j = offset + first + s
                            mass[0, j], mass[1, j], mass[2, j] = th, tl, te
                    continue
                size = _sum_out(h, l, e, states, H, L, E, free)
                _scale(
                    H[free : free + size], L[free : free + size], E[free : free + size], power[m]
                )
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
