"""One variable given all others: drawing its state, and how much the others can matter."""

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from icgi.kernels import kernel
from icgi.model.graph import FloatArray

Index: TypeAlias = NDArray[np.uint64]
"""Positions. Unsigned, or compiled code tests every index for being negative: twice as slow."""

ONE = np.uint64(1)


@kernel
def choose(weight, card, total, u, local, low, record):  # type: ignore[no-untyped-def]
    """State drawn by inversion of `u` from weights of the given sum.

    The distribution goes to `local[low:]` where asked for.
    """
    if record:
        for y in range(card):
            local[low + y] = weight[y] / total
    left = u * total
    drawn = np.uint64(0)
    while drawn < card - ONE:
        left -= weight[drawn]
        if left < 0.0:
            break
        drawn += ONE
    while weight[drawn] == 0.0:  # u close to one and rounding in the sum
        drawn -= ONE
    return drawn


@kernel(inline="always")
def bounded_exp(x):  # type: ignore[no-untyped-def]
    """e^x for log weights relative to the present state; e^300 is as good as certain."""
    return math.exp(min(x, 300.0))


def conditional_range(first: Index, high: FloatArray, low: FloatArray) -> FloatArray:
    """Largest less smallest p(x_i = x | rest), from bounds on the log weights of each state.

    p is largest with the state's own weight at its highest and those of the others at their lowest.
    """
    begin = first[:-1].astype(np.int64)
    each = (first[1:] - first[:-1]).astype(np.int64)
    top = np.maximum.reduceat(high, begin)
    up = np.exp(high - np.repeat(top, each))
    down = np.exp(low - np.repeat(top, each))
    others_down = np.repeat(np.add.reduceat(down, begin), each) - down
    others_up = np.repeat(np.add.reduceat(up, begin), each) - up
    with np.errstate(invalid="ignore"):
        spread = up / (up + others_down) - down / (down + others_up)
    return np.asarray(np.clip(np.nan_to_num(spread, nan=1.0), 0.0, 1.0))
