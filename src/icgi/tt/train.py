"""Tensor trains as plain lists of cores (d, a, b): exact operations, and rounding by SVD."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Train = Sequence[FloatArray]


def decompose(
    tensor: FloatArray, tolerance: float = 0.0, rank: int | None = None
) -> list[FloatArray]:
    """Train of a dense tensor by successive SVDs; singular values up to tolerance · largest go."""
    shape = tensor.shape
    cores = []
    rest = np.asarray(tensor, dtype=np.float64).reshape(1, -1)
    for d in shape[:-1]:
        a = rest.shape[0]
        u, s, vt = np.linalg.svd(rest.reshape(a * d, -1), full_matrices=False)
        kept = max(1, int(np.count_nonzero(s > tolerance * s[0])))
        kept = kept if rank is None else min(kept, rank)
        cores.append(np.ascontiguousarray(u[:, :kept].reshape(a, d, kept).transpose(1, 0, 2)))
        rest = s[:kept, None] * vt[:kept]
    cores.append(np.ascontiguousarray(rest.reshape(-1, shape[-1], 1).transpose(1, 0, 2)))
    return cores


def carried(tensor: FloatArray) -> list[FloatArray]:
    """Train of a dense tensor whose entries are all kept to the last digit, whatever their range.

    Cores left and right of the middle only say which of the different rows (columns) is meant.
    """
    shape = tensor.shape
    sizes = np.cumprod([1, *shape])
    middle = next(q for q in range(len(shape)) if sizes[q + 1] ** 2 >= tensor.size)
    left, right = [], []
    rest = np.asarray(tensor, dtype=np.float64).reshape(1, -1)
    for d in shape[:middle]:
        a = rest.shape[0]
        rest, which = np.unique(rest.reshape(a * d, -1), axis=0, return_inverse=True)
        left.append(_choices(which.reshape(a, d), len(rest)).transpose(1, 0, 2))
    a = rest.shape[0]
    rest = rest.reshape(-1, 1)
    for d in shape[:middle:-1]:
        b = rest.shape[1]
        columns, which = np.unique(rest.reshape(-1, d * b), axis=1, return_inverse=True)
        right.append(_choices(which.reshape(d, b), columns.shape[1]).transpose(0, 2, 1))
        rest = columns
    core = rest.reshape(a, shape[middle], -1).transpose(1, 0, 2)
    return [np.ascontiguousarray(c) for c in (*left, core, *right[::-1])]


def _choices(which: NDArray[np.int64], count: int) -> FloatArray:
    """One-hot array of chosen numbers, one more axis at the end."""
    return np.asarray(which[..., None] == np.arange(count), dtype=np.float64)


def dense(train: Train) -> FloatArray:
    """Dense tensor of a train."""
    out = np.ones((1, 1))
    shape = []
    for core in train:
        shape.append(core.shape[0])
        out = np.einsum("na,xab->nxb", out, core).reshape(-1, core.shape[2])
    return np.asarray(out.reshape(shape))


def inner(first: Train, second: Train) -> float:
    """Inner product Σ_x first(x) · second(x)."""
    over = np.ones((1, 1))
    for g, h in zip(first, second, strict=True):
        over = np.einsum("ac,xab,xcd->bd", over, g, h)
    return float(over[0, 0])


def open_sites(first: Train, second: Train, sites: Sequence[int]) -> FloatArray:
    """Inner product left open at some sites (one or more, ascending), up to a positive factor.

    p(x_sites) = Σ over the states of all other sites of first(x) · second(x).
    """
    last = sites[-1]
    right = np.ones((1, 1))
    for g, h in zip(first[:last:-1], second[:last:-1], strict=True):
        right = _unit((g @ right @ h.transpose(0, 2, 1)).sum(0))
    left = np.ones((1, 1, 1))  # s a c, for every state of the open sites so far
    for q in range(last):
        moved = first[q].transpose(0, 2, 1) @ left[:, None] @ second[q]  # s x b d
        left = _unit(moved.reshape(-1, *moved.shape[2:]) if q in sites else moved.sum(1))
    closed = first[last] @ right @ second[last].transpose(0, 2, 1)  # x a c
    out = left.reshape(len(left), -1) @ closed.reshape(len(closed), -1).T
    return np.asarray(out.reshape([first[q].shape[0] for q in sites]))


def _unit(array: FloatArray) -> FloatArray:
    """Array of largest entry one, so that long products stay within the range of numbers."""
    peak = np.abs(array).max()
    return array / peak if peak > 0 else array


def insert(train: Train, at: int, vector: FloatArray) -> list[FloatArray]:
    """Train times a function of a new site placed before site `at`."""
    bond = train[at].shape[1] if at < len(train) else 1
    core = vector[:, None, None] * np.eye(bond)
    return [*train[:at], np.asarray(core), *train[at:]]


def multiply(first: Train, second: Train) -> list[FloatArray]:
    """Product of two functions of the same sites; bonds multiply."""
    return [
        np.einsum("xab,xcd->xacbd", g, h).reshape(
            g.shape[0], g.shape[1] * h.shape[1], g.shape[2] * h.shape[2]
        )
        for g, h in zip(first, second, strict=True)
    ]


def sum_out(train: Train, at: int, weights: FloatArray | None = None) -> list[FloatArray]:
    """Train with one site summed out, absorbed by its right (or else left) neighbour."""
    core = train[at]
    matrix = np.tensordot(np.ones(core.shape[0]) if weights is None else weights, core, 1)
    rest = [*train[:at], *train[at + 1 :]]
    if at < len(rest):
        rest[at] = np.matmul(matrix, rest[at])
    elif rest:
        rest[-1] = np.matmul(rest[-1], matrix)
    else:
        rest = [matrix[None]]
    return rest


def rounded(train: Train, rank: int, tolerance: float = 0.0) -> list[FloatArray]:
    """Best train of smaller bonds in the plain norm, up to √(sites): QR one way, SVD the other."""
    cores = [np.asarray(core) for core in train]
    for q in range(len(cores) - 1, 0, -1):
        d, a, b = cores[q].shape
        unitary, r = np.linalg.qr(cores[q].transpose(0, 2, 1).reshape(d * b, a))
        cores[q] = unitary.reshape(d, b, -1).transpose(0, 2, 1)
        cores[q - 1] = np.matmul(cores[q - 1], r.T)
    for q in range(len(cores) - 1):
        d, a, b = cores[q].shape
        u, s, vt = np.linalg.svd(cores[q].reshape(d * a, b), full_matrices=False)
        kept = min(rank, max(1, int(np.count_nonzero(s > tolerance * s[0]))))
        cores[q] = u[:, :kept].reshape(d, a, kept)
        cores[q + 1] = np.matmul(s[:kept, None] * vt[:kept], cores[q + 1])
    return [np.ascontiguousarray(core) for core in cores]
