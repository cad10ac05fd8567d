"""Known groups of models, and whether a model belongs to any of them.

Groups overlap: one for each structure, each range of sizes, each range of coupling strengths,
answers that their engine vouches for, and ranges of the work that the others were. A busy machine
only changes how often these occur. All are functions of the model and of what the answer says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from icgi.calibration.features import NAMES, scaled
from icgi.model.graph import BoolArray, FloatArray, IntArray

SIZES = (20, 45, 100)  # variables at which the next range begins
COUPLINGS = (1.2, 3.0)  # of a variable
MARGIN = 0.15  # of the range of a feature, beyond which a model is outside
LEAST = 0.05  # range of a scaled feature that is the same in all calibration models
FEW = 5  # models below which a range of sizes is not looked at by itself
SMALL = 1e-6  # stated errors below this are not told apart
OFTEN = 0.98  # share of the calibration models that are near other ones
NEAREST = 3  # of them that are looked at
SHRUNK = 0.1  # of the correlations between features, as there may be few models


Edges = Mapping[str, FloatArray]
"""Of every structure the work at which the second and the third range of its answers begin."""


def membership(
    features: FloatArray,
    structures: Sequence[str],
    trusted: Sequence[bool],
    kinds: Sequence[str],
    efforts: IntArray | None = None,
) -> FloatArray:
    """Indicators k d: structures, sizes and couplings but the first, efforts, trusted answers."""
    size = features[:, NAMES.index("variables")]
    coupling = features[:, NAMES.index("coupling of a variable")]
    kind = np.array([[float(s == name) for name in kinds] for s in structures])
    ranges = [
        _range(values, edges) == b
        for values, edges in ((size, SIZES), (coupling, COUPLINGS))
        for b in range(1, len(edges) + 1)
    ]
    effort = np.zeros(len(features), int) if efforts is None else efforts
    columns = [kind.reshape(len(features), len(kinds)), *ranges, effort == 1, effort == 3, trusted]
    return np.column_stack(columns).astype(float)


def work_edges(work: FloatArray, structures: Sequence[str]) -> Edges:
    """Thirds of the work (k) of each structure; negative work is none that counts."""
    return {
        name: np.quantile(found, (1 / 3, 2 / 3))
        for name in dict.fromkeys(structures)
        if len(found := work[(np.array(structures) == name) & (work >= 0)])
    }


def efforts(work: FloatArray, structures: Sequence[str], edges: Edges) -> IntArray:
    """Range of the work of each answer (k), from 1 to 3; 0 where it does not count."""
    found = [
        1 + int(np.searchsorted(edges[s], w, side="right")) if w >= 0 and s in edges else 0
        for w, s in zip(work, structures, strict=True)
    ]
    return np.array(found, int)


def did_less(
    work: float,
    new: FloatArray,
    structure: str,
    made: FloatArray,
    features: FloatArray,
    structures: Sequence[str],
) -> str:
    """Say so where an answer is less work than any of its structure and size (k) was."""
    known = made[_near(new, structure, features, structures) & (made >= 0)]
    if work < 0 or not len(known) or work >= known.min():
        return ""
    return f"it is {work:.2g} core-seconds of work, there at least {known.min():.2g}"


def _near(
    new: FloatArray, structure: str, features: FloatArray, structures: Sequence[str]
) -> BoolArray:
    """Which models (k) have the structure and the range of sizes of a model; of few, all sizes."""
    size, others = (np.atleast_2d(f)[:, NAMES.index("variables")] for f in (new, features))
    same = np.array([s == structure for s in structures])
    near = same & (_range(others, SIZES) == _range(size, SIZES))
    return np.asarray(near if near.sum() >= FEW else same)


def in_words(features: FloatArray) -> str:
    """Ranges that a model (d) belongs to."""
    size = float(features[NAMES.index("variables")])
    coupling = float(features[NAMES.index("coupling of a variable")])
    return f"{_words(size, SIZES)} variables, coupling {_words(coupling, COUPLINGS)}"


def _range(values: FloatArray, edges: Sequence[float]) -> IntArray:
    return np.searchsorted(np.array(edges), values, side="right")


def _words(value: float, edges: Sequence[float]) -> str:
    b = int(np.searchsorted(np.array(edges), value, side="right"))
    if b == 0:
        return f"below {edges[0]:g}"
    return f"{edges[b - 1]:g} or more" if b == len(edges) else f"{edges[b - 1]:g} to {edges[b]:g}"


@dataclass(frozen=True, slots=True)
class Likeness:
    """How a model compares with calibration models."""

    unfamiliar: float  # distance to the nearest, 1: as far as these are from each other at most
    outside: str  # feature that is outside their range, in words; empty where none is
    nearest: str  # structure of the model that is nearest of all
    doubting: bool = False  # whether it is the answer that is unlike the others, not the model

    @property
    def familiar(self) -> bool:
        """Whether the model could be one of them."""
        return not self.outside and self.unfamiliar <= 1.0


def likeness(
    new: FloatArray, structure: str, features: FloatArray, structures: Sequence[str]
) -> Likeness:
    """Compare a model (d) with the calibration models (k d) of its structure."""
    if not len(features):
        return Likeness(np.inf, "there are no calibration models", "none")
    every, point = scaled(features), scaled(new)
    same = np.array([s == structure for s in structures])
    spread = np.maximum(every.std(0), LEAST)
    nearest = structures[int((((every - point) / spread) ** 2).sum(1).argmin())]
    if not same.any():
        return Likeness(np.inf, f"no calibration model is of its structure ({structure})", nearest)
    group = every[same]
    beyond = _beyond(point, group)
    worst = int(beyond.argmax())
    outside = ""
    if beyond[worst] > 1.0:
        ends = features[same][:, worst]
        outside = f"{NAMES[worst]} {new[worst]:.3g}, there {ends.min():.3g} to {ends.max():.3g}"
    return Likeness(_distance(point, group), outside, nearest)


def doubts_more(
    stated: float,
    new: FloatArray,
    structure: str,
    made: FloatArray,
    features: FloatArray,
    structures: Sequence[str],
) -> str:
    """Say so where an answer states a larger error than those of its structure and size (k) did.

    An engine that had less of the machine than when it was calibrated says so in this way.
    """
    known = made[_near(new, structure, features, structures)]
    if not len(known) or known.max() <= 0:
        return ""
    logs = np.log(np.maximum(known, SMALL))
    room = max(MARGIN * float(np.ptp(logs)), LEAST)
    if np.log(max(stated, SMALL)) <= logs.max() + room:
        return ""
    return f"its stated error is {stated:.2g}, there at most {known.max():.2g}"


def within(new: FloatArray, features: FloatArray) -> bool:
    """Whether all features of a model are in the range of all calibration models together."""
    return bool((_beyond(scaled(new), scaled(features)) <= 1.0).all())


def _beyond(point: FloatArray, group: FloatArray) -> FloatArray:
    """How far each feature is outside the range of a group, in units of the margin."""
    low, high = group.min(0), group.max(0)
    room = np.maximum(MARGIN * (high - low), LEAST)
    return np.asarray(np.maximum(low - point, point - high) / room)


def _distance(point: FloatArray, group: FloatArray) -> float:
    """Mean distance to the nearest of a group, in units of what separates nearly all of them.

    Features are whitened: a ratio of two features that is unusual in the group counts, too.
    """
    if len(group) <= NEAREST:
        return float("inf")
    centre, spread = group.mean(0), np.maximum(group.std(0), LEAST)
    standard = (group - centre) / spread
    correlation = (1 - SHRUNK) * np.cov(standard.T) + SHRUNK * np.eye(group.shape[1])
    values, vectors = np.linalg.eigh(correlation)
    whiten = vectors / np.sqrt(values)
    every, new = standard @ whiten, ((point - centre) / spread) @ whiten
    between = np.sqrt(((every[:, None] - every[None]) ** 2).sum(-1))
    np.fill_diagonal(between, np.inf)
    usual = float(np.quantile(_nearest(between), OFTEN))
    return float(_nearest(np.sqrt(((every - new) ** 2).sum(1))[None])[0]) / max(usual, LEAST)


def _nearest(distances: FloatArray) -> FloatArray:
    """Mean of the smallest distances of each row."""
    return np.asarray(np.sort(distances, 1)[:, :NEAREST].mean(1))
