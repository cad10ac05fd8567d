"""Random factor graphs of higher order, and constraint problems with a planted solution."""

import numpy as np
from numpy.random import Generator

from icgi.data.families.disorder import random_tables, require
from icgi.model.graph import FactorGraph, IntArray


def factor(
    rng: Generator,
    n: int = 50,
    density: float = 1.2,
    arity: int = 3,
    states: int = 3,
    beta: float = 1.0,
    field: float = 0.5,
) -> FactorGraph:
    """Random factor graph: density · n factors of 2 to `arity` variables of 2 to `states` states.

    Tables are β·N(0, 1) entries, two spins being coupled as in the other families.
    """
    _check("factor", n, density, arity, states)
    cards = rng.integers(2, states + 1, n)
    sizes = rng.integers(2, arity + 1, round(density * n))
    return random_tables(rng, cards, random_scopes(rng, n, sizes), beta, field)


def csp(
    rng: Generator,
    n: int = 50,
    density: float = 2.0,
    arity: int = 3,
    states: int = 2,
    tightness: float = 0.25,
    beta: float = 0.0,
) -> FactorGraph:
    """Constraint problem with a planted solution: each constraint forbids a share `tightness`.

    Allowed tuples weigh exp(β·N(0, 1)), or all the same for β = 0.
    """
    return planted_csp(rng, n, density, arity, states, tightness, beta)[0]


def planted_csp(
    rng: Generator,
    n: int = 50,
    density: float = 2.0,
    arity: int = 3,
    states: int = 2,
    tightness: float = 0.25,
    beta: float = 0.0,
) -> tuple[FactorGraph, IntArray]:
    """Model of `csp` and the configuration that no constraint forbids.

    Each of density · n constraints forbids a round share of its other tuples, drawn evenly.
    """
    _check("csp", n, density, arity, states)
    require(0 <= tightness < 1, f"csp: tightness={tightness} should be from 0 to below 1")
    planted = rng.integers(0, states, n)
    scopes = random_scopes(rng, n, np.full(round(density * n), arity))
    shape = (states,) * arity
    size = states**arity
    tuples = np.array(scopes, dtype=np.int64).reshape(-1, arity)
    kept = np.ravel_multi_index(tuple(planted[tuples].T), shape)
    draws = rng.random((len(scopes), size))
    np.put_along_axis(draws, kept[:, None], np.inf, 1)
    first = np.argsort(draws, 1)[:, : min(round(tightness * size), size - 1)]
    tables = beta * rng.standard_normal((len(scopes), size))
    np.put_along_axis(tables, first, -np.inf, 1)
    tables.flags.writeable = False
    model = FactorGraph(np.full(n, states), tuple(scopes), tuple(tables.reshape(-1, *shape)))
    return model, planted


def random_scopes(rng: Generator, n: int, sizes: IntArray) -> list[tuple[int, ...]]:
    """Variables of each factor, drawn without repetition; two factors may have the same."""
    most = int(sizes.max(initial=0))
    if n <= 4 * most * most:
        rows = rng.permuted(np.tile(np.arange(n), (len(sizes), 1)), axis=1)[:, :most]
    else:
        rows = rng.integers(0, n, (len(sizes), most))
        while len(again := np.flatnonzero((np.diff(np.sort(rows, 1), axis=1) == 0).any(1))):
            rows[again] = rng.integers(0, n, (len(again), most))
    return [tuple(row[:size]) for row, size in zip(rows.tolist(), sizes.tolist(), strict=True)]


def _check(family: str, n: int, density: float, arity: int, states: int) -> None:
    require(
        2 <= arity <= n and states >= 2 and density >= 0,
        f"{family}: n={n}, arity={arity}, states={states}, density={density}; a factor joins 2 to "
        "n variables of at least 2 states, and density is factors per variable",
    )
