"""A busy machine changes how often kinds of answers occur; promises hold among each kind."""

import math

import numpy as np

from icgi.calibration.features import NAMES
from icgi.calibration.groups import Answered, Groups, did_less
from icgi.conformal.groups import conditional_quantile
from icgi.conformal.quantiles import Atoms, weighted_quantile

RNG = np.random.default_rng
ALPHA, MODELS, TIMES = 0.1, 150, 250
BUDGETS = np.log([0.1, 4.0])  # seconds of an answer, all orders of magnitude alike


def answers(rng: np.random.Generator, count: int, speed: float = 1.0) -> tuple[Answered, list]:
    """Answers of an engine that is the worse the less it did, and knows half of that."""
    work = np.exp(rng.uniform(*BUDGETS, count)) * speed
    hard = rng.gamma(2.0, 1.0, count)
    error = 0.1 * hard * work**-1.2 * np.exp(0.3 * rng.normal(size=count))
    stated = 0.1 * np.sqrt(hard) * work**-0.4
    features = np.zeros((count, len(NAMES)))
    said = Answered(features, ["a"] * count, [False] * count, work, stated, ["pt"] * count)
    return said, [Atoms(np.log([e / s]), np.ones(1)) for e, s in zip(error, stated, strict=True)]


def one(said: Answered, k: int) -> Answered:
    return Answered(
        said.features[[k]], ["a"], [False], said.work[[k]], said.stated[[k]], [said.routes[k]]
    )


def test_promises_hold_however_often_the_machine_makes_short_answers() -> None:
    """Nine in ten answers are of the third of least work, as on a machine that is busy."""
    rng, kept, plain = RNG(5), [], []
    for _ in range(TIMES):
        made, scores = answers(rng, MODELS)
        groups = Groups.of(made, clocked=True)
        fresh, truth = answers(rng, 60)
        short = groups.members(fresh)[:, -5] > 0
        wanted = np.flatnonzero(short == (rng.random() < 0.9))
        if not len(wanted):
            continue
        k = int(wanted[0])
        new = groups.members(one(fresh, k))[0]
        held = conditional_quantile(scores, groups.members(made), new, ALPHA)
        flat = np.concatenate([s.scores for s in scores])
        kept.append(truth[k].scores[0] <= held)
        plain.append(truth[k].scores[0] <= weighted_quantile(flat, np.ones(MODELS), 1.0, ALPHA))
    error = 3 * math.sqrt(ALPHA * (1 - ALPHA) / len(kept))
    assert np.mean(kept) >= 1 - ALPHA - error
    assert np.mean(plain) < 1 - ALPHA - error  # one threshold for all answers would break


def test_a_machine_eight_times_slower_is_within_the_range_or_refused() -> None:
    rng, refused, kept = RNG(6), 0, []
    for _ in range(TIMES):
        made, scores = answers(rng, MODELS)
        groups = Groups.of(made, clocked=True)
        fresh, truth = answers(rng, 1, speed=1 / 8)
        if did_less(fresh, made):
            refused += 1
            continue
        new = groups.members(fresh)[0]
        threshold = conditional_quantile(scores, groups.members(made), new, ALPHA)
        kept.append(truth[0].scores[0] <= threshold)
    assert refused > 0.4 * TIMES  # less work than the shortest answer of a quiet machine
    assert len(kept) > 0.2 * TIMES
    # within the lowest third these are the shorter ones: what that costs is not part of any law
    assert np.mean(kept) >= 1 - ALPHA - 0.06 - 3 * math.sqrt(ALPHA * (1 - ALPHA) / len(kept))
