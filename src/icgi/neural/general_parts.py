"""Learned parts of the network for q states: features of tokens, corrections, head."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.neural.general_algebra import TINY
from icgi.neural.heads import FLOOR, MOST_LOG_SCALE

EDGES = 5
ROW_FEATURES = 3
SMALLEST = 3e-4  # probability below which tokens need not tell states apart
CLIP = 8.0  # log-odds that tokens are given; beyond, all is the same


def input_states(unary: Tensor, exists: Tensor) -> list[Tensor]:
    """What fields θ (… k) say of each state: log p, cut where it no longer matters, and p."""
    p = torch.softmax(unary, -1)
    return [torch.log(p + SMALLEST) * exists, p]


def edge_features(tables: Tensor, exists: Tensor, strength: Tensor) -> Tensor:
    """Features (b 5 n k n k) of token pairs; all but the last vanish without an edge."""
    n, k = exists.shape[1:]
    both = exists[:, :, :, None, None] * exists[:, None, None]
    t = torch.tanh(tables)
    same = torch.eye(n, device=t.device, dtype=t.dtype)[:, None, :, None]
    other = 1.0 - torch.eye(k, device=t.device, dtype=t.dtype)[:, None]
    strong = strength[:, :, None, :, None].expand_as(t)
    features = [tables.clamp(-CLIP, CLIP), t, strong, t * t, (same * other).expand_as(t)]
    return torch.stack(features, 1) * both[:, None]


def row_features(row: Tensor, exists: Tensor, near: Tensor) -> Tensor:
    """Features (b 3 v n k) of the token pairs of one variable and its neighbours.

    Parameters
    ----------
    row, exists
        Tables (b n v k) and states (b v) of the variable.
    near
        1 for states of neighbours (b n k).
    """
    x = row.transpose(1, 2)
    t = torch.tanh(x)
    both = exists[:, :, None, None] * near[:, None]  # b v n k
    return torch.stack([x.clamp(-CLIP, CLIP), t, t * t], 1) * both[:, None]


class Step(NamedTuple):
    """Learned corrections of one elimination; all zero in an untrained network but `message`."""

    table: Tensor  # b n v k    added to Θ_vl
    unary: Tensor  # b v    added to θ_v
    tilt: Tensor  # b n k    added to the logs of the beliefs
    trust: Tensor  # b n 1    log factor on the field part of the beliefs
    gate: Tensor  # b n    log factor on new tables
    force: Tensor  # b n k    added to the fields
    pairs: Tensor  # b n k n k    added to new tables
    message: Tensor  # b n k d    added to the neighbours' tokens


class GeneralCorrections(nn.Module):
    """What the network adds to the algebra when a variable is eliminated."""

    def __init__(self, features: int, hidden: int, rank: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.own = nn.Linear(features, hidden)
        self.other = nn.Linear(features, hidden)
        self.edge = nn.Linear(ROW_FEATURES, hidden)
        self.news = nn.Linear(2, hidden)
        self.pair = nn.Linear(hidden, 4)  # table, force, trust, gate
        self.single = nn.Linear(features, 1)
        self.tilt = nn.Linear(features, 1)
        self.side = nn.Linear(hidden, rank)
        self.sign = nn.Parameter(torch.zeros(rank))
        self.message = nn.Linear(hidden, features, bias=False)
        for layer in (self.pair, self.single, self.tilt):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        own: Tensor,
        row: Tensor,
        own_exists: Tensor,
        present: Tensor,
        others: Tensor,
        fields: Tensor,
        exists: Tensor,
    ) -> Step:
        """Corrections for a variable of tokens b v d that goes.

        Parameters
        ----------
        row, own_exists
            Its tables (b n v k) and states (b v).
        present
            1 for its neighbours (b n).
        others, fields, exists
            Tokens (b n k d), θ (b n k) and states (b n k) of those that stay.
        """
        own, others = self.norm(own), self.norm(others)
        near = present[:, :, None] * exists
        edges = row_features(row, own_exists, near)
        news = self.news(torch.stack(input_states(fields, exists), -1))
        hidden = functional.gelu(
            self.own(own)[:, None, :, None]
            + (self.other(others) + news)[:, :, None]
            + self.edge(edges.permute(0, 3, 2, 4, 1))
        )  # b n v k c
        both = (own_exists[:, None, :, None] * near[:, :, None])[..., None]  # b n v k 1
        hidden = hidden * both
        pair = self.pair(hidden) * both
        mean = pair[..., 2:].sum((2, 3)) / both.sum((2, 3)).clamp(min=1.0)  # b n 2
        states = own_exists.sum(-1)[:, None, None]  # b 1 1
        on_state = hidden.sum(2) / states[..., None]  # b n k c
        side = torch.tanh(self.side(on_state)) * exists[..., None]
        b, n, k, r = side.shape
        flat = side.reshape(b, n * k, r)
        return Step(
            table=pair[..., 0],
            unary=self.single(own)[..., 0] * own_exists,
            tilt=self.tilt(others)[..., 0] * exists,
            trust=mean[..., :1].clamp(-3.0, 3.0),
            gate=mean[..., 1].clamp(-3.0, 1.0),
            force=pair[..., 1].sum(2) / states,
            pairs=((flat * self.sign) @ flat.mT).view(b, n, k, n, k),
            message=self.message(on_state),
        )


class GeneralHead(nn.Module):
    """α_x = e^c (softplus(W z_x) + 10⁻³) · K p_x for K states, p what the algebra found.

    `heads.TiltedDirichletHead` for any number of states; zero for states that do not exist. Where
    the context has an estimate, p is moved towards it first, in logs, by a learned weight.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1, bias=False)
        self.whole = nn.Linear(features + 1, 2)  # c, and the weight of an estimate
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.whole.weight)
        with torch.no_grad():
            self.whole.bias.copy_(torch.tensor([0.0, -3.0]))

    def forward(
        self,
        tokens: Tensor,
        p: Tensor,
        exists: Tensor,
        estimate: Tensor,
        reliability: Tensor,
        learned: Tensor,
    ) -> Tensor:
        """Concentrations (b n k); `learned` (b 1) is 0 where the algebra is exact, up to 1."""
        count = exists.sum(-1, keepdim=True)
        pooled = (tokens * exists[..., None]).sum(2) / count
        scale, weight = self.whole(torch.cat([pooled, reliability[..., None]], -1)).split(1, -1)
        weight = torch.sigmoid(weight) * (reliability > 0)[..., None]
        log_p = torch.log(p + TINY)
        p = torch.softmax(log_p + weight * exists * (estimate - log_p), -1)
        correction = self.linear(tokens)[..., 0] * learned[..., None]
        shape = (functional.softplus(correction) + FLOOR) * (count * p)
        scale = torch.exp(scale.clamp(-MOST_LOG_SCALE, MOST_LOG_SCALE))
        return (scale * exists) * shape.clamp(min=1e-7)


def moved_covariance(
    covariance: Tensor, old: Tensor, new: Tensor, learned: Tensor, *, both: bool = True
) -> Tensor:
    """Covariances b n k … when marginals b n k are corrected: deviations scale, sums stay zero.

    Parameters
    ----------
    both
        Whether the last two axes belong to the same variables and scale with them.
    """
    ratio = (new * (1.0 - new) + 1e-4) / (old * (1.0 - old) + 1e-4)
    ratio = torch.where(learned[..., None] > 0, ratio.clamp(0.01, 4.0).sqrt(), 1.0)
    scaled = covariance * ratio[..., None, None]
    lost = scaled.sum(2, keepdim=True) * new[..., None, None]
    moved = scaled - torch.where(learned[..., None, None, None] > 0, lost, 0.0)
    if not both:
        return moved
    return moved_covariance(moved.permute(0, 3, 4, 1, 2), old, new, learned, both=False)


def bordered(p: Tensor, cross: Tensor, block: Tensor) -> Tensor:
    """Covariances with one more variable in front: p (b k), cross (b k n k), block (b n k n k)."""
    b, k, n, _ = cross.shape
    corner = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    side = cross.reshape(b, k, n * k)
    top = torch.cat([corner, side], 2)
    below = torch.cat([side.mT, block.reshape(b, n * k, n * k)], 2)
    return torch.cat([top, below], 1).view(b, n + 1, k, n + 1, k)
