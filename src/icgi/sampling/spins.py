"""Ising models: heat-bath sweeps on incremental local fields.

A spin becomes +1 iff 2λ f_i > log(u/(1−u)), f_i = h_i + Σ_j J_ij s_j. Thresholds of a sweep are
drawn at once, fields are kept up to date, so a spin that stays costs a comparison and a spin that
flips costs its degree. Fields are float32 and rebuilt from the spins every few sweeps.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from icgi.kernels import kernel
from icgi.model.graph import FloatArray
from icgi.model.ising import IsingArrays
from icgi.sampling.choice import Index
from icgi.sampling.streams import fill_logits, fill_words

DENSE_SHARE = 1 / 16  # matrix rows are faster than neighbour lists from about this density on
DENSE_LIMIT = 4096  # spins up to which the matrix is built
BLOCK = 16  # spins looked at together: where none wants to flip, the block is passed over
_FAST = {"reassoc", "contract", "nsz", "arcp"}


class Spins(NamedTuple):
    """Couplings as neighbour lists, and as a matrix where that is faster."""

    fields: FloatArray  # n
    start: Index  # n+1  where each spin's neighbours begin
    neighbour: NDArray[np.uint32]
    coupling: NDArray[np.float32]
    matrix: NDArray[np.float32]  # n n, or empty


class SpinState(NamedTuple):
    """Replicas of an Ising model."""

    x: NDArray[np.int32]  # replicas × n, 1 for spin +1
    field: NDArray[np.float32]  # replicas × n


class SpinScratch(NamedTuple):
    """Thresholds of one sweep, and the random words they are made from."""

    words: NDArray[np.uint64]
    logits: NDArray[np.float32]  # n, padded to even


def spins(arrays: IsingArrays) -> Spins:
    """Arrange couplings for the kernels."""
    from scipy.sparse import coo_array

    n = len(arrays.fields)
    low, high = arrays.edges.T
    # edges are sorted, so smaller neighbours first leaves every row sorted, in linear time
    ends = np.concatenate([high, low]), np.concatenate([low, high])
    weight = np.concatenate([arrays.couplings, arrays.couplings]).astype(np.float32)
    rows = coo_array((weight, ends), shape=(n, n)).tocsr()
    matrix = np.zeros((0, 0), np.float32)
    if n <= DENSE_LIMIT and len(weight) > DENSE_SHARE * n * n:
        matrix = rows.toarray()
    return Spins(
        arrays.fields,
        rows.indptr.astype(np.uint64),
        rows.indices.astype(np.uint32),
        rows.data,
        matrix,
    )


def state(model: Spins, x: NDArray[np.int32]) -> SpinState:
    """Replicas in the given states, one row each."""
    made = SpinState(np.ascontiguousarray(x), np.empty(x.shape, np.float32))
    _refresh_all(model, made)
    return made


def scratch(model: Spins) -> SpinScratch:
    """Buffers of one thread."""
    words = np.empty((len(model.fields) + 1) // 2, np.uint64)
    return SpinScratch(words, np.empty(2 * len(words), np.float32))


def reach(model: Spins) -> FloatArray:
    """Difference between the largest and the smallest p(s_i = +1 | rest) over all the rest."""
    sums = np.concatenate([[0.0], np.cumsum(np.abs(model.coupling.astype(np.float64)))])
    pull = sums[model.start[1:]] - sums[model.start[:-1]]  # n  Σ_j |J_ij|
    return np.asarray(expit(2 * (model.fields + pull)) - expit(2 * (model.fields - pull)))


@kernel(fastmath=_FAST)
def refresh(model, state, r):  # type: ignore[no-untyped-def]
    """Rebuild a replica's fields from its spins, which removes the rounding of many flips."""
    x = state.x[r]
    field = state.field[r]
    n = len(x)
    if len(model.matrix):
        for i in range(n):
            row = model.matrix[i]
            total = np.float32(0.0)
            for j in range(n):
                total += row[j] * np.float32(2 * x[j] - 1)
            field[i] = np.float32(model.fields[i]) + total
        return
    for i in range(n):
        total = np.float32(0.0)
        for q in range(model.start[i], model.start[i + 1]):
            total += model.coupling[q] * np.float32(2 * x[model.neighbour[q]] - 1)
        field[i] = np.float32(model.fields[i]) + total


@kernel
def _refresh_all(model, state):  # type: ignore[no-untyped-def]
    for r in range(len(state.x)):
        refresh(model, state, r)


@kernel(inline="always")
def _flip(model, x, field, i, dense):  # type: ignore[no-untyped-def]
    change = np.float32(2 - 4 * x[i])
    x[i] = 1 - x[i]
    if dense:
        row = model.matrix[i]
        for j in range(len(x)):
            field[j] += change * row[j]
    else:
        for q in range(model.start[i], model.start[i + 1]):
            field[model.neighbour[q]] += change * model.coupling[q]


@kernel
def assign(model, state, r, i, value):  # type: ignore[no-untyped-def]
    """Set one spin and the fields around it."""
    x = state.x[r]
    if x[i] != value:
        _flip(model, x, state.field[r], i, len(model.matrix) > 0)


@kernel(fastmath=_FAST)
def weigh(model, state, r):  # type: ignore[no-untyped-def]
    """Σ_e J_e s_i s_j + Σ_i h_i s_i = Σ_i s_i (f_i + h_i) / 2, and no violations."""
    x = state.x[r]
    field = state.field[r]
    total = 0.0
    for i in range(len(x)):
        total += (2 * x[i] - 1) * (np.float64(field[i]) + model.fields[i])
    return 0.5 * total, 0


@kernel
def sweep(model, state, r, scale, hard, stream, scratch, local, record):  # type: ignore[no-untyped-def]
    """One heat-bath pass at weights λ θ; `local` receives p(s_i = +1 | rest) where asked for."""
    x = state.x[r]
    field = state.field[r]
    logits = scratch.logits
    fill_words(stream.counter, scratch.words)
    fill_logits(scratch.words.view(np.uint32), logits)
    twice = np.float32(2.0 * scale)
    dense = len(model.matrix) > 0
    n = len(x)
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        if record:
            for i in range(begin, end):
                pull = twice * field[i]
                local[i] = 1.0 / (1.0 + math.exp(-np.float64(pull)))
                if np.int32(pull > logits[i]) != x[i]:
                    _flip(model, x, field, i, dense)
        elif end - begin < BLOCK or _any_flip(x, field, logits, twice, begin):
            for i in range(begin, end):
                if np.int32(twice * field[i] > logits[i]) != x[i]:
                    _flip(model, x, field, i, dense)


@kernel
def _any_flip(x, field, logits, twice, begin):  # type: ignore[no-untyped-def]
    """Whether any spin of a block would flip; of fixed length, so that it is a few instructions."""
    found = np.int32(0)
    for k in range(BLOCK):
        i = begin + k
        found |= np.int32(twice * field[i] > logits[i]) ^ x[i]
    return found != 0
