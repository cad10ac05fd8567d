"""Distances during elimination are those of a search in the graph with its fill-in."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.sparse.csgraph import shortest_path

from icgi.neural.arrange import FAR, after_elimination, distances


@pytest.mark.parametrize("seed", range(12))
def test_distances_after_elimination_are_those_of_a_search(seed: int) -> None:
    n = 14
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < 0.18, 1)
    adjacency = (upper | upper.T).astype(float)
    d = distances(torch.as_tensor(adjacency)[None])
    left = np.arange(n)
    for v in rng.permutation(n)[:5]:
        at = int(np.flatnonzero(left == v)[0])
        keep = np.delete(np.arange(len(left)), at)
        d = after_elimination(d, d[:, at])[:, keep][:, :, keep]
        near = adjacency[at] > 0
        adjacency = np.maximum(adjacency, np.outer(near, near)) * (1 - np.eye(len(left)))
        adjacency, left = adjacency[np.ix_(keep, keep)], left[keep]
        searched = shortest_path(adjacency, unweighted=True)
        assert_allclose(d[0].numpy(), np.where(np.isinf(searched), FAR, searched))
