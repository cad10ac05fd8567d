"""Statistics of benchmark numbers: means and medians, paired tests, ties, exponents."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.05  # of tests, divided by their number (Bonferroni)
SKEWED = 1.5  # ratio of mean and median from which the median is shown
TIE = 3.0  # standard errors of the reference below which a difference is none


@dataclass(frozen=True, slots=True)
class Spread:
    """Numbers of several graphs in short."""

    mean: float
    sd: float
    median: float
    count: int

    @property
    def skewed(self) -> bool:
        """Whether the mean alone would mislead."""
        low, high = sorted((abs(self.mean), abs(self.median)))
        return self.count > 2 and high > SKEWED * low


def spread(values: Sequence[float]) -> Spread:
    """Mean, standard deviation (n − 1) and median; infinite values make the mean infinite."""
    found = np.asarray(values, np.float64)
    if not found.size:
        return Spread(math.nan, math.nan, math.nan, 0)
    finite = bool(np.isfinite(found).all())
    sd = float(found.std(ddof=1)) if finite and found.size > 1 else 0.0 if finite else math.nan
    return Spread(float(found.mean()), sd, float(np.median(found)), found.size)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two methods on the same graphs."""

    graphs: int
    difference: float  # median of first − second
    p: float  # Wilcoxon signed-rank, two-sided, times the number of tests
    tie: bool  # mean difference below three standard errors of the references

    @property
    def verdict(self) -> str:
        """What follows for the first, where less is better."""
        if self.tie:
            return "tie"
        if self.p > LEVEL or self.difference == 0:
            return "not significant"
        return "better" if self.difference < 0 else "worse"


def compare(
    first: Sequence[float], second: Sequence[float], tests: int, reference_error: float
) -> Comparison:
    """Wilcoxon signed-rank test of paired values, with Bonferroni's correction."""
    from scipy.stats import wilcoxon

    gap = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    gap = gap[np.isfinite(gap)]
    if not gap.size:
        return Comparison(0, math.nan, 1.0, False)
    moved = gap[gap != 0]
    p = float(wilcoxon(moved).pvalue) if moved.size else 1.0
    tie = abs(float(gap.mean())) <= TIE * reference_error
    return Comparison(gap.size, float(np.median(gap)), min(1.0, p * tests), tie)


@dataclass(frozen=True, slots=True)
class Exponent:
    """y ∝ x^value, fitted to logarithms."""

    value: float
    error: float  # standard error; infinite for two points


def exponent(x: Sequence[float], y: Sequence[float]) -> Exponent | None:
    """Exponent of growth, None for fewer than two different x."""
    a, b = np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64))
    if len(set(a.tolist())) < 2:
        return None
    a = a - a.mean()
    slope = float((a * b).sum() / (a * a).sum())
    rest = b - b.mean() - slope * a
    if len(a) < 3:
        return Exponent(slope, math.inf)
    return Exponent(slope, math.sqrt(float((rest**2).sum()) / (len(a) - 2) / float((a * a).sum())))
