"""Bands around marginals: |p̂ − p| ≤ q·σ for all but a few variables of a model.

The statement is about models: with probability 1 − α over models like those of the calibration set,
at least a share 1 − ε of the variables of this model is within its band. Each calibration model
therefore counts once, by the score that a share 1 − ε of its variables does not exceed.
"""

from collections.abc import Sequence

import numpy as np

from icgi.conformal.quantiles import largest_of_most, weighted_quantile
from icgi.model.graph import FloatArray

EXCEPTIONS = 0.1  # ε
LEAST_SCALE = 1e-9  # σ of an answer that is exact to rounding


def band_score(
    predicted: FloatArray,
    truth: FloatArray,
    scale: FloatArray,
    exceptions: float = EXCEPTIONS,
    reference_error: FloatArray | None = None,
    sureness: float = 2.0,
    least: float = 0.0,
) -> float:
    """Score of one model: R = (|p̂ − p̃| + z·se) / σ, largest over states, of most variables.

    Where the reference is itself an estimate its error is added z times, so that the score is too
    small only where the reference is off by more than that. Errors below `least` count as large as
    this: bands that hold for them hold for smaller ones, too, and thresholds do not depend on how
    many digits of a right answer are right.
    """
    gap = np.abs(predicted - truth)
    if reference_error is not None:
        gap = gap + sureness * reference_error
    errors = np.maximum(gap.max(1), least)
    return largest_of_most(errors / np.maximum(scale, LEAST_SCALE), exceptions)


def band_factor(
    scores: Sequence[float], weights: FloatArray, test_weight: float, alpha: float
) -> float:
    """Factor q on the scales of a new model; infinite where nothing can be promised."""
    return weighted_quantile(np.asarray(scores, np.float64), weights, test_weight, alpha)


def bands(predicted: FloatArray, scale: FloatArray, factor: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends, within [0, 1]."""
    half = np.minimum(factor * np.maximum(scale, LEAST_SCALE), 1.0)[:, None]
    return np.clip(predicted - half, 0.0, 1.0), np.clip(predicted + half, 0.0, 1.0)
