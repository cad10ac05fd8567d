"""Messages of a bucket tree on logarithms, kept in both directions, and walks along them.

`collect` fills the store with messages towards the root, as sums or as maxima; `distribute` fills
a second store of the same layout with those away from it. With both, the belief of every clique
can be formed; with the first alone, configurations are decoded or drawn from the root down.
"""

import numpy as np

from icgi.exact.axes import MOST_AXES, merge, strides_of
from icgi.exact.logpasses import _log_sum_into, _sum_clique
from icgi.kernels import kernel


@kernel
def collect(tree, store, buffer, maximise, stop):  # type: ignore[no-untyped-def]
    """Messages towards the root; returns log Z, or the largest log weight of a configuration."""
    dims, strides = np.empty(MOST_AXES, np.int64), np.empty(MOST_AXES, np.int64)
    mdims, mstrides = np.empty(MOST_AXES, np.int64), np.empty(MOST_AXES, np.int64)
    total = 0.0
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
            out[j] = top
            if maximise or states == 1 or not top > -np.inf:
                continue
            summed = 0.0
            for x in range(states):
                summed += np.exp(buffer[x * size + j] - top)
            out[j] = top + np.log(summed)
        if tree.sep_start[node + 1] == tree.sep_start[node] and tree.variable[node] >= 0:
            total += out[0]
    return total


@kernel
def distribute(tree, store, down, buffer, shift, stop):  # type: ignore[no-untyped-def]
    """Messages away from the root, into `down`; `shift` is room for the largest message."""
    dims, strides = np.empty(MOST_AXES, np.int64), np.empty(MOST_AXES, np.int64)
    mdims, mstrides = np.empty(MOST_AXES, np.int64), np.empty(MOST_AXES, np.int64)
    for position in range(len(tree.nodes) - 1, -1, -1):
        if stop[0]:
            return
        node = tree.nodes[position]
        m = belief(tree, node, store, down, buffer, dims, strides, mdims, mstrides, stop)
        for o in range(tree.op_start[node], tree.op_start[node + 1]):
            child = tree.op_child[o]
            if child < 0 or stop[0]:
                continue
            first, count = tree.message[child], tree.size[child]
            out = down[first : first + count]
            strides_of(tree, node, o, strides)
            k = merge(dims, strides, m, mdims, mstrides)
            _log_sum_into(out, buffer, mdims, mstrides, k, shift[:count])
            for j in range(count):
                up = store[first + j]
                out[j] = out[j] - up if up > -np.inf else -np.inf


@kernel
def belief(tree, node, store, down, buffer, dims, strides, mdims, mstrides, stop):  # type: ignore[no-untyped-def]
    """Log belief of a clique in `buffer`, largest entry zero; returns its number of axes."""
    m = _sum_clique(tree, node, store, buffer, dims, strides, mdims, mstrides, stop)
    size, entries = tree.size[node], tree.clique[node]
    base = tree.message[node]
    top = -np.inf
    for e in range(entries):
        buffer[e] += down[base + e % size]
        top = max(top, buffer[e])
    for e in range(entries):
        buffer[e] -= top
    return m


@kernel
def clique_belief(tree, node, store, down, buffer):  # type: ignore[no-untyped-def]
    """`belief` of one node for callers outside of compiled code."""
    dims, strides = np.empty(MOST_AXES, np.int64), np.empty(MOST_AXES, np.int64)
    mdims, mstrides = np.empty(MOST_AXES, np.int64), np.empty(MOST_AXES, np.int64)
    never = np.zeros(1, np.uint8)
    return belief(tree, node, store, down, buffer, dims, strides, mdims, mstrides, never)


@kernel
def _states_of(tree, node, store, x, row):  # type: ignore[no-untyped-def]
    """Log weight of every state of a node's variable, its separator being in `x`."""
    t = tree.variable[node]
    row[: tree.cards[t]] = 0.0
    for o in range(tree.op_start[node], tree.op_start[node + 1]):
        step, offset, own = 1, tree.op_data[o], 0
        for b in range(tree.op_scope[o] + tree.op_arity[o] - 1, tree.op_scope[o] - 1, -1):
            u = tree.scopes[b]
            if u == t:
                own = step
            else:
                offset += x[u] * step
            step *= tree.cards[u]
        for s in range(tree.cards[t]):
            row[s] += store[offset + s * own]


@kernel
def decode(tree, store, x):  # type: ignore[no-untyped-def]
    """Likeliest configuration by elimination time, from maxima; of equal states the first."""
    row = np.empty(tree.cards.max())
    for position in range(len(tree.nodes) - 1, -1, -1):
        node = tree.nodes[position]
        t = tree.variable[node]
        if t >= 0:
            _states_of(tree, node, store, x, row)
            x[t] = np.argmax(row[: tree.cards[t]])


@kernel
def draw(tree, store, uniform, x):  # type: ignore[no-untyped-def]
    """Independent configurations s n by elimination time, from sums and uniform numbers n s."""
    row = np.empty(tree.cards.max())
    for position in range(len(tree.nodes) - 1, -1, -1):
        node = tree.nodes[position]
        t = tree.variable[node]
        if t < 0:
            continue
        for s in range(len(x)):
            _states_of(tree, node, store, x[s], row)
            states = tree.cards[t]
            top = row[:states].max()
            total = 0.0
            for k in range(states):
                total += np.exp(row[k] - top)
            left = uniform[t, s] * total
            chosen = 0
            for k in range(states):
                weight = np.exp(row[k] - top)
                if weight > 0.0:
                    chosen = k
                    left -= weight
                    if left < 0.0:
                        break
            x[s, t] = chosen
