"""Quantiles of weighted calibration scores, with the test point's own weight at infinity.

Models are exchangeable, the variables of one model are not. So every calibration model has total
mass w_k, however many variables it has, and the model in question has mass w_t on a score of
infinity (Tibshirani et al. 2019 for weights; Lee, Barber and Willett 2023 for the hierarchy).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from icgi.errors import IcgiError
from icgi.model.graph import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Atoms:
    """Scores of one calibration model and the mass on each; masses sum to one."""

    scores: FloatArray  # m
    masses: FloatArray  # m


def weighted_quantile(
    scores: FloatArray, weights: FloatArray, test_weight: float, alpha: float
) -> float:
    """Level 1 − α quantile of Σ_k w_k δ(s_k) + w_t δ(∞), weights normalised to one.

    Infinite where the models that are left cannot carry that much mass: no finite answer would
    keep the promise.
    """
    if not 0 < alpha < 1:
        raise IcgiError(f"alpha={alpha} should be between 0 and 1")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and test_weight >= 0):
        raise IcgiError("weights of calibration models should be finite and not negative")
    order = np.argsort(scores, kind="stable")
    mass = np.cumsum(weights[order])
    total = float(mass[-1]) + test_weight if len(mass) else test_weight
    # a relative tolerance, so that 9 of 10 equal weights reach the level 0.9
    reached = mass >= (1 - alpha) * total * (1 - 1e-12)
    return float(scores[order][np.argmax(reached)]) if reached.any() else math.inf


def hierarchical_quantile(
    models: Sequence[Atoms], weights: FloatArray, test_weight: float, alpha: float
) -> float:
    """The same for models with many scores each: Σ_k w_k Σ_a mass_ka δ(s_ka) + w_t δ(∞)."""
    if len(models) != len(weights):
        raise IcgiError(f"{len(models)} calibration models but {len(weights)} weights")
    scores = np.concatenate([atoms.scores for atoms in models]) if models else np.zeros(0)
    parts = [w * atoms.masses for w, atoms in zip(weights.tolist(), models, strict=True)]
    return weighted_quantile(
        scores, np.concatenate(parts) if parts else np.zeros(0), test_weight, alpha
    )


def largest_of_most(scores: FloatArray, exceptions: float) -> float:
    """The ⌈(1−ε)N⌉-th smallest of N scores: all but a share ε of the variables are below it."""
    if not 0 <= exceptions < 1:
        raise IcgiError(f"a share of exceptions of {exceptions} should be at least 0 and below 1")
    if not len(scores):
        return 0.0
    rank = math.ceil((1 - exceptions) * len(scores) - 1e-9)
    return float(np.partition(scores, rank - 1)[rank - 1])
