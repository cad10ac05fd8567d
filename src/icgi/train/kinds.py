"""Random models of q states, of higher order and with zeros to train on.

Graphs are those of the paper's training families: grids, trees, Erdős–Rényi; factor graphs and
constraint problems join variables at random.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.data.families import FAMILIES
from icgi.data.families.disorder import random_couplings, random_fields, random_tables
from icgi.data.families.lattice import lattice_edges
from icgi.data.families.random_graphs import erdos_renyi_edges
from icgi.model.graph import FactorGraph, IntArray
from icgi.model.ising import potts_model

MOST_DENSE = 19.0  # log₂ of the configurations of a model in which all pairs are joined
FIELDS = (0.05, 0.1, 0.3, 0.5)


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes, temperatures and states to draw from, and what a batch of such models is padded to."""

    smallest: int = 10  # variables
    largest: int = 24
    most_beta: float = 2.5  # of spins
    least_beta: float = 0.3
    fewest: int = 2  # states of variables, where all have the same
    most: int = 2
    ternary: int = 2  # states of variables in factors of three
    variables: int | None = None  # padding; `largest`, unless factors become variables
    states: int = 2  # padding

    @property
    def padded(self) -> int:
        """Variables that a batch has room for."""
        return self.variables or self.largest


def _size(rng: Generator, sizes: Limits, share: float = 1.0) -> int:
    return int(rng.integers(sizes.smallest, max(sizes.smallest, int(share * sizes.largest)) + 1))


def _graph(rng: Generator, sizes: Limits) -> tuple[int, IntArray]:
    """Grid or Erdős–Rényi graph: number of variables, edges."""
    if rng.random() < 0.4:
        rows = int(rng.integers(3, max(4, int(sizes.largest**0.5) + 1)))
        least = max(3, -(-sizes.smallest // rows))
        columns = int(rng.integers(least, max(least, sizes.largest // rows) + 1))
        return rows * columns, lattice_edges((rows, columns))
    n = _size(rng, sizes)
    return n, erdos_renyi_edges(rng, n, float(rng.choice([0.1, 0.2, 0.4])))


def _scopes(edges: IntArray) -> list[tuple[int, ...]]:
    return [(i, j) for i, j in edges.tolist()]


def _potts(rng: Generator, sizes: Limits) -> FactorGraph:
    n, edges = _graph(rng, sizes)
    q = int(rng.integers(max(3, sizes.fewest), sizes.most + 1))
    couplings = random_couplings(rng, len(edges), "bimodal" if rng.random() < 0.3 else "gaussian")
    fields_ = random_fields(rng, (n, q), float(rng.choice(FIELDS)))
    return potts_model(edges, couplings, fields_, beta=float(rng.uniform(0.5, 4.0)))


def _tables(rng: Generator, sizes: Limits) -> FactorGraph:
    n, edges = _graph(rng, sizes)
    cards = rng.integers(2, sizes.most + 1, n)
    beta = float(rng.uniform(0.5, 2.5))
    return random_tables(rng, cards, _scopes(edges), beta, float(rng.choice(FIELDS)))


def _dense(rng: Generator, sizes: Limits) -> FactorGraph:
    """All pairs joined, tables scaled so that their sum at one variable does not grow with n."""
    q = int(rng.integers(2, sizes.most + 1))
    most = min(sizes.largest, int(MOST_DENSE / np.log2(q)))
    n = int(rng.integers(min(5, most), most + 1))
    edges = erdos_renyi_edges(rng, n, 1.0)
    beta = float(rng.uniform(0.5, 3.0)) / (n - 1) ** 0.5
    if q > 2 and rng.random() < 0.5:
        couplings = random_couplings(rng, len(edges), "gaussian") - float(rng.uniform(0.0, 1.0))
        return potts_model(edges, 2.0 * couplings, random_fields(rng, (n, q), 0.5), beta=beta)
    return random_tables(rng, np.full(n, q), _scopes(edges), beta, float(rng.choice(FIELDS)))


def _factor(rng: Generator, sizes: Limits) -> FactorGraph:
    return FAMILIES["factor"].sample(
        rng,
        n=_size(rng, sizes, 0.75),
        density=float(rng.uniform(0.6, 1.4)),
        arity=3,
        states=sizes.ternary,
        beta=float(rng.uniform(0.5, 2.5)),
        field=float(rng.choice(FIELDS)),
    )


def _tree(rng: Generator, sizes: Limits) -> FactorGraph:
    beta = float(rng.uniform(0.5, 2.5))
    n, field = _size(rng, sizes, 0.75), float(rng.choice(FIELDS))
    return FAMILIES["tree"].sample(rng, n=n, arity=3, states=sizes.ternary, beta=beta, field=field)


def _csp(rng: Generator, sizes: Limits) -> FactorGraph:
    """Constraints on three variables."""
    return FAMILIES["csp"].sample(
        rng,
        n=_size(rng, sizes, 0.6),
        density=float(rng.uniform(0.5, 1.2)),
        arity=3,
        states=sizes.ternary,
        tightness=float(rng.uniform(0.12, 0.45)),
        beta=float(rng.choice([0.0, 0.5, 1.0])),
    )


def _pair_csp(rng: Generator, sizes: Limits) -> FactorGraph:
    """Constraints on two variables."""
    return FAMILIES["csp"].sample(
        rng,
        n=_size(rng, sizes),
        density=float(rng.uniform(1.0, 2.2)),
        arity=2,
        states=int(rng.integers(sizes.fewest, sizes.most + 1)),
        tightness=float(rng.uniform(0.1, 0.45)),
        beta=float(rng.choice([0.0, 0.5, 1.0])),
    )


KINDS: dict[str, Callable[[Generator, Limits], FactorGraph]] = {
    "Potts": _potts,
    "random tables": _tables,
    "factors of three": _factor,
    "constraints on three": _csp,
    "constraints on two": _pair_csp,
    "factor trees": _tree,
    "dense tables": _dense,
}

SHARES = np.array([4, 4, 5, 4, 4, 1, 4]) / 26  # trees are exact untrained: they teach precision
