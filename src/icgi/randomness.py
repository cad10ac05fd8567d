"""Randomness is an argument: one seed makes one generator, which is passed down and spawned."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator, SeedSequence

from icgi.errors import IcgiError


def generator(seed: int | Generator | None) -> Generator:
    """Return a `numpy` generator for a seed; a generator is passed through unchanged."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise IcgiError(
            f"seed={seed!r}: give a whole number of at least 0, a numpy Generator, or None for a "
            "seed of the operating system"
        ) from error


def kernel_seed(rng: Generator) -> int:
    """Draw a 63-bit seed for a compiled kernel that keeps its own random state."""
    return int(rng.integers(1, 2**63 - 1))


@dataclass(frozen=True, slots=True)
class LazyStreams(Sequence[Generator]):
    """`rng.spawn(count)`, each generator made when it is first asked for: most never are.

    `rng` does not know that it has spawned.
    """

    rng: Generator
    size: int
    made: dict[int, Generator] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: Any) -> Any:
        """Generator of one of the streams."""
        if not 0 <= number < self.size:
            raise IndexError(number)
        if number in self.made:
            return self.made[number]
        bits = self.rng.bit_generator
        seed = bits.seed_seq
        assert isinstance(seed, SeedSequence)
        key = (*seed.spawn_key, seed.n_children_spawned + number)
        child = SeedSequence(seed.entropy, spawn_key=key, pool_size=seed.pool_size)
        return self.made.setdefault(number, Generator(type(bits)(child)))
