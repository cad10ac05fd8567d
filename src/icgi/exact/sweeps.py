"""Passes over large cliques, in blocks that stay in the caches; no clique is formed.

The trailing axes of a clique form a block. The outer axes that the widest child has go slowest, so
that what belongs to one place of that child comes together: its sums over the other axes are
complete before the next place begins, and its message is divided there and then. Children of the
same separator share these sums. Only children of other separators need room of their own.
"""

from typing import NamedTuple

import numpy as np

from icgi.exact.axes import (
    BLOCK,
    BRIEF,
    HELD,
    LONGEST,
    WIDEST,
    dims_of,
    shares,
    strides_of,
)
from icgi.exact.divide import FAST, TINY, divide, largest, safe
from icgi.kernels import kernel
from icgi.model.graph import BoolArray, FloatArray, IntArray

THREADED = 2**17  # entries of a clique from which it is cut in two halves

SHORT = 8  # entries of a run from which a loop of its own pays
_U = np.uint64  # unsigned places: compiled code need not ask whether they count from the end


@kernel
def sweep_collect(tree, node, store, inverse, parts, stop, part):  # type: ignore[no-untyped-def]
    """One part of a large node's message; returns its largest entry."""
    ops = tree.op_start[node + 1] - tree.op_start[node]
    dims, strides, outer, m, inner, length, _, kept = _loops(tree, node, ops)
    reads = _reads(dims, strides, m, inner, length, ops)
    factor, offset, shifted, digits = _start(tree, node, inverse, ops, inner)
    low, high, across = _range(dims, outer, kept, inner, part, parts)
    _seek(outer, kept, low, dims, strides, digits, offset)
    acc = np.empty(length)
    top = 0.0
    if not np.prod(factor) < 1.0 / TINY**2:
        return top
    for _ in range(low, high):
        if stop[0]:
            break
        for _ in range(across):
            # offset[k] is the place of the block in operand k at x = 0, offset[ops] in the message
            for x in range(dims[0]):
                for k in range(ops):
                    shifted[k] = offset[k] + x * strides[k, 0]
                _product(acc, store, reads, shifted, factor, ops, length, -1, 1.0, -1)
                _put(store, offset[ops], acc, length, x == 0)
            top = max(top, largest(store, offset[ops], length))
            _advance(outer, kept, inner - 1, dims, strides, digits, offset)
        _advance(outer, 0, kept, dims, strides, digits, offset)
    return top


@kernel(error_model="numpy")
def sweep_distribute(  # type: ignore[no-untyped-def]
    tree, node, store, inverse, parts, scratches, masses, founds, stop, part
):
    """Belief of one part of a large node, summed per state and per child.

    Children of the widest separator get their message at once, and `founds` its largest entry and
    the sum of the belief; the sums of the others go to `scratches`. A child that has the widest
    separator for itself is told the sums of all the others, so that nothing is divided.
    """
    scratch, mass, found = scratches[part], masses[part], founds[part]
    begin = tree.op_start[node]
    ops = tree.op_start[node + 1] - begin
    dims, strides, outer, m, inner, length, wide, kept = _loops(tree, node, ops)
    reads = _reads(dims, strides, m, inner, length, ops)
    factor, offset, shifted, digits = _start(tree, node, inverse, ops, inner)
    low, high, across = _range(dims, outer, kept, inner, part, parts)
    _seek(outer, kept, low, dims, strides, digits, offset)
    place, used, _ = shares(tree, node)
    lone = wide >= 0 and np.sum(place == WIDEST) == 1
    apart = wide if lone else -1  # the operand that is multiplied last
    states = dims[0]
    width = reads.own[wide] if wide >= 0 else 1  # entries of a block as the widest child sees it
    together = max(1, min(states, HELD // width))  # so many states share a walk across
    held = np.zeros(together * width)
    scratch[:used] = 0.0
    mass[:] = 0.0
    found[:] = 0.0
    acc = np.empty(length)
    scale = inverse[node]
    for _ in range(low, high):
        if stop[0]:
            break
        for begun in range(0, states, together):
            # `held` has the sums of this place of the widest child; a walk across ends where it
            # began, so that offsets are those of the place again when the message is written
            held[:] = 0.0
            ended = min(begun + together, states)
            for _ in range(across):
                for x in range(begun, ended):
                    for k in range(ops):
                        shifted[k] = offset[k] + x * strides[k, 0]
                    above = offset[ops]
                    _product(acc, store, reads, shifted, factor, ops, length, above, scale, apart)
                    here = (x - begun) * width
                    if lone:
                        _add_sums(held, here, acc, reads, wide, length)
                        _times(acc, store, shifted[wide], factor[wide], reads, wide, length)
                    total = _total(acc, length)
                    mass[x] += total
                    for k in range(ops):
                        at = place[k] + shifted[k] - tree.op_data[begin + k]
                        if k == wide and not lone:
                            _add_sums(held, here, acc, reads, k, length)
                        elif place[k] >= 0 and reads.own[k] == 1:
                            scratch[at] += total
                        elif place[k] >= 0:
                            _add_sums(scratch, at, acc, reads, k, length)
                _advance(outer, kept, inner - 1, dims, strides, digits, offset)
            for k in range(ops):
                if place[k] != WIDEST:
                    continue
                for x in range(begun, ended):
                    first, here = offset[k] + x * strides[k, 0], (x - begun) * width
                    if lone:
                        store[first : first + width] = held[here : here + width]
                        top, total = largest(held, here, width), 0.0
                    else:
                        top, total = divide(store, first, held, here, width, factor[k])
                    found[k, 0] = max(found[k, 0], top)
                    found[k, 1] += total
        _advance(outer, 0, kept, dims, strides, digits, offset)
    if lone:
        found[wide, 1] = mass.sum()


@kernel
def finish_distribute(tree, node, store, inverse, scratch, masses, found, mass):  # type: ignore[no-untyped-def]
    """Put the parts of a large node together; False where digits may be lost."""
    begin = tree.op_start[node]
    ops = tree.op_start[node + 1] - begin
    place, used, _ = shares(tree, node)
    parts = len(masses)
    all_mass = 0.0
    for x in range(masses.shape[1]):
        total = 0.0
        for p in range(parts):
            total += masses[p, x]
        mass[tree.variable[node], x] = total
        all_mass += total
    if not all_mass > TINY:
        return False
    for p in range(1, parts):
        target, other = scratch[0, :used], scratch[p, :used]
        for j in range(used):
            target[j] += other[j]
    for k in range(ops):
        child = tree.op_child[begin + k]
        if child < 0:
            continue
        if place[k] == WIDEST:
            top, total = 0.0, 0.0
            for p in range(parts):
                top = max(top, found[p, k, 0])
                total += found[p, k, 1]
        else:
            first = tree.message[child]
            count = tree.size[child]
            top, total = divide(store, first, scratch[0], place[k], count, inverse[child])
        if not safe(top, total):
            return False
        inverse[child] = 1.0 / top
    return True


@kernel
def _loops(tree, node, ops):  # type: ignore[no-untyped-def]
    """Axes of a large clique in the order in which they are walked.

    Returns the dims, the strides (those of the node's own message in the last row), the outer axes
    slowest first, the number of axes, the first axis of a block, its length, the operand of the
    widest child, and the number of outer axes that it has.
    """
    most = tree.sep_start[node + 1] - tree.sep_start[node] + 1
    dims = np.empty(most, np.int64)
    strides = np.zeros((ops + 1, most), np.int64)
    m = dims_of(tree, node, dims)
    for k in range(ops):
        strides_of(tree, node, tree.op_start[node] + k, strides[k])
    wide = shares(tree, node)[2]
    step = 1
    for a in range(m - 1, 0, -1):
        strides[ops, a] = step
        step *= dims[a]
    inner, length = m - 1, dims[m - 1]
    while inner > 1 and length * dims[inner - 1] <= (BLOCK if length >= BRIEF else LONGEST):
        inner -= 1
        length *= dims[inner]
    outer = np.empty(max(inner - 1, 1), np.int64)
    k = 0
    for a in range(1, inner):
        if wide < 0 or strides[wide, a] > 0:
            outer[k] = a
            k += 1
    kept = k
    for a in range(1, inner):
        if wide >= 0 and strides[wide, a] == 0:
            outer[k] = a
            k += 1
    return dims, strides, outer, m, inner, length, wide, kept


@kernel
def _range(dims, outer, kept, inner, part, parts):  # type: ignore[no-untyped-def]
    """First and last place of a part along the slow axes, and the number of places across them."""
    places, across = 1, 1
    for at in range(kept):
        places *= dims[outer[at]]
    for at in range(kept, inner - 1):
        across *= dims[outer[at]]
    return places * part // parts, places * (part + 1) // parts, across


@kernel
def _start(tree, node, inverse, ops, inner):  # type: ignore[no-untyped-def]
    """Scale and place of every operand at the beginning, the last place being the message's."""
    factor = np.ones(ops)
    offset = np.empty(ops + 1, np.int64)
    for k in range(ops):
        o = tree.op_start[node] + k
        offset[k] = tree.op_data[o]
        child = tree.op_child[o]
        factor[k] = inverse[child] if child >= 0 else 1.0
    offset[ops] = tree.message[node]
    return factor, offset, np.empty(ops, np.int64), np.zeros(max(inner, 1), np.int64)


@kernel
def _seek(outer, kept, low, dims, strides, digits, offset):  # type: ignore[no-untyped-def]
    """Put the slow axes at place `low`."""
    rest = low
    for at in range(kept - 1, -1, -1):
        a = outer[at]
        digits[a] = rest % dims[a]
        rest //= dims[a]
        for k in range(len(offset)):
            offset[k] += digits[a] * strides[k, a]


@kernel
def _advance(outer, first, last, dims, strides, digits, offset):  # type: ignore[no-untyped-def]
    """Next place along some of the outer axes; from the last place back to the first."""
    at = last - 1
    while at >= first:
        a = outer[at]
        digits[a] += 1
        if digits[a] < dims[a]:
            for k in range(len(offset)):
                offset[k] += strides[k, a]
            return
        for k in range(len(offset)):
            offset[k] -= strides[k, a] * (dims[a] - 1)
        digits[a] = 0
        at -= 1


class Reads(NamedTuple):
    """How the operands of a clique lie in a block of its fastest axes.

    Neighbouring axes that an operand lacks are one gap. It becomes a block gap by gap, fastest
    first, and a block is summed to an operand in the opposite order: what is long is done in long
    runs, and what has short runs is done while it is small.
    """

    own: IntArray  # o    entries of an operand in a block
    missing: IntArray  # o    number of gaps
    gaps: IntArray  # o g 3    entries of its own axes outside of a gap, of the gap, of all inside
    short: BoolArray  # o    runs are so short that its entries are looked up one by one
    rows: IntArray  # o block    at these places
    spare: FloatArray  # room for two blocks, on the way from one gap to the next


@kernel
def _reads(dims, strides, m, inner, length, ops):  # type: ignore[no-untyped-def]
    own = np.empty(ops, np.int64)
    count = np.zeros(ops, np.int64)
    gaps = np.empty((ops, m - inner, 3), np.int64)
    short = np.zeros(ops, np.bool_)
    rows = np.empty((ops, length), np.uint32)
    for k in range(ops):
        inside, held, lacking = 1, 1, False
        for a in range(m - 1, inner - 1, -1):
            if dims[a] == 1:
                continue
            g = count[k]
            if strides[k, a] > 0:
                held *= dims[a]
                lacking = False
            elif lacking:
                gaps[k, g - 1, 1] *= dims[a]
            else:
                gaps[k, g, 0], gaps[k, g, 1], gaps[k, g, 2] = held, dims[a], inside
                short[k] = short[k] or 2 < inside < SHORT
                count[k] += 1
                lacking = True
            inside *= dims[a]
        own[k] = held
        for g in range(count[k]):
            gaps[k, g, 0] = held // gaps[k, g, 0]
        if short[k]:
            rows[k, 0] = 0
            inside = 1
            for a in range(m - 1, inner - 1, -1):
                for x in range(1, dims[a]):
                    for j in range(inside):
                        rows[k, x * inside + j] = rows[k, j] + x * strides[k, a]
                inside *= dims[a]
    return Reads(own, count, gaps, short, rows, np.empty(2 * length))


@kernel(fastmath=FAST)
def _product(acc, store, reads, offset, factor, ops, length, above, scale, apart):  # type: ignore[no-untyped-def]
    """Acc = scale · Π operands over one block, but for `apart`, and times the block at `above`."""
    first = above
    for k in range(ops):
        if k == apart:
            continue
        scale *= store[offset[k]] * factor[k] if reads.own[k] == 1 else factor[k]
        if first < 0 and reads.own[k] == length:
            first = offset[k]
    if first < 0:
        acc[:] = scale
    else:
        at = _U(first)
        for j in range(length):
            acc[j] = store[at + _U(j)] * scale
    for k in range(ops):
        if k != apart and reads.own[k] > 1 and offset[k] != first:
            _times(acc, store, offset[k], 1.0, reads, k, length)


@kernel(fastmath=FAST)
def _times(acc, store, offset, factor, reads, k, length):  # type: ignore[no-untyped-def]
    """Acc *= factor · one operand over a block."""
    at = _U(offset)
    if reads.own[k] == length:
        for j in range(length):
            acc[j] *= store[at + _U(j)] * factor
        return
    if reads.own[k] == 1:
        value = store[at] * factor
        for j in range(length):
            acc[j] *= value
        return
    if reads.short[k]:
        rows = reads.rows[k]
        for j in range(length):
            acc[j] *= store[at + _U(rows[j])] * factor
        return
    if factor != 1.0:
        for j in range(length):
            acc[j] *= factor
    gaps, spare = reads.gaps, reads.spare
    last = reads.missing[k] - 1
    if last == 0:
        _spread(acc, 0, store, offset, gaps[k, 0, 0], gaps[k, 0, 1], gaps[k, 0, 2], True)
        return
    _spread(spare, 0, store, offset, gaps[k, 0, 0], gaps[k, 0, 1], gaps[k, 0, 2], False)
    here = 0
    for g in range(1, last):
        there = length - here
        _spread(spare, there, spare, here, gaps[k, g, 0], gaps[k, g, 1], gaps[k, g, 2], False)
        here = there
    _spread(acc, 0, spare, here, gaps[k, last, 0], gaps[k, last, 1], gaps[k, last, 2], True)


@kernel(fastmath=FAST)
def _spread(target, there, source, here, before, width, run, times):  # type: ignore[no-untyped-def]
    """Target = source repeated along a gap, or target times that."""
    a, b = _U(there), _U(here)
    if width == 2 and run == 1:
        for i in range(before):
            value = source[b + _U(i)]
            one = target[a + _U(2 * i)] if times else 1.0
            two = target[a + _U(2 * i + 1)] if times else 1.0
            target[a + _U(2 * i)] = value * one
            target[a + _U(2 * i + 1)] = value * two
    elif run == 1:
        for i in range(before):
            value = source[b + _U(i)]
            if times:
                for j in range(width):
                    target[a + _U(j)] *= value
            else:
                for j in range(width):
                    target[a + _U(j)] = value
            a += _U(width)
    elif times and width == 2 and run == 2:
        for i in range(before):
            one, two = source[b + _U(2 * i)], source[b + _U(2 * i + 1)]
            target[a + _U(4 * i)] *= one
            target[a + _U(4 * i + 1)] *= two
            target[a + _U(4 * i + 2)] *= one
            target[a + _U(4 * i + 3)] *= two
    elif times:
        for _ in range(before):
            for _ in range(width):
                for j in range(run):
                    target[a + _U(j)] *= source[b + _U(j)]
                a += _U(run)
            b += _U(run)
    else:
        for _ in range(before):
            for _ in range(width):
                for j in range(run):
                    target[a + _U(j)] = source[b + _U(j)]
                a += _U(run)
            b += _U(run)


@kernel(fastmath=FAST)
def _add_sums(target, first, acc, reads, k, length):  # type: ignore[no-untyped-def]
    """Add a block to the sums of one operand, the places of which begin at `first`."""
    gaps, spare = reads.gaps, reads.spare
    if reads.missing[k] == 0:
        _put(target, first, acc, length, False)
        return
    last = reads.missing[k] - 1
    if last == 0:
        _sum_gap(target, first, acc, 0, gaps[k, 0, 0], gaps[k, 0, 1], gaps[k, 0, 2], True)
        return
    _sum_gap(spare, 0, acc, 0, gaps[k, last, 0], gaps[k, last, 1], gaps[k, last, 2], False)
    here = 0
    for g in range(last - 1, 0, -1):
        there = length - here
        _sum_gap(spare, there, spare, here, gaps[k, g, 0], gaps[k, g, 1], gaps[k, g, 2], False)
        here = there
    _sum_gap(target, first, spare, here, gaps[k, 0, 0], gaps[k, 0, 1], gaps[k, 0, 2], True)


@kernel(fastmath=FAST)
def _sum_gap(target, there, source, here, before, width, run, add):  # type: ignore[no-untyped-def]
    """Target = source summed along a gap, or that added to it."""
    a, b = _U(there), _U(here)
    if run == 1:
        for i in range(before):
            value = 0.0
            for j in range(width):
                value += source[b + _U(j)]
            target[a + _U(i)] = value + target[a + _U(i)] if add else value
            b += _U(width)
        return
    if width == 2 and run == 2:
        for i in range(before):
            for j in range(2):
                value = source[b + _U(4 * i + j)] + source[b + _U(4 * i + 2 + j)]
                target[a + _U(2 * i + j)] = value + target[a + _U(2 * i + j)] if add else value
        return
    if width == 2 and run == 4:
        for i in range(before):
            for j in range(4):
                value = source[b + _U(8 * i + j)] + source[b + _U(8 * i + 4 + j)]
                target[a + _U(4 * i + j)] = value + target[a + _U(4 * i + j)] if add else value
        return
    if run < SHORT:
        for _ in range(before):
            for j in range(run):
                value = 0.0
                for i in range(width):
                    value += source[b + _U(i * run + j)]
                target[a + _U(j)] = value + target[a + _U(j)] if add else value
            a += _U(run)
            b += _U(run * width)
        return
    for _ in range(before):
        if not add:
            for j in range(run):
                target[a + _U(j)] = 0.0
        for _ in range(width):
            for j in range(run):
                target[a + _U(j)] += source[b + _U(j)]
            b += _U(run)
        a += _U(run)


@kernel(fastmath=FAST)
def _put(target, first, acc, length, fresh):  # type: ignore[no-untyped-def]
    """Write a block to its place, or add it to what is there."""
    at = _U(first)
    if fresh:
        for j in range(length):
            target[at + _U(j)] = acc[j]
    else:
        for j in range(length):
            target[at + _U(j)] += acc[j]


@kernel(fastmath=FAST)
def _total(acc, length):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(length):
        total += acc[j]
    return total
