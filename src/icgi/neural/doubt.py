"""How far the networks may be wrong, at least: a floor on their deviations.

What the networks say of themselves was learned on models of moderate couplings. Beyond those a
wrong answer is as sure as a right one, so the stated standard error has a floor that grows with
the largest difference of logarithms among the factors of a variable.
"""

import numpy as np

from icgi.model.graph import FactorGraph, FloatArray
from icgi.neural.pace import UNKNOWN
from icgi.neural.precision import LEAST_SUM

HALF = 8.0  # strength at which half of `UNKNOWN` is the floor
POWER = 2.0
ZEROS = 30.0  # strength of a table with zeros: what they are floored at inside the networks
TOO_STRONG = 1e6  # strength of which nothing is known


def floored(
    alpha: FloatArray, strength: FloatArray, spread: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Concentrations (n k) with a bounded sum, and standard errors (n k).

    Parameters
    ----------
    strength
        Largest difference of logarithms in a table of each variable (n).
    spread
        Variance between elimination orders (n k), where there are several.
    """
    total = alpha.sum(1, keepdims=True)
    p = alpha / total
    x = (strength / HALF) ** POWER
    least = UNKNOWN * x / (1.0 + x)  # n
    claimed = p * (1.0 - p) / (total + 1.0)
    variance = claimed + (0.0 if spread is None else spread) + least[:, None] ** 2
    free = (alpha > 0).sum(1) > 1
    variance = np.where((alpha > 0) & free[:, None], variance, 0.0)
    likeliest = np.take_along_axis(variance, p.argmax(1)[:, None], 1)
    peak = np.take_along_axis(p * (1.0 - p), p.argmax(1)[:, None], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(likeliest > 0, peak / likeliest - 1.0, np.inf)
    bounded = np.minimum(total, np.maximum(bound, LEAST_SUM))
    return p * bounded, np.sqrt(variance)


def strengths_of(model: FactorGraph) -> FloatArray:
    """Largest difference of logarithms in a table of two or more variables, for each (n)."""
    found = np.zeros(model.n_variables)
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if len(scope) > 1:
            finite = table[table > -np.inf]
            size = float(np.ptp(finite)) if finite.size else 0.0
            if finite.size < table.size:
                size = max(size, ZEROS)
            found[list(scope)] = np.maximum(found[list(scope)], size)
    return found
