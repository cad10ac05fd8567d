"""Random binary pairwise models to train on, as dense arrays.

`paper` holds the paper's training families only: grids, trees and Erdős–Rényi graphs. `wide` adds
Sherrington–Kirkpatrick models and three-dimensional lattices, so that the network has seen dense
and strongly frustrated models. Barabási–Albert and Watts–Strogatz graphs are in neither: they are
for testing.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.data.families import FAMILIES
from icgi.data.families.disorder import spin_glass
from icgi.data.families.lattice import lattice_edges
from icgi.errors import IcgiError
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising

FIELDS = (0.05, 0.1, 0.3, 0.5, 1.0)
CHUNK = 256  # models that one worker draws from one stream

Float32Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """Ising models padded to one size, β included."""

    couplings: Float32Array  # b n n
    fields: Float32Array  # b n
    sizes: NDArray[np.int64]  # b


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes and temperatures to draw from."""

    smallest: int
    largest: int
    most_beta: float
    least_beta: float = 0.3


def draw(rng: Generator, mixture: str, limits: Range) -> FactorGraph:
    """One model of a mixture."""
    if mixture not in MIXTURES:
        raise IcgiError(f"unknown mixture {mixture!r}; there are: {', '.join(MIXTURES)}")
    families = MIXTURES[mixture]
    make = families[int(rng.integers(len(families)))]
    beta = float(rng.uniform(limits.least_beta, limits.most_beta))
    return make(rng, limits, beta, float(rng.choice(FIELDS)))


def dense(models: list[FactorGraph], largest: int) -> Dense:
    """Arrays of binary pairwise models."""
    couplings = np.zeros((len(models), largest, largest), np.float32)
    fields = np.zeros((len(models), largest), np.float32)
    for b, model in enumerate(models):
        arrays = as_ising(model)
        if arrays is None:
            raise IcgiError("a training mixture may hold binary pairwise models without zeros only")
        i, j = arrays.edges.T
        couplings[b, i, j] = couplings[b, j, i] = arrays.couplings
        fields[b, : model.n_variables] = arrays.fields
    return Dense(couplings, fields, np.array([m.n_variables for m in models], dtype=np.int64))


def draw_many(
    seed: int, mixture: str, limits: Range, count: int, pool: Executor | None = None
) -> Dense:
    """Many models; the same for any pool of workers, or none."""
    streams = np.random.SeedSequence(seed).spawn(-(-count // CHUNK))
    sizes = [min(CHUNK, count - CHUNK * k) for k in range(len(streams))]
    work = partial(_chunk, mixture, limits)
    parts = list((map if pool is None else pool.map)(work, streams, sizes))
    return Dense(
        np.concatenate([p.couplings for p in parts]),
        np.concatenate([p.fields for p in parts]),
        np.concatenate([p.sizes for p in parts]),
    )


def _chunk(mixture: str, limits: Range, stream: np.random.SeedSequence, count: int) -> Dense:
    rng = np.random.default_rng(stream)
    return dense([draw(rng, mixture, limits) for _ in range(count)], limits.largest)


def _size(rng: Generator, limits: Range) -> int:
    return int(rng.integers(limits.smallest, limits.largest + 1))


def _er(rng: Generator, limits: Range, beta: float, field: float) -> FactorGraph:
    p = float(rng.choice([0.05, 0.1, 0.2]))
    return FAMILIES["er"].sample(rng, n=_size(rng, limits), p=p, beta=beta, field=field)


def _tree(rng: Generator, limits: Range, beta: float, field: float) -> FactorGraph:
    n = _size(rng, limits)
    return FAMILIES["tree"].sample(rng, n=n, arity=2, states=2, beta=beta, field=field)


def _sk(rng: Generator, limits: Range, beta: float, field: float) -> FactorGraph:
    h = float(rng.choice([0.05, 0.1, 0.5]))
    return FAMILIES["sk"].sample(rng, n=_size(rng, limits), beta=beta, h=h)


def _grid(rng: Generator, limits: Range, beta: float, field: float) -> FactorGraph:
    rows = int(rng.integers(3, max(4, int(limits.largest**0.5) + 1)))
    least = max(3, -(-limits.smallest // rows))
    columns = int(rng.integers(least, max(least, limits.largest // rows) + 1))
    return _lattice(rng, (rows, columns), beta, field)


def _cube(rng: Generator, limits: Range, beta: float, field: float) -> FactorGraph:
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


Draw = Callable[[Generator, Range, float, float], FactorGraph]
MIXTURES: dict[str, tuple[Draw, ...]] = {
    "paper": (_er, _grid, _tree),
    "wide": (_er, _grid, _tree, _sk, _cube, _sk),
}
