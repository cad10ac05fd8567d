"""What the families share: random couplings and fields on given edges, and parameter checks."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.random import Generator

from icgi.errors import IcgiError
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ising import ising_model

Disorder: TypeAlias = Literal["gaussian", "bimodal"]

_PAIR = np.array([[1.0, -1.0], [-1.0, 1.0]])  # s_i s_j
_SPIN = np.array([-1.0, 1.0])  # s_i


def spin_glass(
    rng: Generator,
    n: int,
    edges: IntArray,
    beta: float,
    field: float,
    disorder: Disorder = "gaussian",
) -> FactorGraph:
    """Ising model exp β(Σ_e J_e s_i s_j + Σ_i h_i s_i), J ~ N(0, 1) or ±1, h ~ N(0, field²)."""
    couplings = random_couplings(rng, len(edges), disorder)
    return ising_model((edges, couplings), random_fields(rng, (n,), field), beta)


def random_couplings(rng: Generator, count: int, disorder: Disorder) -> FloatArray:
    """Standard normal or fair ±1 couplings."""
    if disorder == "gaussian":
        return rng.standard_normal(count)
    require(disorder == "bimodal", f"disorder={disorder!r} should be gaussian or bimodal")
    return np.asarray(2.0 * rng.integers(0, 2, count) - 1.0)


def random_fields(rng: Generator, shape: tuple[int, ...], field: float) -> FloatArray:
    """Normal fields of standard deviation `field`; all zero (and nothing drawn) for 0."""
    require(field >= 0, f"field={field} is a standard deviation; give a number of at least 0")
    return rng.normal(0.0, field, shape) if field else np.zeros(shape)


def random_tables(
    rng: Generator,
    cards: IntArray,
    scopes: Sequence[tuple[int, ...]],
    beta: float,
    field: float,
) -> FactorGraph:
    """Log tables of N(0, 1) entries times β; two spins get a coupling N(0, 1), as in `spin_glass`.

    In front of them a field per variable, N(0, field²) for each state, or h s_i for spins.
    """
    counts = cards.tolist()
    tables = [beta * _table(rng, tuple([counts[i] for i in scope])) for scope in scopes]
    if field:
        values = random_fields(rng, (len(counts), max(counts)), field)
        unary = [beta * _field(row, k) for row, k in zip(values, counts, strict=True)]
        scopes, tables = [*zip(range(len(counts)), strict=True), *scopes], [*unary, *tables]
    for table in tables:
        table.flags.writeable = False  # ours: no need to copy them
    return FactorGraph(cards, tuple(scopes), tuple(tables))


def _table(rng: Generator, shape: tuple[int, ...]) -> FloatArray:
    return rng.standard_normal() * _PAIR if shape == (2, 2) else rng.standard_normal(shape)


def _field(row: FloatArray, card: int) -> FloatArray:
    return row[0] * _SPIN if card == 2 else row[:card]


def require(condition: bool, message: str) -> None:
    """Refuse parameters that describe no model."""
    if not condition:
        raise IcgiError(message)
