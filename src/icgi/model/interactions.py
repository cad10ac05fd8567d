"""How strongly variables act on each other: what of a table is more than a sum of main effects."""

from collections import defaultdict

import numpy as np

from icgi.model.graph import FactorGraph, FloatArray, factor_of

FLOOR = 10.0  # how far below the largest entry of a table a zero counts as
MOST_FACTORS, MOST_ENTRIES = 2**15, 2**21  # that are looked at


def floored(tables: FloatArray) -> FloatArray:
    """Tables (f …) of mean zero, zeros being a number of their own below the largest entry."""
    axes = tuple(range(1, tables.ndim))
    top = tables.max(axes, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)  # a table of zeros only
    kept = np.maximum(tables, top - FLOOR)
    return np.asarray(kept - kept.mean(axes, keepdims=True))


def main_effects(tables: FloatArray) -> list[FloatArray]:
    """Mean over all other axes, for every axis of tables (f …) of mean zero."""
    axes = range(1, tables.ndim)
    return [tables.mean(tuple(b for b in axes if b != a)) for a in axes]


def without_main_effects(tables: FloatArray) -> FloatArray:
    """What is left of tables (f …) of mean zero when their main effects are taken out."""
    rest = tables
    for axis, main in enumerate(main_effects(tables), start=1):
        across = tuple(a for a in range(1, tables.ndim) if a != axis)
        rest = rest - np.expand_dims(main, across)
    return np.asarray(rest)


def bonds(model: FactorGraph) -> FloatArray:
    """Σ_f tanh²(w_f) over the factors of each variable (n), w_f the size of the interaction.

    The size is a root mean square over the entries. Of models with very many factors only every so
    many are looked at, those that are looked at counting for the others. Tables beyond what may be
    looked at count as binding as strongly as any.
    """
    wide = np.flatnonzero(model.arity > 1)
    step = 1 + len(wide) // MOST_FACTORS
    alike: dict[tuple[int, ...], list[tuple[tuple[int, ...], FloatArray]]] = defaultdict(list)
    left = MOST_ENTRIES
    found = np.zeros(model.n_variables)
    for f in wide[::step].tolist():
        scope, table = factor_of(model, f)
        left -= table.size
        if left < 0:
            found[list(scope)] += step
        else:
            alike[table.shape].append((scope, table))
    for members in alike.values():
        rest = without_main_effects(floored(np.stack([table for _, table in members])))
        size = np.sqrt((rest.reshape(len(members), -1) ** 2).mean(1))
        scopes = np.array([scope for scope, _ in members])
        np.add.at(found, scopes, (step * np.tanh(size) ** 2)[:, None])
    return found
