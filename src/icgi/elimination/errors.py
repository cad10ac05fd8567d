"""Standard errors of `ttve`, by regression on the statistics of its run.

Three signals fall with the error over many orders of magnitude: how far the marginals move between
the last two pairs of passes, how far from an answer at half the rank, and the spread of log Z over
the steps. A regression on models whose marginals are known (benchmarks/ttve_errors.py) turns their
logarithms, of each state and on average over the model, into the logarithm of the error.

Barren variables (`icgi.model.structure.barren`), as all of a Bayesian network without evidence,
sum to a constant whatever the cuts have done to the rest, so that the spread of log Z says nothing
about them. For them it counts as at least what is usual for as much as was cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from icgi.inference import UNKNOWN_ERROR
from icgi.model.graph import BoolArray, FloatArray

_TINY = 1e-13
# Median spread of log Z over the sum of the cuts, of 401 answers to eight families without barren
# variables (benchmarks/results/ttve_study.jsonl).
_USUAL_SPREAD = 0.04
_LEAST = 1e-9  # a band below what double precision leaves of a long calculation is no band


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """What is known about the error of marginals that were found in one way."""

    way: str  # train, branches, fixed point (of messages), messages or unary
    probs: FloatArray  # n k
    spread: float = 0.0  # of log Z; of a mixture, what all leaves together may add
    moved: Mapping[str, FloatArray] = field(default_factory=dict)  # n k  distances to other answers
    cut: float = 0.0  # Σ_t ε_t of what was discarded
    barren: BoolArray | None = None  # n    variables that log Z does not depend on

    @property
    def kind(self) -> str:
        """Which regression applies."""
        return "+".join([self.way, *sorted(self.moved)])

    def features(self) -> FloatArray:
        """Logarithms n k d: one, √(p(1 − p)), spread, and of each distance itself and its mean."""
        p = self.probs
        width = 0.5 * np.log(np.maximum(p * (1.0 - p), 1e-8))
        spread = np.full_like(p, self.spread if np.isfinite(self.spread) else 1e3)
        if self.barren is not None:
            seen = np.maximum(spread, _USUAL_SPREAD * self.cut)
            spread = np.where(self.barren[:, None], seen, spread)
        out = [np.ones_like(p), width, np.log(np.clip(spread, _TINY, 1e3))]
        for name in sorted(self.moved):
            moved = np.nan_to_num(self.moved[name])
            mean = float(moved.mean()) if moved.size else 0.0
            out += [np.log(moved + 0.01 * mean + _TINY), np.full_like(p, np.log(mean + _TINY))]
        return np.stack(out, -1)


# By kind of signals: factors of `Signals.features`, from benchmarks/ttve_errors.py --fit.
_FACTORS: dict[str, tuple[float, ...]] = {
    "branches+root": (-1.374, 0.070, 0.770, 0.330, -0.324),
    # the fit says −3.5, but random models have no fixed points that are wrong all over; real do
    "fixed point": (-1.9, 0.200, 0.0),
    "messages": (-0.450, 0.200, 0.0),
    "train": (-1.865, 0.239, 0.795),
    "train+change": (-0.356, 0.162, 0.254, 0.457, 0.137),
    "train+change+halving": (-0.145, 0.132, 0.254, 0.434, 0.129, 0.145, -0.058),
    "train+halving": (-1.089, 0.038, 0.672, 0.300, 0.064),
    "unary": (-0.710, 0.200, 0.0),
}


def standard_errors(signals: Signals) -> FloatArray:
    """Standard errors n k such that 1.645 of them hold nine of ten true marginals."""
    found = np.exp(signals.features() @ np.array(_FACTORS[signals.kind]))
    return np.asarray(np.clip(found, _LEAST, UNKNOWN_ERROR))


def estimated_error(std_error: FloatArray | None) -> float:
    """Mean over variables of the largest standard error of a state."""
    if std_error is None or not std_error.size:
        return 0.0
    return float(std_error.max(1).mean())
