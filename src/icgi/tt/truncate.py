"""Weighted truncation of one bond: oblique projectors that keep what both sides can see.

A bond with left factor La and right factor Ra (stacked gauge and λ · overlap of either side) is
cut to the leading singular vectors of M = La·Raᵀ: A = RaᵀV S^{-½}, B = S^{-½}UᵀLa, and A·B replaces
the identity. `by_gram` works with LaᵀLa and RaᵀRa only, `by_svd` with the factors.
"""

import numba
import numpy as np

GRAM_TOLERANCE = 1e-14  # of squared singular values: below it a gram holds rounding only
_SUBSPACE_STEPS = 2  # more did not lower the error of marginals in any family


@numba.njit(cache=True, nogil=True)
def start_vectors(rows, columns):  # type: ignore[no-untyped-def]
    """Fixed pseudo-random matrix, the same on every machine: start of the subspace iteration."""
    out = np.empty((rows, columns))
    state = np.uint64(0x9E3779B97F4A7C15)
    for i in range(rows):
        for j in range(columns):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            out[i, j] = np.float64(state >> np.uint64(11)) / 2.0**52 - 1.0
    return out


@numba.njit(cache=True, nogil=True)
def by_gram(left, right, rank):  # type: ignore[no-untyped-def]
    """Projectors A (D, k), B (k, D) from grams; k ≤ rank; and the share of weight discarded.

    The leading subspace of right·left comes from a few subspace iterations, and A·B is the
    left-orthogonal projector on it: no singular value decomposition.
    """
    size = left.shape[0]
    basis = orthonormal(np.dot(right, start_vectors(size, rank)))
    for _ in range(_SUBSPACE_STEPS):
        basis = orthonormal(np.dot(right, np.dot(left, basis)))
    seen = np.dot(left, basis)  # D k
    inverse, kept = inverse_factor(np.dot(basis.T, seen))  # kept × k
    a = np.dot(basis, inverse.T)
    b = np.dot(inverse, seen.T)
    total = np.sum(left * right)
    half = np.dot(b, right)
    held = 0.0
    for i in range(kept):
        # squared singular values, roughly: share them between both sides, as an SVD would
        square = np.sum(half[i] * b[i])
        held += square
        if square > 0.0:
            root = square**0.25
            a[:, i] *= root
            b[i] /= root
    lost = max(0.0, 1.0 - held / total) if total > 0.0 else 0.0
    return a, b, np.sqrt(lost)


@numba.njit(cache=True, nogil=True)
def orthonormal(matrix):  # type: ignore[no-untyped-def]
    """Orthonormal columns with the range of a tall matrix."""
    q, _ = np.linalg.qr(matrix)
    return np.ascontiguousarray(q)


@numba.njit(cache=True, nogil=True)
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
        for j in range(i):
            total = 0.0
            for k in range(j, i):
                total += rows[k, chosen[i]] * inverse[k, j]
            inverse[i, j] = -total * inverse[i, i]
    out = np.zeros((kept, n))
    for i in range(kept):
        for j in range(i + 1):
            out[i, chosen[j]] = inverse[i, j]
    return out, kept


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def triangle(matrix):  # type: ignore[no-untyped-def]
    """Factor R (at most as many rows as columns) with RᵀR = matrixᵀ·matrix."""
    if matrix.shape[0] <= matrix.shape[1]:
        return matrix
    _, r = np.linalg.qr(matrix)
    return np.ascontiguousarray(r)
