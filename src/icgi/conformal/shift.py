"""Weights for a model that is unlike the calibration set, and when they no longer help.

With the odds g/(1−g) of a classifier that tells calibration from test models, w = g/(1−g) is the
ratio of their densities (eq. wcp of the paper). Estimated ratios are clipped; what that may cost
in coverage is δ = ½ E|ŵ − w| under the calibration law, both normalised to mean one.
"""

from dataclasses import dataclass

import numpy as np

from icgi.model.graph import FloatArray

CLIP = (0.01, 0.99)  # of the classifier's probability: ratios between 1/99 and 99


@dataclass(frozen=True, slots=True)
class Support:
    """How much calibration data speaks for a model."""

    effective: float  # number of models that equal weights would need for the same variance
    test_share: float  # share of all mass that is on the model itself
    largest: float  # share of the heaviest calibration model

    def suffices(self, alpha: float) -> bool:
        """Whether a level of 1 − α can be promised from so much."""
        return self.effective >= 1 / alpha and self.test_share <= alpha


def density_ratio(probability: FloatArray) -> FloatArray:
    """Odds that a model comes from the test law, by the classifier's (clipped) probability."""
    clipped = np.clip(probability, *CLIP)
    return np.asarray(clipped / (1 - clipped))


def support(weights: FloatArray, test_weight: float) -> Support:
    """Effective number of models (Σw)²/Σw², and who carries the mass."""
    total = float(weights.sum())
    if not total > 0:
        return Support(0.0, 1.0, 0.0)
    effective = total**2 / float((weights**2).sum())
    whole = total + test_weight
    return Support(effective, test_weight / whole, float(weights.max()) / whole)


def loss_of_coverage(estimated: FloatArray, true: FloatArray) -> float:
    """δ = ½ E|ŵ − w| over calibration models, weights normalised to mean one."""
    return float(np.abs(estimated / estimated.mean() - true / true.mean()).mean() / 2)
