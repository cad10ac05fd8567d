"""Passes over large cliques, in blocks that stay in the first-level cache; no clique is formed.

The trailing axes of a clique form a block. The outer axes that the widest child has go slowest, so
that what belongs to one place of that child comes together: its sums over the other axes are
complete before the next place begins, and its message is divided there and then. Children of the
same separator share these sums. Only children of other separators need room of their own.
"""

import numpy as np

from icgi.exact.axes import BLOCK, HELD, WIDEST, dims_of, shares, strides_of
from icgi.exact.divide import FAST, TINY, divide, safe
from icgi.kernels import kernel

THREADED = 2**17  # entries of a clique from which it is cut in two halves

# How an operand reads a block: not at all, along with it, place by place, in long runs of
# consecutive or of equal places, or (runs of two) every place twice, or two places in turn.
_CONSTANT, _ALONG, _PLACES, _CONSECUTIVE, _EQUAL, _TWICE, _IN_TURN = range(7)
LONG = 8  # entries of a run or row that a loop of its own pays for
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
            out = store[offset[ops] : offset[ops] + length]
            for x in range(dims[0]):
                for k in range(ops):
                    shifted[k] = offset[k] + x * strides[k, 0]
                _block_product(acc, store, reads, shifted, factor, ops, length)
                if x == 0:
                    for j in range(length):
                        out[j] = acc[j]
                else:
                    for j in range(length):
                        out[j] += acc[j]
            top = max(top, _largest(out, length))
            _advance(outer, kept, inner - 1, dims, strides, digits, offset)
        _advance(outer, 0, kept, dims, strides, digits, offset)
    return top


@kernel(error_model="numpy")
def sweep_distribute(  # type: ignore[no-untyped-def]
    tree, node, store, inverse, parts, scratches, masses, founds, stop, part
):
    """Belief of one part of a large node, summed per state and per child.

    Children of the widest separator get their message at once, and `founds` its largest entry and
    the sum of the belief; the sums of the others go to `scratches`.
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
    states = dims[0]
    width = 1  # entries of a block as the widest child sees it
    if wide >= 0:
        for a in range(inner, m):
            width *= dims[a] if strides[wide, a] > 0 else 1
    held = np.zeros(states * width)
    scratch[:used] = 0.0
    mass[:] = 0.0
    found[:] = 0.0
    acc = np.empty(length)
    scale = inverse[node]
    for _ in range(low, high):
        if stop[0]:
            break
        held[:] = 0.0
        for _ in range(across):
            down = store[offset[ops] : offset[ops] + length]
            for x in range(states):
                for k in range(ops):
                    shifted[k] = offset[k] + x * strides[k, 0]
                _block_product(acc, store, reads, shifted, factor, ops, length)
                total = _weigh(acc, down, scale, length)
                mass[x] += total
                for k in range(ops):
                    if k == wide:
                        _block_sums(held, x * width, acc, reads, k, total, length)
                    elif place[k] >= 0:
                        at = place[k] + shifted[k] - tree.op_data[begin + k]
                        _block_sums(scratch, at, acc, reads, k, total, length)
            _advance(outer, kept, inner - 1, dims, strides, digits, offset)
        for k in range(ops):
            if place[k] == WIDEST:
                for x in range(states):
                    first = offset[k] + x * strides[k, 0]
                    message = store[first : first + width]
                    sums = held[x * width : (x + 1) * width]
                    top, total = divide(message, sums, factor[k])
                    found[k, 0] = max(found[k, 0], top)
                    found[k, 1] += total
        _advance(outer, 0, kept, dims, strides, digits, offset)


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
            sums = scratch[0, place[k] : place[k] + tree.size[child]]
            top, total = divide(store[first : first + len(sums)], sums, inverse[child])
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
    most = min(BLOCK, HELD // dims[0])
    while inner > 1 and length * dims[inner - 1] <= most:
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


@kernel
def _reads(dims, strides, m, inner, length, ops):  # type: ignore[no-untyped-def]
    """How each operand reads a block: the kind, the length of a run and of a row, where rows begin.

    A row is one place, one run, or the repetitions of a run of two.
    """
    shape = np.zeros((ops, 3), np.int64)
    rows = np.empty((ops, length), np.uint32)
    for k in range(ops):
        run, step, a = 1, -1, m - 1
        while a >= inner and (dims[a] == 1 or step < 0 or (strides[k, a] > 0) == (step > 0)):
            if dims[a] > 1:
                step = 1 if strides[k, a] > 0 else 0
                run *= dims[a]
            a -= 1
        if run == length:
            shape[k, 0] = _ALONG if step > 0 else _CONSTANT
            continue
        row, last = run, a
        if run == 2:
            while last >= inner and (dims[last] == 1 or (strides[k, last] > 0) != (step > 0)):
                row *= dims[last]
                last -= 1
        kind = _PLACES
        if run == 2 and row >= LONG:
            kind = _IN_TURN if step > 0 else _TWICE
        elif run >= LONG:
            kind = _CONSECUTIVE if step > 0 else _EQUAL
            row, last = run, a
        else:
            run, row, last = 1, 1, m - 1
        shape[k, 0], shape[k, 1], shape[k, 2] = kind, run, row
        for r in range(length // row):
            rest, index = r, 0
            for b in range(last, inner - 1, -1):
                index += (rest % dims[b]) * strides[k, b]
                rest //= dims[b]
            rows[k, r] = index
    return shape, rows


@kernel(fastmath=FAST)
def _block_product(acc, store, reads, offset, factor, ops, length):  # type: ignore[no-untyped-def]
    """Acc = Π operands over one block."""
    shape, rows = reads
    scale = 1.0
    begun = False
    for k in range(ops):
        scale *= store[offset[k]] * factor[k] if shape[k, 0] == _CONSTANT else factor[k]
    for k in range(ops):
        if shape[k, 0] == _ALONG:
            source = store[offset[k] : offset[k] + length]
            if begun:
                for j in range(length):
                    acc[j] *= source[j]
            else:
                for j in range(length):
                    acc[j] = source[j] * scale
            begun = True
    if not begun:
        acc[:length] = scale
    for k in range(ops):
        if shape[k, 0] > _ALONG:
            _multiply_rows(acc, store, offset[k], shape[k], rows[k], length)


@kernel(fastmath=FAST)
def _multiply_rows(acc, store, base, shape, rows, length):  # type: ignore[no-untyped-def]
    kind, run, row = shape[0], shape[1], shape[2]
    if kind == _PLACES:
        source = store[base:]
        for j in range(length):
            acc[j] *= source[rows[j]]
        return
    at = _U(0)
    for r in range(length // row):
        first = _U(base) + _U(rows[r])
        if kind == _CONSECUTIVE:
            for j in range(run):
                acc[at + _U(j)] *= store[first + _U(j)]
        elif kind == _EQUAL:
            value = store[first]
            for j in range(run):
                acc[at + _U(j)] *= value
        elif kind == _TWICE:
            for i in range(row // 2):
                value = store[first + _U(i)]
                acc[at + _U(2 * i)] *= value
                acc[at + _U(2 * i + 1)] *= value
        else:
            one, two = store[first], store[first + _U(1)]
            for i in range(row // 2):
                acc[at + _U(2 * i)] *= one
                acc[at + _U(2 * i + 1)] *= two
        at += _U(row)


@kernel(fastmath=FAST)
def _block_sums(target, base, acc, reads, k, total, length):  # type: ignore[no-untyped-def]
    """Add a block to the sums of one operand, the places of which begin at `base`."""
    shape, rows = reads
    kind, run, row = shape[k, 0], shape[k, 1], shape[k, 2]
    if kind == _CONSTANT:
        target[base] += total
        return
    if kind == _ALONG:
        out = target[base : base + length]
        for j in range(length):
            out[j] += acc[j]
        return
    if kind == _PLACES:
        out = target[base:]
        for j in range(length):
            out[rows[k, j]] += acc[j]
        return
    at = _U(0)
    for r in range(length // row):
        first = _U(base) + _U(rows[k, r])
        if kind == _CONSECUTIVE:
            for j in range(run):
                target[first + _U(j)] += acc[at + _U(j)]
        elif kind == _EQUAL:
            value = 0.0
            for j in range(run):
                value += acc[at + _U(j)]
            target[first] += value
        elif kind == _TWICE:
            for i in range(row // 2):
                target[first + _U(i)] += acc[at + _U(2 * i)] + acc[at + _U(2 * i + 1)]
        else:
            one, two = 0.0, 0.0
            for i in range(row // 2):
                one += acc[at + _U(2 * i)]
                two += acc[at + _U(2 * i + 1)]
            target[first] += one
            target[first + _U(1)] += two
        at += _U(row)


@kernel(fastmath=FAST)
def _weigh(acc, down, scale, length):  # type: ignore[no-untyped-def]
    """Acc *= down · scale; returns its sum."""
    total = 0.0
    for j in range(length):
        acc[j] *= down[j] * scale
        total += acc[j]
    return total


@kernel(fastmath=FAST)
def _largest(values, length):  # type: ignore[no-untyped-def]
    top = 0.0
    for j in range(length):
        top = values[j] if values[j] > top else top
    return top
