"""Cliques of two tables: their messages are contractions, and no clique is walked through.

Where the operands of a clique are two tables P and Q (others were multiplied into them before), its
message is Σ_x P·Q, and what it says to P is a sum of Q times the message from above. Each is a
product of matrices over the axes that just two of the three tables have: one fused multiplication
for an entry of the clique, where a sweep reads and writes a block for every operand.
"""

import numpy as np

from icgi.exact.axes import MOST_AXES, dims_of, strides_of
from icgi.exact.divide import FAST, TINY, largest, safe
from icgi.kernels import kernel

PIECE = 128  # entries of the innermost loop: rows of this length stay in the first-level cache
_U = np.uint64  # unsigned places: compiled code need not ask whether they count from the end


@kernel
def pair_collect(tree, node, store, inverse, stop, parts, part):  # type: ignore[no-untyped-def]
    """One part of the message of a node of two operands; returns its largest entry."""
    dims, steps = _axes(tree, node)
    first, last = _region(dims, steps[2], parts, part)
    out = tree.message[node]
    store[out + first : out + last] = 0.0
    one, two = tree.op_start[node], tree.op_start[node] + 1
    factor = _scale(tree, one, inverse) * _scale(tree, two, inverse)
    _contract(
        store, tree.op_data[one], tree.op_data[two], store, out, dims, steps, factor, parts, part,
        stop,
    )  # fmt: skip
    return largest(store, out + first, last - first)


@kernel
def pair_tell(tree, node, store, inverse, scratch, stop, larger, parts, part):  # type: ignore[no-untyped-def]
    """One part of what a node of two operands says to one of them.

    The smaller one is told first, into `scratch`, which takes the larger one as it was; what the
    larger one is told is then put in its place.
    """
    small = _smaller(tree, node)
    told = 1 - small if larger else small
    one, two = tree.op_start[node] + told, tree.op_start[node] + 1 - told
    if larger and tree.op_child[one] < 0:
        return
    dims, steps = _axes(tree, node)
    turned = np.empty_like(steps)
    turned[0], turned[1], turned[2] = steps[1 - told], steps[2], steps[told]
    first, last = _region(dims, turned[2], parts, part)
    target, begin = (store, tree.op_data[one]) if larger else (scratch, 0)
    target[begin + first : begin + last] = 0.0
    factor = inverse[node] * _scale(tree, two, inverse)
    _contract(
        store, tree.op_data[two], tree.message[node], target, begin, dims, turned, factor, parts,
        part, stop,
    )  # fmt: skip


@kernel
def pair_finish(tree, node, store, inverse, scratch, mass):  # type: ignore[no-untyped-def]
    """Marginal of a node's variable, and the message to the smaller operand.

    The belief summed over the axes that an operand lacks is the operand times what it is told.
    False where digits may be lost.
    """
    states = tree.clique[node] // tree.size[node]
    small = _smaller(tree, node)
    one = tree.op_start[node] + small
    size, data = _entries(tree, one), tree.op_data[one]
    across, scale = size // states, _scale(tree, one, inverse)
    total = 0.0
    for x in range(states):
        found = _dot(store, data + x * across, scratch, x * across, across) * scale
        mass[tree.variable[node], x] = found
        total += found
    if not total > TINY:
        return False
    if tree.op_child[one] >= 0:
        store[data : data + size] = scratch[:size]
    for o in range(tree.op_start[node], tree.op_start[node] + 2):
        child = tree.op_child[o]
        if child >= 0:
            top = largest(store, tree.op_data[o], tree.size[child])
            if not safe(top, total):
                return False
            inverse[child] = 1.0 / top
    return True


@kernel
def pair_scratch(tree, node):  # type: ignore[no-untyped-def]
    """Entries of what the smaller operand is told."""
    return _entries(tree, tree.op_start[node] + _smaller(tree, node))


@kernel
def _smaller(tree, node):  # type: ignore[no-untyped-def]
    one = tree.op_start[node]
    return 1 if _entries(tree, one + 1) < _entries(tree, one) else 0


@kernel
def _entries(tree, o):  # type: ignore[no-untyped-def]
    """Entries of an operand."""
    size = 1
    for a in range(tree.op_scope[o], tree.op_scope[o] + tree.op_arity[o]):
        size *= tree.cards[tree.scopes[a]]
    return size


@kernel
def _scale(tree, o, inverse):  # type: ignore[no-untyped-def]
    child = tree.op_child[o]
    return inverse[child] if child >= 0 else 1.0


@kernel
def _axes(tree, node):  # type: ignore[no-untyped-def]
    """Entries of a clique's axes, and strides of both operands and of the message along them."""
    m = tree.sep_start[node + 1] - tree.sep_start[node] + 1
    dims = np.empty(m, np.int64)
    steps = np.zeros((3, m), np.int64)
    dims_of(tree, node, dims)
    for k in range(2):
        strides_of(tree, node, tree.op_start[node] + k, steps[k])
    step = 1
    for a in range(m - 1, 0, -1):
        steps[2, a] = step
        step *= dims[a]
    return dims, steps


@kernel
def _region(dims, steps, parts, part):  # type: ignore[no-untyped-def]
    """First and last entry of one part of a table that is cut along its slowest axis."""
    for a in range(len(dims)):
        if steps[a] > 0:
            return dims[a] * part // parts * steps[a], dims[a] * (part + 1) // parts * steps[a]
    return (0, 1) if part == 0 else (0, 0)


@kernel
def _contract(  # type: ignore[no-untyped-def]
    store, p, q, out, o, dims, steps, factor, parts, part, stop
):
    """Out[o:] += factor · Σ store[p:]·store[q:] over the axes along which the result has no step.

    Every axis belongs to two tables at least. The fastest axes that belong to the same tables are
    the run of the innermost loop, in pieces that the first-level cache holds. Another axis turns
    outside of it, four places at a time, so that what does not move along it is loaded once.
    """
    m = 0
    shape = np.empty(MOST_AXES, np.int64)
    walk = np.empty((3, MOST_AXES), np.int64)
    cut = False
    for a in range(len(dims)):
        entries = dims[a]
        if steps[2, a] > 0 and not cut:  # all parts begin at their place of this axis
            cut = True
            low = entries * part // parts
            entries = entries * (part + 1) // parts - low
            p, q, o = p + low * steps[0, a], q + low * steps[1, a], o + low * steps[2, a]
            if entries == 0:
                return
        if dims[a] == 1:
            continue
        joined = m > 0
        for k in range(3):
            joined = joined and walk[k, m - 1] == steps[k, a] * dims[a]
        if joined:
            shape[m - 1] *= entries
        else:
            shape[m] = entries
            m += 1
        for k in range(3):
            walk[k, m - 1] = steps[k, a]
    if not cut and part > 0:
        return
    m -= 1  # the last axis is the run
    run = shape[m]
    if walk[0, m] == 0:  # the first table has the run
        p, q = q, p
        for a in range(m + 1):
            walk[0, a], walk[1, a] = walk[1, a], walk[0, a]
    summed = walk[2, m] == 0
    both = walk[1, m] > 0 and not summed
    turn = -1
    for a in range(m - 1, -1, -1):
        if summed:
            found = walk[2, a] > 0 and (walk[0, a] == 0 or walk[1, a] == 0)
        else:
            found = walk[2, a] == 0
        if found:
            turn = a
            break
    turns, up, uq, uo = 1, 0, 0, 0
    if turn >= 0:
        turns, up, uq, uo = shape[turn], walk[0, turn], walk[1, turn], walk[2, turn]
        if summed and up == 0:  # the first table moves along the turn
            p, q, up, uq = q, p, uq, up
            for a in range(m):
                walk[0, a], walk[1, a] = walk[1, a], walk[0, a]
    # the slowest axis, that of the variable itself, goes fastest: the largest table lacks it
    outer = np.empty(m, np.int64)
    k = 0
    for a in range(1, m):
        if a != turn:
            outer[k] = a
            k += 1
    if turn != 0 and m > 0:
        outer[k] = 0
        k += 1
    digits = np.zeros(k, np.int64)
    for begin in range(0, run, PIECE):
        piece = min(PIECE, run - begin)
        # p, q, o are the places of all three tables along the outer axes
        while not stop[0]:
            if summed:
                _dots(store, p, q, out, o, piece, turns, up, uo, factor)
            elif both:
                _products(store, p, q, out, o, piece, turns, up, uq, factor)
            else:
                _multiples(store, p, q, out, o, piece, turns, up, uq, factor)
            at = k - 1
            while at >= 0:
                a = outer[at]
                digits[at] += 1
                p, q, o = p + walk[0, a], q + walk[1, a], o + walk[2, a]
                if digits[at] < shape[a]:
                    break
                p -= walk[0, a] * digits[at]
                q -= walk[1, a] * digits[at]
                o -= walk[2, a] * digits[at]
                digits[at] = 0
                at -= 1
            if at < 0:
                break
        p += piece
        q += piece if summed or both else 0
        o += 0 if summed else piece


@kernel(fastmath=FAST)
def _multiples(store, p, q, out, o, run, turns, up, uq, factor):  # type: ignore[no-untyped-def]
    """Out[o + j] += factor · Σ_r store[q + r·uq] · store[p + r·up + j]."""
    to = _U(o)
    for r in range(0, turns - 3, 4):
        a, b = store[q + r * uq] * factor, store[q + (r + 1) * uq] * factor
        c, d = store[q + (r + 2) * uq] * factor, store[q + (r + 3) * uq] * factor
        one, two = _U(p + r * up), _U(p + (r + 1) * up)
        three, four = _U(p + (r + 2) * up), _U(p + (r + 3) * up)
        for j in range(run):
            i = _U(j)
            out[to + i] += (a * store[one + i] + b * store[two + i]) + (
                c * store[three + i] + d * store[four + i]
            )
    r = turns - turns % 4
    if turns % 4 >= 2:
        a, b = store[q + r * uq] * factor, store[q + (r + 1) * uq] * factor
        one, two = _U(p + r * up), _U(p + (r + 1) * up)
        for j in range(run):
            i = _U(j)
            out[to + i] += a * store[one + i] + b * store[two + i]
        r += 2
    if r < turns:
        a, one = store[q + r * uq] * factor, _U(p + r * up)
        for j in range(run):
            out[to + _U(j)] += a * store[one + _U(j)]


@kernel(fastmath=FAST)
def _products(store, p, q, out, o, run, turns, up, uq, factor):  # type: ignore[no-untyped-def]
    """Out[o + j] += factor · Σ_r store[q + r·uq + j] · store[p + r·up + j]."""
    to = _U(o)
    for r in range(0, turns - 1, 2):
        one, two = _U(p + r * up), _U(p + (r + 1) * up)
        three, four = _U(q + r * uq), _U(q + (r + 1) * uq)
        for j in range(run):
            i = _U(j)
            found = store[one + i] * store[three + i] + store[two + i] * store[four + i]
            out[to + i] += factor * found
    if turns % 2:
        one, three = _U(p + (turns - 1) * up), _U(q + (turns - 1) * uq)
        for j in range(run):
            i = _U(j)
            out[to + i] += factor * (store[one + i] * store[three + i])


@kernel(fastmath=FAST)
def _dots(store, p, q, out, o, run, turns, up, uo, factor):  # type: ignore[no-untyped-def]
    """Out[o + r·uo] += factor · Σ_j store[q + j] · store[p + r·up + j]."""
    still = _U(q)
    for r in range(0, turns - 3, 4):
        one, two = _U(p + r * up), _U(p + (r + 1) * up)
        three, four = _U(p + (r + 2) * up), _U(p + (r + 3) * up)
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for j in range(run):
            i = _U(j)
            value = store[still + i]
            a += value * store[one + i]
            b += value * store[two + i]
            c += value * store[three + i]
            d += value * store[four + i]
        at = o + r * uo
        out[at] += a * factor
        out[at + uo] += b * factor
        out[at + 2 * uo] += c * factor
        out[at + 3 * uo] += d * factor
    for r in range(turns - turns % 4, turns):
        one = _U(p + r * up)
        a = 0.0
        for j in range(run):
            a += store[still + _U(j)] * store[one + _U(j)]
        out[o + r * uo] += a * factor


@kernel(fastmath=FAST)
def _dot(one, p, two, q, count):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(count):
        total += one[p + j] * two[q + j]
    return total
