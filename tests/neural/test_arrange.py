"""Distances during elimination are those of a search in the graph with its fill-in."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.linalg import expm
from scipy.sparse.csgraph import laplacian, shortest_path

from icgi.neural.arrange import DIFFUSIONS, FAR, after_elimination, distances, heat_kernels


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


def test_heat_kernels_are_exponentials_of_the_laplacian() -> None:
    ring = np.roll(np.eye(9), 1, 1) + np.roll(np.eye(9), -1, 1)  # repeated eigenvalues
    rng = np.random.default_rng(0)
    sparse = np.triu(rng.random((9, 9)) < 0.25, 1).astype(float)
    sparse = sparse + sparse.T
    sparse[4] = sparse[:, 4] = 0.0  # a variable of its own
    found = heat_kernels(torch.as_tensor(np.stack([ring, sparse])).float()).double().numpy()
    for b, adjacency in enumerate((ring, sparse)):
        matrix = laplacian(adjacency, normed=True)
        for t, time in enumerate(DIFFUSIONS):
            assert_allclose(found[b, :, :, t], expm(-time * matrix), atol=2e-6)
