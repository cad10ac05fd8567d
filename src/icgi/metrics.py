"""How far an answer p̂ is from a reference p*: one number per variable, then one per model.

Arrays are n k, rows padded with zeros beyond a variable's states, as in `Marginals.probs`.
"""

import numpy as np

from icgi.model.graph import FloatArray, IntArray


def l1(answer: FloatArray, reference: FloatArray) -> FloatArray:
    """‖p̂_i − p*_i‖₁ of every variable (twice its total variation)."""
    return np.asarray(np.abs(answer - reference).sum(-1))


def kl(answer: FloatArray, reference: FloatArray) -> FloatArray:
    """KL(p*_i ‖ p̂_i) = Σ_x p*_i(x) log(p*_i(x) / p̂_i(x)) of every variable, in nats.

    Infinite where p̂ excludes a state that p* does not. Never below zero: files are rounded, so
    rows need not sum to one, and then the sum itself may be slightly negative.
    """
    possible = reference > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(possible, reference * (np.log(reference) - np.log(answer)), 0.0)
    return np.asarray(np.maximum(terms.sum(-1), 0.0))


def hellinger(answer: FloatArray, reference: FloatArray) -> FloatArray:
    """H(p̂_i, p*_i) = √(½ Σ_x (√p̂_i(x) − √p*_i(x))²) of every variable, from 0 to 1."""
    return np.asarray(np.sqrt(0.5 * ((np.sqrt(answer) - np.sqrt(reference)) ** 2).sum(-1)))


def mean_absolute_error(answer: FloatArray, reference: FloatArray) -> float:
    """MAE = (1/|V|) Σ_i ‖p̂_i − p*_i‖₁ (paper, Evaluation Metrics)."""
    return _mean(l1(answer, reference))


def max_error(answer: FloatArray, reference: FloatArray) -> float:
    """max_i ‖p̂_i − p*_i‖₁ (paper, Evaluation Metrics)."""
    return float(l1(answer, reference).max(initial=0.0))


def mean_kl(answer: FloatArray, reference: FloatArray) -> float:
    """(1/|V|) Σ_i KL(p*_i ‖ p̂_i), in nats (paper, Evaluation Metrics)."""
    return _mean(kl(answer, reference))


def mean_hellinger(answer: FloatArray, reference: FloatArray) -> float:
    """(1/|V|) Σ_i H(p̂_i, p*_i): the error of the UAI-2022 competition."""
    return _mean(hellinger(answer, reference))


def uai_2022_score(answer: FloatArray, reference: FloatArray, cards: IntArray) -> float:
    """max(0, 100 (1 − HErr / MaxHErr)), HErr the mean Hellinger distance.

    100 is exact, 0 is no better than trivial. The competition does not say what its trivial solver
    returns; here MaxHErr is the error of the uniform marginal 1/k. Pass unobserved variables only.
    Where uniform itself is right (MaxHErr = 0), an exact answer scores 100 and any other 0.
    """
    error = mean_hellinger(answer, reference)
    trivial = mean_hellinger(uniform(cards, reference.shape[-1]), reference)
    if trivial == 0.0:
        return 100.0 if error == 0.0 else 0.0
    return max(0.0, 100.0 * (1.0 - error / trivial))


def uniform(cards: IntArray, width: int | None = None) -> FloatArray:
    """p_i(x) = 1/k_i for the k_i states of every variable, rows padded with zeros to `width`."""
    size = int(cards.max(initial=1)) if width is None else width
    return np.asarray((np.arange(size) < cards[:, None]) / cards[:, None])


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if values.size else 0.0
