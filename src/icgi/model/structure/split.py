"""Factors that are products of smaller ones, which evidence often leaves behind.

T(a, b, r) = f(a, r) g(b, r) for all r: the edge between a and b vanishes. Repeated until no pair of
variables of any factor splits. Variables and their marginals stay as they are, no sign is needed,
and no elimination order becomes more expensive.
"""

import numpy as np
from numpy.typing import NDArray

from icgi.clock import Deadline
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, assembled
from icgi.model.wiring import wiring

Stop = NDArray[np.uint8]
TOLERANCE = 1e-12  # of logarithms, relative to their size where they are large


def split_products(model: FactorGraph, deadline: Deadline | None = None) -> FactorGraph:
    """Model with every factor that is a product replaced by its parts; itself where none is.

    When the time is over, factors that were not looked at stay as they are.
    """
    with (deadline or Deadline()).flag() as stop:
        return _split(model, stop)


def _split(model: FactorGraph, stop: Stop) -> FactorGraph:
    w = wiring(model)
    found = _splits(w.cards, w.scope_start, w.scope, w.table_start, w.values, stop)
    if not (found >= 0).any():
        return model
    scopes: list[tuple[int, ...]] = []
    tables: list[FloatArray] = []
    for f, (scope, table) in enumerate(zip(model.scopes, model.log_tables, strict=True)):
        parts = [(scope, table)] if found[f, 0] < 0 else _parts(scope, table, stop)
        scopes += [part for part, _ in parts]
        tables += [values for _, values in parts]
    return assembled(model.cards, tuple(scopes), tuple(tables), model.names, model.states)


def _parts(
    scope: tuple[int, ...], table: FloatArray, stop: Stop
) -> list[tuple[tuple[int, ...], FloatArray]]:
    """Smallest parts that the numbers of a table show, their product being the table."""
    dims = np.array(table.shape, np.int64)
    a, b = _pair(np.ascontiguousarray(table).ravel(), dims, stop)
    if a < 0:
        table.flags.writeable = False
        return [(scope, table)]
    rows = np.moveaxis(table, (a, b), (0, 1))
    flat = rows.reshape(rows.shape[0], rows.shape[1], -1)  # a b r
    top = flat.reshape(-1, flat.shape[2]).argmax(0)
    first, second = np.divmod(top, flat.shape[1])
    each = np.arange(flat.shape[2])
    left = flat[:, second, each]  # a r
    peak = flat[first, second, each]
    empty = np.isneginf(peak)
    right = np.where(empty, 0.0, flat[first, :, each].T - np.where(empty, 0.0, peak))  # b r
    rest = tuple(scope[c] for c in range(len(scope)) if c not in (a, b))
    shape = rows.shape[2:]
    return _parts((scope[a], *rest), left.reshape(left.shape[0], *shape), stop) + _parts(
        (scope[b], *rest), right.reshape(right.shape[0], *shape), stop
    )


@kernel
def _splits(cards, scope_start, scope, table_start, values, stop):  # type: ignore[no-untyped-def]
    """First pair of axes that splits each factor, −1 for none."""
    found = np.full((len(scope_start) - 1, 2), -1, np.int64)
    for f in range(len(found)):
        n = scope_start[f + 1] - scope_start[f]
        if n < 2:
            continue
        dims = np.empty(n, np.int64)
        for a in range(n):
            dims[a] = cards[scope[scope_start[f] + a]]
        table = values[table_start[f] : table_start[f + 1]]
        found[f, 0], found[f, 1] = _pair(table, dims, stop)
    return found


@kernel
def _pair(table, dims, stop):  # type: ignore[no-untyped-def]
    n = len(dims)
    stride = np.ones(n, np.int64)
    for a in range(n - 2, -1, -1):
        stride[a] = stride[a + 1] * dims[a + 1]
    for a in range(n - 1):
        for b in range(a + 1, n):
            if stop[0]:
                return -1, -1
            if dims[a] > 1 and dims[b] > 1 and _is_split(table, dims, stride, a, b):
                return a, b
    return -1, -1


@kernel
def _is_split(table, dims, stride, a, b):  # type: ignore[no-untyped-def]
    """Whether every slice over axes a and b is a product, zeros included."""
    for r in range(len(table)):
        if r // stride[a] % dims[a] != 0 or r // stride[b] % dims[b] != 0:
            continue
        x0 = y0 = 0
        top = table[r]
        for x in range(dims[a]):
            for y in range(dims[b]):
                value = table[r + x * stride[a] + y * stride[b]]
                if value > top:
                    top, x0, y0 = value, x, y
        if top == -np.inf:
            continue
        for x in range(dims[a]):
            left = table[r + x * stride[a] + y0 * stride[b]]
            for y in range(dims[b]):
                right = table[r + x0 * stride[a] + y * stride[b]]
                value = table[r + x * stride[a] + y * stride[b]]
                if value == -np.inf or left == -np.inf or right == -np.inf:
                    if value > -np.inf or (left > -np.inf and right > -np.inf):
                        return False
                elif abs(left + right - top - value) > TOLERANCE * (1.0 + abs(value)):
                    return False
    return True
