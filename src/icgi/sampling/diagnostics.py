"""Is the chain long enough? Standard errors, effective sample sizes and R-hat from batch means.

Everything is computed from sums over batches of consecutive sweeps, so no series is ever stored.
Axis letters: `m` ensembles, `b` batches, trailing axes are what was measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icgi.model.graph import BoolArray, FloatArray, IntArray

ROUNDING = 1e-12  # errors below this are those of the arithmetic
MOVING = 1e-4  # variance of p(x_i | rest) from which on its own effective size counts
NEGLIGIBLE = 1e-6  # disagreement of probabilities below this is no reason to distrust a chain


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Mean of every slot and how well it is known."""

    mean: FloatArray
    std_error: FloatArray  # the larger of the error within ensembles and ŝ/√m between them
    deviation: FloatArray  # ŝ: standard deviation of the ensembles' means (paper, eq. loss-cal)
    rhat: FloatArray
    ess: FloatArray  # effective number of independent draws, all ensembles together
    moving: BoolArray  # whether p(x_i | rest) varied enough to count its draws


class Moments(NamedTuple):
    """What the batches of some slots say, before slots are compared with each other."""

    mean: FloatArray
    error: FloatArray
    deviation: FloatArray
    rhat: FloatArray
    ess: FloatArray
    variance: FloatArray
    draws: int  # all sweeps of all ensembles


def summarise(
    total: FloatArray,
    square: FloatArray,
    length: int,
    rest: FloatArray,
    left_over: int,
    reach: FloatArray,
) -> Summary:
    """Summary of batch sums.

    Parameters
    ----------
    total, square
        m b …, sums and sums of squares over the `length` sweeps of each full batch.
    rest
        m …, sums over the `left_over` sweeps of the last, unfinished batch: they count in the
        mean, not in the errors.
    reach
        How far a draw can lie from another at most. What was never seen has a probability of some
        1/ess, so the error is at least reach/ess.
    """
    return compared([moments(total, square, length, rest, left_over)], reach)


def moments(
    total: FloatArray, square: FloatArray, length: int, rest: FloatArray, left_over: int
) -> Moments:
    """Moments of slots from their batch sums, as `summarise` takes them."""
    m, b = total.shape[:2]
    sweeps = b * length + left_over
    each = (total.sum(1) + rest) / sweeps  # m …
    mean = each.mean(0)
    deviation = each.std(0, ddof=1) if m > 1 else np.full_like(mean, np.inf)
    within = batch_error(total / length) if b > 1 else np.zeros_like(mean)
    variance = np.maximum(square.mean((0, 1)) / length - mean**2, 0.0) if b else np.zeros_like(mean)
    between = deviation / np.sqrt(m)
    error = np.maximum(within, between) * student(within, between, m - 1)
    noisy = error > ROUNDING
    ess = np.where(noisy, variance / np.where(noisy, error, 1.0) ** 2, m * sweeps)
    ess = np.clip(ess, 1.0, m * sweeps)
    rhat = split_rhat(total, square, length)
    return Moments(mean, error, deviation, rhat, ess, variance, m * sweeps)


def compared(parts: Sequence[Moments], reach: FloatArray) -> Summary:
    """Summary of all slots, given in parts along their first axis; `reach` as in `summarise`."""
    mean, error, deviation, rhat, ess, variance = (
        np.concatenate(values) if len(parts) > 1 else values[0]
        for values in zip(*(part[:-1] for part in parts), strict=True)
    )
    # A slot that hardly moves says little about how fast the chain does; the others do.
    moving = variance > MOVING
    typical = float(np.median(ess[moving])) if moving.any() else parts[0].draws
    error = np.maximum(error, reach / np.where(moving, ess, np.maximum(ess, typical)))
    return Summary(mean, error, deviation, rhat, ess, moving)


def student(within: FloatArray, between: FloatArray, degrees: float) -> FloatArray:
    """Factor for which a normal 90 % band has the width of Student's.

    Errors that the few ensembles decide have `degrees` of freedom, those of batches have many.
    """
    if degrees < 1:
        return np.ones_like(within)
    from scipy.special import ndtri, stdtrit

    total = within**2 + between**2
    share = np.divide(between**2, total, out=np.zeros_like(total), where=total > 0)
    many = degrees / np.maximum(share, 1e-3) ** 2  # Satterthwaite
    # where both views agree, the larger of the two is wide enough as it is
    return np.where(share > 0.8, stdtrit(many, 0.95) / ndtri(0.95), 1.0)


def batch_error(means: FloatArray) -> FloatArray:
    """Standard error of the mean of m × b consecutive batch means, lugsail-corrected.

    With s²_b the error from b batches per ensemble, batches that are too short for the correlation
    time give s²_b < s²_{b/2}; 2 s²_{b/2} − s²_b removes the leading bias (Vats and Flegal 2022).
    The largest of the three is taken.
    """
    fine = _error_squared(means)
    m, b = means.shape[:2]
    if b < 4:
        return np.sqrt(fine)
    half = b // 2
    joined = means[:, b - 2 * half :].reshape(m, half, 2, *means.shape[2:]).mean(2)
    coarse = _error_squared(joined)
    return np.sqrt(np.maximum(np.maximum(fine, coarse), 2.0 * coarse - fine))


def _error_squared(means: FloatArray) -> FloatArray:
    m, b = means.shape[:2]
    around = means - means.mean(1, keepdims=True)
    return np.asarray((around**2).sum((0, 1)) / (m * (b - 1)) / (m * b))


def split_rhat(total: FloatArray, square: FloatArray, length: int) -> FloatArray:
    """Split R-hat: √((N−1)/N + B/W) over the two halves of every ensemble (Gelman et al. 2013).

    B is the variance of the means of the halves, W the mean of their variances. Infinite while
    there are fewer than two batches a half.
    """
    b = total.shape[1] // 2
    if b < 2:
        return np.full(total.shape[2:], np.inf)
    count = b * length
    parts = [slice(0, b), slice(total.shape[1] - b, None)]
    means = np.concatenate([total[:, part].sum(1) for part in parts]) / count  # 2m …
    squares = np.concatenate([square[:, part].sum(1) for part in parts]) / count
    inside = np.maximum(squares - means**2, 0.0).mean(0) * count / (count - 1)
    between = means.var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rhat = np.sqrt((count - 1) / count + between / inside)
    return np.where(between <= NEGLIGIBLE**2, 1.0, rhat)


def series_error(series: FloatArray, batches: int = 32) -> float:
    """Standard error of the mean of m × s draws, the larger of within and between ensembles."""
    m, s = series.shape
    b = min(batches, s)
    between = float(series.mean(1).std(ddof=1) / np.sqrt(m)) if m > 1 else np.inf
    if b < 2:
        return between
    cut = series[:, s - s // b * b :].reshape(m, b, s // b).mean(2)
    return max(float(batch_error(cut)), between)


def series_rhat(series: FloatArray) -> float:
    """Split R-hat of m × s draws of any scale."""
    s = series.shape[1]
    half = s // 2
    if half < 4:
        return np.inf
    parts = np.concatenate([series[:, :half], series[:, s - half :]])
    inside, between = parts.var(1, ddof=1).mean(), parts.mean(1).var(ddof=1)
    if between <= 1e-20 * max(1.0, float(np.abs(series).max())) ** 2:
        return 1.0
    return float(np.sqrt((half - 1) / half + between / inside)) if inside > 0 else np.inf


def grouped_rhat(values: FloatArray, group: IntArray, least: int = 10) -> float:
    """√(1 + B/W) between groups of at least `least` draws; infinite with fewer than two of them.

    Says whether the replicas that visit the hot end forget there where they came from.
    """
    _, where, sizes = np.unique(group, return_inverse=True, return_counts=True)
    keep = np.flatnonzero(sizes >= least)
    if len(keep) < 2:
        return np.inf
    chosen = [values[where == k] for k in keep]
    inside = float(np.mean([part.var(ddof=1) for part in chosen]))
    between = float(np.var([part.mean() for part in chosen], ddof=1))
    return float(np.sqrt(1.0 + between / inside)) if inside > 0 else np.inf
