"""Lattices: planar grids and the Edwards–Anderson spin glass in two and three dimensions."""

import numpy as np
from numpy.random import Generator

from icgi.data.families.disorder import Disorder, require, spin_glass
from icgi.model.graph import FactorGraph, IntArray


def grid(
    rng: Generator,
    rows: int = 10,
    columns: int = 10,
    beta: float = 1.0,
    field: float = 0.5,
    disorder: Disorder = "gaussian",
) -> FactorGraph:
    """Planar grid of spins, open boundary, couplings N(0, 1) or ±1, fields N(0, field²)."""
    return spin_glass(rng, rows * columns, lattice_edges((rows, columns)), beta, field, disorder)


def ea2d(
    rng: Generator,
    L: int = 10,
    beta: float = 1.0,
    disorder: Disorder = "gaussian",
    field: float = 0.1,
    periodic: bool = False,
) -> FactorGraph:
    """Edwards–Anderson spin glass, L × L, couplings N(0, 1) or ±1, fields N(0, field²).

    Paper: no field, which makes every marginal ½; here a weak one unless `field=0`.
    """
    return spin_glass(rng, L**2, lattice_edges((L, L), periodic), beta, field, disorder)


def ea3d(
    rng: Generator,
    L: int = 4,
    beta: float = 1.0,
    disorder: Disorder = "gaussian",
    field: float = 0.1,
    periodic: bool = False,
) -> FactorGraph:
    """Edwards–Anderson spin glass, L × L × L, couplings N(0, 1) or ±1, fields N(0, field²).

    Paper: no field, which makes every marginal ½; here a weak one unless `field=0`.
    """
    return spin_glass(rng, L**3, lattice_edges((L, L, L), periodic), beta, field, disorder)


def lattice_edges(shape: tuple[int, ...], periodic: bool = False) -> IntArray:
    """Nearest-neighbour pairs of a lattice, each once; the last axis numbers sites fastest."""
    size = " × ".join(map(str, shape))
    require(min(shape) >= 1, f"a lattice of {size} sites (rows, columns or L) should have some")
    site = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    parts = []
    for axis, length in enumerate(shape):
        after = np.roll(site, -1, axis)
        # around a ring of two sites both ways lead to the same pair
        last = length if periodic and length > 2 else length - 1
        kept = np.arange(last)
        parts.append(np.stack([site.take(kept, axis).ravel(), after.take(kept, axis).ravel()], 1))
    return np.concatenate(parts)
