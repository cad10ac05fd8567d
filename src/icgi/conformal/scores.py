"""How badly a state fits a predicted marginal: the scores behind sets of states.

A set holds all states whose score is at most the calibrated threshold. True marginals are soft
labels: a state x counts with its true probability, so nothing has to be drawn, and unbiased noise
of the reference costs nothing.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.random import Generator

from icgi.conformal.quantiles import Atoms
from icgi.model.graph import BoolArray, FloatArray

Score = Callable[[FloatArray, FloatArray], FloatArray]
"""(predicted marginals n k, uniform numbers n k) → scores n k."""

LEVELS = 16  # of the uniform number of randomised scores, when calibrating
PENALTY, FREE = 0.01, 5  # of the regularised score: for every state beyond the first few


def least_ambiguous(probs: FloatArray, uniform: FloatArray) -> FloatArray:
    """1 − p̂(x): the smallest sets on average (Sadinle et al. 2019)."""
    return np.asarray(1.0 - probs)


def adaptive(probs: FloatArray, uniform: FloatArray) -> FloatArray:
    """Mass of the likelier states plus u·p̂(x), u uniform (Romano et al. 2020).

    Without u the sets of variables of few states would cover too much.
    """
    order = np.argsort(-probs, axis=1, kind="stable")
    ranked = np.take_along_axis(probs, order, 1)
    before = np.cumsum(ranked, 1) - ranked
    found = np.empty_like(probs)
    np.put_along_axis(found, order, before, 1)
    return np.asarray(found + uniform * probs)


def regularised(probs: FloatArray, uniform: FloatArray) -> FloatArray:
    """Adaptive score with a penalty on states beyond the first few (Angelopoulos et al. 2021)."""
    order = np.argsort(-probs, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(probs.shape[1]), probs.shape), 1)
    return np.asarray(adaptive(probs, uniform) + PENALTY * np.maximum(rank + 1 - FREE, 0))


SCORES: Mapping[str, Score] = {
    "least-ambiguous": least_ambiguous,
    "adaptive": adaptive,
    "regularised": regularised,
}


def state_atoms(predicted: FloatArray, truth: FloatArray, score: Score) -> Atoms:
    """Scores of all states of a calibration model: variable at random, state by its true law.

    The uniform number of randomised scores is integrated over, not drawn.
    """
    n = len(predicted)
    levels = (np.arange(LEVELS) + 0.5) / LEVELS
    scores = np.stack([score(predicted, np.full_like(predicted, u)) for u in levels])  # u n k
    masses = np.broadcast_to(truth / (n * LEVELS), scores.shape)
    kept = masses > 0
    return Atoms(scores[kept], masses[kept])


def sets_of_states(
    predicted: FloatArray, possible: BoolArray, threshold: float, score: Score, rng: Generator
) -> BoolArray:
    """States in each variable's set; a state that is impossible is in none.

    Not empty: where no score is small enough the likeliest state is kept, which only adds coverage.
    """
    uniform = np.broadcast_to(rng.random((len(predicted), 1)), predicted.shape)
    found = (score(predicted, uniform) <= threshold) & possible
    empty = ~found.any(1)
    found[empty, predicted[empty].argmax(1)] = True
    return np.asarray(found)
