"""Standard errors of the networks: regressions on signs of error, fitted on other models.

What a network says of itself was learned on models of moderate couplings. Here the half-width of a
90 % band is a product of powers of several signs, of which that is one. The powers were fitted by
quantile regression on random models of all families, with exact answers, for β up to 5; what is
coupled more strongly than any of them is called unknown.
"""

from typing import NamedTuple, TypeAlias

import numpy as np

from icgi.inference import UNKNOWN_ERROR
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, flattened, starts
from icgi.neural.precision import LEAST_SUM

Kind: TypeAlias = str
"""Which network; `, one order` where it has several and only one was run; `, pieces` of models that
were cut, whose borders err as belief propagation does."""

NINETY = 1.6449  # Φ⁻¹(0.95)
TINY = 1e-4  # what is smaller does not count as a sign, nor as an error
RARE = 1e-3  # same for √p(1 − p)
CHECKED, UNHEARD = 40.0, 60.0  # strength of the strongest fitted, and that of nothing known

# In the order of `logarithms`, by `benchmarks/network_doubt.py --fit` from 8 models of each family
# and β; 4 for one order and for layers only.
COEFFICIENTS: dict[Kind, tuple[float, ...]] = {
    "fast": (-0.341, 0.003, 0.312, 0.286, 0.000, 0.195, 0.586, 0.596, 0.000),
    "fast, one order": (-0.102, 0.690, 0.000, 0.239, 0.000, 0.000, 0.415, 0.569, 0.000),
    # with --pieces and two models of each family and β, and --real
    "fast, pieces": (2.253, 0.592, 0.000, 0.000, 0.000, 0.638, 0.088, 0.964, 0.000),
    "general, pieces": (-1.988, 0.000, 0.000, 0.162, 0.000, 0.611, 0.000, 1.639, 3.012),
    "general": (-2.229, 0.168, 0.048, 0.168, 0.000, 0.428, 0.000, 0.837, 2.485),
    "paper": (-0.028, 0.000, 0.000, 0.342, 0.000, 0.492, 0.718, 1.069, 1.020),
    "gnn-bp": (1.399, 0.116, 0.000, 0.134, 0.000, 1.060, 0.718, 0.596, 0.145),
    "bpnn": (0.695, 0.000, 0.000, 0.167, 0.000, 1.198, 0.631, 0.651, 0.317),
    "direct-gnn": (2.835, 0.229, 0.000, 0.088, 0.000, 0.758, 1.632, 0.443, 1.130),
    "ensemble": (2.824, 0.586, 0.217, 0.000, 0.139, 0.000, 1.199, 0.400, 0.000),
}


def kind_of(name: str, orders: int) -> Kind:
    """Which coefficients belong to an answer; those of `general` where none were fitted."""
    kind = name if orders > 1 else f"{name}, one order"
    for found in (kind, name):
        if found in COEFFICIENTS:
            return found
    return "general"


class Signs(NamedTuple):
    """What tells how wrong an answer may be."""

    alpha: FloatArray  # n k    concentrations that the network claims; 0: impossible
    spread: FloatArray  # n k    deviation between elimination orders, or between heads
    change: FloatArray  # n k    distance from simpler estimates of the same run
    strength: FloatArray  # n    largest difference of logarithms in a table
    nearby: FloatArray  # n    largest strength of those in a table with it, and its own
    zeros: BoolArray  # n    whether a table has zeros


def stated(
    kind: Kind, signs: Signs, answered: BoolArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Concentrations (n k) that claim no more than the standard errors (n k), and these.

    Variables that are not `answered` (n) have that of an estimate of which nothing is known.
    """
    nearby = signs.nearby if answered is None else np.where(answered, signs.nearby, UNHEARD)
    error = deviations(kind, logarithms(signs), nearby[:, None])
    return _bounded(signs.alpha, np.where(_open(signs.alpha), error, 0.0))


def deviations(kind: Kind, signs: FloatArray, nearby: FloatArray) -> FloatArray:
    """Standard errors (…) from the logarithms of signs (… 9) and the strengths nearby (…)."""
    half = np.exp(np.minimum(signs @ np.array(COEFFICIENTS[kind]), 1.0))
    beyond = np.clip((nearby - CHECKED) / (UNHEARD - CHECKED), 0.0, 1.0)
    return np.asarray(np.clip(half / NINETY, UNKNOWN_ERROR * beyond, UNKNOWN_ERROR))


def unknown(p: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Concentrations and standard errors (n k) of estimates of which nothing is known."""
    return _bounded(p, np.where(_open(p), UNKNOWN_ERROR, 0.0))


def logarithms(signs: Signs) -> FloatArray:
    """Logarithms of the signs (n k 9), as the coefficients expect them.

    In turn: 1, the deviation that the network claims, spread, change, both averaged over the model,
    √p(1 − p), strength, and whether there are zeros.
    """
    total = signs.alpha.sum(1, keepdims=True)
    p = signs.alpha / total
    deviation = np.sqrt(p * (1.0 - p))
    counted = _open(signs.alpha)
    spread, change = np.log(signs.spread + TINY), np.log(signs.change + TINY)
    parts = [
        np.ones_like(p),
        np.log(deviation / np.sqrt(total + 1.0) + TINY),
        spread,
        change,
        *(np.log(x[counted].mean() + TINY) if counted.any() else 0.0 for x in signs[1:3]),
        np.log(deviation + RARE),
        np.log1p(np.minimum(signs.strength, CHECKED))[:, None],
        signs.zeros[:, None].astype(float),
    ]
    return np.stack([np.broadcast_to(x, p.shape) for x in parts], -1)


def _open(alpha: FloatArray) -> BoolArray:
    """States (n k) that are possible, and not the only one of their variable."""
    return np.asarray((alpha > 0) & ((alpha > 0).sum(1, keepdims=True) > 1))


def _bounded(alpha: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Concentrations whose sum claims no smaller deviation of the likeliest state."""
    total = alpha.sum(1, keepdims=True)
    p = alpha / total
    likeliest = p.argmax(1)[:, None]
    peak, least = (np.take_along_axis(x, likeliest, 1) for x in (p * (1.0 - p), error**2))
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(least > 0, peak / least - 1.0, np.inf)
    return p * np.minimum(total, np.maximum(bound, LEAST_SUM)), error


def strengths_of(model: FactorGraph) -> tuple[FloatArray, FloatArray, BoolArray]:
    """`strength`, `nearby` and `zeros` of `Signs`, from tables of two or more variables."""
    strength, zeros = np.zeros(model.n_variables), np.zeros(model.n_variables, bool)
    flat = model.flat or flattened(model.scopes, model.log_tables)
    arity = np.diff(flat.scope_start)
    several = arity > 1
    if not several.any():
        return strength, strength.copy(), zeros
    begins, possible = flat.table_start[:-1], flat.values > -np.inf
    top = np.maximum.reduceat(flat.values, begins)
    least = np.minimum.reduceat(np.where(possible, flat.values, np.inf), begins)
    size = np.where(least < np.inf, top - np.where(least < np.inf, least, 0.0), 0.0)  # f
    missing = ~np.logical_and.reduceat(possible, begins)
    owner = np.repeat(np.arange(len(arity)), arity)
    members, owner = flat.scope[several[owner]], owner[several[owner]]
    np.maximum.at(strength, members, size[owner])
    np.logical_or.at(zeros, members, missing[owner])
    largest = np.maximum.reduceat(strength[members], starts(arity[several])[:-1])
    nearby = strength.copy()
    np.maximum.at(nearby, members, np.repeat(largest, arity[several]))
    return strength, nearby, zeros
