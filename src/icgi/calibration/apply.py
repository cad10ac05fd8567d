"""Guarantees for one answer: sets, bands, and the sentences that state them.

Exact answers need no calibration. Otherwise the model is compared with the calibration models.
Where it is like those of its structure, thresholds hold in all of its groups; where it is not,
weights may help if the calibration was made towards models of its kind; else nothing is promised.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from icgi.answer import Answer
from icgi.calibration import sentences
from icgi.calibration.features import Portrait, portrait
from icgi.calibration.file import Calibration, require_for, shipped
from icgi.calibration.groups import (
    MARGIN,
    Answered,
    Groups,
    Likeness,
    claims_otherwise,
    did_less,
    in_words,
    likeness,
    within,
)
from icgi.calibration.measure import MASSES, route_of
from icgi.calibration.scales import own_error, scale, signals
from icgi.conformal.bands import bands
from icgi.conformal.groups import conditional_quantile
from icgi.conformal.quantiles import Atoms, hierarchical_quantile
from icgi.conformal.scores import SCORES, sets_of_states
from icgi.conformal.shift import Support, support
from icgi.errors import IcgiError
from icgi.inference import Status
from icgi.model.condition import Conditioned, condition
from icgi.model.graph import BoolArray, FloatArray

Kind = Literal["exact", "groups", "weighted", "none"]
Thresholds = tuple[float, float]  # of the score of sets, of the factor of bands
# Times the seconds of the calibration that an answer needs where the engine does not count its
# work: it may come from a slower or busier machine, on which the same seconds are less of it.
ROOM = 4.0
SMALLEST = 1e-12  # score of a band, so that its logarithm is finite


@dataclass(frozen=True, slots=True, eq=False)
class Guarantee:
    """What is promised about an answer, at any level, and on what it rests."""

    kind: Kind
    probs: FloatArray  # n k
    possible: BoolArray  # n k
    refusal: str = ""  # the sentence, where nothing is promised
    unfamiliar: float | None = None
    nearest: str = ""
    structure: str = ""
    calibration: Calibration | None = None
    features: FloatArray | None = None  # d
    scale: FloatArray | None = None  # n
    said: Answered | None = None  # by the answer about itself, as in a calibration
    _found: dict[float, Thresholds] = field(default_factory=dict, repr=False)

    def refused(self, level: float = 0.9) -> str:
        """Why nothing is promised at a level; empty where something is."""
        if self.kind == "none":
            return self.refusal
        if self.kind == "exact" or all(map(math.isfinite, self._thresholds(level))):
            return ""
        few = f"too few models of its groups were calibrated for {sentences.percent(level)}"
        if self.kind == "weighted":
            few = f"the weights leave too few models for {sentences.percent(level)}"
        return sentences.UNLIKE.format(why=few, nearest=self.nearest)

    def sets(self, level: float = 0.9) -> BoolArray | None:
        """States in each variable's set (n k); None where nothing is promised."""
        _check(level)
        if self.refused(level):
            return None
        if self.kind == "exact":
            return _smallest(self.probs, level)
        assert self.calibration is not None
        rng = np.random.default_rng(0)  # randomised scores only; the same sets every time
        threshold = self._thresholds(level)[0]
        score = SCORES[self.calibration.score]
        return sets_of_states(self.probs, self.possible, threshold, score, rng)

    def bands(self, level: float = 0.9) -> tuple[FloatArray, FloatArray] | None:
        """Lower and upper ends of every probability (n k); None where nothing is promised."""
        _check(level)
        if self.refused(level):
            return None
        if self.kind == "exact":
            return self.probs, self.probs
        assert self.scale is not None
        low, high = bands(self.probs, self.scale, self._thresholds(level)[1])
        certain = (self.possible.sum(1) == 1)[:, None] | ~self.possible
        return np.where(certain, self.probs, low), np.where(certain, self.probs, high)

    def sentences(self, level: float = 0.9) -> list[str]:
        """What is promised at a level, one sentence each."""
        _check(level)
        if self.kind == "exact":
            return [sentences.EXACT]
        if refusal := self.refused(level):
            return [refusal]
        assert self.calibration is not None
        made, share = self.calibration, 1 - self.calibration.exceptions
        at = sentences.percent(level)
        return [
            sentences.SETS.format(level=at),
            sentences.BANDS.format(level=at, share=sentences.percent(share)),
            self._basis(made),
        ]

    def as_json(self, level: float = 0.9) -> dict[str, Any]:
        """The same as plain values."""
        refused = bool(self.refused(level))
        made = self.calibration
        known = self.unfamiliar is not None and math.isfinite(self.unfamiliar)
        return {
            "level": level,
            "kind": "none" if refused else self.kind,
            "sentences": self.sentences(level),
            "unfamiliarity": self.unfamiliar if known else None,
            "structure": self.structure or None,
            "nearest": self.nearest or None,
            "exceptions": None if made is None or refused else made.exceptions,
            "calibration": None if made is None else {
                "engine": made.engine, "set": made.source, "models": len(made),
                "version": made.version, "budget": made.budget,
            },
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def _basis(self, made: Calibration) -> str:
        assert self.features is not None
        if self.kind == "weighted":
            assert made.toward is not None
            return sentences.WEIGHTED.format(
                target=made.toward.name, count=len(made), how=made.answered_how(),
                effective=self._support(made).effective, auc=made.toward.auc,
            )  # fmt: skip
        own = sum(s == self.structure for s in made.structures)
        return sentences.GROUPS.format(
            count=len(made), how=made.answered_how(), own=own, structure=self.structure,
            ranges=in_words(self.features),
        )  # fmt: skip

    def _support(self, made: Calibration) -> Support:
        assert made.toward is not None
        assert self.features is not None
        return support(made.toward.odds, float(made.toward.ratio(self.features[None])[0]))

    def _thresholds(self, level: float) -> Thresholds:
        alpha = 1 - level
        if alpha not in self._found:
            assert self.calibration is not None
            find = self._weighted if self.kind == "weighted" else self._grouped
            self._found[alpha] = find(self.calibration, alpha)
        return self._found[alpha]

    def _grouped(self, made: Calibration, alpha: float) -> Thresholds:
        assert self.said is not None
        new = groups_of(made)[0].members(self.said)[0]
        return group_thresholds(made, tuple(new.tolist()), alpha)

    def _weighted(self, made: Calibration, alpha: float) -> Thresholds:
        assert made.toward is not None
        assert self.features is not None
        if not self._support(made).suffices(alpha):
            return math.inf, math.inf
        own = float(made.toward.ratio(self.features[None])[0])
        laws, scores = atoms(made)
        return (
            hierarchical_quantile(laws, made.toward.odds, own, alpha),
            math.exp(hierarchical_quantile(scores, made.toward.odds, own, alpha)),
        )


def atoms(made: Calibration) -> tuple[list[Atoms], list[Atoms]]:
    """Laws of the scores of sets, and logarithms of the scores of bands, of every model."""
    logs = np.log(np.maximum(made.bands, SMALLEST))
    return [Atoms(row, MASSES) for row in made.sets], [Atoms(x[None], np.ones(1)) for x in logs]


def kinds_of(made: Calibration) -> tuple[str, ...]:
    """Structures of the calibration models, each once."""
    return tuple(dict.fromkeys(made.structures))


@lru_cache(maxsize=16)
def groups_of(made: Calibration) -> tuple[Groups, FloatArray]:
    """Groups of a calibration, and which of them its models are in (k d)."""
    found = made.groups
    return found, found.members(made.answered)


@lru_cache(maxsize=1024)
def group_thresholds(made: Calibration, new: tuple[float, ...], alpha: float) -> Thresholds:
    """Thresholds of sets and of bands for a model in the groups `new`, which hold in all of them.

    Kept, because many models are in the same groups.
    """
    members = groups_of(made)[1]
    point = np.array(new)
    filled = members.any(0) | (point != 0)
    sets, logs = (
        conditional_quantile(each, members[:, filled], point[filled], alpha) for each in atoms(made)
    )
    return sets, math.exp(min(logs, 700.0)) if math.isfinite(logs) else math.inf


def guarantee(
    answer: Answer, calibration: Calibration | None = None, anyway: bool = False
) -> Guarantee:
    """What is promised about an answer, by a calibration or by the one that comes with icgi.

    With `anyway` the thresholds of the nearest group are used where nothing should be promised: to
    measure what that would have been worth.
    """
    if answer.status is Status.EXACT:
        return Guarantee("exact", answer.probs, answer.probs > 0)
    known = [calibration] if calibration else shipped(answer.engine)
    if not known:
        return _none(answer, sentences.NO_CALIBRATION)
    made = next((each for each in known if not _allowed_less(answer, each)), None)
    if made is None:
        return _none(answer, _too_small(known))
    asked = condition(answer.model, answer.evidence)
    free = int((asked.model.cards > 1).sum())
    most = float(made.features[:, 0].max())
    if (
        free > (1 + 2 * MARGIN) * most and not anyway
    ):  # features of huge models take long, and change nothing
        why = f"it has {free:,} variables, those have at most {most:,.0f}"
        largest = made.structures[int(made.features[:, 0].argmax())]
        return _none(answer, sentences.UNLIKE.format(why=why, nearest=largest), nearest=largest)
    return _compared(answer, made, asked, portrait(asked.model), anyway)


def _compared(
    answer: Answer, made: Calibration, asked: Conditioned, drawn: Portrait, anyway: bool
) -> Guarantee:
    like = likeness(drawn.values, drawn.structure, made.features, made.structures)
    kind: Kind = "groups"
    own = own_error(answer.marginals)
    stated = None if own is None else float(own[asked.model.cards > 1].mean())
    said = Answered(
        drawn.values[None],
        [drawn.structure],
        [answer.status.trusted],
        np.array([-1.0 if answer.status.trusted else answer.stats.get("work", -1.0)]),
        np.array([-1.0 if stated is None else stated]),
        [route_of(answer.marginals)],
    )
    if stated is not None and like.familiar:
        why = claims_otherwise(said, made.answered, made.clocked)
        like = replace(like, outside=why, doubting=bool(why))
    if like.familiar and (why := did_less(said, made.answered)) and not anyway:
        refusal = sentences.LESS_WORK.format(why=why, nearest=like.nearest)
        return _none(answer, refusal, like.unfamiliar, like.nearest)
    most, work = made.budget.get("most_work"), answer.stats.get("work", 0.0)
    if like.familiar and most is not None and work > most and not anyway:
        refusal = sentences.MORE_WORK.format(work=work, most=most, nearest=like.nearest)
        return _none(answer, refusal, like.unfamiliar, like.nearest)
    if not (like.familiar or anyway):
        if like.doubting or made.toward is None or not within(drawn.values, made.features):
            return _unlike(answer, like)
        kind = "weighted"
    structure = drawn.structure if drawn.structure in kinds_of(made) else like.nearest
    return Guarantee(
        kind,
        answer.probs,
        _alive(answer, asked),
        unfamiliar=like.unfamiliar,
        nearest=like.nearest,
        structure=structure,
        calibration=made,
        features=drawn.values,
        scale=scale(signals(answer.marginals, asked.model, drawn), made.coefficients),
        said=replace(said, structures=[structure]),
    )


def _unlike(answer: Answer, like: Likeness) -> Guarantee:
    why = like.outside or sentences.unfamiliarity(like.unfamiliar)
    sentence = sentences.DOUBTING if like.doubting else sentences.UNLIKE
    refusal = sentence.format(why=why, nearest=like.nearest)
    return _none(answer, refusal, like.unfamiliar, like.nearest)


def _none(
    answer: Answer, refusal: str, unfamiliar: float | None = None, nearest: str = ""
) -> Guarantee:
    return Guarantee("none", answer.probs, answer.probs > 0, refusal, unfamiliar, nearest)


def _alive(answer: Answer, asked: Conditioned) -> BoolArray:
    """States that the evidence leaves possible, n k."""
    alive = np.zeros(answer.probs.shape, bool)
    alive[:, : asked.alive.shape[1]] = asked.alive
    return alive


def room_of(made: Calibration) -> float:
    """Times the least seconds of the calibration that an answer has to be allowed."""
    return 1.0 if (made.work >= 0).any() else ROOM


def _allowed_less(answer: Answer, made: Calibration) -> bool:
    """Whether an answer may have had less to spend than those of the calibration."""
    budget = answer.budget
    if budget is None:
        return False
    seconds, sweeps = made.budget["seconds"], made.budget["iterations"]
    if seconds is not None and budget.seconds < room_of(made) * seconds:
        return True
    if sweeps is None:
        return budget.iterations is not None or (seconds is None and _hurried(answer, made))
    early = answer.status is Status.BUDGET_SPENT and math.isfinite(budget.seconds)
    return budget.sweeps() < sweeps or (early and answer.stats.get("sweeps", math.inf) < sweeps)


def _hurried(answer: Answer, made: Calibration) -> bool:
    """Whether a limit of time may have changed an answer whose calibration had none.

    A network does the same work under any limit that it does not reach; other engines plan by it.
    """
    if answer.budget is None or math.isinf(answer.budget.seconds):
        return False
    reached = answer.status is Status.BUDGET_SPENT or answer.seconds > answer.budget.seconds / 2
    return reached or not made.weights


def _too_small(known: Sequence[Calibration]) -> str:
    """Why a budget is not enough for any of some calibrations."""
    made = known[-1]
    if made.budget["seconds"] is None and made.budget["iterations"] is None:
        return sentences.LIMITED
    least = replace(made, budget={**made.budget, "most_seconds": None}).made_with(room_of(made))
    return sentences.LESS_BUDGET.format(budget=least)


def _smallest(probs: FloatArray, level: float) -> BoolArray:
    """Likeliest states of each variable that together have the mass of a level."""
    order = np.argsort(-probs, axis=1, kind="stable")
    ranked = np.take_along_axis(probs, order, 1)
    kept = np.cumsum(ranked, 1) - ranked < level * (1 - 1e-12)
    found = np.zeros_like(kept)
    np.put_along_axis(found, order, kept & (ranked > 0), 1)
    return found


def _check(level: float) -> None:
    if not 0 < level < 1:
        raise IcgiError(f"a level of {level:g} should be between 0 and 1")


def calibrated(answer: Answer, calibration: Calibration) -> Answer:
    """Same answer with the promises of a calibration, which has to be for its engine."""
    if answer.status is not Status.EXACT:
        require_for(calibration, answer.engine)
    return replace(answer, promise=partial(guarantee, calibration=calibration))
