"""Couplings of Ising models: Matrix Market matrices and the GSet graphs of maximum cut.

Matrix Market (`.mtx`): entry (i, j) is J_ij of p(s) ∝ exp Σ_{i<j} J_ij s_i s_j, positive for
ferromagnets; a symmetric matrix or one triangle of it, zeros on the diagonal. It is read here, line
by line: a damaged file can end scipy's reader, and the process with it. GSet (`.gset`): a
line `n m`, then m lines `i j w` counted from one; p(s) ∝ exp Σ_e w_e (1 − s_i s_j) / 2, so that a
larger cut is likelier: J = −w / 2. State 0 is s = −1.
"""

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
    from scipy.sparse import coo_array

    rows = _rows(data)
    listed, pattern, symmetric = _header(path, rows[0][1] if rows else [])
    rows = [row for row in rows[1:] if not row[1][0].startswith("%")]
    if not rows or len(rows[0][1]) != 2 + listed:
        line = rows[0][0] if rows else 1
        raise ModelFormatError(
            f"{path}, line {line}: after the header comes a line `rows columns"
            f"{' entries' if listed else ''}`; was the file cut off?"
        )
    (line, sizes), entries = rows[0], rows[1:]
    n, columns, *rest = (_whole(path, line, word) for word in sizes)
    if n != columns:
        raise ModelFormatError(
            f"{path}, line {line}: a matrix of couplings is square, this one is {n} × {columns}"
        )
    _checked_size(path, line, n)
    expected = rest[0] if listed else (n * (n + 1) // 2 if symmetric else n * n)
    if len(entries) != expected:
        raise ModelFormatError(
            f"{path}, line {line}: {expected} entries are announced, {len(entries)} follow; was "
            "the file cut off?"
        )
    where, values = np.empty((expected, 2), np.int64), np.ones(expected)
    if not listed:  # column by column, of a symmetric matrix from the diagonal down
        square = np.indices((n, n)).reshape(2, -1).T[:, ::-1]
        where[:] = square[square[:, 0] >= square[:, 1]] if symmetric else square
    for e, (number, words) in enumerate(entries):
        if len(words) != 2 * listed + (not pattern):
            raise ModelFormatError(
                f"{path}, line {number}: found {len(words)} words where an entry "
                f"`{'i j ' * listed}{'' if pattern else 'value'}`".rstrip()
                + " should be"
            )
        if listed:
            where[e] = _nodes(path, number, words, n)
        if not pattern:
            values[e] = _weight(path, number, words[-1])
        if where[e, 0] == where[e, 1] and values[e]:
            raise ModelFormatError(
                f"{path}, line {number}: a diagonal entry couples a spin with itself, which "
                "adds a constant only; set it to zero"
            )
    flat = np.sort(where, axis=1) if symmetric else where
    if len(np.unique(flat, axis=0)) < expected:
        raise ModelFormatError(f"{path}: an entry is given twice; keep one")
    if symmetric:
        where = np.concatenate([where, where[:, ::-1]])
        values = np.concatenate([values, values])
    try:
        return ising_model(coo_array((values, tuple(where.T)), shape=(n, n)), beta=beta)
    except ModelFormatError as wrong:
        raise ModelFormatError(f"{path}: {wrong}") from wrong


def _header(path: str, words: list[str]) -> tuple[bool, bool, bool]:
    """Whether entries come with their places, without values, and for both triangles."""
    kinds = [word.lower() for word in words]
    if len(kinds) != 5 or kinds[:2] != ["%%matrixmarket", "matrix"]:
        raise ModelFormatError(
            f"{path}, line 1: no Matrix Market file; it begins with the line "
            "`%%MatrixMarket matrix coordinate real symmetric`"
        )
    for word, allowed in zip(kinds[2:], _KINDS, strict=True):
        if word not in allowed:
            raise ModelFormatError(
                f"{path}, line 1: found {word[:40]!r} where couplings, which are real numbers of a "
                f"symmetric matrix or of one triangle, have {' or '.join(map(repr, allowed))}"
            )
    return kinds[2] == "coordinate", kinds[3] == "pattern", kinds[4] == "symmetric"


_KINDS = (
    ("coordinate", "array"),
    ("real", "integer", "double", "pattern"),
    ("symmetric", "general"),
)


def _rows(data: bytes) -> list[tuple[int, list[str]]]:
    """Lines that are not empty, as words, each with its number."""
    lines = data.decode("utf-8", "replace").split("\n")
    return [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]


def _nodes(path: str, line: int, words: list[str], n: int) -> list[int]:
    """Two nodes, counted from zero."""
    found = [_whole(path, line, word) - 1 for word in words[:2]]
    if min(found) < 0 or max(found) >= n:
        raise ModelFormatError(f"{path}, line {line}: nodes are numbers from 1 to {n}")
    return found


def _checked_size(path: str, line: int, n: int) -> None:
    try:
        check_size(n, 2)
    except ModelFormatError as large:
        raise ModelFormatError(f"{path}, line {line}: {large}") from large


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
    rows = _rows(data)
    if not rows or len(rows[0][1]) != 2:
        raise ModelFormatError(f"{path}, line 1: a GSet file begins with `n m`, nodes and edges")
    n, m = (_whole(path, rows[0][0], word) for word in rows[0][1])
    if len(rows) - 1 != m:
        raise ModelFormatError(
            f"{path}, line {rows[0][0]}: {m} edges are announced, {len(rows) - 1} follow; was the "
            "file cut off?"
        )
    _checked_size(path, rows[0][0], n)
    edges, weights = np.empty((m, 2), np.int64), np.empty(m)
    for e, (number, words) in enumerate(rows[1:]):
        if len(words) != 3:
            raise ModelFormatError(f"{path}, line {number}: an edge is `i j weight`")
        edges[e] = _nodes(path, number, words, n)
        if edges[e, 0] == edges[e, 1]:
            raise ModelFormatError(f"{path}, line {number}: an edge joins two different nodes")
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
