"""Collect and distribute over cliques that are formed in a buffer, as compiled kernels.

What is called for every node is compiled into its caller: a tree consists of twenty arrays, and
giving them to a function takes longer than a small clique.

Large cliques are swept in blocks instead (`sweeps`). Messages keep their raw scale; the factor
1/max is carried as a number and applied where they are read.
"""

import numpy as np

from icgi.exact.axes import same_scope
from icgi.exact.contractions import pair_collect, pair_finish, pair_tell
from icgi.exact.divide import FAST, TINY, divide, largest, safe
from icgi.kernels import kernel

_U = np.uint64  # unsigned places: compiled code need not ask whether they count from the end


@kernel
def solve(tree, store, scratch_entries, mass, stop):  # type: ignore[no-untyped-def]
    """Both passes over a tree without large cliques; fills `mass` with marginals by time.

    Returns log Z relative to the scale of the tables; NaN where digits may be lost, or stopped.
    """
    count = len(tree.nodes)
    inverse, log_scale = np.ones(count), np.zeros(count)
    if not collect(tree, 0, count, store, inverse, log_scale, stop):
        return np.nan
    open_roots(tree, store, inverse)
    scratch = np.empty(scratch_entries)
    if not distribute(tree, 0, count, store, inverse, scratch, mass, stop):
        return np.nan
    return log_scale.sum()


@kernel
def collect(tree, first, last, store, inverse, log_scale, stop):  # type: ignore[no-untyped-def]
    """Messages of the nodes first..last−1; False when stopped, or digits may be lost."""
    buffer = np.empty(_largest(tree, first, last))
    digits = np.empty(64, np.int64)
    for node in range(first, last):
        if stop[0] or not collect_one(tree, node, store, inverse, log_scale, buffer, digits, stop):
            return False
    return True


@kernel(forceinline=True)
def collect_one(tree, node, store, inverse, log_scale, buffer, digits, stop):  # type: ignore[no-untyped-def]
    """Message of one node; False where digits may be lost."""
    if tree.paired[node]:
        top = pair_collect(tree, node, store, inverse, stop, 1, 0)
        return finish_collect(node, top, 0.0, inverse, log_scale)
    scale = _clique(tree, node, store, inverse, buffer, digits)
    top = _sum_out(store, tree.message[node], buffer, tree.size[node], tree.clique[node])
    return finish_collect(node, top, scale, inverse, log_scale)


@kernel(forceinline=True)
def finish_collect(node, top, scale, inverse, log_scale):  # type: ignore[no-untyped-def]
    """Keep the scale of a message; False where digits may be lost."""
    if not (top > TINY and top < np.inf):
        return False
    inverse[node] = 1.0 / top
    log_scale[node] = scale + np.log(top)
    return True


@kernel
def open_roots(tree, store, inverse):  # type: ignore[no-untyped-def]
    """Nothing comes to a root from above: its scalar message becomes one."""
    for node in range(len(tree.nodes)):
        if tree.sep_start[node] == tree.sep_start[node + 1] and tree.variable[node] >= 0:
            store[tree.message[node]] = 1.0
            inverse[node] = 1.0


@kernel
def distribute(tree, first, last, store, inverse, scratch, mass, stop):  # type: ignore[no-untyped-def]
    """Beliefs of the nodes last−1..first: their marginals, and messages to their children.

    A child's message is overwritten by what its parent says: (Σ belief) / message.
    """
    buffer = np.empty(_largest(tree, first, last))
    digits = np.empty(64, np.int64)
    for node in range(last - 1, first - 1, -1):
        if stop[0]:
            return False
        if tree.paired[node]:
            pair_tell(tree, node, store, inverse, scratch, stop, False, 1, 0)
            pair_tell(tree, node, store, inverse, scratch, stop, True, 1, 0)
            if not pair_finish(tree, node, store, inverse, scratch, mass):
                return False
        elif not _distribute_one(tree, node, store, inverse, buffer, digits, scratch, mass):
            return False
    return True


@kernel(error_model="numpy", forceinline=True)
def _distribute_one(tree, node, store, inverse, buffer, digits, scratch, mass):  # type: ignore[no-untyped-def]
    _clique(tree, node, store, inverse, buffer, digits)
    size, entries = tree.size[node], tree.clique[node]
    scale, below = inverse[node], tree.message[node]
    total = 0.0
    for x in range(entries // size):
        part = _weigh(buffer, x * size, store, below, scale, size)
        total += part
        if tree.variable[node] >= 0:
            mass[tree.variable[node], x] = part
    if not total > TINY:
        return False
    last = -1  # operand of the child whose sums are in scratch
    for o in range(tree.op_start[node], tree.op_start[node + 1]):
        child = tree.op_child[o]
        if child < 0:
            continue
        count = tree.size[child]
        if last < 0 or not same_scope(tree, o, last):
            scratch[:count] = 0.0
            low, high = tree.axis_start[o], tree.axis_start[o + 1]
            _sum_into(scratch, buffer, tree.axis_dim, tree.axis_step, low, high, digits)
            last = o
        top, mass_here = divide(store, tree.message[child], scratch, 0, count, inverse[child])
        if not safe(top, mass_here):
            return False
        inverse[child] = 1.0 / top
    return True


@kernel
def _largest(tree, first, last):  # type: ignore[no-untyped-def]
    """Entries of the largest clique among some nodes that is formed."""
    largest = 1
    for node in range(first, last):
        if not tree.paired[node]:
            largest = max(largest, tree.clique[node])
    return largest


@kernel(forceinline=True)
def _clique(tree, node, store, inverse, buffer, digits):  # type: ignore[no-untyped-def]
    """Product of a small node's operands in `buffer`; returns the log of the scale taken out."""
    entries = tree.clique[node]
    for j in range(entries):
        buffer[_U(j)] = 1.0
    scale = 0.0
    since = 0
    for o in range(tree.op_start[node], tree.op_start[node + 1]):
        child = tree.op_child[o]
        factor = inverse[child] if child >= 0 else 1.0
        low, high = tree.axis_start[o], tree.axis_start[o + 1]
        _multiply(
            buffer, store, tree.op_data[o], factor, tree.axis_dim, tree.axis_step, low, high, digits
        )
        since += 1
        if since == 8:  # many operands: keep the largest entry at one
            since = 0
            top = buffer[:entries].max()
            if top <= 0.0:
                return -np.inf
            buffer[:entries] /= top
            scale += np.log(top)
    return scale


@kernel(fastmath=FAST)
def _sum_out(store, message, buffer, size, entries):  # type: ignore[no-untyped-def]
    """Message of a formed clique, summed over its slowest axis; returns its largest entry."""
    at = _U(message)
    for j in range(size):
        store[at + _U(j)] = buffer[_U(j)]
    for start in range(size, entries, size):
        for j in range(size):
            store[at + _U(j)] += buffer[_U(start) + _U(j)]
    return largest(store, message, size)


@kernel(fastmath=FAST)
def _weigh(buffer, start, store, below, scale, size):  # type: ignore[no-untyped-def]
    """One state of a belief: clique times the message from above; returns its sum."""
    total = 0.0
    a, b = _U(start), _U(below)
    for j in range(size):
        buffer[a + _U(j)] *= store[b + _U(j)] * scale
        total += buffer[a + _U(j)]
    return total


@kernel(fastmath=FAST)
def _multiply(buffer, table, base, scale, dims, steps, low, high, digits):  # type: ignore[no-untyped-def]
    """Buffer *= scale · table, broadcast along the axes of step 0.

    The fastest axis has step 0 or 1; the two fastest are plain loops, the others an odometer.
    """
    inner, along = dims[high - 1], steps[high - 1] == 1
    rows, stride = 1, 0
    if high - low > 1:
        rows, stride = dims[high - 2], steps[high - 2]
    planes = 1
    for a in range(low, high - 2):
        digits[a - low] = 0
        planes *= dims[a]
    at = _U(0)
    for _ in range(planes):
        for i in range(rows):
            first = _U(base + i * stride)
            if along:
                if inner == 2:
                    buffer[at] *= table[first] * scale
                    buffer[at + _U(1)] *= table[first + _U(1)] * scale
                else:
                    for j in range(inner):
                        buffer[at + _U(j)] *= table[first + _U(j)] * scale
            else:
                value = table[first] * scale
                if inner == 2:
                    buffer[at] *= value
                    buffer[at + _U(1)] *= value
                else:
                    for j in range(inner):
                        buffer[at + _U(j)] *= value
            at += _U(inner)
        base = _next(base, dims, steps, low, high, digits)


@kernel(fastmath=FAST)
def _sum_into(target, buffer, dims, steps, low, high, digits):  # type: ignore[no-untyped-def]
    """Target += buffer, summed over the axes of step 0."""
    inner, along = dims[high - 1], steps[high - 1] == 1
    rows, stride = 1, 0
    if high - low > 1:
        rows, stride = dims[high - 2], steps[high - 2]
    planes = 1
    for a in range(low, high - 2):
        digits[a - low] = 0
        planes *= dims[a]
    at = _U(0)
    base = 0
    for _ in range(planes):
        for i in range(rows):
            first = _U(base + i * stride)
            if along:
                if inner == 2:
                    target[first] += buffer[at]
                    target[first + _U(1)] += buffer[at + _U(1)]
                else:
                    for j in range(inner):
                        target[first + _U(j)] += buffer[at + _U(j)]
            elif inner == 2:
                target[first] += buffer[at] + buffer[at + _U(1)]
            else:
                value = 0.0
                for j in range(inner):
                    value += buffer[at + _U(j)]
                target[first] += value
            at += _U(inner)
        base = _next(base, dims, steps, low, high, digits)


@kernel
def _next(base, dims, steps, low, high, digits):  # type: ignore[no-untyped-def]
    """Place of the next plane."""
    a = high - 3
    while a >= low:
        digits[a - low] += 1
        base += steps[a]
        if digits[a - low] < dims[a]:
            return base
        base -= steps[a] * dims[a]
        digits[a - low] = 0
        a -= 1
    return base
