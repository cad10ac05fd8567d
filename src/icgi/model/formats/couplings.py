"""Couplings of Ising models: Matrix Market matrices and the GSet graphs of maximum cut.

Matrix Market (`.mtx`): entry (i, j) is J_ij of p(s) ∝ exp Σ_{i<j} J_ij s_i s_j, positive for
ferromagnets; a symmetric matrix or one triangle of it, zeros on the diagonal. GSet (`.gset`): a
line `n m`, then m lines `i j w` counted from one; p(s) ∝ exp Σ_e w_e (1 − s_i s_j) / 2, so that a
larger cut is likelier: J = −w / 2. State 0 is s = −1.
"""

import io
import warnings
from collections.abc import Iterator

import numpy as np

from icgi.errors import ModelFormatError
from icgi.model.formats.files import AnyPath, read_bytes
from icgi.model.graph import FactorGraph, check_size
from icgi.model.ising import as_ising, ising_model


def from_matrix_market(path: AnyPath, beta: float = 1.0) -> FactorGraph:
    """Ising model of a `.mtx` file: J_ij are its entries, positive for ferromagnets, times β."""
    return parse_mtx(read_bytes(path, ModelFormatError), str(path), beta)


def from_gset(path: AnyPath, beta: float = 1.0) -> FactorGraph:
    """Ising model of a GSet file: p(s) ∝ exp β(weight of the cut between both spins)."""
    return parse_gset(read_bytes(path, ModelFormatError), str(path), beta)


def parse_mtx(data: bytes, path: str, beta: float = 1.0) -> FactorGraph:
    """Ising model whose couplings are the entries of a Matrix Market file, times β."""
    from scipy.io import mminfo, mmread

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numbers that overflow
            rows, columns = mminfo(io.BytesIO(data))[:2]
            check_size(max(int(rows), int(columns)), 2)
            matrix = mmread(io.BytesIO(data))
    except ModelFormatError as large:
        raise ModelFormatError(f"{path}: {large}") from large
    except (ValueError, OverflowError, MemoryError, TypeError, Warning) as error:
        raise ModelFormatError(
            f"{path}: no Matrix Market file that can be read ({error}); it begins with the line "
            "`%%MatrixMarket matrix coordinate real symmetric`"
        ) from error
    try:
        return ising_model(matrix, beta=beta)
    except ModelFormatError as wrong:
        raise ModelFormatError(f"{path}: {wrong}") from wrong


def format_mtx(model: FactorGraph) -> Iterator[str]:
    """Pieces of a symmetric Matrix Market file of an Ising model without fields."""
    arrays = as_ising(model)
    if arrays is None or (model.cards != 2).any() or np.abs(arrays.fields).max(initial=0) > 1e-12:
        raise ModelFormatError(
            "Matrix Market holds couplings of spins only, and this model has "
            f"{'fields' if arrays else 'other factors, zeros or states'}; write it as .uai or .json"
        )
    n = model.n_variables
    yield "%%MatrixMarket matrix coordinate real symmetric\n"
    yield "% J_ij of p(s) proportional to exp(sum of J_ij s_i s_j)\n"
    yield f"{n} {n} {len(arrays.edges)}\n"
    for (i, j), value in zip(arrays.edges.tolist(), arrays.couplings.tolist(), strict=True):
        yield f"{j + 1} {i + 1} {value!r}\n"


def parse_gset(data: bytes, path: str, beta: float = 1.0) -> FactorGraph:
    """Ising model in which a cut is likelier by exp β times its weight."""
    lines = data.decode("ascii", "replace").splitlines()
    rows = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows or len(rows[0][1]) != 2:
        raise ModelFormatError(f"{path}, line 1: a GSet file begins with `n m`, nodes and edges")
    n, m = (_whole(path, rows[0][0], word) for word in rows[0][1])
    if len(rows) - 1 != m:
        raise ModelFormatError(
            f"{path}, line {rows[0][0]}: {m} edges are announced, {len(rows) - 1} follow; was the "
            "file cut off?"
        )
    check_size(n, 2)
    edges, weights = np.empty((m, 2), np.int64), np.empty(m)
    for e, (number, words) in enumerate(rows[1:]):
        if len(words) != 3:
            raise ModelFormatError(f"{path}, line {number}: an edge is `i j weight`")
        edges[e] = [_whole(path, number, word) - 1 for word in words[:2]]
        if edges[e].min() < 0 or edges[e].max() >= n or edges[e, 0] == edges[e, 1]:
            raise ModelFormatError(
                f"{path}, line {number}: nodes are two different numbers from 1 to {n}"
            )
        weights[e] = _weight(path, number, words[2])
    model = ising_model((edges, -weights / 2), np.zeros(n), beta)
    constant = np.asarray(beta * weights.sum() / 2)
    return FactorGraph(model.cards, (*model.scopes, ()), (*model.log_tables, constant))


def _whole(path: str, line: int, word: str) -> int:
    if not word.isdecimal() or len(word) > 12:
        raise ModelFormatError(f"{path}, line {line}: found {word[:40]!r} where a number of nodes, "
                               "edges or a node should be")  # fmt: skip
    return int(word)


def _weight(path: str, line: int, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise ModelFormatError(f"{path}, line {line}: {word[:40]!r} is no finite weight")
    return value
