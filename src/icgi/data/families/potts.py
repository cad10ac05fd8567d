"""Potts glasses: lattices of variables with q equivalent states."""

from numpy.random import Generator

from icgi.data.families.disorder import Disorder, random_couplings, random_fields, require
from icgi.data.families.lattice import lattice_edges
from icgi.model.graph import FactorGraph
from icgi.model.ising import potts_model


def potts(
    rng: Generator,
    L: int = 10,
    q: int = 3,
    beta: float = 1.0,
    disorder: Disorder = "gaussian",
    field: float = 0.1,
    periodic: bool = False,
) -> FactorGraph:
    """Potts glass, L × L, q states, J δ(x_i, x_j) with J ~ N(0, 1) or ±1, fields N(0, field²)."""
    require(q >= 2, f"potts: q={q} should be at least 2")
    edges = lattice_edges((L, L), periodic)
    couplings = random_couplings(rng, len(edges), disorder)
    return potts_model(edges, couplings, random_fields(rng, (L * L, q), field), beta=beta)
