"""One variable given all others: drawing its state, and how much the others can matter."""

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from icgi.kernels import kernel
from icgi.model.graph import FloatArray, IntArray

Index: TypeAlias = NDArray[np.uint64]
"""Positions. Unsigned, or compiled code tests every index for being negative: twice as slow."""

ONE = np.uint64(1)


@kernel
def weigh_states(weight, card, scale):  # type: ignore[no-untyped-def]
    """Turn log weights into e^(λ (θ − largest θ)) in place; returns their sum.

    The largest becomes one, whatever the range, so never are all of them zero; −inf is a state
    that must not be drawn. Some log weight has to be finite.
    """
    top = weight[0]
    for y in range(card):
        top = max(top, weight[y])
    total = 0.0
    for y in range(card):
        # the largest first: at λ = 0 a forbidden state would be 0 · ∞
        weight[y] = 0.0 if weight[y] == -np.inf else math.exp(scale * (weight[y] - top))
        total += weight[y]
    return total


@kernel
def choose(weight, card, total, u, local, low, record):  # type: ignore[no-untyped-def]
    """State drawn by inversion of `u` from weights of the given sum, always one of positive weight.

    The distribution goes to `local[low:]` where asked for.
    """
    if record and total > 0.0:
        for y in range(card):
            local[low + y] = weight[y] / total
    left = u * total
    drawn = np.uint64(0)
    for y in range(card):
        if weight[y] > 0.0:
            drawn = np.uint64(y)  # stays where rounding in the sum leaves a rest
            left -= weight[y]
            if left < 0.0:
                break
    return drawn


def conditional_range(first: Index, high: FloatArray, low: FloatArray) -> FloatArray:
    """Largest less smallest p(x_i = x | rest), from bounds on the log weights of each state.

    p is largest with the state's own weight at its highest and those of the others at their lowest.
    """
    begin = first[:-1].astype(np.int64)
    each = (first[1:] - first[:-1]).astype(np.int64)
    top = np.maximum.reduceat(high, begin)
    up = np.exp(high - np.repeat(top, each))
    down = np.exp(low - np.repeat(top, each))
    others_down, others_up = _others(down, begin, each), _others(up, begin, each)
    with np.errstate(invalid="ignore"):
        spread = up / (up + others_down) - down / (down + others_up)
    return np.asarray(np.clip(np.nan_to_num(spread, nan=1.0), 0.0, 1.0))


def _others(weight: FloatArray, begin: IntArray, each: IntArray) -> FloatArray:
    """Sum of the weights of a variable's other states, without taking a large one from the sum."""
    top = np.repeat(np.maximum.reduceat(weight, begin), each)
    total = np.repeat(np.add.reduceat(weight, begin), each)
    place = np.arange(len(weight))
    first = np.repeat(np.minimum.reduceat(np.where(weight == top, place, len(weight)), begin), each)
    rest = np.where(place == first, 0.0, weight)
    small = np.repeat(np.add.reduceat(rest, begin), each)
    return np.where(place == first, small, total - weight)
