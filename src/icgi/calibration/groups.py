"""Known groups of models, and whether a model belongs to any of them.

Groups overlap: one for each structure, each range of sizes, each range of coupling strengths,
answers that their engine vouches for, and ranges of the work that the others were. Where the clock
decides what an answer is, ranges of the error that it states and the route it came by are groups,
too: a busy machine only changes how often these occur. All are functions of the model and of what
the answer says about itself.
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
"""Of every structure the value at which the second and the third range of its answers begin."""


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """Models, and what each answer says about itself: all that groups depend on."""

    features: FloatArray  # k d
    structures: Sequence[str]  # k
    trusted: Sequence[bool]  # k
    work: FloatArray  # k  that an answer was; −1: unknown, or it ended by itself
    stated: FloatArray  # k  mean error that it states
    routes: Sequence[str]  # k  engine of a portfolio that answered; empty elsewhere

    @property
    def sizes(self) -> FloatArray:
        """Number of variables of each model."""
        return np.asarray(self.features[:, NAMES.index("variables")])


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Which groups calibration answers are divided into."""

    kinds: Sequence[str]  # structures
    work: Edges  # thirds of each structure; empty where the clock has no part in an answer
    stated: Edges
    routes: Sequence[str]
    clocked: bool  # whether the clock decided what an answer is

    @classmethod
    def of(cls, made: Answered, clocked: bool) -> "Groups":
        """Groups of calibration answers; whether the clock decided what they are."""
        kinds = tuple(dict.fromkeys(made.structures))
        if not clocked:
            return cls(kinds, thirds(made.work, made.structures), {}, (), False)
        stated = np.where(made.stated > 0, made.stated, -1.0)
        return cls(
            kinds,
            thirds(made.work, made.structures),
            thirds(stated, made.structures),
            tuple(sorted(set(made.routes) - {""}))[1:],
            True,
        )

    def members(self, those: Answered) -> FloatArray:
        """Indicators k d: structures, sizes and couplings but the first, and what answers say."""
        coupling = those.features[:, NAMES.index("coupling of a variable")]
        kind = np.array([[float(s == name) for name in self.kinds] for s in those.structures])
        ranges = [
            _range(values, edges) == b
            for values, edges in ((those.sizes, SIZES), (coupling, COUPLINGS))
            for b in range(1, len(edges) + 1)
        ]
        kind = kind.reshape(len(those.structures), len(self.kinds))
        effort, trusted = third(those.work, those.structures, self.work), np.array(those.trusted)
        columns = [effort == 1, effort == 3, trusted]
        if self.clocked:
            # a busy machine moves answers from those vouched for to the others, by structure
            columns += [(column > 0) & trusted for column in kind.T[1:]]
            doubt = third(those.stated, those.structures, self.stated)
            columns += [doubt == 1, doubt == 3]
        columns += [np.array([r == name for r in those.routes]) for name in self.routes]
        found = [kind, *ranges, *columns]
        return np.column_stack(found).astype(float)


def thirds(values: FloatArray, structures: Sequence[str]) -> Edges:
    """Thirds of the values (k) of each structure; negative ones do not count."""
    return {
        name: np.quantile(found, (1 / 3, 2 / 3))
        for name in dict.fromkeys(structures)
        if len(found := values[(np.array(structures) == name) & (values >= 0)])
    }


def third(values: FloatArray, structures: Sequence[str], edges: Edges) -> IntArray:
    """Range of each value (k), from 1 to 3; 0 where it does not count."""
    found = [
        1 + int(np.searchsorted(edges[s], v, side="right")) if v >= 0 and s in edges else 0
        for v, s in zip(values, structures, strict=True)
    ]
    return np.array(found, int)


def did_less(new: Answered, made: Answered) -> str:
    """Say so where an answer is less work than any of its structure and size was."""
    work = float(new.work[0])
    known = made.work[_near(new, made) & (made.work >= 0)]
    if work < 0 or not len(known) or work >= known.min():
        return ""
    return f"it is {work:.2g} core-seconds of work, there at least {known.min():.2g}"


def claims_otherwise(new: Answered, made: Answered, clocked: bool) -> str:
    """Say so where an answer states an error, or a way, that none of its structure and size did.

    An engine that had less of the machine than when it was calibrated states a larger error; where
    the clock decides what an answer is, a smaller one was never put to the test either.
    """
    known = made.stated[_near(new, made)]
    stated = float(new.stated[0])
    if len(known) and known.max() > 0:
        logs = np.log(np.maximum(known, SMALL))
        room = max(MARGIN * float(np.ptp(logs)), LEAST)
        if np.log(max(stated, SMALL)) > logs.max() + room:
            least = f"its stated error is {stated:.2g}, there at most {known.max():.2g}"
            return f"{least}; it may have had less of the machine, so give it more time"
        if clocked and np.log(max(stated, SMALL)) < logs.min() - room:
            least = f"its stated error is {stated:.2g}, there at least {known.min():.2g}"
            return f"{least}; none so sure was put to the test"
    if clocked and new.routes[0] not in made.routes:
        return f"it is by {new.routes[0] or 'an unnamed route'}, as none was there"
    return ""


def _near(new: Answered, made: Answered) -> BoolArray:
    """Which models (k) have the structure and the range of sizes of a model; of few, all sizes."""
    same = np.array([s == new.structures[0] for s in made.structures])
    near = same & (_range(made.sizes, SIZES) == _range(new.sizes, SIZES))
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
