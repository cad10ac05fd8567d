"""How well stated uncertainty fits: calibration error, coverage, widths, ranks.

A calibration error alone says little: an answer that is the same everywhere can have one of zero.
It belongs beside the mean error |p̂ − p| (`metrics.mean_absolute_error`).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from icgi.model.graph import BoolArray, FloatArray

BINS = 20


def top_bins(predicted: FloatArray, truth: FloatArray, bins: int = BINS) -> FloatArray:
    """Bins × (count, Σ p̂, Σ p) of every variable's likeliest state by the prediction.

    True marginals are soft labels: a bin's frequency is its mean true probability. Sums of several
    models may be added up before `calibration_error`.
    """
    top = predicted.argmax(1)[:, None]
    return _binned(
        np.take_along_axis(predicted, top, 1)[:, 0], np.take_along_axis(truth, top, 1)[:, 0], bins
    )


def class_bins(
    predicted: FloatArray, truth: FloatArray, states: BoolArray, bins: int = BINS
) -> FloatArray:
    """The same of all states of all variables; `states` n k are those that exist."""
    return _binned(predicted[states], truth[states], bins)


def calibration_error(sums: FloatArray) -> float:
    """ECE = Σ_b (n_b / n) |mean p̂ − mean p| of bins × (count, Σ p̂, Σ p)."""
    total = float(sums[:, 0].sum())
    return float(np.abs(sums[:, 1] - sums[:, 2]).sum() / total) if total else 0.0


def _binned(confidence: FloatArray, frequency: FloatArray, bins: int) -> FloatArray:
    where = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    return np.stack(
        [
            np.bincount(where, weights=values, minlength=bins)
            for values in (np.ones_like(confidence), confidence, frequency)
        ],
        1,
    )


def set_coverage(sets: BoolArray, truth: FloatArray) -> float:
    """Chance that a state drawn from the true marginal of a variable picked at random is in."""
    return float((sets * truth).sum(1).mean()) if len(truth) else 1.0


def set_size(sets: BoolArray) -> float:
    """States of a set, on average over the variables."""
    return float(sets.sum(1).mean()) if len(sets) else 0.0


def within_bands(low: FloatArray, high: FloatArray, truth: FloatArray) -> float:
    """Share of the variables all of whose true probabilities are within their bands."""
    return float(((low <= truth) & (truth <= high)).all(1).mean()) if len(truth) else 1.0


def worst_group(coverage: Mapping[str, Sequence[float]]) -> tuple[str, float]:
    """Group of smallest mean coverage, and that."""
    means = {name: float(np.mean(values)) for name, values in coverage.items() if len(values)}
    worst = min(means, key=lambda name: (means[name], name))
    return worst, means[worst]


def rank_correlation(stated: FloatArray, error: FloatArray) -> float:
    """Spearman's correlation of stated and true errors; 0 where one of them is constant."""
    if len(stated) < 2:
        return 0.0
    a, b = ranks(stated), ranks(error)
    spread = float(a.std() * b.std())
    return float(((a - a.mean()) * (b - b.mean())).mean()) / spread if spread > 0 else 0.0


def ranks(values: FloatArray) -> FloatArray:
    """Ranks from 0; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts + 1) / 2)[inverse])
