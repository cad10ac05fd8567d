"""Weighted truncation of one bond: oblique projectors that keep what both sides can see.

A bond with left factor La and right factor Ra (stacked gauge and λ · overlap of either side) is
cut to the leading singular vectors of M = La·Raᵀ: A = RaᵀV S^{-½}, B = S^{-½}UᵀLa, and A·B replaces
the identity. `by_gram` works with LaᵀLa and RaᵀRa only, `by_svd` with the factors.
"""

import numpy as np

from icgi.kernels import kernel
from icgi.tt.contract import REORDER

GRAM_TOLERANCE = 1e-14  # of squared singular values: below it a gram holds rounding only
_NEARLY_INSIDE = 1e-10  # share of a row's squared norm: less is orthogonal to ten digits only
_TERMS = 3  # sums that a row of a gram takes part in, in the start of the subspace iteration


@kernel(fastmath=REORDER)
def sketch(gram, rank):  # type: ignore[no-untyped-def]
    """Start of the subspace iteration: fixed pseudo-random sums of rows of a gram, rank × D.

    Every row takes part in _TERMS of them, so that this costs next to nothing.
    """
    size = gram.shape[0]
    out = np.zeros((rank, size))
    state = np.uint64(0x9E3779B97F4A7C15)
    for i in range(size):
        for k in range(_TERMS):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            # the first term goes round in turn: no row of the sketch stays empty
            at = i % rank if k == 0 else np.int64(state >> np.uint64(33)) % rank
            weight = np.float64(state >> np.uint64(11)) / 2.0**52 - 1.0
            row, source = out[at], gram[i]
            for j in range(size):
                row[j] += weight * source[j]
    return out


@kernel(fastmath=REORDER)
def by_gram(left, right, rank):  # type: ignore[no-untyped-def]
    """Projectors A (D, k), B (k, D) from grams; k ≤ rank; and the share of weight discarded.

    The leading subspace of right·left comes from one step of subspace iteration, and A·B is the
    left-orthogonal projector on it: no singular value decomposition. The basis lies in rows.
    """
    size = left.shape[0]
    basis = sketch(right, rank)
    moved = np.empty_like(basis)
    orthonormalise(basis)
    # One step: a second one lowers errors by a tenth and makes a pass an eighth longer, while more
    # rank for the same time would lower them more.
    np.dot(basis, left, moved)
    np.dot(moved, right, basis)
    orthonormalise(basis)
    seen = np.dot(basis, left, moved)  # k D
    # not seen·basisᵀ: equal but for rounding, and that loses three digits of a steep gram
    inverse, kept = inverse_factor(np.dot(basis, seen.T))  # kept × k
    transposed = np.dot(inverse, basis)
    b = np.dot(inverse, seen)
    total = 0.0
    for i in range(size):
        for j in range(size):
            total += left[i, j] * right[i, j]
    half = np.dot(b, right)
    held = 0.0
    a = np.empty((size, kept))
    for i in range(kept):
        # squared singular values, roughly: share them between both sides, as an SVD would
        square = 0.0
        for j in range(size):
            square += half[i, j] * b[i, j]
        held += square
        root = square**0.25 if square > 0.0 else 1.0
        for j in range(size):
            a[j, i] = transposed[i, j] * root
            b[i, j] /= root
    lost = max(0.0, 1.0 - held / total) if total > 0.0 else 0.0
    return a, b, np.sqrt(lost)


@kernel(fastmath=REORDER)
def orthonormalise(rows):  # type: ignore[no-untyped-def]
    """Make rows orthonormal in place, their span unchanged; rows of zeros stay.

    Gram–Schmidt, a second time for a row that nearly lies in the span of those before it: several
    times as fast as a library's Householder QR for matrices as small as these. A row that is inside
    that span up to rounding becomes some direction outside of it and not zero: it may still find
    weight that a gram of sixteen digits does not show.
    """
    count, size = rows.shape
    norms = np.empty(count)
    for i in range(count):
        square = 0.0
        for x in range(size):
            square += rows[i, x] * rows[i, x]
        norms[i] = square
    for i in range(count):
        square = 0.0
        for x in range(size):
            square += rows[i, x] * rows[i, x]
        if not square > _NEARLY_INSIDE * norms[i]:
            for j in range(i):
                _project_out(rows[i], rows[j])
            square = 0.0
            for x in range(size):
                square += rows[i, x] * rows[i, x]
        if not square > 0.0:
            continue
        scale = 1.0 / np.sqrt(square)
        for x in range(size):
            rows[i, x] *= scale
        for j in range(i + 1, count):
            _project_out(rows[j], rows[i])


@kernel(fastmath=REORDER)
def _project_out(row, unit):  # type: ignore[no-untyped-def]
    share = 0.0
    for x in range(len(row)):
        share += row[x] * unit[x]
    for x in range(len(row)):
        row[x] -= share * unit[x]


@kernel
def inverse_factor(matrix):  # type: ignore[no-untyped-def]
    """Rows X with X·matrix·Xᵀ = 1 on the numerical range, by Cholesky with pivoting."""
    n = matrix.shape[0]
    rows = np.zeros((n, n))  # transposed factor: row per pivot, columns in original order
    rest = np.empty(n)  # diagonal of what is left
    for i in range(n):
        rest[i] = matrix[i, i]
    chosen = np.zeros(n, np.int64)
    top = np.max(rest)
    kept = 0
    for step in range(n):
        pivot = np.argmax(rest)
        if not rest[pivot] > GRAM_TOLERANCE * top:
            break
        chosen[step] = pivot
        row = rows[step]
        for j in range(n):
            row[j] = matrix[pivot, j]
        for k in range(step):
            factor = rows[k, pivot]
            for j in range(n):
                row[j] -= factor * rows[k, j]
        root = np.sqrt(rest[pivot])
        for j in range(n):
            row[j] /= root
            rest[j] -= row[j] * row[j]
        row[pivot] = root
        for k in range(step + 1):
            rest[chosen[k]] = -1.0
        kept += 1
    if kept == 0:
        out = np.zeros((1, n))
        out[0, 0] = 1.0
        return out, 1
    inverse = np.zeros((kept, kept))
    for i in range(kept):
        inverse[i, i] = 1.0 / rows[i, chosen[i]]
        for k in range(i):
            factor = rows[k, chosen[i]] * inverse[i, i]
            for j in range(k + 1):
                inverse[i, j] -= factor * inverse[k, j]
    out = np.zeros((kept, n))
    for i in range(kept):
        for j in range(i + 1):
            out[i, chosen[j]] = inverse[i, j]
    return out, kept


@kernel
def by_svd(left, right, rank, tolerance):  # type: ignore[no-untyped-def]
    """Projectors A (D, k), B (k, D) from factors La (·, D), Ra (·, D), and the weight discarded."""
    u, s, vt = np.linalg.svd(np.dot(left, right.T), False)
    total = np.sum(s * s)
    kept = 0
    while kept < min(rank, len(s)) and s[kept] > tolerance * s[0]:
        kept += 1
    kept = max(kept, 1)
    lost = np.sum(s[kept:] * s[kept:]) / total if total > 0.0 else 0.0
    root = 1.0 / np.sqrt(np.maximum(s[:kept], 1e-300))
    a = np.dot(right.T, np.ascontiguousarray(vt[:kept].T)) * root
    b = root.reshape((kept, 1)) * np.dot(np.ascontiguousarray(u[:, :kept].T), left)
    return a, b, np.sqrt(lost)


@kernel
def triangle(matrix):  # type: ignore[no-untyped-def]
    """Factor R (at most as many rows as columns) with RᵀR = matrixᵀ·matrix."""
    if matrix.shape[0] <= matrix.shape[1]:
        return matrix
    _, r = np.linalg.qr(matrix)
    return np.ascontiguousarray(r)
