"""How wrong each variable's marginal is expected to be, σ_i: the scale of its band.

A band is q·σ_i with one calibrated q, so σ_i only has to rank and compare errors. A scale is a
product of powers of a few signals, log σ_i = Σ_s c_s log(signal_s); a constant and the engine's own
error are the simplest ones. The powers of the fitted one come from a quantile regression on tuning
models.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from icgi.calibration.features import Portrait
from icgi.inference import Marginals
from icgi.model.graph import FactorGraph, FloatArray

SIGNALS = (
    "one", "own", "mean own", "deviation", "coupling", "local coupling", "width", "residual",
    "sweeps",
)  # fmt: skip
TINY = 1e-6  # what is smaller does not count as an error
RARE = 1e-3  # same for √(p(1 − p))
LEVEL = 0.9  # of the quantile regression

FREE = ("one", "coupling", "local coupling", "width", "sweeps")  # powers of either sign

Coefficients = tuple[float, ...]


def _powers(**given: float) -> Coefficients:
    return tuple(given.get(name.replace(" ", "_"), 0.0) for name in SIGNALS)


SIMPLE: Mapping[str, Coefficients] = {
    "constant": _powers(),
    "deviation": _powers(deviation=1.0),
    "own": _powers(own=1.0),
    "own and mean": _powers(own=0.5, mean_own=0.5),
    "mean own": _powers(mean_own=1.0),
}


def own_error(answer: Marginals) -> FloatArray | None:
    """The engine's own error of each variable (n), largest over states; None where it has none.

    Of a Dirichlet α it is √(p(1−p)/(α₀+1)); else the standard error, else the deviation between
    ensembles.
    """
    if answer.std_error is not None:
        return np.asarray(answer.std_error.max(1))
    if answer.concentration is not None:
        total = np.maximum(answer.concentration.sum(1, keepdims=True), 1e-300)
        p = answer.concentration / total
        return np.asarray(np.sqrt(p * (1 - p) / (total + 1)).max(1))
    return answer.deviation


def signals(answer: Marginals, model: FactorGraph, drawn: Portrait) -> FloatArray:
    """Logarithms of the signals (n s) in the order of SIGNALS."""
    n = model.n_variables
    own = own_error(answer)
    known = np.zeros(n) if own is None else own
    free = model.cards > 1
    mean = float(known[free].mean()) if free.any() else 0.0
    top = answer.probs.max(1, initial=0.0)
    strength = drawn["coupling of a variable"]
    columns = [
        np.zeros(n) + 1.0,
        np.log(known + TINY),
        np.full(n, np.log(mean + TINY)),
        np.log(np.sqrt(np.maximum(top * (1.0 - top), 0.0)) + RARE),
        np.full(n, np.log(strength + 0.1)),
        np.log(drawn.couplings + 0.1),
        np.full(n, np.log(drawn["width"] + 1.0)),
        np.full(n, np.log(min(answer.stats.get("residual", 0.0), 1.0) + TINY)),
        np.full(n, np.log(answer.stats.get("sweeps", 0.0) + 1.0)),
    ]
    return np.stack(columns, -1)


def scale(logs: FloatArray, coefficients: Sequence[float]) -> FloatArray:
    """σ (n) from signals (n s)."""
    return np.asarray(np.exp(np.clip(logs @ np.array(coefficients), -20.0, 2.0)))


def fitted(errors: Sequence[FloatArray], logs: Sequence[FloatArray]) -> Coefficients:
    """Powers by quantile regression of log errors at LEVEL; each tuning model has the same weight.

    Powers of errors and deviations are not negative: a larger stated error never narrows a band.
    """
    from scipy.optimize import linprog

    y = np.concatenate([np.log(e + TINY) for e in errors])
    x = np.concatenate(list(logs))
    weights = np.concatenate([np.full(len(e), 1.0 / len(e)) for e in errors])
    varies = np.ptp(x, axis=0) > 1e-9
    varies[0] = True
    free = varies & np.isin(np.array(SIGNALS), np.array(FREE))
    above = varies & ~free
    # the dual problem: one bounded number for each error, one condition for each power
    solved = linprog(
        -y,
        A_eq=x[:, free].T,
        b_eq=np.zeros(free.sum()),
        A_ub=x[:, above].T if above.any() else None,
        b_ub=np.zeros(above.sum()) if above.any() else None,
        bounds=np.stack([-(1.0 - LEVEL) * weights, LEVEL * weights], 1),
        method="highs",
    )
    found = np.zeros(len(SIGNALS))
    found[free] = -solved.eqlin.marginals
    if above.any():
        found[above] = -solved.ineqlin.marginals
    return tuple(round(float(c), 4) for c in found)
