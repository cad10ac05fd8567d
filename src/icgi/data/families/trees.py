"""Random factor trees, on which message passing is exact."""

import numpy as np
from numpy.random import Generator

from icgi.data.families.disorder import random_tables, require
from icgi.model.graph import FactorGraph


def tree(
    rng: Generator,
    n: int = 64,
    arity: int = 3,
    states: int = 2,
    beta: float = 1.0,
    field: float = 0.5,
) -> FactorGraph:
    """Random factor tree: factors of 2 to `arity` variables, each hung on an earlier variable.

    Pairs of spins are coupled as in the other families, J ~ N(0, 1); every other factor has a
    table of N(0, 1) entries; both times β.
    """
    require(n >= 1 and arity >= 2, f"tree: n={n}, arity={arity}; at least 1 variable, 2 per factor")
    news = rng.integers(1, arity, max(n - 1, 0))  # variables that each factor adds
    ends = np.minimum(1 + np.cumsum(news), n)
    count = int(np.searchsorted(ends, n)) + 1 if n > 1 else 0
    ends = ends[:count]
    starts = np.concatenate([np.ones(min(count, 1), np.int64), ends[:-1]])
    anchors = (rng.random(count) * starts).astype(np.int64)
    scopes = [
        (anchor, *range(start, end))
        for anchor, start, end in zip(anchors.tolist(), starts.tolist(), ends.tolist(), strict=True)
    ]
    return random_tables(rng, np.full(n, states), scopes, beta, field)
