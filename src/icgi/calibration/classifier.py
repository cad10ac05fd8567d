"""Ratio of densities between two kinds of models, by a classifier.

A small logistic regression on the scaled features, cross-fitted: every model's probability comes
from a fit that has not seen it. With g the probability of coming from the target models, g/(1−g) is
the ratio of the densities up to a constant, which conformal weights do not need (eq. wcp).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from icgi.calibration.features import scaled
from icgi.conformal.metrics import ranks
from icgi.conformal.shift import density_ratio
from icgi.model.graph import BoolArray, FloatArray

FOLDS = 5
RIDGE = 1.0  # on coefficients of standardised features
STEPS = 50


@dataclass(frozen=True, slots=True, eq=False)
class DomainClassifier:
    """Fits of all folds, and how well they tell the two kinds apart on models they did not see."""

    name: str  # of the target models
    centre: FloatArray  # d
    spread: FloatArray  # d
    coefficients: FloatArray  # c d+1   one row for each fold, the constant last
    auc: float  # of cross-fitted probabilities; 0.5: no difference to be seen
    odds: FloatArray  # k   of the calibration models, cross-fitted and clipped

    def ratio(self, features: FloatArray) -> FloatArray:
        """Odds of new models (k d), by the mean of the folds' probabilities, clipped."""
        x = (scaled(features) - self.centre) / self.spread
        each = np.stack([probability(x, c) for c in self.coefficients])
        return density_ratio(each.mean(0))


def told_apart(
    calibration: FloatArray, target: FloatArray, name: str = "target", seed: int = 0
) -> DomainClassifier:
    """Fit on features of calibration models (k d) and of target models (m d)."""
    x = scaled(np.concatenate([calibration, target]))
    labels = np.arange(len(x)) >= len(calibration)
    centre, spread = x.mean(0), np.maximum(x.std(0), 1e-3)
    x = (x - centre) / spread
    folds = np.random.default_rng(seed).permutation(len(x)) % FOLDS
    found = np.zeros(len(x))
    fits = []
    for fold in range(FOLDS):
        own = folds == fold
        fits.append(logistic(x[~own], labels[~own]))
        found[own] = probability(x[own], fits[-1])
    return DomainClassifier(
        name, centre, spread, np.stack(fits), auc(found, labels), density_ratio(found[~labels])
    )


def logistic(x: FloatArray, labels: BoolArray, ridge: float = RIDGE) -> FloatArray:
    """Coefficients (d + 1) of least log loss plus ridge/2 Σ c², by Newton's method.

    Both kinds have the same weight together, however many there are of each.
    """
    design = np.column_stack([x, np.ones(len(x))])
    weight = np.where(labels, 0.5 / max(labels.sum(), 1), 0.5 / max((~labels).sum(), 1)) * len(x)
    penalty = np.diag([*np.full(x.shape[1], ridge), 1e-6])
    found = np.zeros(design.shape[1])
    for _ in range(STEPS):
        p = probability(x, found)
        gradient = design.T @ (weight * (p - labels)) + penalty @ found
        curvature = (design * (weight * p * (1 - p))[:, None]).T @ design + penalty
        step = np.linalg.solve(curvature, gradient)
        found = found - step * min(1.0, 4.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-8:
            break
    return found


def probability(x: FloatArray, coefficients: FloatArray) -> FloatArray:
    """1 / (1 + exp(−(c·x + constant)))."""
    logits = x @ coefficients[:-1] + coefficients[-1]
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logits, -60, 60))))


def auc(scores: FloatArray, labels: BoolArray | Sequence[bool]) -> float:
    """Chance that a target model has a higher score than a calibration model; ties count half."""
    labels = np.asarray(labels)
    high, low = int(labels.sum()), int((~labels).sum())
    if not high or not low:
        return 0.5
    return float((ranks(scores)[labels].sum() - high * (high - 1) / 2) / (high * low))
