"""Thresholds that keep a promise in every one of several groups, which may overlap.

Quantile regression of the scores on the indicators of the groups, in which the new model takes part
with a score at infinity: by its optimality conditions a share of at most α of the models of each
group lies above the fit (Gibbs, Cherian and Candès 2023). No ratio of densities is estimated, and
every shift that only changes how often the groups occur is covered at once.
"""

import math
from collections.abc import Sequence

import numpy as np

from icgi.conformal.quantiles import Atoms
from icgi.errors import IcgiError
from icgi.model.graph import FloatArray

# The new model pulls with a little less than 1 − α, so that a tie goes to the smaller threshold,
# which is the order statistic where there is one group. Above the tolerance of the solver.
SLACK = 1e-6


def conditional_quantile(
    models: Sequence[Atoms],
    members: FloatArray,
    new: FloatArray,
    alpha: float,
) -> float:
    """Threshold for a model in the groups `new`; infinite where some group has too few models.

    minimise Σ_k Σ_a m_ka ℓ(s_ka − φ_k·β) + ℓ(∞ − φ·β) over β, with the pinball loss ℓ of level
    1 − α; the answer is φ·β.

    Parameters
    ----------
    models
        Scores of every calibration model; its masses sum to one.
    members
        k d: φ of every calibration model, such as one indicator for each group.
    new
        d: φ of the new model.
    """
    if not 0 < alpha < 1:
        raise IcgiError(f"alpha={alpha} should be between 0 and 1")
    if len(models) != len(members):
        raise IcgiError(f"{len(models)} calibration models but {len(members)} rows of groups")
    if not len(models):
        return math.inf
    from scipy.optimize import linprog

    rows = np.repeat(np.arange(len(models)), [len(atoms.scores) for atoms in models])
    scores = np.concatenate([atoms.scores for atoms in models])
    masses = np.concatenate([atoms.masses for atoms in models])
    # the dual problem: one bounded number for each score, one equation for each column of φ
    pull = (1.0 - alpha) * (1.0 - SLACK)
    solved = linprog(
        -scores,
        A_eq=members[rows].T,
        b_eq=-pull * new,
        bounds=np.stack([-alpha * masses, (1.0 - alpha) * masses], 1),
        method="highs",
    )
    if solved.status == 2:  # infeasible: the models of a group cannot hold the new one's pull
        return math.inf
    if solved.status != 0:
        raise IcgiError(f"the thresholds of the groups could not be found: {solved.message}")
    return float(-(solved.eqlin.marginals @ new))
