"""The Sherrington–Kirkpatrick spin glass: every pair of spins interacts."""

import math

import numpy as np
from numpy.random import Generator

from icgi.data.families.disorder import require
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model


def sk(rng: Generator, n: int = 50, beta: float = 1.0, h: float = 0.1) -> FactorGraph:
    """Sherrington–Kirkpatrick: all pairs coupled, J ~ N(0, 1/n), the same field h on every spin."""
    require(n >= 1, f"sk: n={n} should be at least 1")
    edges = np.stack(np.triu_indices(n, 1), 1).astype(np.int64, copy=False)
    couplings = rng.standard_normal(len(edges)) / math.sqrt(n)
    return ising_model((edges, couplings), np.full(n, h), beta)
