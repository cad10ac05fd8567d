"""Was the promise kept among the calibration models themselves? Half of them against the others.

Thresholds come from every second model of a family and are tested on the rest, so that no model has
a part in its own threshold; a published model and the same one observed stay together. With half of
the models thresholds are a little wider than in use.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from icgi.calibration.apply import atoms, group_thresholds, groups_of
from icgi.calibration.file import Calibration
from icgi.calibration.measure import MASSES
from icgi.calibration.sets import published_name
from icgi.model.graph import BoolArray, FloatArray

LEVELS = (0.8, 0.9, 0.95)
ALL = "all"

Kept = dict[str, list[float]]
"""Of every family: models, then at each level the share whose bands held and the mean of the true
mass within sets, counted by the kept quantiles of its law, from below; families with no finite
threshold at a level have −1."""


def checked(made: Calibration, names: Sequence[str]) -> Kept:
    """What thresholds from half of the models (k, by name) are worth on the other half."""
    first = every_second(made.families, names)
    fit, test = _part(made, first), _part(made, ~first)
    if not len(fit) or not len(test):
        return {}
    members = groups_of(fit)[0].members(test.answered)
    laws = [law.scores for law in atoms(test)[0]]
    rows: dict[str, list[FloatArray]] = defaultdict(list)
    for k, family in enumerate(test.families):
        found = []
        for level in LEVELS:
            sets, bands = group_thresholds(fit, tuple(members[k].tolist()), 1 - level)
            inside = float(MASSES[laws[k] <= sets].sum())
            found += [np.nan, np.nan] if np.inf in (sets, bands) else [
                float(test.bands[k] <= bands), inside
            ]  # fmt: skip
        rows[family].append(np.array(found))
    rows = {ALL: [row for each in rows.values() for row in each], **rows}
    return {name: [len(each), *_means(each)] for name, each in rows.items()}


def worst(kept: Kept, level: float = 0.9) -> tuple[str, float, int]:
    """Family whose bands were kept least often at a level, that share, and of how many models."""
    column = 1 + 2 * LEVELS.index(level)
    families = {n: row for n, row in kept.items() if n != ALL and row[column] >= 0}
    name = min(families, key=lambda n: (families[n][column], n), default=ALL)
    return name, kept[name][column], int(kept[name][0])


def by_level(kept: Kept) -> tuple[list[float], list[float]]:
    """Of all models, the share whose bands held and the mass within sets, at every level."""
    row = kept[ALL]
    return row[1::2], row[2::2]


def in_words(kept: Kept, level: float = 0.9) -> str:
    """How often bands held at a level, over all models and in the worst family."""
    column = 1 + 2 * LEVELS.index(level)
    name, share, count = worst(kept, level)
    return (
        f"Bands of {100 * level:g} % held for {kept[ALL][column]:.1%} of {kept[ALL][0]:.0f} "
        f"models; least in the family {name}: {share:.1%} of {count}."
    )


def _means(rows: Sequence[FloatArray]) -> list[float]:
    table = np.stack(rows)
    known = ~np.isnan(table)
    sums = np.where(known, table, 0.0).sum(0)
    means = np.where(known.any(0), sums / np.maximum(known.sum(0), 1), -1.0)
    return [round(float(m), 4) for m in means]


def every_second(families: Sequence[str], names: Sequence[str]) -> BoolArray:
    """Which models (k) are of the first half: every second published or random one of a family."""
    place: dict[str, dict[str, int]] = defaultdict(dict)
    found = np.zeros(len(families), bool)
    for k, (family, name) in enumerate(zip(families, names, strict=True)):
        known = place[family]
        found[k] = known.setdefault(published_name(name), len(known)) % 2 == 0
    return found


def _part(made: Calibration, which: BoolArray) -> Calibration:
    at = np.flatnonzero(which)
    kept: dict[str, Any] = {
        name: getattr(made, name)[at] for name in ("features", "stated", "work", "sets", "bands")
    }
    for name in ("families", "structures", "trusted", "routes"):
        kept[name] = tuple(getattr(made, name)[k] for k in at)
    return replace(made, **kept)
