"""Randomness is an argument: one seed makes one generator, which is passed down and spawned."""

import numpy as np
from numpy.random import Generator


def generator(seed: int | Generator | None) -> Generator:
    """Return a `numpy` generator for a seed; a generator is passed through unchanged."""
    return np.random.default_rng(seed)


def kernel_seed(rng: Generator) -> int:
    """Draw a 63-bit seed for a compiled kernel that keeps its own random state."""
    return int(rng.integers(1, 2**63 - 1))
