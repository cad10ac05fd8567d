"""One attempt at a model: passes of trains with given settings, and their self-checks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from icgi.clock import Deadline
from icgi.elimination.layout import Layout
from icgi.elimination.passes import Cut, Tape
from icgi.elimination.potentials import Potentials, filling_seconds, seconds_as_trains, weights
from icgi.elimination.run import OutOfTimeError, Pass, both_passes, distance
from icgi.model.graph import FloatArray

# The range of log ⟨F_t, B_t⟩ over the steps and the change between passes track the true error over
# ten orders of magnitude (docs/engines/ttve.md); above this an answer is not trusted.
SOUND_SPREAD = 0.05
UNUSABLE_SPREAD = 0.5
UNCUT_ONCE = 1e-6  # discarded weight of a single pair of passes, whose change is not known
EXACT_SHARE = 1e-13  # discarded weight that is rounding
_UNCUT = 1e-9  # discarded weight that no missing rank explains
_LEAST_ANGLE = math.log(1e-5)  # cancellation that leaves ten digits


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """Passes of one layout and one way to cut; `last` is the pair of least spread."""

    layout: Layout
    cut: Cut
    last: Pass
    history: list[FloatArray]  # marginals n k of every complete pair of passes
    annealed: bool

    @property
    def badness(self) -> tuple[float, float]:
        """What attempts are compared by: negative probabilities, then the spread of log Z."""
        return badness(self.last)

    @property
    def sound(self) -> bool:
        """Whether the answer passes its own checks."""
        # after a single pass the change is not known: then next to nothing may have been cut
        once = len(self.history) == 1 and self.last.eps_max < UNCUT_ONCE
        calm = self.change <= SOUND_SPREAD or once
        return self.last.negative == 0.0 and self.last.spread <= SOUND_SPREAD and calm

    @property
    def unusable(self) -> bool:
        """Whether the answer is not even roughly right."""
        return self.last.negative > 0.0 or not self.last.spread < UNUSABLE_SPREAD

    @property
    def change(self) -> float:
        """Distance of the marginals of the last two pairs of passes; NaN if there is one."""
        past = self.history
        return distance(past[-1], past[-2]) if len(past) > 1 else math.nan

    @property
    def exact(self) -> bool:
        """Whether nothing was cut, nothing cancelled, and the two passes agree."""
        last = self.last
        kept = last.eps_max <= EXACT_SHARE and last.angle >= _LEAST_ANGLE
        return kept and last.spread <= 1e-10

    @property
    def rounded(self) -> bool:
        """Whether nothing was cut and digits are missing all the same."""
        return self.last.eps_max <= _UNCUT and not self.exact

    @property
    def log_z(self) -> float | None:
        """Median of log ⟨F_t, B_t⟩ over the steps."""
        found = self.last.log_z_steps[np.isfinite(self.last.log_z_steps)]
        return float(np.median(found)) if len(found) else None

    def stats(self) -> dict[str, float]:
        """Accounts of the attempt."""
        return {
            "rank": float(self.cut.rank),
            "passes": float(len(self.history)),
            "spread": self.last.spread,
            "eps_sum": self.last.eps_sum,
            "eps_max": self.last.eps_max,
            "drift": self.last.drift,
            "angle": self.last.angle,
            "negative": self.last.negative,
            "change": self.change,
            "env_weight": self.cut.env_weight,
            "annealed": float(self.annealed),
            "frontier": float(self.layout.frontier),
            "predicted_cost": self.layout.cost,
        }


def attempt(
    pots: Potentials,
    layout: Layout,
    cut: Cut,
    deadline: Deadline,
    *,
    iterations: int,
    arithmetic: str,
    anneal: bool = False,
) -> Attempt | None:
    """Passes in turn until the spread of log Z stops falling; None where not one was completed.

    Of the passes only the best and the last are kept: their tapes are what takes the memory.
    """
    if seconds_as_trains(pots) + filling_seconds(pots, layout) >= deadline.left:
        return None
    env = _annealed(pots, layout, cut._replace(qr=False), deadline) if anneal else None
    numbers = weights(pots, layout)
    best: Pass | None = None
    before = math.inf  # spread of the pair of passes before
    history: list[FloatArray] = []
    for k in range(iterations):
        qr = arithmetic == "qr" or (arithmetic == "auto" and (k > 0 or iterations == 1))
        try:
            done = both_passes(
                pots, layout, cut._replace(qr=qr), env, deadline=deadline, numbers=numbers
            )
        except OutOfTimeError:
            break
        env = done.backward
        history.append(done.probs)
        if best is None or badness(done) <= badness(best):
            best = done
        if qr and done.eps_max <= EXACT_SHARE and k > 0:
            break
        if k >= 2 and not done.spread < 0.7 * before:
            break
        before = done.spread
    return None if best is None else Attempt(layout, cut, best, history, anneal)


def badness(done: Pass) -> tuple[float, float]:
    """Share of negative probabilities, then the spread."""
    return (done.negative, done.spread)


def _annealed(pots: Potentials, layout: Layout, cut: Cut, deadline: Deadline) -> Tape | None:
    """Environment from hotter models: raise the scale while passes stay sound, else halve steps."""
    env: Tape | None = None
    scale, step = 0.0, 0.2
    while step > 0.02 and scale < 1.0:
        ahead = min(1.0, scale + step)
        try:
            done = both_passes(pots, layout, cut, env, ahead, deadline=deadline)
        except OutOfTimeError:
            break
        if done.negative == 0.0 and done.spread < UNUSABLE_SPREAD:
            env, scale = done.backward, ahead
            step = min(1.3 * step, 0.3)
        else:
            step /= 2
    return env
