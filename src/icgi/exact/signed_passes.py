"""Messages with signs in wide arithmetic, each entry with a bound of its error.

Three arrays run in parallel: H + L is the value of an entry, E bounds what rounding has done to it:

    product  E ← |a| E_b + |b| E_a + E_a E_b + u |ab|,        sum  E ← Σ E + u |each partial sum|,

with u = `UNIT`, the error of one wide operation. Messages are scaled by powers of two, which rounds
nothing; `FLOOR` covers what underflow can take from an entry.
"""

import math

import numpy as np

from icgi.exact.signed_tree import CHUNK, _has
from icgi.kernels import kernel
from icgi.model.structure.wide import UNIT, add, multiply

FLOOR = 1e-300


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
def _dims(tree, cards, node, dims):  # type: ignore[no-untyped-def]
    """Number of axes and of entries of a node's clique."""
    dims[0] = cards[node]
    entries, m = cards[node], 1
    for a in range(tree.sep_start[node], tree.sep_start[node + 1]):
        dims[m] = cards[tree.scopes[a]]
        entries *= dims[m]
        m += 1
    return m, entries


@kernel
def _walk(tree, cards, node, begin, arity, dims, m, out_dims, out_strides):  # type: ignore[no-untyped-def]
    """How a table with sorted scope `scopes[begin:begin+arity]` is read along the clique.

    Neighbouring axes that it walks through evenly are joined; returns how many are left.
    """
    k, step, b = 0, 1, begin + arity - 1
    for a in range(m - 1, -1, -1):  # from the fastest axis, written from the end of the arrays
        t = node if a == 0 else tree.scopes[tree.sep_start[node] + a - 1]
        stride = 0
        if b >= begin and tree.scopes[b] == t:
            stride = step
            step *= cards[t]
            b -= 1
        if dims[a] == 1:
            continue
        last = 64 - k
        if k > 0 and (
            (stride == 0 and out_strides[last] == 0)
            or (stride > 0 and out_strides[last] > 0 and stride == out_strides[last] * out_dims[last])
        ):
            out_dims[last] *= dims[a]
        else:
            k += 1
            out_dims[64 - k], out_strides[64 - k] = dims[a], stride
    if k == 0:
        k = 1
        out_dims[63], out_strides[63] = 1, 0
    for a in range(k):
        out_dims[a], out_strides[a] = out_dims[64 - k + a], out_strides[64 - k + a]
    return k


@kernel
def _times_one(h, l, e, bh, bl, be):  # type: ignore[no-untyped-def]  # noqa: E741
    """Multiply a row by one number."""
    size = abs(bh)
    for j in range(len(h)):
        a = abs(h[j])
        h[j], l[j] = multiply(h[j], l[j], bh, bl)
        e[j] = a * be + (size + be) * e[j] + abs(h[j]) * UNIT + FLOOR


@kernel
def _times_row(h, l, e, bh, bl, be):  # type: ignore[no-untyped-def]  # noqa: E741
    """Multiply a row by another."""
    for j in range(len(h)):
        a = abs(h[j])
        size = abs(bh[j])
        h[j], l[j] = multiply(h[j], l[j], bh[j], bl[j])
        e[j] = a * be[j] + (size + be[j]) * e[j] + abs(h[j]) * UNIT + FLOOR


@kernel
def _times(h, l, e, H, L, E, base, dims, strides, k):  # type: ignore[no-untyped-def]  # noqa: E741
    """Multiply a clique by a table, broadcast along the axes of stride 0."""
    digits = np.zeros(k, np.int64)
    inner, step = dims[k - 1], strides[k - 1]
    offset = base
    for start in range(0, len(h), inner):
        end = start + inner
        if step == 0:
            _times_one(h[start:end], l[start:end], e[start:end], H[offset], L[offset], E[offset])
        elif step == 1:
            to = offset + inner
            _times_row(
                h[start:end], l[start:end], e[start:end], H[offset:to], L[offset:to], E[offset:to]
            )
        else:
            for j in range(inner):
                s, o = start + j, offset + j * step
                a, size = abs(h[s]), abs(H[o])
                h[s], l[s] = multiply(h[s], l[s], H[o], L[o])
                e[s] = a * E[o] + (size + E[o]) * e[s] + abs(h[s]) * UNIT + FLOOR
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
    for j in range(len(h)):
        h[j], l[j] = add(h[j], l[j], bh[j], bl[j])
        e[j] = e[j] + be[j] + abs(h[j]) * UNIT


@kernel
def _total(h, l, e):  # type: ignore[no-untyped-def]  # noqa: E741
    """Sum of a row, in four parts so that the additions overlap."""
    sh, sl, se = np.zeros(4), np.zeros(4), 0.0
    for j in range(len(h)):
        c = j & 3
        sh[c], sl[c] = add(sh[c], sl[c], h[j], l[j])
        se += e[j] + abs(sh[c]) * UNIT
    for c in range(1, 4):
        sh[0], sl[0] = add(sh[0], sl[0], sh[c], sl[c])
        se += abs(sh[0]) * UNIT
    return sh[0], sl[0], se


@kernel
def _sum_into(H, L, E, base, h, l, e, dims, strides, k):  # type: ignore[no-untyped-def]  # noqa: E741
    """Add a clique to a table, summed over the axes of stride 0."""
    digits = np.zeros(k, np.int64)
    inner, step = dims[k - 1], strides[k - 1]
    offset = base
    for start in range(0, len(h), inner):
        end = start + inner
        if step == 0:
            th, tl, te = _total(h[start:end], l[start:end], e[start:end])
            H[offset], L[offset] = add(H[offset], L[offset], th, tl)
            E[offset] += te + abs(H[offset]) * UNIT
        elif step == 1:
            to = offset + inner
            _plus_row(
                H[offset:to], L[offset:to], E[offset:to], h[start:end], l[start:end], e[start:end]
            )
        else:
            for j in range(inner):
                o = offset + j * step
                H[o], L[o] = add(H[o], L[o], h[start + j], l[start + j])
                E[o] += e[start + j] + abs(H[o]) * UNIT
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
        if not value - value == 0.0:
            return -10000
    if top == 0.0:
        return -10000
    return max(-1000, min(1000, math.frexp(top)[1]))


@kernel
def _form(tree, cards, node, op_data, H, L, E, h, l, e, dims, m, od, os, children):  # type: ignore[no-untyped-def]  # noqa: E741
    """Multiply a clique by the factors of its node, and by the messages of its children."""
    for o in range(tree.op_start[node], tree.op_start[node + 1]):
        if children or tree.op_child[o] < 0:
            k = _walk(tree, cards, node, tree.op_scope[o], tree.op_arity[o], dims, m, od, os)
            _times(h, l, e, H, L, E, op_data[o], od, os, k)


@kernel
def collect(tree, H, L, E, power, scratch, stop):  # type: ignore[no-untyped-def]
    """Messages to all parents; 1 when a table vanished, 2 when the time was over, else 0."""
    dims, od, os = np.empty(64, np.int64), np.empty(65, np.int64), np.empty(65, np.int64)
    for node in range(len(tree.cards)):
        if stop[0]:
            return 2
        m, entries = _dims(tree, tree.cards, node, dims)
        h, l, e = scratch[0, :entries], scratch[1, :entries], scratch[2, :entries]  # noqa: E741
        h[:] = 1.0
        l[:] = 0.0
        e[:] = 0.0
        _form(tree, tree.cards, node, tree.op_data, H, L, E, h, l, e, dims, m, od, os, True)
        low, high = tree.up[node], tree.up[node] + tree.size[node]
        uh, ul, ue = H[low:high], L[low:high], E[low:high]
        size = tree.size[node]
        uh[:], ul[:], ue[:] = h[:size], l[:size], e[:size]
        for x in range(1, tree.cards[node]):
            a, b = x * size, (x + 1) * size
            _plus_row(uh, ul, ue, h[a:b], l[a:b], e[a:b])
        power[node] = _power(uh)
        if power[node] == -10000:
            return 1
        _scale(uh, ul, ue, power[node])
    return 0


@kernel
def distribute(tree, H, L, E, scratch, mass, stop):  # type: ignore[no-untyped-def]
    """Messages to all children, and the mass of every state of every variable."""
    dims, od, os = np.empty(64, np.int64), np.empty(65, np.int64), np.empty(65, np.int64)
    for node in range(len(tree.cards) - 1, -1, -1):
        if stop[0]:
            return 2
        m, entries = _dims(tree, tree.cards, node, dims)
        h, l, e = scratch[0, :entries], scratch[1, :entries], scratch[2, :entries]  # noqa: E741
        h[:] = 1.0
        l[:] = 0.0
        e[:] = 0.0
        first = tree.op_start[node]
        while first < tree.op_start[node + 1] and tree.op_child[first] < 0:
            first += 1
        last = tree.op_start[node + 1]
        _form(tree, tree.cards, node, tree.op_data, H, L, E, h, l, e, dims, m, od, os, False)
        if tree.parent[node] >= 0:
            begin, arity = tree.sep_start[node], m - 1
            k = _walk(tree, tree.cards, node, begin, arity, dims, m, od, os)
            _times(h, l, e, H, L, E, tree.down[node], od, os, k)
        # after[o]: product of the messages of children o, o + 1, …; kept behind the clique
        for o in range(last - 1, first, -1):
            a = (o - first) * entries
            ah, al, ae = (
                scratch[0, a : a + entries], scratch[1, a : a + entries], scratch[2, a : a + entries],
            )  # fmt: skip
            if o == last - 1:
                ah[:] = 1.0
                al[:] = 0.0
                ae[:] = 0.0
            else:
                b = a + entries
                ah[:] = scratch[0, b : b + entries]
                al[:] = scratch[1, b : b + entries]
                ae[:] = scratch[2, b : b + entries]
            k = _walk(tree, tree.cards, node, tree.op_scope[o], tree.op_arity[o], dims, m, od, os)
            _times(ah, al, ae, H, L, E, tree.op_data[o], od, os, k)
        spare = max(last - first, 1) * entries
        th, tl, te = (
            scratch[0, spare : spare + entries], scratch[1, spare : spare + entries],
            scratch[2, spare : spare + entries],
        )  # fmt: skip
        for o in range(first, last):
            child = tree.op_child[o]
            low, high = tree.down[child], tree.down[child] + tree.size[child]
            H[low:high], L[low:high], E[low:high] = 0.0, 0.0, 0.0
            k = _walk(tree, tree.cards, node, tree.op_scope[o], tree.op_arity[o], dims, m, od, os)
            if o == last - 1:
                _sum_into(H, L, E, low, h, l, e, od, os, k)
            else:
                a = (o + 1 - first) * entries
                th[:], tl[:], te[:] = h, l, e
                _times_row(
                    th, tl, te, scratch[0, a : a + entries], scratch[1, a : a + entries],
                    scratch[2, a : a + entries],
                )  # fmt: skip
                _sum_into(H, L, E, low, th, tl, te, od, os, k)
            power = _power(H[low:high])
            if power == -10000:
                return 1
            _scale(H[low:high], L[low:high], E[low:high], power)
            _times(h, l, e, H, L, E, tree.op_data[o], od, os, k)
        size = tree.size[node]
        for x in range(tree.cards[node]):
            a, b = x * size, (x + 1) * size
            mass[0, node, x], mass[1, node, x], mass[2, node, x] = _total(h[a:b], l[a:b], e[a:b])
    return 0


@kernel
def extra_masses(  # type: ignore[no-untyped-def]
    tree, group, count, scope_start, permuted, factor_start, high, low,
    H, L, E, tail, power, scratch, mass, first, stop,
):  # fmt: skip
    """Mass of the extra states of one group's variable, from the part of the tree that holds it.

    Messages into that part from outside, above included, are those of the two passes.
    """
    dims, od, os = np.empty(64, np.int64), np.empty(65, np.int64), np.empty(65, np.int64)
    nodes, waiting = np.empty(group + 1, np.int64), np.empty(group + 1, np.int64)
    made, top = 0, 1
    waiting[0] = group
    largest = 1
    while top > 0:  # parents first; a child holds the group's variable if its separator does
        top -= 1
        node = waiting[top]
        nodes[made] = node
        made += 1
        largest = max(largest, tree.size[node] * tree.cards[node] // tree.cards[group])
        for o in range(tree.op_start[node], tree.op_start[node + 1]):
            child = tree.op_child[o]
            if child >= 0 and _has(tree, child, group):
                waiting[top] = child
                top += 1
    cards, op_data = tree.cards.copy(), tree.op_data.copy()
    place = np.full(group + 1, -1, np.int64)  # where a node's message over extra states begins
    chunk = min(count, max(1, CHUNK // largest))
    for begin in range(0, count, chunk):
        if stop[0]:
            return 2
        here = min(chunk, count - begin)
        cards[group] = here
        free = tail
        for p in range(made - 1, -1, -1):
            node = nodes[p]
            for o in range(tree.op_start[node], tree.op_start[node + 1]):
                child, f = tree.op_child[o], tree.op_factor[o]
                if child >= 0 and place[child] >= 0:
                    op_data[o] = place[child]
                elif f >= 0 and factor_start[f + 1] > factor_start[f]:
                    free = _load_extra(
                        tree, cards, group, begin, here, count, scope_start, permuted, f,
                        factor_start[f], high, low, o, op_data, free, H, L, E,
                    )  # fmt: skip
            m, entries = _dims(tree, cards, node, dims)
            h, l, e = scratch[0, :entries], scratch[1, :entries], scratch[2, :entries]  # noqa: E741
            h[:] = 1.0
            l[:] = 0.0
            e[:] = 0.0
            _form(tree, cards, node, op_data, H, L, E, h, l, e, dims, m, od, os, True)
            size = entries // cards[node]
            if node == group:
                if tree.parent[node] >= 0:
                    k = _walk(tree, cards, node, tree.sep_start[node], m - 1, dims, m, od, os)
                    _times(h, l, e, H, L, E, tree.down[node], od, os, k)
                for x in range(here):
                    a, b = x * size, (x + 1) * size
                    j = first + begin + x
                    mass[0, j], mass[1, j], mass[2, j] = _total(h[a:b], l[a:b], e[a:b])
                continue
            place[node] = free
            uh, ul, ue = H[free : free + size], L[free : free + size], E[free : free + size]
            uh[:], ul[:], ue[:] = h[:size], l[:size], e[:size]
            for x in range(1, cards[node]):
                a, b = x * size, (x + 1) * size
                _plus_row(uh, ul, ue, h[a:b], l[a:b], e[a:b])
            _scale(uh, ul, ue, power[node])
            free += size
    return 0


@kernel
def _load_extra(  # type: ignore[no-untyped-def]
    tree, cards, group, begin, here, count, scope_start, permuted, f, source, high, low, o,
    op_data, free, H, L, E,
):  # fmt: skip
    """A factor's table over some extra states, behind the store; returns where it ends.

    Such factors are over the group's variable alone, or a variable and the group's, in this order.
    """
    pair = scope_start[f + 1] - scope_start[f] == 2
    if pair and permuted[scope_start[f] + 1] != group:
        return free
    if not pair and permuted[scope_start[f]] != group:
        return free
    card = cards[permuted[scope_start[f]]] if pair else 1
    later = pair and permuted[scope_start[f]] > group
    for x in range(card):
        for s in range(here):
            at = free + (s * card + x if later else x * here + s)
            H[at], L[at], E[at] = (
                high[source + x * count + begin + s], low[source + x * count + begin + s], 0.0,
            )  # fmt: skip
    op_data[o] = free
    return free + card * here


@kernel
def link_masses(own_start, own_high, own_low, group_states, own, link_extra, extra_high, extra_low,
                extra, cards, out):  # type: ignore[no-untyped-def]  # fmt: skip
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
    out[0, link, x], out[1, link, x] = add(out[0, link, x], out[1, link, x], ph, pl)
    out[2, link, x] += abs(ch) * e + (abs(ph) + abs(out[0, link, x])) * UNIT + FLOOR
