"""Collect and distribute over a bucket tree, as compiled kernels.

Small cliques are formed in a buffer (`_clique`); large ones are swept in blocks that stay in the
first-level cache (`sweep_collect`, `sweep_distribute`), so that a clique of 2^25 entries costs one
read of its messages and one write of its own. Messages keep their raw scale; the factor 1/max is
carried as a number and applied where they are read.
"""

import numpy as np

from icgi.exact.tree import LARGE
from icgi.kernels import kernel

BLOCK = 512  # entries of a block: a few tables of this size fit the first-level cache
TINY = 1e-150  # below this, products of entries ≤ 1 may have lost digits to underflow

_FAST = {"reassoc", "contract", "nsz", "arcp"}


@kernel
def _strides(tree, node, o, strides):  # type: ignore[no-untyped-def]
    """Stride of operand `o` along every axis of a node's clique, 0 where it has none."""
    lead = 1 if tree.variable[node] >= 0 else 0
    low = tree.sep_start[node]
    m = tree.sep_start[node + 1] - low + lead
    b = tree.op_scope[o] + tree.op_arity[o] - 1
    step = 1
    for a in range(m - 1, -1, -1):
        t = tree.variable[node] if a < lead else tree.sep[low + a - lead]
        strides[a] = 0
        if b >= tree.op_scope[o] and tree.scopes[b] == t:
            strides[a] = step
            step *= tree.cards[t]
            b -= 1


@kernel
def _dims(tree, node, dims):  # type: ignore[no-untyped-def]
    """Cardinalities of a clique's axes, the variable summed out first; returns their number."""
    m = 0
    if tree.variable[node] >= 0:
        dims[0] = tree.cards[tree.variable[node]]
        m = 1
    for a in range(tree.sep_start[node], tree.sep_start[node + 1]):
        dims[m] = tree.cards[tree.sep[a]]
        m += 1
    return m


@kernel
def _merge(dims, strides, m, out_dims, out_strides):  # type: ignore[no-untyped-def]
    """Join neighbouring axes that one operand walks through evenly; returns how many are left."""
    k = 0
    for a in range(m):
        if dims[a] == 1:
            continue
        if k > 0 and (
            (strides[a] == 0 and out_strides[k - 1] == 0)
            or (strides[a] > 0 and out_strides[k - 1] == strides[a] * dims[a])
        ):
            out_dims[k - 1] *= dims[a]
            out_strides[k - 1] = strides[a]
        else:
            out_dims[k] = dims[a]
            out_strides[k] = strides[a]
            k += 1
    if k == 0:
        out_dims[0] = 1
        out_strides[0] = 0
        k = 1
    return k


@kernel(fastmath=_FAST)
def _multiply(buffer, table, base, scale, dims, strides, k):  # type: ignore[no-untyped-def]
    """Buffer *= scale · table, broadcast along the axes of stride 0."""
    digits = np.zeros(k, np.int64)
    inner, step = dims[k - 1], strides[k - 1]
    total = 1
    for a in range(k):
        total *= dims[a]
    offset = base
    for start in range(0, total, inner):
        row = buffer[start : start + inner]
        if step == 0:
            value = table[offset] * scale
            for j in range(inner):
                row[j] *= value
        elif step == 1:
            source = table[offset : offset + inner]
            for j in range(inner):
                row[j] *= source[j] * scale
        else:
            for j in range(inner):
                row[j] *= table[offset + j * step] * scale
        a = k - 2
        while a >= 0:
            digits[a] += 1
            offset += strides[a]
            if digits[a] < dims[a]:
                break
            offset -= strides[a] * dims[a]
            digits[a] = 0
            a -= 1


@kernel(fastmath=_FAST)
def _sum_into(target, base, buffer, dims, strides, k):  # type: ignore[no-untyped-def]
    """Target += buffer, summed over the axes of stride 0."""
    digits = np.zeros(k, np.int64)
    inner, step = dims[k - 1], strides[k - 1]
    total = 1
    for a in range(k):
        total *= dims[a]
    offset = base
    for start in range(0, total, inner):
        row = buffer[start : start + inner]
        if step == 0:
            value = 0.0
            for j in range(inner):
                value += row[j]
            target[offset] += value
        elif step == 1:
            out = target[offset : offset + inner]
            for j in range(inner):
                out[j] += row[j]
        else:
            for j in range(inner):
                target[offset + j * step] += row[j]
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
def _clique(tree, node, store, inverse, buffer, dims, strides, mdims, mstrides):  # type: ignore[no-untyped-def]
    """Product of a small node's operands in `buffer`; returns the log of the scale taken out."""
    m = _dims(tree, node, dims)
    entries = tree.clique[node]
    buffer[:entries] = 1.0
    scale = 0.0
    since = 0
    for o in range(tree.op_start[node], tree.op_start[node + 1]):
        child = tree.op_child[o]
        _strides(tree, node, o, strides)
        k = _merge(dims, strides, m, mdims, mstrides)
        factor = inverse[child] if child >= 0 else 1.0
        _multiply(buffer, store, tree.op_data[o], factor, mdims, mstrides, k)
        since += 1
        if since == 8:  # many operands: keep the largest entry at one
            since = 0
            top = buffer[:entries].max()
            if top <= 0.0:
                return -np.inf
            buffer[:entries] /= top
            scale += np.log(top)
    return scale


@kernel
def collect_small(tree, first, last, store, inverse, log_scale, stop):  # type: ignore[no-untyped-def]
    """Messages of the small nodes first..last−1; False when stopped, or digits may be lost."""
    buffer = np.empty(max(LARGE, tree.cards.max()))
    dims, strides = np.empty(512, np.int64), np.empty(512, np.int64)
    mdims, mstrides = np.empty(512, np.int64), np.empty(512, np.int64)
    for position in range(first, last):
        if stop[0]:
            return False
        node = tree.nodes[position]
        scale = _clique(tree, node, store, inverse, buffer, dims, strides, mdims, mstrides)
        size = tree.size[node]
        states = tree.clique[node] // size
        out = store[tree.message[node] : tree.message[node] + size]
        out[:] = buffer[:size]
        for x in range(1, states):
            half = buffer[x * size : (x + 1) * size]
            for j in range(size):
                out[j] += half[j]
        top = out.max()
        if not top > TINY:
            return False
        inverse[node] = 1.0 / top
        log_scale[node] = scale + np.log(top)
    return True


@kernel
def distribute_small(tree, first, last, store, inverse, scratch, probs, stop):  # type: ignore[no-untyped-def]
    """Beliefs of the small nodes last−1..first: their marginals, and messages to their children.

    A child's message is overwritten by what its parent tells it: (Σ belief) / message.
    """
    buffer = np.empty(max(LARGE, tree.cards.max()))
    dims, strides = np.empty(512, np.int64), np.empty(512, np.int64)
    mdims, mstrides = np.empty(512, np.int64), np.empty(512, np.int64)
    for position in range(last - 1, first - 1, -1):
        if stop[0]:
            return False
        node = tree.nodes[position]
        _clique(tree, node, store, inverse, buffer, dims, strides, mdims, mstrides)
        size, entries = tree.size[node], tree.clique[node]
        states = entries // size
        down = store[tree.message[node] : tree.message[node] + size]
        scale = inverse[node]
        total = 0.0
        for x in range(states):
            half = buffer[x * size : (x + 1) * size]
            mass = 0.0
            for j in range(size):
                half[j] *= down[j] * scale
                mass += half[j]
            total += mass
            if tree.variable[node] >= 0:
                probs[tree.variable[node], x] = mass
        if not total > TINY:
            return False
        m = _dims(tree, node, dims)
        for o in range(tree.op_start[node], tree.op_start[node + 1]):
            child = tree.op_child[o]
            if child < 0:
                continue
            count = tree.size[child]
            sums = scratch[:count]
            sums[:] = 0.0
            _strides(tree, node, o, strides)
            k = _merge(dims, strides, m, mdims, mstrides)
            _sum_into(sums, 0, buffer, mdims, mstrides, k)
            if not hand_down(tree, child, sums, store, inverse):
                return False
    return True


@kernel
def hand_down(tree, child, sums, store, inverse):  # type: ignore[no-untyped-def]
    """Replace a child's message by (Σ belief) / message, largest entry 1 after scaling.

    Both messages across a separator have largest entry one. Entries below 1e-308 are lost in
    each, so the answer is safe when the product of the two still has a visible sum.
    """
    message = store[tree.message[child] : tree.message[child] + len(sums)]
    top = 0.0
    mass = 0.0
    scale = inverse[child]
    for j in range(len(sums)):
        mass += sums[j]
        value = sums[j] / (message[j] * scale) if message[j] > 0.0 else 0.0
        message[j] = value
        top = max(top, value)
    if not (top > TINY and top < 1.0 / TINY and mass > top * 1e-100):
        return False
    inverse[child] = 1.0 / top
    return True


@kernel
def _blocks(tree, node, store_ops, dims, strides, kind, pattern):  # type: ignore[no-untyped-def]
    """Prepare the block sweep of a large clique.

    The trailing axes form a block. `kind` of an operand: 0 constant over a block, 1 runs along with
    it, 2 reads it through `pattern`. Returns (number of axes, first inner axis, block length).
    """
    m = _dims(tree, node, dims)
    inner = m - 1
    length = dims[m - 1]
    while inner > 1 and length * dims[inner - 1] <= BLOCK:
        inner -= 1
        length *= dims[inner]
    for k in range(store_ops):
        o = tree.op_start[node] + k
        _strides(tree, node, o, strides[k])
        step = 1
        along, constant = True, True
        for a in range(m - 1, inner - 1, -1):
            if dims[a] > 1:
                along = along and strides[k, a] == step
                constant = constant and strides[k, a] == 0
            step *= dims[a]
        kind[k] = 0 if constant else (1 if along else 2)
        if kind[k] == 2:
            for j in range(length):
                rest, index = j, 0
                for a in range(m - 1, inner - 1, -1):
                    index += (rest % dims[a]) * strides[k, a]
                    rest //= dims[a]
                pattern[k, j] = index
    return m, inner, length


@kernel
def outer_blocks(tree, node):  # type: ignore[no-untyped-def]
    """Number of blocks that the separator of a large node is cut into."""
    dims = np.empty(512, np.int64)
    m = _dims(tree, node, dims)
    inner = m - 1
    length = dims[m - 1]
    while inner > 1 and length * dims[inner - 1] <= BLOCK:
        inner -= 1
        length *= dims[inner]
    return tree.size[node] // length


@kernel(fastmath=_FAST)
def _block_product(acc, store, kind, pattern, offset, factor, ops, length):  # type: ignore[no-untyped-def]
    """Acc = Π operands over one block."""
    scale = 1.0
    begun = False
    for k in range(ops):
        if kind[k] == 0:
            scale *= store[offset[k]] * factor[k]
        else:
            scale *= factor[k]
    for k in range(ops):
        if kind[k] == 1:
            row = store[offset[k] : offset[k] + length]
            if begun:
                for j in range(length):
                    acc[j] *= row[j]
            else:
                for j in range(length):
                    acc[j] = row[j] * scale
            begun = True
    for k in range(ops):
        if kind[k] == 2:
            source = store[offset[k] :]
            index = pattern[k]
            if begun:
                for j in range(length):
                    acc[j] *= source[index[j]]
            else:
                for j in range(length):
                    acc[j] = source[index[j]] * scale
            begun = True
    if not begun:
        acc[:length] = scale


@kernel(fastmath=_FAST)
def sweep_collect(tree, node, store, inverse, low, high, stop):  # type: ignore[no-untyped-def]
    """Blocks low..high−1 of a large node's message; returns their largest entry."""
    ops = tree.op_start[node + 1] - tree.op_start[node]
    dims = np.empty(512, np.int64)
    strides = np.zeros((ops, 512), np.int64)
    kind = np.empty(ops, np.int64)
    pattern = np.empty((ops, max(BLOCK, tree.cards.max())), np.uint32)
    m, inner, length = _blocks(tree, node, ops, dims, strides, kind, pattern)
    factor = np.ones(ops)
    offset = np.empty(ops, np.int64)
    shifted = np.empty(ops, np.int64)
    digits = np.zeros(m, np.int64)
    _start(tree, node, store, inverse, ops, low, inner, dims, strides, digits, offset, factor)
    acc = np.empty(length)
    states = dims[0]
    top = 0.0
    for block in range(low, high):
        if stop[0]:
            break
        base = tree.message[node] + block * length
        out = store[base : base + length]
        for x in range(states):
            for k in range(ops):
                shifted[k] = offset[k] + x * strides[k, 0]
            _block_product(acc, store, kind, pattern, shifted, factor, ops, length)
            if x == 0:
                for j in range(length):
                    out[j] = acc[j]
            else:
                for j in range(length):
                    out[j] += acc[j]
        for j in range(length):
            top = max(top, out[j])
        _advance(inner, dims, strides, digits, offset, ops)
    return top


@kernel
def _start(tree, node, store, inverse, ops, low, inner, dims, strides, digits, offset, factor):  # type: ignore[no-untyped-def]
    """Put the odometer of the outer axes (all but the variable and the block) at block `low`."""
    rest = low
    for a in range(inner - 1, 0, -1):
        digits[a] = rest % dims[a]
        rest //= dims[a]
    for k in range(ops):
        o = tree.op_start[node] + k
        offset[k] = tree.op_data[o]
        for a in range(1, inner):
            offset[k] += digits[a] * strides[k, a]
        child = tree.op_child[o]
        factor[k] = inverse[child] if child >= 0 else 1.0


@kernel
def _advance(inner, dims, strides, digits, offset, ops):  # type: ignore[no-untyped-def]
    a = inner - 1
    while a >= 1:
        digits[a] += 1
        if digits[a] < dims[a]:
            for k in range(ops):
                offset[k] += strides[k, a]
            return
        for k in range(ops):
            offset[k] -= strides[k, a] * (dims[a] - 1)
        digits[a] = 0
        a -= 1


@kernel(fastmath=_FAST)
def sweep_distribute(tree, node, store, inverse, low, high, scratch, mass, stop):  # type: ignore[no-untyped-def]
    """Belief of blocks low..high−1 of a large node, summed per child and per state."""
    ops = tree.op_start[node + 1] - tree.op_start[node]
    dims = np.empty(512, np.int64)
    strides = np.zeros((ops, 512), np.int64)
    kind = np.empty(ops, np.int64)
    pattern = np.empty((ops, max(BLOCK, tree.cards.max())), np.uint32)
    m, inner, length = _blocks(tree, node, ops, dims, strides, kind, pattern)
    factor = np.ones(ops)
    offset = np.empty(ops, np.int64)
    shifted = np.empty(ops, np.int64)
    digits = np.zeros(m, np.int64)
    _start(tree, node, store, inverse, ops, low, inner, dims, strides, digits, offset, factor)
    place = np.zeros(
        ops, np.int64
    )  # where a child's sums begin in scratch, less its message's place
    used = 0
    for k in range(ops):
        child = tree.op_child[tree.op_start[node] + k]
        if child >= 0:
            place[k] = used - tree.op_data[tree.op_start[node] + k]
            used += tree.size[child]
    scratch[:used] = 0.0
    mass[:] = 0.0
    acc = np.empty(length)
    scale = inverse[node]
    for block in range(low, high):
        if stop[0]:
            break
        base = tree.message[node] + block * length
        down = store[base : base + length]
        for x in range(dims[0]):
            for k in range(ops):
                shifted[k] = offset[k] + x * strides[k, 0]
            _block_product(acc, store, kind, pattern, shifted, factor, ops, length)
            total = 0.0
            for j in range(length):
                acc[j] *= down[j] * scale
                total += acc[j]
            mass[x] += total
            for k in range(ops):
                if tree.op_child[tree.op_start[node] + k] < 0:
                    continue
                target = scratch[shifted[k] + place[k] :]
                if kind[k] == 0:
                    target[0] += total
                elif kind[k] == 1:
                    for j in range(length):
                        target[j] += acc[j]
                else:
                    index = pattern[k]
                    for j in range(length):
                        target[index[j]] += acc[j]
        _advance(inner, dims, strides, digits, offset, ops)


@kernel
def hand_down_all(tree, node, sums, store, inverse):  # type: ignore[no-untyped-def]
    """`hand_down` to every child of a large node, from the sums of `sweep_distribute`."""
    used = 0
    for o in range(tree.op_start[node], tree.op_start[node + 1]):
        child = tree.op_child[o]
        if child >= 0:
            count = tree.size[child]
            if not hand_down(tree, child, sums[used : used + count], store, inverse):
                return False
            used += count
    return True
