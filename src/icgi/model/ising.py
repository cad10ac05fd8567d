"""Ising and Potts models as factor graphs, and the way back.

One convention everywhere: state 0 is spin −1, state 1 is spin +1, and
p(s) ∝ exp β(Σ_{i<j} J_ij s_i s_j + Σ_i h_i s_i). Couplings are positive for ferromagnets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from icgi.errors import ModelFormatError
from icgi.model.graph import (
    LARGEST_LOG,
    FactorGraph,
    Flat,
    FloatArray,
    IntArray,
    assembled,
    check_size,
    real_array,
    sound_logs,
    starts,
)
from icgi.model.wiring import Wiring, wiring

_Numbers = TypeVar("_Numbers", IntArray, FloatArray)
_PAIR = np.array([[1.0, -1.0], [-1.0, 1.0]])  # s_i s_j
_SPIN = np.array([-1.0, 1.0])  # s_i


def ising_model(
    J: Any,
    h: ArrayLike | None = None,
    beta: float = 1.0,
    names: Sequence[str] | None = None,
) -> FactorGraph:
    """Ising model on the given couplings: one factor per non-zero field, then one per edge.

    Parameters
    ----------
    J
        A symmetric matrix or one triangle of it, dense or scipy.sparse, zero meaning no edge; or
        the pair `(edges, couplings)` of shapes m × 2 and m, whose edges stay even at zero coupling.
    h
        One field per spin, or one number for all. With `(edges, couplings)` its length, or that of
        `names`, says how many spins there are; without both, the largest number in `edges` does.
    """
    if isinstance(J, tuple):
        edges, couplings = _edge_list(*J)
        n = _count(edges, h, names)
    else:
        edges, couplings, n = _triangle(J)
    field = real_array(0.0 if h is None else h, "the list of fields")
    if field.shape not in ((), (n,)):
        raise ModelFormatError(f"fields of shape {field.shape} for {n} spins; give one per spin")
    fields = np.broadcast_to(field, n)
    _check_finite(couplings, "couplings")
    _check_finite(fields, "fields")
    sites = np.flatnonzero(fields)
    unary = _scaled(beta, fields[sites], "fields")[:, None] * _SPIN  # u k
    pairs = _scaled(beta, couplings, "couplings")[:, None, None] * _PAIR  # e k k
    return _assemble(np.full(n, 2), sites, unary, edges, pairs, names)


def potts_model(
    edges: ArrayLike,
    couplings: ArrayLike,
    fields: ArrayLike | None = None,
    n_states: int | None = None,
    beta: float = 1.0,
    names: Sequence[str] | None = None,
) -> FactorGraph:
    """p(x) ∝ exp β(Σ_e J_e(x_i, x_j) + Σ_i h_i(x_i)) over variables of q states each.

    Parameters
    ----------
    couplings
        A number or one per edge, for J_e δ(x_i, x_j); or a q × q table, or one per edge; −inf
        forbids.
    fields
        n × q. Its shape says n and q; without it the tables or `n_states` say q.
    """
    pairs = _edges(edges)
    values = real_array(couplings, "the array of couplings")
    field = None if fields is None else real_array(fields, "the array of fields")
    if field is not None and field.ndim != 2:
        raise ModelFormatError(
            f"fields of shape {field.shape}; give one row of states per variable"
        )
    q = _potts_states(values, field, n_states)
    n = len(field) if field is not None else _count(pairs, None, names)
    if values.ndim < 2:
        values = np.where(np.eye(q, dtype=bool), values[..., None, None], 0.0)
    if values.shape not in ((q, q), (len(pairs), q, q)):
        raise ModelFormatError(
            f"couplings of shape {values.shape} for {len(pairs)} edges of {q} states; give a "
            "number or a q × q table, for all edges or for each"
        )
    if not (values < np.inf).all():
        raise ModelFormatError("couplings hold +inf or NaN entries; −inf forbids")
    shifts = np.zeros((n, q)) if field is None else field
    _check_finite(shifts, "fields")
    tables = _scaled(beta, np.broadcast_to(values, (len(pairs), q, q)), "couplings")  # e k k
    sites = np.flatnonzero(shifts.any(1))
    unary = _scaled(beta, shifts[sites], "fields")  # u k
    return _assemble(np.full(n, q), sites, unary, pairs, tables, names)


@dataclass(frozen=True, slots=True, eq=False)
class IsingArrays:
    """p(s) ∝ exp(constant + Σ_e J_e s_i s_j + Σ_i h_i s_i), β included, over all s ∈ {−1, 1}ⁿ.

    A variable of one state is a spin without field or edges, and −log 2 in the constant: the sum
    over all spins is the model's Z, but the variable's own marginal is not ½.
    """

    edges: IntArray  # e 2      i < j, each pair once, sorted
    couplings: FloatArray  # e
    fields: FloatArray  # n
    constant: float


def as_ising(model: FactorGraph) -> IsingArrays | None:
    """Couplings and fields of a binary pairwise model without zeros; None for any other model.

    θ(x_i, x_j) = c + h_i s_i + h_j s_j + J s_i s_j holds for every 2 × 2 table; parallel edges add.
    """
    return ising_arrays(wiring(model))


def ising_arrays(w: Wiring) -> IsingArrays | None:
    """`as_ising` of a model that has been read into flat arrays."""
    arity = np.diff(w.scope_start)
    plain = arity.max(initial=0) <= 2 and (w.cards <= 2).all() and (w.cards[w.scope] == 2).all()
    if not plain or not np.isfinite(w.values).all():
        return None
    ends, starts = w.scope_start[:-1], w.table_start[:-1]
    single = np.flatnonzero(arity == 1)
    site = w.scope[ends[single]]
    a = _rows(w.values, starts[single], 2)  # u k
    double = np.flatnonzero(arity == 2)
    pair = _rows(w.scope, ends[double], 2)  # e 2
    b = _rows(w.values, starts[double], 4)  # e 4    00, 01, 10, 11
    up, across = b[:, 3] - b[:, 0], b[:, 2] - b[:, 1]  # differences first: symmetric tables give 0
    n = len(w.cards)
    fields = _sums(site, (a[:, 1] - a[:, 0]) / 2, n)
    fields += _sums(pair[:, 0], (up + across) / 4, n)
    fields += _sums(pair[:, 1], (up - across) / 4, n)
    coupling = ((b[:, 0] - b[:, 1]) + (b[:, 3] - b[:, 2])) / 4
    edges, couplings = _merge(pair, coupling, n)
    constant = w.values[starts[arity == 0]].sum() + a.sum() / 2 + b.sum() / 4
    constant -= math.log(2.0) * np.count_nonzero(w.cards == 1)
    return IsingArrays(edges, couplings, fields, float(constant))


def _rows(values: _Numbers, start: IntArray, width: int) -> _Numbers:
    """So many numbers from each start; a view where they follow each other, as they mostly do.

    Starts are ascending and at least so far apart.
    """
    if len(start) and start[-1] - start[0] == width * (len(start) - 1):
        return np.asarray(values[start[0] : start[-1] + width].reshape(-1, width))
    return np.asarray(values[start[:, None] + np.arange(width)])


def _merge(pair: IntArray, coupling: FloatArray, n: int) -> tuple[IntArray, FloatArray]:
    keys = pair.min(1) * n + pair.max(1)
    if (keys[1:] > keys[:-1]).all():  # sorted and each once, as generators and `ising_model` write
        ordered = bool((pair[:, 0] < pair[:, 1]).all())
        return pair.copy() if ordered else np.sort(pair, 1), coupling
    keys, group = np.unique(keys, return_inverse=True)
    edges = np.stack([keys // max(n, 1), keys % max(n, 1)], 1).astype(np.int64)
    return edges, _sums(group, coupling, len(keys))


def _sums(group: IntArray, values: FloatArray, count: int) -> FloatArray:
    return np.asarray(np.bincount(group, values, count), dtype=np.float64)


def _assemble(
    cards: IntArray,
    sites: IntArray,
    unary: FloatArray,
    edges: IntArray,
    pairs: FloatArray,
    names: Sequence[str] | None,
) -> FactorGraph:
    """Build the graph from all tables at once; each factor's table is a view."""
    values = np.concatenate([unary.ravel(), pairs.ravel()])
    values.flags.writeable = False
    split = unary.size
    unary, pairs = values[:split].reshape(unary.shape), values[split:].reshape(pairs.shape)
    first, second = edges.T.tolist() if len(edges) else ((), ())
    scopes = (*zip(sites.tolist(), strict=True), *zip(first, second, strict=True))
    within = not len(edges) or (edges.min() >= 0 and edges.max() < len(cards))
    if names is None and within and (edges[:, 0] != edges[:, 1]).all():
        arity = np.repeat([1, 2], [len(sites), len(edges)])
        sizes = np.repeat([unary[:1].size, pairs[:1].size], [len(sites), len(edges)])
        scope = np.concatenate([sites, edges.ravel()]).astype(np.int64)
        flat = Flat(starts(arity), scope, starts(sizes), values)
        # values were checked all at once
        return assembled(cards, scopes, (*unary, *pairs), flat=flat)
    return FactorGraph(
        cards, scopes, (*unary, *pairs), names=None if names is None else tuple(names)
    )


def _edge_list(edges: ArrayLike, couplings: ArrayLike) -> tuple[IntArray, FloatArray]:
    pairs = _edges(edges)
    values = real_array(couplings, "the list of couplings")
    if values.shape not in ((), (len(pairs),)):
        raise ModelFormatError(
            f"{values.shape} couplings for {len(pairs)} edges; give one per edge or one number"
        )
    return pairs, np.broadcast_to(values, len(pairs))


def _edges(given: ArrayLike) -> IntArray:
    try:
        pairs = np.asarray(given)
    except ValueError as error:
        raise ModelFormatError(f"edges are no array: {error}; give m × 2 whole numbers") from error
    pairs = pairs.reshape(-1, 2).astype(np.int64) if pairs.size == 0 else pairs
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ModelFormatError(
            f"edges of shape {pairs.shape} and type {pairs.dtype}; give m × 2 whole numbers"
        )
    return pairs.astype(np.int64, copy=False)


def _triangle(matrix: Any) -> tuple[IntArray, FloatArray, int]:
    """Upper triangle of a symmetric matrix, or of the matrix that one triangle stands for."""
    sparse = hasattr(matrix, "tocoo")
    given: Any = (
        matrix.tocoo(copy=True) if sparse else real_array(matrix, "the matrix of couplings")
    )
    if given.shape == (0,):  # an empty list: no spins
        given = given.reshape(0, 0)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise ModelFormatError(
            f"couplings of shape {given.shape}; give a square matrix or (edges, couplings)"
        )
    n = int(given.shape[0])
    if sparse:
        given.sum_duplicates()
        row, column, value = given.row.astype(np.int64), given.col.astype(np.int64), given.data
    else:
        row, column = np.nonzero(given)
        value = given[row, column]
    keep = value != 0
    row, column = row[keep], column[keep]
    value = real_array(value[keep], "the matrix of couplings")
    _check_finite(value, "couplings")
    if (row == column).any():
        i = row[row == column][0]
        raise ModelFormatError(
            f"couplings have an entry at ({i}, {i}), where s_i s_i = 1 is no interaction; "
            "set the diagonal to zero"
        )
    above, below = row < column, row > column
    edges, couplings = _sorted(row[above], column[above], value[above], n)
    mirrored, again = _sorted(column[below], row[below], value[below], n)
    if not len(again):
        return edges, couplings, n
    if not len(couplings):
        return mirrored, again, n
    if not np.array_equal(edges, mirrored) or not np.allclose(couplings, again, rtol=1e-12, atol=0):
        raise ModelFormatError(
            "couplings differ between the two triangles of the matrix; give a symmetric matrix "
            "(J + J.T counts each pair once here) or one triangle with the other left zero"
        )
    return edges, couplings, n


def _sorted(
    row: IntArray, column: IntArray, value: FloatArray, n: int
) -> tuple[IntArray, FloatArray]:
    order = np.argsort(row * n + column, kind="stable")
    return np.stack([row[order], column[order]], 1), value[order]


def _count(edges: IntArray, h: ArrayLike | None, names: Sequence[str] | None) -> int:
    if h is not None and np.ndim(h):
        return len(np.asarray(h))
    n = len(names) if names is not None else int(edges.max(initial=-1)) + 1
    check_size(n, 2)
    return n


def _potts_states(values: FloatArray, field: FloatArray | None, n_states: int | None) -> int:
    found = {n_states} if n_states is not None else set()
    if field is not None:
        found.add(field.shape[1])
    if values.ndim >= 2:
        found.add(values.shape[-1])
    if len(found) != 1:
        given = ", ".join(map(str, sorted(found))) or "nothing"
        raise ModelFormatError(
            f"the number of states is given as {given}; give it once, by the width of `fields`, "
            "by the tables of `couplings` or as `n_states`"
        )
    q = found.pop()
    if not isinstance(q, int | np.integer) or q < 1:
        raise ModelFormatError(f"the number of states is given as {q}; give at least 1")
    return int(q)


def _scaled(beta: float, values: FloatArray, what: str) -> FloatArray:
    """Return β times the values; refuse a product that no log table can hold."""
    if not np.isfinite(beta):
        raise ModelFormatError(f"beta is {beta}; give a finite number")
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.asarray(beta * values)
    if not sound_logs(product):
        raise ModelFormatError(
            f"beta = {beta:g} times {what} goes beyond ±{LARGEST_LOG:g} or is no number; give "
            "smaller ones"
        )
    return product


def _check_finite(values: FloatArray, what: str) -> None:
    if not np.isfinite(values).all():
        raise ModelFormatError(f"{what} hold infinite or NaN entries; give finite numbers")
