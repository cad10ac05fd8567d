"""Mixtures of random models to train on.

`paper` holds the paper's training families of random graphs only: grids, trees, Erdős–Rényi.
`training` adds Sherrington–Kirkpatrick models and lattices of two and three dimensions no colder
than those of the paper's training sets. `wide` is for the shipped `icgi:fast`: the same families
down to any temperature. `narrow` are larger grids, trees and sparse random graphs that a junction
tree labels in milliseconds; `broad` are larger lattices and random graphs of up to six neighbours,
which it labels in tens of milliseconds. `wide` models that are too wide for one are `dense`:
Sherrington–Kirkpatrick models, cubes and random graphs of up to ten neighbours, sampled where they
have more than 24 spins. `any` are models of several states, large factors, zeros.
Barabási–Albert and Watts–Strogatz graphs are in none of them: they are for testing.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.random import Generator

from icgi.data.families import FAMILIES
from icgi.data.families.disorder import spin_glass
from icgi.data.families.lattice import lattice_edges
from icgi.errors import IcgiError
from icgi.model.graph import FactorGraph
from icgi.train.kinds import KINDS, SHARES, Limits

FIELDS = (0.05, 0.1, 0.3, 0.5, 1.0)
TRAINING_BETA = 1.5  # of the coldest spin glasses in the paper's training sets

ON_CPU = (
    "any",
    "narrow",
    "broad",
)  # mixtures whose labels come from junction trees, whatever the device


def draw(rng: Generator, mixture: str, limits: Limits) -> FactorGraph:
    """One model of a mixture."""
    if mixture not in MIXTURES:
        raise IcgiError(f"unknown mixture {mixture!r}; there are: {', '.join(MIXTURES)}")
    return MIXTURES[mixture](rng, limits)


def _size(rng: Generator, limits: Limits) -> int:
    return int(rng.integers(limits.smallest, limits.largest + 1))


def _er(rng: Generator, limits: Limits, beta: float, field: float) -> FactorGraph:
    p = float(rng.choice([0.05, 0.1, 0.2]))
    return FAMILIES["er"].sample(rng, n=_size(rng, limits), p=p, beta=beta, field=field)


def _tree(rng: Generator, limits: Limits, beta: float, field: float) -> FactorGraph:
    n = _size(rng, limits)
    return FAMILIES["tree"].sample(rng, n=n, arity=2, states=2, beta=beta, field=field)


def _sk(rng: Generator, limits: Limits, beta: float, field: float) -> FactorGraph:
    h = float(rng.choice([0.05, 0.1, 0.5]))
    return FAMILIES["sk"].sample(rng, n=_size(rng, limits), beta=beta, h=h)


def _grid(rng: Generator, limits: Limits, beta: float, field: float) -> FactorGraph:
    rows = int(rng.integers(3, max(4, int(limits.largest**0.5) + 1)))
    least = max(3, -(-limits.smallest // rows))
    columns = int(rng.integers(least, max(least, limits.largest // rows) + 1))
    return _lattice(rng, (rows, columns), beta, field)


def _cube(rng: Generator, limits: Limits, beta: float, field: float) -> FactorGraph:
    shapes = [
        (a, b, c)
        for a in range(2, 5)
        for b in range(a, 5)
        for c in range(b, 9)
        if limits.smallest <= a * b * c <= limits.largest
    ] or [(2, 2, 2)]
    return _lattice(rng, shapes[int(rng.integers(len(shapes)))], beta, field)


def _lattice(rng: Generator, shape: tuple[int, ...], beta: float, field: float) -> FactorGraph:
    disorder = "bimodal" if rng.random() < 0.3 else "gaussian"
    n = int(np.prod(shape))
    return spin_glass(rng, n, lattice_edges(shape), beta, field, disorder)  # type: ignore[arg-type]


def _sparse(rng: Generator, limits: Limits, beta: float, field: float) -> FactorGraph:
    n = _size(rng, limits)
    p = float(rng.uniform(1.5, 3.5)) / n
    return FAMILIES["er"].sample(rng, n=n, p=p, beta=beta, field=field)


def _random(rng: Generator, limits: Limits, beta: float, field: float) -> FactorGraph:
    n = _size(rng, limits)
    p = float(rng.uniform(2.0, 6.0)) / n
    return FAMILIES["er"].sample(rng, n=n, p=p, beta=beta, field=field)


def _crowded(rng: Generator, limits: Limits, beta: float, field: float) -> FactorGraph:
    n = _size(rng, limits)
    p = min(1.0, float(rng.uniform(4.0, 10.0)) / n)
    return FAMILIES["er"].sample(rng, n=n, p=p, beta=beta, field=field)


def _strip(rng: Generator, limits: Limits, beta: float, field: float) -> FactorGraph:
    rows = int(rng.integers(3, 7))
    most = limits.largest // rows
    columns = int(rng.integers(min(-(-limits.smallest // rows), most), most + 1))
    return _lattice(rng, (rows, columns), beta, field)


Draw = Callable[[Generator, Limits, float, float], FactorGraph]


def _spins(families: tuple[Draw, ...], rng: Generator, limits: Limits) -> FactorGraph:
    make = families[int(rng.integers(len(families)))]
    beta = float(rng.uniform(limits.least_beta, limits.most_beta))
    if families is _TRAINING and make in (_sk, _cube):
        beta = min(beta, float(rng.uniform(limits.least_beta, TRAINING_BETA)))
    return make(rng, limits, beta, float(rng.choice(FIELDS)))


def _any(rng: Generator, limits: Limits) -> FactorGraph:
    return KINDS[list(KINDS)[int(rng.choice(len(KINDS), p=SHARES))]](rng, limits)


_PAPER: tuple[Draw, ...] = (_er, _grid, _tree)
_TRAINING: tuple[Draw, ...] = (_er, _grid, _tree, _er, _grid, _sk, _cube)
_NARROW: tuple[Draw, ...] = (_sparse, _sparse, _strip, _tree)
_BROAD: tuple[Draw, ...] = (_random, _random, _random, _strip, _cube)
_DENSE: tuple[Draw, ...] = (_sk, _sk, _cube, _crowded, _crowded)
_WIDE: tuple[Draw, ...] = (_er, _grid, _tree, _sk, _cube, _sk)

MIXTURES: dict[str, Callable[[Generator, Limits], FactorGraph]] = {
    "paper": partial(_spins, _PAPER),
    "training": partial(_spins, _TRAINING),
    "wide": partial(_spins, _WIDE),
    "narrow": partial(_spins, _NARROW),
    "broad": partial(_spins, _BROAD),
    "dense": partial(_spins, _DENSE),
    "any": _any,
}
