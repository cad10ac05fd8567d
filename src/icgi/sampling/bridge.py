"""log Z along a ladder: Bennett's acceptance ratio between neighbouring levels."""

import math

import numpy as np
from scipy.special import log_expit, logsumexp

from icgi.model.graph import FloatArray
from icgi.sampling.diagnostics import series_error


def log_ratio(cold: FloatArray, hot: FloatArray) -> tuple[float, FloatArray]:
    """Estimate log Z_b/Z_a from as many draws of x = log p̃_b/p̃_a at a (`hot`) as at b (`cold`).

    Solves c = log Z_b/Z_a with ⟨σ(x − c)⟩_a = ⟨σ(c − x)⟩_b (Bennett 1976). Also returns each
    pair of draws' influence on the result, whose mean is zero.
    """
    size = math.log(hot.size)
    c = 0.5 * (float(hot.mean()) + float(cold.mean()))
    for _ in range(200):
        step = float(logsumexp(log_expit(hot - c)) - logsumexp(log_expit(c - cold)))
        c += step
        if abs(step) < 1e-10 * max(1.0, abs(c)):
            break
    up = np.exp(log_expit(hot - c) - (logsumexp(log_expit(hot - c)) - size))
    down = np.exp(log_expit(c - cold) - (logsumexp(log_expit(c - cold)) - size))
    return c, up - down


def log_z(
    trace: FloatArray, ladder: FloatArray, sound: FloatArray | None
) -> tuple[float, float] | None:
    """(log Z of the last level over that of the first, standard error).

    Parameters
    ----------
    trace
        m s c t, log weights of the c copies of every level.
    sound
        m s c, where the last level is the one before it without violations: whether the level
        before it violates nothing. None comes back when it always does.
    """
    soft = len(ladder) - (sound is not None)
    total = 0.0
    influence = np.zeros(trace.shape[:2])
    for t in range(soft - 1):
        gap = ladder[t + 1] - ladder[t]
        if gap > 0:
            part, effect = log_ratio(gap * trace[..., t + 1], gap * trace[..., t])
            total += part
            influence += effect.mean(2)
    if sound is not None:
        share = float(sound.mean())
        if share == 0:
            return None
        total += math.log(share)
        influence += (sound / share - 1.0).mean(2)
    return total, series_error(influence)
