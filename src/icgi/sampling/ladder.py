"""Placing the levels λ_0 = 0 … 1 so that all swaps between neighbours are equally likely.

The rejection rate r_t between neighbours measures a distance that adds up along the ladder, the
barrier Λ = Σ r_t; it does not depend on where the levels are as long as they are dense. Equal
shares of Λ are best, and about 2Λ levels, where half of the swaps are rejected (Syed,
Bouchard-Côté, Deligiannidis and Doucet 2022).
"""

import numpy as np

from icgi.model.graph import FloatArray

FEWEST = 3


def first_ladder(levels: int, hottest: float, spread: float) -> FloatArray:
    """Geometric levels from one over the spread of log weights at λ = 0 up to one."""
    if levels == 1:
        return np.ones(1)
    low = max(hottest, min(0.5, 1.0 / max(spread, 1e-300)))
    if hottest > 0:
        return np.asarray(np.geomspace(hottest, 1.0, levels))
    if levels == 2:
        return np.array([0.0, 1.0])
    return np.concatenate([[0.0], np.geomspace(low, 1.0, levels - 1)])


def barrier(rejection: FloatArray) -> float:
    """Λ, the sum of rejection rates along the ladder."""
    return float(rejection.sum())


def wanted_levels(rejection: FloatArray, most: int) -> int:
    """Number of levels for which about half of the swaps would be rejected.

    Rates near one hide how far apart two levels are, so a saturated ladder is doubled.
    """
    levels = len(rejection) + 1
    if rejection.mean() > 0.7:
        return min(2 * levels, most)
    return int(np.clip(np.ceil(2.0 * barrier(rejection)) + 2, FEWEST, most))


def respaced(ladder: FloatArray, rejection: FloatArray, levels: int) -> FloatArray:
    """Levels that cut Λ(λ), interpolated monotonically, into equal shares."""
    from scipy.interpolate import PchipInterpolator

    # a floor keeps Λ increasing where no swap was rejected
    share = np.maximum(rejection, 1e-3 * max(float(rejection.max(initial=0.0)), 1e-3))
    distance = np.concatenate([[0.0], np.cumsum(share)])
    wanted = np.linspace(0.0, distance[-1], levels)
    placed = PchipInterpolator(distance, ladder)(wanted)
    placed[0], placed[-1] = ladder[0], 1.0
    return np.asarray(np.maximum.accumulate(placed))
