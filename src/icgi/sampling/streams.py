"""Random numbers inside compiled kernels: xoshiro256++, one stream per ensemble, no global state.

The generator is Blackman and Vigna's; eight interleaved copies fill whole arrays, because that is
what the vector units can do at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.kernels import kernel
from icgi.randomness import kernel_seed

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: the step of splitmix64
_FAST = {"contract", "nsz", "arcp"}


class Stream(NamedTuple):
    """State of one stream: a scalar generator and eight side by side."""

    one: NDArray[np.uint64]  # 4
    counter: NDArray[np.uint64]  # 1


def stream(rng: Generator) -> Stream:
    """Fresh state, seeded by one draw from `rng` and spread by splitmix64."""
    words = np.empty(5, np.uint64)
    fill_words(np.array([kernel_seed(rng)], np.uint64), words)
    return Stream(words[:4].copy(), words[4:].copy())


@kernel(inline="always")
def word(s):  # type: ignore[no-untyped-def]
    """Next 64 random bits of a scalar generator."""
    total = s[0] + s[3]
    result = ((total << np.uint64(23)) | (total >> np.uint64(41))) + s[0]
    t = s[1] << np.uint64(17)
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = (s[3] << np.uint64(45)) | (s[3] >> np.uint64(19))
    return result


@kernel(inline="always")
def uniform(s):  # type: ignore[no-untyped-def]
    """Uniform on (0, 1), never 0 or 1."""
    return (np.float64(word(s) >> np.uint64(12)) + 0.5) * 2.0**-52


@kernel(inline="always")
def below(s, n):  # type: ignore[no-untyped-def]
    """Uniform on 0 … n−1 for n far below 2^52."""
    return min(np.int64(uniform(s) * n), n - 1)


@kernel
def fill_words(counter, words):  # type: ignore[no-untyped-def]
    """Many random words at once: splitmix64 of a counter, a loop that vectorises."""
    start = counter[0]
    for k in range(len(words)):
        w = start + np.uint64(k) * GOLDEN
        w = (w ^ (w >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        w = (w ^ (w >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words[k] = w ^ (w >> np.uint64(31))
    counter[0] = start + np.uint64(len(words)) * GOLDEN


@kernel(fastmath=_FAST, error_model="numpy")
def fill_logits(bits, logits):  # type: ignore[no-untyped-def]
    """Standard logistic numbers log(u/(1−u)) from 32 random bits each, to 10⁻⁷.

    The logarithm is the polynomial of Cephes' logf after splitting off the exponent, written out
    so that the loop vectorises. Tails end at ±22.9, where the probability is 10⁻¹⁰.
    """
    for i in range(len(logits)):
        r = bits[i]
        up = np.float32(r) + np.float32(0.5)
        down = np.float32(np.uint32(~r)) + np.float32(0.5)
        whole = np.float32(up / down).view(np.int32)
        exponent = np.int32(np.int32(whole - np.int32(0x3F3504F3)) >> np.int32(23))
        x = np.int32(whole - np.int32(exponent << np.int32(23))).view(np.float32)
        x = np.float32(x - np.float32(1.0))
        y = np.float32(7.0376836292e-2)
        y = y * x + np.float32(-1.1514610310e-1)
        y = y * x + np.float32(1.1676998740e-1)
        y = y * x + np.float32(-1.2420140846e-1)
        y = y * x + np.float32(1.4249322787e-1)
        y = y * x + np.float32(-1.6668057665e-1)
        y = y * x + np.float32(2.0000714765e-1)
        y = y * x + np.float32(-2.4999993993e-1)
        y = y * x + np.float32(3.3333331174e-1)
        z = x * x
        y = y * x * z - np.float32(0.5) * z + x
        logits[i] = y + np.float32(exponent) * np.float32(0.6931471805599453)
