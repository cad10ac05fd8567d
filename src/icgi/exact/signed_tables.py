"""Tables of wide numbers, each entry with a bound of its error: products, sums, scaling.

Three arrays run in parallel: H + L is the value of an entry, E bounds what rounding has done to it:

    product  E ← |a| E_b + |b| E_a + E_a E_b + u |ab|,        sum  E ← Σ E + u |each term added|,

with u = `unit`, the error of one wide operation. Scaling is by powers of two, which rounds nothing;
`FLOOR` covers what underflow can take from an entry.
"""

import math

import numpy as np

from icgi.kernels import kernel
from icgi.model.structure.wide import add, multiply, unit

FLOOR = 1e-300
ROW = 32  # entries from which a run is worth a loop that is vectorised


@kernel
def walk(tree, cards, m, begin, arity, out_dims, out_strides):  # type: ignore[no-untyped-def]
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
def copy(h, l, e, H, L, E, base, dims, strides, k):  # type: ignore[no-untyped-def]  # noqa: E741
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


@kernel
def times(h, l, e, H, L, E, base, dims, strides, k):  # type: ignore[no-untyped-def]  # noqa: E741
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
            times_row(
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
def times_row(h, l, e, bh, bl, be):  # type: ignore[no-untyped-def]  # noqa: E741
    """Multiply a row by another."""
    u = unit(h[0])
    for j in range(len(h)):
        a, size = abs(h[j]), abs(bh[j])
        e[j] = a * be[j] + (size + be[j]) * e[j] + a * size * u + FLOOR
    for j in range(len(h)):
        h[j], l[j] = multiply(h[j], l[j], bh[j], bl[j])


@kernel
def sum_into(H, L, E, base, h, l, e, dims, strides, k):  # type: ignore[no-untyped-def]  # noqa: E741
    """Add a clique to a table, summed over the axes of stride 0."""
    u = unit(h[0])
    digits = np.zeros(k, np.int64)
    inner, step = dims[k - 1], strides[k - 1]
    offset = base
    for start in range(0, len(h), inner):
        if step == 1 and inner >= ROW:
            end, to = start + inner, offset + inner
            plus_row(
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
def plus_row(h, l, e, bh, bl, be):  # type: ignore[no-untyped-def]  # noqa: E741
    """Add a row to another."""
    u = unit(h[0])
    for j in range(len(h)):
        e[j] = e[j] + be[j] + (abs(h[j]) + abs(bh[j])) * u
    for j in range(len(h)):
        h[j], l[j] = add(h[j], l[j], bh[j], bl[j])


@kernel
def fold(h, l, e):  # type: ignore[no-untyped-def]  # noqa: E741
    """Sum of a row by halves, which are overwritten."""
    n = len(h)
    while n > 16:
        half = n // 2
        plus_row(h[:half], l[:half], e[:half], h[n - half : n], l[n - half : n], e[n - half : n])
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
def scale(H, L, E, power):  # type: ignore[no-untyped-def]
    """Divide a table by a power of two, without rounding."""
    factor = 2.0**-power
    for j in range(len(H)):
        H[j] *= factor
        L[j] *= factor
        E[j] *= factor


@kernel
def power_of(H):  # type: ignore[no-untyped-def]
    """Power of two that brings the largest entry to between ½ and 1; −10000 for a zero table."""
    top = 0.0
    for value in H:
        top = max(top, abs(value))
        if not np.isfinite(value):
            return -10000
    if top == 0.0:
        return -10000
    return max(-1000, min(1000, math.frexp(top)[1]))
