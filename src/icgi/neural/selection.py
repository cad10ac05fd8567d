"""Which variables go next: scores with Gumbel noise in training, least degree at test.

The choice itself has no gradient. Straight-through: what a chosen variable sends is multiplied by
1 + π − stop(π), where π is the Gumbel-Softmax probability (eq. gumbel); the value stays, and the
score hears whether more of it would have helped. Alternatives: the soft choice mixes every
variable's factor into one graph that no elimination makes; REINFORCE needs no relaxation but has
far more variance.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

Order = Literal["min-degree", "random", "learned"]


class Chosen(NamedTuple):
    """The variables that are eliminated in one round, no two of them neighbours."""

    which: Tensor  # b m    their numbers
    valid: Tensor  # b m    0 where a graph has fewer
    weight: Tensor  # b m    1, with the straight-through gradient of the choice
    mask: Tensor  # b n


class Score(nn.Module):
    """s_i = wᵀh_i − κ·degree.

    Paper: s = wᵀh; here κ, learned from 1, is added because training would otherwise begin with
    random orders, which the rule of least degree at test never uses.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.linear = nn.Linear(features, 1, bias=False)
        self.kappa = nn.Parameter(torch.ones(()))
        nn.init.normal_(self.linear.weight, std=features**-0.5)

    def forward(self, pooled: Tensor, degree: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and their part wᵀh (b n), of tokens averaged over states (b n d)."""
        own = self.linear(self.norm(pooled))[..., 0]
        return own - self.kappa * degree, own


def gumbel(shape: tuple[int, ...], seeds: torch.Generator) -> Tensor:
    """Gumbel(0, 1) noise."""
    u = torch.rand(shape, generator=seeds).clamp(1e-9, 1.0 - 1e-7)
    return -torch.log(-torch.log(u))


def keys(
    order: Order, score: Tensor, own: Tensor, degree: Tensor, alive: Tensor, noise: Tensor | None
) -> Tensor:
    """What is maximised (b n); noise is given in training, and for random orders."""
    if order == "random":
        return own if noise is None else noise
    if order == "learned":
        return score if noise is None else score + noise
    # ties are broken by tokens, not by numbers; by rank, since two variables must never tie
    rank = own.argsort(1).argsort(1).to(own.dtype)
    least = degree.masked_fill(alive <= 0, torch.inf).amin(1, keepdim=True)
    # in a tree only leaves go, which loses nothing; elsewhere one more neighbour saves rounds
    high = degree > torch.where(least > 1, least + 1.0, 1.0)
    return (0.5 * rank / own.shape[1] - degree).masked_fill(high, -torch.inf)


def choose(
    key: Tensor,
    adjacency: Tensor,
    alive: Tensor,
    count: int,
    soft: Tensor | None = None,
    limit: Tensor | None = None,
) -> Chosen:
    """Up to `count` local maxima of the key: an independent set; for `count` 1 the maximum.

    Paper: one variable a step; here a round may take several that do not touch, which gives the
    same graph in any order of them and takes fewer rounds.

    Parameters
    ----------
    adjacency
        Current graph (b n n).
    alive
        1 for variables that are left (b n).
    soft
        (s + g)/τ (b n), whose softmax the gradient goes through; no gradient if absent.
    limit
        Most variables of each graph (b), where that is less than `count`.
    """
    n = key.shape[1]
    with torch.no_grad():
        shown = key.masked_fill(alive <= 0, -torch.inf)
        around = torch.where(adjacency > 0, shown[:, None], -torch.inf).amax(-1)
        top = shown.masked_fill(shown <= around, -torch.inf).topk(min(count, n), 1)
        valid = (top.values > -torch.inf).to(key.dtype)
        if limit is not None:
            slots = torch.arange(valid.shape[1], device=key.device)
            valid = valid * (slots < limit[:, None])
        mask = torch.zeros_like(key).scatter(1, top.indices, valid)
    weight = valid
    if soft is not None:
        pi = torch.softmax(soft.masked_fill(alive <= 0, -1e4), 1).gather(1, top.indices)
        weight = valid * (1.0 + pi - pi.detach())
    return Chosen(top.indices, valid, weight, mask)
