"""Collect and distribute on logarithms: the same tree and the same steps, for extreme numbers."""

import numpy as np

from icgi.exact.axes import MOST_AXES, dims_of, merge, strides_of
from icgi.kernels import kernel


@kernel
def _walk(buffer, table, base, dims, strides, k, add):  # type: ignore[no-untyped-def]
    """Buffer += table (add) or table = max(table, buffer) (not add), broadcast or reduced."""
    digits = np.zeros(k, np.int64)
    total = 1
    for a in range(k):
        total *= dims[a]
    offset = base
    for entry in range(total):
        if add:
            buffer[entry] += table[offset]
        else:
            table[offset] = max(table[offset], buffer[entry])
        _tick(digits, dims, strides, k)
        offset = base
        for a in range(k):
            offset += digits[a] * strides[a]


@kernel
def _tick(digits, dims, strides, k):  # type: ignore[no-untyped-def]
    a = k - 1
    while a >= 0:
        digits[a] += 1
        if digits[a] < dims[a]:
            return
        digits[a] = 0
        a -= 1


@kernel
def _log_sum_into(target, buffer, dims, strides, k, shift):  # type: ignore[no-untyped-def]
    """Target = log Σ exp buffer over the axes of stride 0; `shift` is room for the maxima."""
    shift[:] = -np.inf
    _walk(buffer, shift, 0, dims, strides, k, False)
    target[:] = 0.0
    digits = np.zeros(k, np.int64)
    total = 1
    for a in range(k):
        total *= dims[a]
    for entry in range(total):
        offset = 0
        for a in range(k):
            offset += digits[a] * strides[a]
        if buffer[entry] > -np.inf:
            target[offset] += np.exp(buffer[entry] - shift[offset])
        _tick(digits, dims, strides, k)
    for j in range(len(target)):
        target[j] = shift[j] + np.log(target[j]) if target[j] > 0.0 else -np.inf


@kernel
def _sum_clique(tree, node, store, buffer, dims, strides, mdims, mstrides, stop):  # type: ignore[no-untyped-def]
    m = dims_of(tree, node, dims)
    buffer[: tree.clique[node]] = 0.0
    for o in range(tree.op_start[node], tree.op_start[node + 1]):
        if stop[0]:
            break
        strides_of(tree, node, o, strides)
        k = merge(dims, strides, m, mdims, mstrides)
        _walk(buffer, store, tree.op_data[o], mdims, mstrides, k, True)
    return m


@kernel
def run(tree, store, scratch, largest, mass, stop):  # type: ignore[no-untyped-def]
    """Both passes; fills `mass` with marginals by elimination time and returns log Z."""
    buffer = np.empty(largest)
    shift = np.empty(max(1, len(scratch)))
    dims, strides = np.empty(MOST_AXES, np.int64), np.empty(MOST_AXES, np.int64)
    mdims, mstrides = np.empty(MOST_AXES, np.int64), np.empty(MOST_AXES, np.int64)
    log_z = 0.0
    for node in tree.nodes:
        if stop[0]:
            return np.nan
        _sum_clique(tree, node, store, buffer, dims, strides, mdims, mstrides, stop)
        size = tree.size[node]
        states = tree.clique[node] // size
        out = store[tree.message[node] : tree.message[node] + size]
        for j in range(size):
            top = -np.inf
            for x in range(states):
                top = max(top, buffer[x * size + j])
            total = 0.0
            if top > -np.inf:
                for x in range(states):
                    total += np.exp(buffer[x * size + j] - top)
                out[j] = top + np.log(total)
            else:
                out[j] = -np.inf
        if tree.sep_start[node + 1] == tree.sep_start[node] and tree.variable[node] >= 0:
            log_z += out[0]
            out[0] = 0.0
    if not log_z > -np.inf:
        return -np.inf
    for position in range(len(tree.nodes) - 1, -1, -1):
        if stop[0]:
            return np.nan
        node = tree.nodes[position]
        m = _sum_clique(tree, node, store, buffer, dims, strides, mdims, mstrides, stop)
        size, entries = tree.size[node], tree.clique[node]
        states = entries // size
        base = tree.message[node]
        top = -np.inf
        for x in range(states):
            for j in range(size):
                buffer[x * size + j] += store[base + j]
                top = max(top, buffer[x * size + j])
        for e in range(entries):
            buffer[e] -= top  # beliefs matter up to a constant
        if tree.variable[node] >= 0:
            for x in range(states):
                total = 0.0
                for j in range(size):
                    total += np.exp(buffer[x * size + j])
                mass[tree.variable[node], x] = total
        for o in range(tree.op_start[node], tree.op_start[node + 1]):
            child = tree.op_child[o]
            if child < 0 or stop[0]:
                continue
            count = tree.size[child]
            sums = scratch[:count]
            strides_of(tree, node, o, strides)
            k = merge(dims, strides, m, mdims, mstrides)
            _log_sum_into(sums, buffer, mdims, mstrides, k, shift[:count])
            message = store[tree.message[child] : tree.message[child] + count]
            for j in range(count):
                message[j] = sums[j] - message[j] if message[j] > -np.inf else -np.inf
    return log_z
