"""Conditioning where trains fail: sum over the states of a few variables, each weighted by its Z.

p = Σ_c Z_c p_c / Σ_c Z_c over all states c of any set of variables. A model with a few spins held
is warmer than the whole: its trains need less rank. The error of the mixture is about Σ share ·
spread; the leaf that may add most to it is split next. log Z of an unusable answer can be wrong by
several units, so a leaf that fails its checks may weigh e^doubt times what it says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from icgi.clock import Deadline
from icgi.elimination.attempts import SOUND_SPREAD, UNCUT_ONCE
from icgi.elimination.potentials import Potentials, potentials
from icgi.errors import EvidenceError
from icgi.inference import Marginals, Status
from icgi.model.condition import Evidence, condition
from icgi.model.graph import FactorGraph, FloatArray

_GUESS = 6.0  # log Z of an unusable answer may be wrong by this much
_MOST_UNSOUND = 0.01  # share · doubt of unsound leaves in an answer that is called sound
_MOST_STATES = 8  # of a variable to enumerate


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """Answer to the model with some variables held."""

    evidence: Evidence
    answer: Marginals

    @property
    def sound(self) -> bool:
        """Whether the leaf's own checks passed."""
        return passes_checks(self.answer)

    @property
    def log_z(self) -> float:
        """Log weight; plus infinity where it is not known."""
        found = self.answer.log_z
        return math.inf if found is None or math.isnan(found) else found

    @property
    def spread(self) -> float:
        """Spread of log Z within the leaf."""
        return self.answer.stats.get("spread", 0.0)

    @property
    def doubt(self) -> float:
        """How far log Z may be off: the spread, or the change between passes where that is more."""
        if self.sound:
            return self.spread
        stats = self.answer.stats
        found = max(stats.get("spread", math.inf), stats.get("change", math.inf))
        unusable = stats.get("negative", 1.0) > 0.0 or math.isnan(stats.get("change", math.nan))
        return _GUESS if unusable else min(found, _GUESS)


def passes_checks(answer: Marginals) -> bool:
    """Whether trains agree with themselves, however large the error that they estimate.

    In a mixture a leaf's error counts by its weight.
    """
    if answer.status.trusted:
        return True
    stats = answer.stats
    calm = stats.get("change", math.nan) <= SOUND_SPREAD
    calm |= stats.get("passes") == 1.0 and stats.get("eps_max", 1.0) < UNCUT_ONCE
    usable = stats.get("passes", 0.0) > 0.0 and stats.get("negative", 1.0) == 0.0
    return calm and usable and stats.get("spread", math.inf) <= SOUND_SPREAD


def branch(
    model: FactorGraph,
    root: Marginals,
    solve: Callable[[Evidence], Marginals],
    most: int,
    target: float,
    deadline: Deadline,
) -> Iterator[list[Leaf]]:
    """Leaves of a conditioning tree, at most `most`, until Σ share · spread is below `target`.

    They are given whenever their number has doubled, and in the end.
    """
    leaves, given = [Leaf({}, root)], 1
    while len(leaves) < most and not deadline.passed:
        errors = _errors(leaves)
        if errors.sum() <= target:
            break
        for k in np.argsort(-errors).tolist():
            variable = _branching_variable(model, leaves[k])
            if variable is not None:
                break
        else:
            break
        leaf = leaves.pop(k)
        parts = []
        for state in range(int(model.cards[variable])):
            held = {**leaf.evidence, variable: state}
            try:
                parts.append(Leaf(held, solve(held)))
            except EvidenceError:  # this state has no weight at all
                continue
        if deadline.passed:  # some of these are unfinished: the leaf they come from counts
            leaves.append(leaf)
            break
        leaves += parts
        if 2 * given <= len(leaves) < most:
            given = len(leaves)
            yield list(leaves)
    yield leaves


def _errors(leaves: list[Leaf]) -> FloatArray:
    """Share · doubt of every leaf, the share as large as it may be."""
    log_z = np.array([leaf.log_z for leaf in leaves])
    top = log_z[np.isfinite(log_z)].max(initial=-np.inf)
    if not np.isfinite(top):
        return np.ones(len(leaves))
    sound = np.array([leaf.sound for leaf in leaves])
    doubt = np.array([leaf.doubt for leaf in leaves])
    share = np.exp(np.minimum(log_z - top + np.where(sound, 0.0, doubt), _GUESS))
    weight = np.exp(log_z[np.isfinite(log_z)] - top).sum()
    return np.asarray(share * np.minimum(doubt, 1.0) / weight)


def combined(leaves: list[Leaf]) -> Marginals:
    """Mixture of the leaves by their weights; sound if its error, unsound leaves too, is small."""
    log_z = np.array([leaf.log_z for leaf in leaves])
    known = np.isfinite(log_z)
    if not known.any():
        return leaves[0].answer
    log_z = np.where(known, log_z, -np.inf)
    total = float(np.logaddexp.reduce(log_z))
    share: FloatArray = np.exp(log_z - total)
    sound = np.array([leaf.sound for leaf in leaves])
    spread = float(np.sum(share[sound] * [leaf.spread for leaf in leaves if leaf.sound]))
    errors = _errors(leaves)
    unsound = min(1.0, float(errors[~sound].sum())) if known.all() else 1.0
    probs = sum(w * leaf.answer.probs for w, leaf in zip(share, leaves, strict=True))
    status = Status.DIVERGED
    if known.all() and errors.sum() <= SOUND_SPREAD and unsound <= _MOST_UNSOUND:
        status = Status.CONVERGED
        if all(leaf.answer.status is Status.EXACT for leaf in leaves):
            status = Status.EXACT
    stats = {"branches": float(len(leaves)), "spread": spread, "unsound": unsound}
    return Marginals(np.asarray(probs), status, total, stats=stats)


def _branching_variable(model: FactorGraph, leaf: Leaf) -> int | None:
    """Free variable of strong interactions and uncertain state; None if all are held or wide."""
    free = condition(model, leaf.evidence).model
    probs = leaf.answer.probs
    entropy = -np.sum(probs * np.log(np.maximum(probs, 1e-12)), 1)
    score = strength(potentials(free)) * (0.1 + entropy) / np.maximum(np.log(model.cards), 0.1)
    score[(free.cards < 2) | (model.cards > _MOST_STATES)] = 0.0
    best = int(np.argmax(score))
    return best if score[best] > 0.0 else None


def strength(pots: Potentials) -> FloatArray:
    """Interaction of every variable with all others, n: Σ tanh² of a quarter of the log range."""
    out = np.zeros(len(pots.cards))
    if pots.pair.size:
        finite = np.where(np.isneginf(pots.pair), -20.0, pots.pair)
        first = pots.pair_start[:-1]
        size = np.maximum.reduceat(finite, first) - np.minimum.reduceat(finite, first)
        here = np.repeat(np.arange(len(out)), np.diff(pots.near_start))
        out += np.bincount(here, np.tanh(size / 4)[pots.near_pair] ** 2, len(out))
    out += np.bincount(pots.wide_scope, minlength=len(out))
    return np.asarray(out)
