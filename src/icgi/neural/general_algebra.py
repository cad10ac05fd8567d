"""Eliminating one variable of q states in closed form, and putting it back.

p(x) ∝ exp(Σ_i θ_i(x_i) + Σ_{i<j} Θ_ij(x_i, x_j)). Tables are b n q n q with Θ_ij(x, y) = Θ_ji(y, x)
and zero where there is no edge; states that a variable does not have carry θ = `ABSENT`. Products
of probabilities stay finite for tables that forbid (floored zeros), which means of logs do not.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

ABSENT = -1e4  # θ of a state that does not exist: exp gives exactly zero
TINY = 1e-30  # under logarithms; a product of three floored zeros is still above
LEAST = -25.0  # of a new table's entries; e⁻²⁵ of a probability is beyond any interest
HARD = -5.0  # of log p(v | x_l) where it is averaged: a forbidden state must not outvote all others
MOST_RATIO = 1e4
MOST_LOG = 20.0  # of a table's entries where its strength is measured
SMALL = 1e-12
LEAST_BELIEF = -12.0  # log of a belief relative to the largest
MOST_NOISE = 20.0  # variance of the field of the rest; more would soften hard tables
BLUR = 1e-6  # of the marginal in every conditional, for states of probability zero


class Star(NamedTuple):
    """One variable v and its neighbours under independent beliefs, v summed out or not."""

    likelihood: Tensor  # b n v k    p(x_l | x_v)/b_l(x_l)
    weight: Tensor  # b v    p(x_v)
    gain: Tensor  # b n k    F_l(x_l) = log p(x_l)/b_l(x_l)
    information: Tensor  # b n    χ² of x_l and x_v


def star(row: Tensor, unary: Tensor, beliefs: Tensor) -> Star:
    """Marginals of exp(θ_v(x_v) + Σ_l Θ_vl(x_v, x_l)) Π_l b_l(x_l).

    Parameters
    ----------
    row, unary
        Θ_v· (b n v k) and θ_v (b v) of the variable.
    beliefs
        b_l(x_l) of all others (b n k), as they are without v; from `beliefs_of`.
    """
    top = row.detach().amax(3, keepdim=True)
    potential = torch.exp(row - top)
    message = (potential * beliefs[:, :, None]).sum(-1, keepdim=True) + TINY  # b n v 1
    likelihood = potential / message
    weight = torch.softmax(unary + (torch.log(message) + top)[..., 0].sum(1), -1)
    mean = (likelihood * weight[:, None, :, None]).sum(2)  # b n k
    square = (likelihood**2 * weight[:, None, :, None]).sum(2)
    information = (beliefs * square / (mean + TINY)).sum(-1) - 1.0
    return Star(likelihood, weight, torch.log(mean + TINY), information.clamp(min=0.0))


def beliefs_of(field: Tensor, exists: Tensor) -> Tensor:
    """Probabilities (… k) from their logs, none so small that ratios leave single precision.

    Any beliefs leave the algebra exact for up to two neighbours.
    """
    top = torch.where(exists > 0, field, ABSENT).amax(-1, keepdim=True)
    cut = (field - top).clamp(min=LEAST_BELIEF)
    return torch.softmax(torch.where(exists > 0, cut, ABSENT), -1)


def new_tables(found: Star) -> Tensor:
    """Pair ratios log p(x_j, x_k)/(p(x_j) p(x_k)) of all pairs of neighbours (b n k n k).

    With F_j as the new unary part this is exact for up to two neighbours:
    p(x_j, x_k) = b_j e^{F_j} b_k e^{F_k} e^{ΔΘ_jk}.
    """
    b, n, v, k = found.likelihood.shape
    side = found.likelihood.permute(0, 1, 3, 2).reshape(b, n * k, v)
    joint = (side * found.weight[:, None]) @ side.mT
    gain = found.gain.reshape(b, n * k)
    table = torch.log(joint + TINY) - gain[:, :, None] - gain[:, None]
    return table.clamp(min=LEAST, max=-LEAST).view(b, n, k, n, k)


def screening(found: Star, states: Tensor, present: Tensor) -> Tensor:
    """Factors (b n n) on new tables: what the other neighbours know of v is no longer passed on.

    1/(1 + Σ_{l ≠ j,k} χ²_l/(K − χ²_l)), K = states of v − 1: the inverse covariance of a star
    of Gaussians. One for up to two neighbours.
    """
    most = (states - 1.0).clamp(min=1.0)[:, None]
    share = (found.information / most).clamp(max=0.95)
    known = share / (1.0 - share) * present
    others = known.sum(1)[:, None, None] - known[:, :, None] - known[:, None]
    return 1.0 / (1.0 + others.clamp(min=0.0))


def compensation(table: Tensor, gain: Tensor, beliefs: Tensor) -> Tensor:
    """Σ_k log Σ_{x_k} p(x_k) e^{ΔΘ_jk(x_j, x_k)} (b n k): what weakened tables add to marginals."""
    p = beliefs * torch.exp(gain)  # b n k
    p = p / (p.sum(-1, keepdim=True) + TINY)
    return torch.log((torch.exp(table) * p[:, None, None]).sum(-1) + TINY).sum(-1)


def restore(
    row: Tensor, unary: Tensor, marginals: Tensor, covariance: Tensor, present: Tensor
) -> tuple[Tensor, Tensor]:
    """p(x_v) (b v) of a variable that is put back, and its covariances (b v n k) with the others.

    The three strongest neighbours a, c, d are summed exactly under p(a, c) p(d | a, c); the rest
    enters as a Gaussian field given a and c. Exact for up to two neighbours.

    Parameters
    ----------
    row, unary
        Θ_v· (b n v k) and θ_v (b v), as they were when the variable went.
    marginals, covariance
        p (b n k) and C (b n k n k) of the variables that are back.
    present
        1 for neighbours (b n).
    """
    n = row.shape[1]
    strength = row.detach().square().mean((2, 3)).clamp(max=1e3) + 1e4 * present
    top = one_hot(strength.topk(3, 1).indices, n).to(row.dtype)  # b 3 n
    ahead = _conditionals(top, marginals, covariance)
    rest = present * (1.0 - top.sum(1))  # b n
    exists = (unary > 0.5 * ABSENT).to(row.dtype)
    soft = torch.log_softmax(row + ABSENT * (1.0 - exists)[:, None, :, None], 2)  # log p(v | x_l)
    soft = soft.clamp(min=HARD) * rest[:, :, None, None]
    mean = torch.einsum("bacnk,bnvk->bacnv", ahead.on_two, soft)
    spread = torch.einsum("bacnk,bnvk->bacnv", ahead.on_two, soft**2) - mean**2
    spread = spread.sum(3).clamp(min=0.0)  # b a c v
    noise = (spread * exists[:, None, None]).sum(-1) / (exists.sum(-1) - 1.0).clamp(min=1.0)[
        :, None, None
    ]
    # E softmax(y + √D z) ≈ softmax(y/√(1 + πD/8)), D = 2·noise the variance of a difference
    heat = torch.sqrt(1.0 + (math.pi / 4.0) * noise.clamp(max=MOST_NOISE))[..., None, None]
    side = torch.einsum("btn,bnvk->btkv", top, row)  # b 3 k v
    logit = unary[:, None, None] + side[:, 0, :, None] + side[:, 1, None] + mean.sum(3)
    logit = (logit[:, :, :, None] + side[:, 2, None, None]) / heat  # b a c d v
    third = torch.einsum("bn,bacnk->back", top[:, 2], ahead.on_two)
    both = torch.softmax(logit, -1) * third[..., None]  # p(v, d | a, c)
    joint = ahead.pair[..., None] * both.sum(3)  # b a c v
    with_third = (ahead.pair[..., None, None] * both).sum((1, 2)).mT  # b v d

    through = torch.einsum("bacv,bacnk->bnvk", joint, ahead.on_two)
    on_one = joint.sum(2)  # b a v
    own = torch.log(on_one + TINY)[:, :, None, :, None] + soft[:, None]
    own = own - torch.einsum("bank,bnvk->banv", ahead.on_one, soft)[..., None]
    weight = ahead.on_one * on_one.sum(-1)[:, :, None, None]  # p(a, x_l)
    direct = (torch.softmax(own, 3) * weight[:, :, :, None]).sum(1)  # b n v k
    last = top[:, 2, :, None, None]
    pairs = torch.where(rest[:, :, None, None] > 0, direct, through)
    pairs = torch.where(last > 0, with_third[:, None], pairs)
    cross = pairs - pairs.sum(3, keepdim=True) * pairs.sum(2, keepdim=True)
    return joint.sum((1, 2)), cross.transpose(1, 2)


class _Conditionals(NamedTuple):
    """What the two strongest neighbours a and c say about all variables."""

    pair: Tensor  # b a c    p(a, c)
    on_one: Tensor  # b a n k    p(x_l | a)
    on_two: Tensor  # b a c n k    p(x_l | a, c)


def _conditionals(top: Tensor, marginals: Tensor, covariance: Tensor) -> _Conditionals:
    """p(l | a, c) ∝ p(l | a) p(l | c)/Σ_a' p(a' | c) p(l | a'): c adds what a did not tell."""
    p = torch.einsum("btn,bnk->btk", top[:, :2], marginals)  # b 2 k
    rows = torch.einsum("btn,bnxmy->btxmy", top[:, :2], covariance)  # b 2 k n k
    joints = (rows + p[..., None, None] * marginals[:, None, None]).clamp(min=0.0)
    joints = joints + BLUR * marginals[:, None, None]
    given = joints / (joints.sum(-1, keepdim=True) + TINY)  # b 2 k n k
    pair = torch.einsum("bn,bxny->bxy", top[:, 1], rows[:, 0]) + p[:, 0, :, None] * p[:, 1, None]
    pair = pair.clamp(min=0.0)
    pair = pair / (pair.sum((1, 2), keepdim=True) + TINY)
    back = (pair + BLUR * p[:, 0, :, None]) / (pair.sum(1, keepdim=True) + BLUR)  # p(a | c)
    expected = torch.einsum("bac,bank->bcnk", back, given[:, 0])
    ratio = (given[:, 1] / (expected + TINY)).clamp(max=MOST_RATIO)  # b c n k
    both = given[:, 0, :, None] * ratio[:, None]  # b a c n k
    both = both + BLUR * marginals[:, None, None]
    both = both / (both.sum(-1, keepdim=True) + TINY)
    same = torch.eye(p.shape[2], device=p.device, dtype=p.dtype)
    first, second = (top[:, t, None, None, :, None] > 0 for t in (0, 1))
    both = torch.where(first, same[:, None, None], both)
    return _Conditionals(pair, given[:, 0], torch.where(second, same[None, :, None], both))


def enumerate_core(tables: Tensor, unary: Tensor) -> tuple[Tensor, Tensor]:
    """Marginals (b n k) and covariances (b n k n k) of small models by summing all kⁿ states.

    The variables are cut into two halves, E(x, y) = E(x) + E(y) + xᵀ Θ y in one-hot vectors.
    """
    b, n, k = unary.shape
    cut = n - n // 2
    left = state_table(cut, k, unary.device, unary.dtype)  # x a·k
    right = state_table(n // 2, k, unary.device, unary.dtype)
    matrix, theta = tables.reshape(b, n * k, n * k), unary.reshape(b, n * k)
    a = cut * k
    energy = _half_energy(left, matrix[:, :a, :a], theta[:, :a])[:, :, None]
    energy = energy + _half_energy(right, matrix[:, a:, a:], theta[:, a:])[:, None]
    energy = energy + left @ matrix[:, :a, a:] @ right.T  # b x y
    weight = torch.softmax(energy.flatten(1), 1).view_as(energy)
    on_left, on_right = weight.sum(2), weight.sum(1)
    p = torch.cat([on_left @ left, on_right @ right], 1)
    cross = left.T @ weight @ right
    inner_left = (on_left[:, None] * left.T) @ left
    inner_right = (on_right[:, None] * right.T) @ right
    second = torch.cat(
        [torch.cat([inner_left, cross], 2), torch.cat([cross.mT, inner_right], 2)], 1
    )
    covariance = second - p[:, :, None] * p[:, None]
    return p.view(b, n, k), covariance.view(b, n, k, n, k)


def _half_energy(states: Tensor, matrix: Tensor, theta: Tensor) -> Tensor:
    return 0.5 * ((states @ matrix) * states).sum(-1) + theta @ states.T


@cache
def state_table(count: int, states: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """All configurations of a few variables as one-hot vectors (statesᶜᵒᵘⁿᵗ count·states)."""
    codes = torch.arange(states**count, device=device)
    digits = (
        torch.stack([codes // states**i % states for i in range(count)], 1)
        if count
        else codes[:, None][:, :0]
    )
    return one_hot(digits, states).to(dtype).flatten(1)


def strengths(tables: Tensor, exists: Tensor) -> Tensor:
    """Strength of every edge in [0, 1] (b n n): correlation of two states under the table alone.

    √(χ²/(K − 1)) of exp Θ with rows and columns brought to mean one by one sweep, K the smaller
    number of states; |tanh J| for two spins. A table that forbids one pair of many is weak by this,
    as it should be, though its logs differ without bound.
    """
    both = exists[:, :, :, None, None] * exists[:, None, None]
    count = exists.sum(-1)  # b n
    x = tables.clamp(min=-MOST_LOG, max=MOST_LOG)
    x = torch.exp(x - x.detach().amax((2, 4), keepdim=True)) * both
    x = x / (x.sum(4, keepdim=True) / count[:, None, None, :, None] + SMALL)
    x = x / (x.sum(2, keepdim=True) / count[:, :, None, None, None] + SMALL)
    square = ((x - 1.0) ** 2 * both).sum((2, 4)) / (count[:, :, None] * count[:, None])
    fewer = (torch.minimum(count[:, :, None], count[:, None]) - 1.0).clamp(min=1.0)
    # the slope of a root at zero is infinite, and most pairs have no edge
    return torch.where(square > SMALL, (square / fewer).clamp(SMALL, 1.0).sqrt(), 0.0)


def inexactness(strength: Tensor, adjacency: Tensor) -> Tensor:
    """Σ over triples of neighbours of the product of strengths (b n); zero for up to two."""
    p1, p2, p3 = strength.sum(-1), (strength**2).sum(-1), (strength**3).sum(-1)
    triples = (p1**3 - 3.0 * p1 * p2 + 2.0 * p3) / 6.0
    return triples.clamp(min=0.0) * (adjacency.sum(-1) > 2)


def one_hot(index: Tensor, count: int) -> Tensor:
    """One-hot rows (… count), without the check of the range that would wait for the device."""
    return index[..., None] == torch.arange(count, device=index.device)
