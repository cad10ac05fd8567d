"""Small Ising batches with exact answers, shared by the tests of the networks."""

import numpy as np
import torch

from icgi.neural.closed_form import enumerate_core
from icgi.neural.spins import Spins, make_spins

torch.set_num_threads(1)


def batch(couplings: np.ndarray, fields: np.ndarray, real: np.ndarray | None = None) -> Spins:
    j = torch.as_tensor(couplings, dtype=torch.float64)
    h = torch.as_tensor(fields, dtype=torch.float64)
    ones = torch.ones_like(h) if real is None else torch.as_tensor(real, dtype=torch.float64)
    return make_spins(j, h, ones)


def random_batch(seed: int, b: int, n: int, p: float = 0.4, scale: float = 0.8) -> Spins:
    rng = np.random.default_rng(seed)
    j = np.triu(rng.normal(0, scale, (b, n, n)) * (rng.random((b, n, n)) < p), 1)
    return batch(j + j.transpose(0, 2, 1), rng.normal(0, 0.5, (b, n)))


def tree_batch(seed: int, b: int, n: int, scale: float = 1.0) -> Spins:
    rng = np.random.default_rng(seed)
    j = np.zeros((b, n, n))
    for k in range(b):
        for i in range(1, n):
            a = rng.integers(i)
            j[k, a, i] = j[k, i, a] = rng.normal(0, scale)
    return batch(j, rng.normal(0, 0.5, (b, n)))


def exact_up(spins: Spins) -> torch.Tensor:
    """p(s = +1), b n, by summing all states."""
    return 0.5 * (1.0 + enumerate_core(spins.couplings, spins.fields)[0])


def up(alpha: torch.Tensor) -> torch.Tensor:
    return alpha[..., 0] / alpha.sum(-1)
