"""Directions in which the slices of a table along one axis combine to products.

With two states there are at most two, roots of a quadratic of any 2×2 block; with more they are
nested sets of states. Both are looked for in doubles: a guess, which `fit` makes exact or refutes.
"""

import numpy as np

from icgi.kernels import kernel
from icgi.model.structure.wide import add, divide, multiply, root

SNAP = 1e-6  # directions this close to 0 or ±1 are tried as 0 or ±1 first
ROUGH = 1e-9  # relative to the largest entry: the first test of a product
FAINT = 1e-60  # relative to that, too: the fourth power of smaller entries is none


@kernel
def nested_sets(rows, rest):  # type: ignore[no-untyped-def]
    """Sets of states, each one larger than the last or new, whose sums of slices are products."""
    card = rows.shape[0]
    basis = np.zeros((card, card))
    used = np.zeros(card, np.bool_)
    current = np.zeros(rows.shape[1])
    member = np.zeros(card)
    chosen = 0
    while chosen < card:
        found = -1
        for x in range(card):
            if not used[x] and is_product(current + rows[x], rest):
                found = x
                break
        if found < 0 and chosen > 0:
            for x in range(card):
                if not used[x] and is_product(rows[x], rest):
                    found = x
                    current[:] = 0.0
                    member[:] = 0.0
                    break
        if found < 0:
            return basis, chosen
        used[found] = True
        member[found] = 1.0
        current += rows[found]
        basis[chosen] = member
        chosen += 1
    return basis, chosen


@kernel
def pencil(rows, rest):  # type: ignore[no-untyped-def]
    """Two directions in which two slices combine to a product, if one 2×2 block allows any.

    det(α M₀ + β M₁) = c₀ α² + c₁ αβ + c₂ β² of the block with the best separated roots among the
    first ones; first slice −1 where there is no such block, or its roots are complex.
    """
    card, total = rows.shape
    n = len(rest)
    stride = np.ones(n, np.int64)
    for a in range(n - 2, -1, -1):
        stride[a] = stride[a + 1] * rest[a + 1]
    best, looked = 0.0, 0
    c0 = c1 = c2 = 0.0
    l0 = l1 = l2 = 0.0
    first = second = -1
    for other in range(1, card):
        for k in range(n - 1):
            for l in range(k + 1, n):  # noqa: E741
                for corner in range(total):
                    if best > 0.05 or looked > 4096:
                        break
                    xk, xl = corner // stride[k] % rest[k], corner // stride[l] % rest[l]
                    if xk == 0 or xl == 0:
                        continue
                    looked += 1
                    j00 = corner - xk * stride[k] - xl * stride[l]
                    j01, j10 = j00 + xl * stride[l], j00 + xk * stride[k]
                    a, b = rows[0], rows[other]
                    size = max(
                        max(max(a[j00], a[j01]), max(a[j10], a[corner])),
                        max(max(b[j00], b[j01]), max(b[j10], b[corner])),
                    )
                    if size < FAINT:
                        continue
                    d0, e0 = _det(a[j00], a[corner], a[j01], a[j10])
                    d2, e2 = _det(b[j00], b[corner], b[j01], b[j10])
                    p, q = _det(a[j00], b[corner], a[j01], b[j10])
                    r, s = _det(b[j00], a[corner], b[j01], a[j10])
                    d1, e1 = add(p, q, r, s)
                    largest = max(abs(d0), max(abs(d1), abs(d2)))
                    if largest < 1e-10 * size**2:
                        continue  # a product whatever the direction, up to rounding
                    square = d1 * d1 - 4.0 * d0 * d2
                    if square < -1e-3 * largest**2:
                        return np.empty((0, 0)), np.empty((0, 0)), -1, -1
                    score = square / size**4
                    if score > best and square > 1e-6 * largest**2:
                        best, first, second = score, 0, other
                        c0, c1, c2, l0, l1, l2 = d0, d1, d2, e0, e1, e2
        if first >= 0:
            break
    if first < 0:
        return np.empty((0, 0)), np.empty((0, 0)), -1, -1
    # c₂ β² + c₁ β + c₀ without cancellation: q = −(c₁ ± √(c₁² − 4 c₀ c₂)) / 2
    sh, sl = multiply(c1, l1, c1, l1)
    ph, pl = multiply(4.0 * c0, 4.0 * l0, c2, l2)
    sh, sl = add(sh, sl, -ph, -pl)
    sh, sl = root(sh, sl)
    if c1 < 0.0:
        sh, sl = -sh, -sl
    qh, ql = add(c1, l1, sh, sl)
    qh, ql = -0.5 * qh, -0.5 * ql
    basis, low = np.empty((2, 2)), np.empty((2, 2))
    basis[0, 0], low[0, 0], basis[0, 1], low[0, 1] = c2, l2, qh, ql
    basis[1, 0], low[1, 0], basis[1, 1], low[1, 1] = qh, ql, c0, l0
    for i in range(2):
        j = 0 if abs(basis[i, 0]) >= abs(basis[i, 1]) else 1
        h, l = basis[i, j], low[i, j]  # noqa: E741
        basis[i, 1 - j], low[i, 1 - j] = divide(basis[i, 1 - j], low[i, 1 - j], h, l)
        basis[i, j], low[i, j] = 1.0, 0.0
    return basis, low, first, second


@kernel
def _det(a, b, c, d):  # type: ignore[no-untyped-def]
    """A · b − c · d in wide arithmetic."""
    ph, pl = multiply(a, 0.0, b, 0.0)
    qh, ql = multiply(c, 0.0, d, 0.0)
    return add(ph, pl, -qh, -ql)


@kernel
def snapped(basis):  # type: ignore[no-untyped-def]
    """Directions with entries close to 0 or ±1 rounded to these."""
    out = basis.copy()
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for value in (-1.0, 0.0, 1.0):
                if abs(out[i, j] - value) < SNAP:
                    out[i, j] = value
    return out


@kernel
def is_plain(basis):  # type: ignore[no-untyped-def]
    """Whether all entries are 0 or ±1: such directions are no coincidence of numbers."""
    return np.all((basis == 0.0) | (np.abs(basis) == 1.0))


@kernel
def is_product(values, rest):  # type: ignore[no-untyped-def]
    """Whether a table is a product of functions of its variables, roughly; leaves early if not."""
    n = len(rest)
    pivot = pivot_of(values)
    if values[pivot] == 0.0:
        return False
    inner = rest[n - 1]
    origin = pivot - pivot % inner  # the row along the last axis that holds the pivot
    for start in range(0, len(values), inner):
        ratio = values[start + pivot % inner] / values[pivot]
        for x in range(inner):
            if abs(values[start + x] - ratio * values[origin + x]) > ROUGH * abs(values[pivot]):
                return False
    if n <= 2:
        return True
    outer = np.empty(len(values) // inner)
    for j in range(len(outer)):
        outer[j] = values[j * inner + pivot % inner]
    rest_dims, at = rest[: n - 1], len(outer)
    while len(rest_dims) > 1:
        last = rest_dims[len(rest_dims) - 1]
        pivot = pivot_of(outer[:at])
        origin = pivot - pivot % last
        for start in range(0, at, last):
            ratio = outer[start + pivot % last] / outer[pivot]
            for x in range(last):
                if abs(outer[start + x] - ratio * outer[origin + x]) > ROUGH * abs(outer[pivot]):
                    return False
        for j in range(at // last):
            outer[j] = outer[j * last + pivot % last]
        at //= last
        rest_dims = rest_dims[: len(rest_dims) - 1]
    return True


@kernel
def pivot_of(values):  # type: ignore[no-untyped-def]
    """Where the entry of largest size is."""
    best, at = -1.0, 0
    for j in range(len(values)):
        if abs(values[j]) > best:
            best, at = abs(values[j]), j
    return at
