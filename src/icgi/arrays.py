"""Many pairwise models of one graph as arrays, and their answers as arrays.

No Python object per model is made: an engine with a method `arrays(batch, budget, rng, threads)`
takes the whole batch at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icgi.errors import ModelFormatError
from icgi.inference import EXACT_RESOLUTION, Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray, IntArray, assembled, real_array, starts
from icgi.model.precision import EPSILON, LARGE
from icgi.model.wiring import Wiring

_PAIR = np.array([1.0, -1.0, -1.0, 1.0])  # s_i s_j of the states 00, 01, 10, 11
_SPIN = np.array([-1.0, 1.0])


@dataclass(frozen=True, eq=False, slots=True)
class PairwiseBatch:
    """b models p(x) ∝ exp(Σ_i θ_i(x_i) + Σ_e θ_e(x_i, x_j)) of n variables of k states each.

    Made by `ising_batch` and `potts_batch`; `batch.model(m)` is one of them as a `FactorGraph`.
    """

    n_variables: int
    n_states: int
    edges: IntArray  # e 2      i < j, the same for all models
    values: FloatArray  # b v      fields (n k), then tables (e k k) of each model; finite

    def __len__(self) -> int:
        return len(self.values)

    def model(self, m: int) -> FactorGraph:
        """One of the models, with a factor for every variable and for every edge."""
        n, k = self.n_variables, self.n_states
        own = self.values[m].copy()
        own.flags.writeable = False
        fields, tables = own[: n * k].reshape(n, k), own[n * k :].reshape(-1, k, k)
        scopes = (*((i,) for i in range(n)), *map(tuple, self.edges.tolist()))
        return assembled(np.full(n, k), scopes, (*fields, *tables))

    def wiring(self, first: int = 0, last: int = 1) -> Wiring:
        """Models first … last − 1 side by side, as compiled code reads them."""
        n, k, count = self.n_variables, self.n_states, last - first
        scope = np.concatenate([np.arange(n), self.edges.ravel()])
        shift = n * np.arange(count)[:, None]  # b 1
        arity = np.tile(np.repeat([1, 2], [n, len(self.edges)]), count)
        return Wiring(
            np.full(n * count, k),
            starts(arity),
            (scope + shift).ravel(),
            starts(np.int64(k) ** arity),
            self.values[first:last].reshape(-1),
        )

    @property
    def ordinary(self) -> bool:
        """Whether doubles hold every model well: numbers as large as this need care one by one."""
        largest = float(np.abs(self.values).max(initial=0))
        return largest <= LARGE and 2 * largest * EPSILON <= EXACT_RESOLUTION


@dataclass(frozen=True, eq=False, slots=True)
class ManyMarginals:
    """Answers to a batch of models; index it for one of them."""

    probs: FloatArray  # b n k
    log_z: FloatArray  # b      NaN where the engine has no estimate
    status: tuple[Status, ...]  # b
    stats: Mapping[str, FloatArray] = field(default_factory=dict)  # b
    engine: str = ""
    seconds: float = 0.0  # of all models together

    def __len__(self) -> int:
        return len(self.probs)

    def __getitem__(self, m: int) -> Marginals:
        """Answer to one of the models."""
        log_z = float(self.log_z[m])
        stats = {name: float(values[m]) for name, values in self.stats.items()}
        return Marginals(
            self.probs[m], self.status[m], None if np.isnan(log_z) else log_z, stats=stats
        )


def ising_batch(
    couplings: Any,
    fields: ArrayLike | None = None,
    beta: ArrayLike = 1.0,
    edges: ArrayLike | None = None,
) -> PairwiseBatch:
    """Many Ising models p(s) ∝ exp β(Σ_{i<j} J_ij s_i s_j + Σ_i h_i s_i); state 0 is s = −1.

    Parameters
    ----------
    couplings
        b × n × n symmetric matrices (or upper triangles) J, or b × e with `edges`; numpy or torch.
    fields
        b × n, or n for all, or nothing.
    beta
        A number, or one for each model.
    edges
        e × 2; without it, all pairs with a coupling in any model.
    """
    J = _array(couplings, "the couplings")
    n_matrix = J.shape[-1] if J.ndim else 0
    if edges is None:
        pairs, J = _pairs_of(J, J.ndim == 3 and J.shape[1] == J.shape[2], "b × n × n")
    else:
        pairs = _edges(edges)
        if J.ndim != 2 or J.shape[1] != len(pairs):
            raise ModelFormatError(
                f"couplings of shape {J.shape} for {len(pairs)} edges; give b × e"
            )
    counts = [n_matrix] if edges is None else []
    h = np.asarray(0.0) if fields is None else _array(fields, "the fields")
    n = _count(pairs, *counts, *h.shape[-1:])
    scale = _scale(beta, len(J))
    site = _whole_shape(h, (len(J), n), "fields")[..., None] * _SPIN  # b n k
    tables = J[..., None] * _PAIR  # b e 4
    return _batch(n, 2, pairs, site, tables, scale)


def potts_batch(
    fields: ArrayLike, couplings: ArrayLike, beta: ArrayLike = 1.0, edges: ArrayLike | None = None
) -> PairwiseBatch:
    """Many models p(x) ∝ exp β(Σ_i h[i, x_i] + Σ_{i<j} J[i, j, x_i, x_j]) of one graph.

    Parameters
    ----------
    fields
        b × n × q.
    couplings
        b × n × n × q × q, of which J[i, j] with i < j is read and J[j, i] has to be its transpose
        or zero; or b × e × q × q with `edges`.
    """
    h, J = _array(fields, "the fields"), _array(couplings, "the couplings")
    if h.ndim != 3:
        raise ModelFormatError(f"fields of shape {h.shape}; give b × n × q")
    count, n, q = h.shape
    if edges is None:
        pairs, J = _pairs_of(J, J.shape == (count, n, n, q, q), f"{count} × {n} × {n} × {q} × {q}")
    else:
        pairs = _edges(edges)
    if J.shape != (count, len(pairs), q, q):
        raise ModelFormatError(
            f"couplings of shape {J.shape} for {count} models of {len(pairs)} edges and {q} "
            "states; give b × e × q × q"
        )
    _count(pairs, n)
    return _batch(n, q, pairs, h, J, _scale(beta, count))


def _batch(
    n: int, k: int, edges: IntArray, site: FloatArray, tables: FloatArray, scale: FloatArray
) -> PairwiseBatch:
    count = len(site)
    size = len(edges) * k * k
    values = np.concatenate([site.reshape(count, n * k), tables.reshape(count, size)], axis=1)
    values *= scale[:, None]
    if not np.isfinite(values).all():
        raise ModelFormatError(
            "couplings, fields or beta hold infinite or NaN entries; a batch holds finite numbers: "
            "give models with impossible states one by one"
        )
    swapped = edges[:, 0] > edges[:, 1]
    if swapped.any():
        blocks = values[:, n * k :].reshape(count, len(edges), k, k)
        blocks[:, swapped] = blocks[:, swapped].transpose(0, 1, 3, 2)
    values.flags.writeable = False
    return PairwiseBatch(n, k, np.sort(edges, axis=1), values)


def _array(given: Any, what: str) -> FloatArray:
    """Array of doubles of anything, also of a tensor of torch on any device."""
    if hasattr(given, "detach"):
        given = given.detach().cpu().numpy()
    return real_array(given, what)


def _pairs_of(J: FloatArray, sound: bool, shape: str) -> tuple[IntArray, FloatArray]:
    """Pairs that interact in any model, and their couplings."""
    if not sound:
        raise ModelFormatError(f"couplings of shape {J.shape}; give {shape}, or edges as well")
    used = (J != 0).any((0, *range(3, J.ndim)))  # n n
    if used.diagonal().any():
        if not np.isfinite(J).all():
            raise ModelFormatError("couplings hold infinite or NaN entries; give finite numbers")
        raise ModelFormatError(
            "couplings of a variable with itself; set the diagonals of all matrices to zero"
        )
    lower, upper = np.tril(used, -1).any(), np.triu(used, 1).any()
    mirrored = J.swapaxes(1, 2) if J.ndim == 3 else J.transpose(0, 2, 1, 4, 3)
    if lower and upper and not np.allclose(J, mirrored, rtol=1e-6 if J.size else 0, atol=0):
        raise ModelFormatError(
            "couplings differ between the two triangles of a matrix; give symmetric ones, or one "
            "triangle with the other left zero"
        )
    i, j = np.nonzero(np.triu(used | used.T, 1))
    taken = J if upper else mirrored
    return np.stack([i, j], 1), np.ascontiguousarray(taken[:, i, j])


def _edges(given: ArrayLike) -> IntArray:
    pairs = np.asarray(_array(given, "the edges"))
    whole = pairs.astype(np.int64)
    if pairs.size == 0:
        return whole.reshape(0, 2)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or (whole != pairs).any() or whole.min() < 0:
        raise ModelFormatError(
            f"edges of shape {pairs.shape}; give e × 2 numbers of variables, counted from 0"
        )
    keys = np.sort(whole, axis=1)
    if (keys[:, 0] == keys[:, 1]).any() or len(np.unique(keys, axis=0)) < len(keys):
        raise ModelFormatError("an edge joins a variable with itself, or comes twice; merge them")
    return whole


def _count(edges: IntArray, *counts: int) -> int:
    """Number of variables, on which everything given agrees."""
    least = int(edges.max(initial=-1)) + 1
    n = counts[0] if counts else least
    if n < least or (set(counts) != {n} and counts):
        raise ModelFormatError(
            f"fields and couplings are of different numbers of variables: {[*counts, least]}"
        )
    return n


def _whole_shape(given: FloatArray, shape: tuple[int, ...], what: str) -> FloatArray:
    try:
        return np.broadcast_to(given, shape)
    except ValueError as error:
        raise ModelFormatError(
            f"{what} of shape {given.shape} for {shape[0]} models of {shape[1]} variables"
        ) from error


def _scale(beta: ArrayLike, count: int) -> FloatArray:
    given = _array(beta, "beta")
    if given.shape not in ((), (count,)):
        raise ModelFormatError(
            f"{given.shape} values of beta for {count} models; give one or {count}"
        )
    return np.broadcast_to(given, count)
