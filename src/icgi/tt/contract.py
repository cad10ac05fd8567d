"""One site of a train at a time: what crosses a core when gauges and overlaps are moved over it.

A core is an array (d, a, b): state, left bond, right bond. A table W (v, d, w) that is diagonal in
the state multiplies it: h_x = W_x ⊗ G_x, an array (v·a, w·b) for each state. That product is never
formed; every contraction here uses its Kronecker structure, which saves a factor of the table's
bond. A *gram* is LᵀL of a gauge L, an *overlap* is a contraction with the cores of another train
(the environment). For small matrices x·yᵀ takes BLAS nearly twice as long as x·y, so that there the
second factor is transposed by copying.
"""

import numpy as np

from icgi.kernels import kernel

REORDER = {"contract", "reassoc"}  # sums in any order, so that they use vector instructions


@kernel
def gram_right(core, table, gram):  # type: ignore[no-untyped-def]
    """Gram at the left bond of h: Σ_x h_x · gram · h_xᵀ, with gram (w·b, w·b).

    Blocks core_x · gram_ij · core_xᵀ are formed for j ≤ i only; the others are their transposes.
    """
    d, a, b = core.shape
    v, w = table.shape[0], table.shape[2]
    out = np.zeros((v, a, v, a))
    lower = [np.ascontiguousarray(gram[i * b : (i + 1) * b, : (i + 1) * b]) for i in range(w)]
    first = np.empty(a * b * (w * (w + 1) // 2))
    second = np.empty((a * (w * (w + 1) // 2), a))
    for x in range(d):
        start = 0
        for i in range(w):
            size = (i + 1) * a * b
            np.dot(core[x], lower[i], first[start : start + size].reshape((a, (i + 1) * b)))
            start += size
        np.dot(first.reshape((len(second), b)), np.ascontiguousarray(core[x].T), second)
        for p in range(v):
            for i in range(w):
                if table[p, x, i] == 0.0:
                    continue
                for q in range(p + 1):
                    for j in range(w):
                        factor = table[p, x, i] * table[q, x, j]
                        if factor == 0.0:
                            continue
                        high, low = max(i, j), min(i, j)
                        row, step = a * (high * (high + 1) // 2) + low, high + 1
                        for k in range(a):
                            if i >= j:
                                for m in range(a):
                                    out[p, k, q, m] += factor * second[row + k * step, m]
                            else:
                                for m in range(a):
                                    out[p, k, q, m] += factor * second[row + m * step, k]
    for p in range(v):
        for q in range(p):
            for k in range(a):
                for m in range(a):
                    out[q, m, p, k] = out[p, k, q, m]
    return out.reshape((v * a, v * a))


@kernel
def overlap_right(core, table, env, overlap):  # type: ignore[no-untyped-def]
    """Overlap at the left bond of h: Σ_x h_x · overlap · env_xᵀ, with overlap (w·b, c')."""
    d, a, b = core.shape
    v, w = table.shape[0], table.shape[2]
    c = env.shape[1]
    out = np.zeros((v, a, c))
    moved = np.empty((w * b, c))
    block = np.empty((a, c))
    for x in range(d):
        np.dot(overlap, np.ascontiguousarray(env[x].T), moved)
        for i in range(w):
            np.dot(core[x], moved[i * b : (i + 1) * b], block)
            for p in range(v):
                factor = table[p, x, i]
                if factor != 0.0:
                    for k in range(a):
                        for m in range(c):
                            out[p, k, m] += factor * block[k, m]
    return out.reshape((v * a, c))


@kernel
def absorb_left(left, core, table):  # type: ignore[no-untyped-def]
    """Array (d, k, w·b) of left · h_x, with left (k, v·a)."""
    d, a, b = core.shape
    v, w = table.shape[0], table.shape[2]
    k = left.shape[0]
    out = np.zeros((d, k, w, b))
    moved = np.empty((k * v, b))
    blocks = moved.reshape((k, v, b))
    for x in range(d):
        np.dot(left.reshape((k * v, a)), core[x], moved)
        for p in range(v):
            for i in range(w):
                factor = table[p, x, i]
                if factor != 0.0:
                    for j in range(k):
                        for m in range(b):
                            out[x, j, i, m] += factor * blocks[j, p, m]
    return out.reshape((d, k, w * b))


@kernel
def gram_left(core, gram):  # type: ignore[no-untyped-def]
    """Gram at the right bond: Σ_x core_xᵀ · gram · core_x."""
    d, a, b = core.shape
    moved = np.empty((d, a, b))
    for x in range(d):
        np.dot(gram, core[x], moved[x])
    return np.dot(core.reshape((d * a, b)).T, moved.reshape((d * a, b)))


@kernel
def overlap_left(core, env, overlap):  # type: ignore[no-untyped-def]
    """Overlap at the right bond: Σ_x core_xᵀ · overlap · env_x, with overlap (a, c)."""
    d, a, b = core.shape
    c = env.shape[2]
    moved = np.empty((d, a, c))
    for x in range(d):
        np.dot(overlap, env[x], moved[x])
    return np.dot(core.reshape((d * a, b)).T, moved.reshape((d * a, c)))


@kernel
def open_site(core, env, left, right):  # type: ignore[no-untyped-def]
    """Overlap left open at a site: p(x) = tr(leftᵀ · core_x · right · env_xᵀ)."""
    d = core.shape[0]
    out = np.empty(d)
    for x in range(d):
        out[x] = np.sum(np.dot(left, env[x]) * np.dot(core[x], right))
    return out


@kernel
def summed(core, table, weight):  # type: ignore[no-untyped-def]
    """Matrix (v·a, w·b) of a site summed out: Σ_x weight_x h_x."""
    d, a, b = core.shape
    v, w = table.shape[0], table.shape[2]
    out = np.zeros((v, a, w, b))
    for x in range(d):
        for p in range(v):
            for i in range(w):
                factor = table[p, x, i] * weight[x]
                if factor != 0.0:
                    for k in range(a):
                        for m in range(b):
                            out[p, k, i, m] += factor * core[x, k, m]
    return out.reshape((v * a, w * b))


@kernel
def dense_site(core, table):  # type: ignore[no-untyped-def]
    """Array (d, v·a, w·b) of h itself."""
    return absorb_left(np.eye(table.shape[0] * core.shape[1]), core, table)


@kernel(fastmath=REORDER)
def dot_all(first, second):  # type: ignore[no-untyped-def]
    """Sum of the products of all entries of two contiguous arrays of one shape."""
    x, y = first.reshape(first.size), second.reshape(second.size)
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@kernel
def scaled(array):  # type: ignore[no-untyped-def]
    """Array of Frobenius norm one, and the logarithm of its norm; what has none becomes zero."""
    norm = np.sqrt(dot_all(array, array))
    if norm > 0.0 and norm < np.inf:
        return array * (1.0 / norm), np.log(norm)
    peak = np.max(np.abs(array))  # squares may have left the range of numbers
    if not (peak > 0.0 and peak < np.inf):
        return np.zeros_like(array), -np.inf
    array = array / peak
    norm = np.sqrt(dot_all(array, array))
    return array / norm, np.log(norm) + np.log(peak)


@kernel
def unit_trace(gram):  # type: ignore[no-untyped-def]
    """Scale a gram in place to trace one, and half the log of its trace; zero stays zero."""
    trace = np.trace(gram)
    if not trace > 0.0:
        return gram, -np.inf
    gram /= trace
    return gram, 0.5 * np.log(trace)
