"""Errors of each route by its own signals, from a regression on models with known marginals.

Belief propagation states no error. But how many sweeps it took to come to rest and how strongly the
variables are bound to each other tell it within a factor of two or three. Elimination states one
that is the further too large the smaller it is; what else it measures (spread of log Z, weight that
was cut off, change between passes) adds nothing to that. `benchmarks/auto_errors.py` makes the
factors.
"""

from collections.abc import Mapping

import numpy as np

from icgi.inference import Marginals, Status
from icgi.model.graph import FloatArray

TINY = 1e-9
LARGEST = 0.5
# By kind of answer: factors of `features`.
FACTORS: Mapping[str, tuple[float, ...]] = {
    # as of elimination without a pass (`elimination/errors.py`): all that is known are the fields
    "lbp, no sweep": (-0.710, 0.200),
    "lbp at rest": (-4.888, 0.559, 0.705, 0.750, 0.429),
    "lbp moving": (-2.032, 0.000, 0.510, 0.323),
    "ttve": (2.243, 1.342),
    "ttve once": (2.520, 1.427),
}
# How far a regression may move an error that an engine states, as a factor: up, and down where the
# error is far below ROUGH. An engine that finds itself rough is believed: on models unlike those of
# the study it was right about that, and the regression was not.
DOWN, UP, ROUGH = 0.02, 3.0, 0.01


def kind(name: str, answer: Marginals) -> str | None:
    """Which regression applies to an answer of an engine; None where none does."""
    if answer.status is Status.EXACT:
        return None
    stats = answer.stats
    if name == "lbp":
        if not stats.get("sweeps"):
            return "lbp, no sweep"
        return "lbp at rest" if answer.status is Status.AT_REST else "lbp moving"
    if name == "ttve" and "eps_sum" in stats and not {"messages", "branches"} & set(stats):
        return "ttve once" if stats.get("passes", 0.0) < 2 else "ttve"
    return None


def features(of: str, answer: Marginals, bonds: FloatArray) -> FloatArray:
    """Logarithms n d of what the regression of a kind reads."""
    stats, probs = answer.stats, answer.probs
    n = len(probs)

    def whole(value: float) -> FloatArray:
        return np.full(n, np.log(np.clip(value, TINY, 1e6)))

    if answer.std_error is not None:
        return np.stack([np.ones(n), np.log(answer.std_error.max(1) + TINY)], -1)
    top = probs.max(1)
    columns = [np.ones(n), 0.5 * np.log(np.maximum(top * (1.0 - top), 1e-6))]
    if of != "lbp, no sweep":
        columns += [np.log(bonds + 0.1 * bonds.mean() + TINY), whole(float(bonds.mean()))]
    if of == "lbp at rest":
        columns += [whole(stats["sweeps"] / (1.0 + stats.get("restarts", 0.0)))]
    return np.stack(columns, -1)


def told_error(name: str, answer: Marginals, bonds: FloatArray) -> FloatArray | None:
    """Standard error of every variable (n) as the regression has it; None where there is none."""
    of = kind(name, answer)
    if of is None or of not in FACTORS:
        return None
    found = np.exp(features(of, answer, bonds) @ np.array(FACTORS[of]))
    if answer.std_error is not None:
        own = answer.std_error.max(1)
        found = np.clip(found, own * np.maximum(DOWN, own / (own + ROUGH)), UP * own)
        # the study had no barren variables, and of these errors are not known that well
        share = answer.stats.get("barren", 0.0) / max(len(found), 1)
        found = share * np.maximum(found, own) + (1.0 - share) * found
    return np.asarray(np.clip(found, TINY, LARGEST))
