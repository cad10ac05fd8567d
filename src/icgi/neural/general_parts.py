"""Learned parts of the network for q states: features of tokens, corrections, head."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.neural.heads import FLOOR, MOST_LOG_SCALE

EDGES = 5
ROW_FEATURES = 8
CLIP = 8.0  # log-odds that tokens are told; beyond, all is the same


def centred(values: Tensor, exists: Tensor) -> Tensor:
    """Log values (… k) less their largest, then less the mean over states that exist, clipped."""
    top = torch.where(exists > 0, values, -1e4).amax(-1, keepdim=True)
    x = (values - top).clamp(min=-CLIP) * exists
    return (x - x.sum(-1, keepdim=True) / exists.sum(-1, keepdim=True)) * exists


def edge_features(tables: Tensor, exists: Tensor, strength: Tensor) -> Tensor:
    """Features (b 5 n k n k) of token pairs; all but the last vanish without an edge."""
    n, k = exists.shape[1:]
    both = exists[:, :, :, None, None] * exists[:, None, None]
    t = torch.tanh(tables)
    same = torch.eye(n, device=t.device, dtype=t.dtype)[:, None, :, None]
    other = 1.0 - torch.eye(k, device=t.device, dtype=t.dtype)[:, None]
    strong = strength[:, :, None, :, None].expand_as(t)
    features = [tables.clamp(-CLIP, CLIP), t, strong, t * t, (same * other).expand_as(t)]
    return torch.stack([x * both for x in features], 1)


def row_features(
    row: Tensor, unary: Tensor, exists: Tensor, fields: Tensor, others_exist: Tensor
) -> Tensor:
    """Features (b 8 v n k) of the token pairs of one variable and all others.

    Parameters
    ----------
    row, unary, exists
        Tables (b n v k), θ (b v) and states of the variable.
    fields, others_exist
        Logs of what is known of the others (b n k), and their states.
    """
    both = exists[:, :, None, None] * others_exist[:, None]  # b v n k
    x = row.transpose(1, 2)
    j = x.clamp(-CLIP, CLIP)
    t = torch.tanh(x)
    own = centred(unary, exists)[:, :, None, None].expand_as(j)
    other = centred(fields, others_exist)[:, None].expand_as(j)
    features = [j, t, j * j / CLIP, t * t, own, torch.tanh(own), other, torch.tanh(other)]
    return torch.stack([f * both for f in features], 1)


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
        self.pair = nn.Linear(hidden, 4)  # table, gate, force, trust
        self.single = nn.Linear(features, 1)
        self.tilt = nn.Linear(features, 1)
        self.side = nn.Linear(hidden, rank)
        self.sign = nn.Parameter(torch.zeros(rank))
        self.message = nn.Linear(hidden, features, bias=False)
        for layer in (self.pair, self.single, self.tilt):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, gone: Any, others: Tensor, fields: Tensor, exists: Tensor) -> Step:
        """Corrections for a variable as it goes, among others of tokens b n k d."""
        own, others = self.norm(gone.tokens), self.norm(others)
        edges = row_features(gone.row, gone.unary, gone.exists, fields, exists)
        hidden = functional.gelu(
            self.own(own)[:, None, :, None]
            + self.other(others)[:, :, None]
            + self.edge(edges.permute(0, 3, 2, 4, 1))
        )  # b n v k c
        both = gone.exists[:, None, :, None] * exists[:, :, None]
        both = both * gone.present[:, :, None, None]  # b n v k
        hidden = hidden * both[..., None]
        pair = self.pair(hidden) * both[..., None]
        count = both.sum((2, 3)).clamp(min=1.0)
        states = gone.exists.sum(-1)[:, None, None]  # b 1 1
        on_state = hidden.sum(2) / states[..., None]  # b n k c
        side = torch.tanh(self.side(on_state)) * exists[..., None]
        side = side - side.sum(2, keepdim=True) / exists.sum(-1)[:, :, None, None]
        b, n, k, r = side.shape
        flat = (side * exists[..., None]).reshape(b, n * k, r)
        return Step(
            table=pair[..., 0],
            unary=self.single(own)[..., 0] * gone.exists,
            tilt=self.tilt(others)[..., 0],
            trust=(pair[..., 3].sum((2, 3)) / count).clamp(-3.0, 3.0)[..., None],
            gate=(pair[..., 1].sum((2, 3)) / count).clamp(-3.0, 1.0),
            force=pair[..., 2].sum(2) / states,
            pairs=((flat * self.sign) @ flat.mT).view(b, n, k, n, k),
            message=self.message(on_state),
        )


class GeneralHead(nn.Module):
    """α_x = e^c (softplus(W z_x) + 10⁻³) · K p_x for K states, p what the algebra found.

    `heads.TiltedDirichletHead` for any number of states; zero for states that do not exist.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1, bias=False)
        self.scale = nn.Linear(features, 1)
        for p in (self.linear.weight, self.scale.weight, self.scale.bias):
            nn.init.zeros_(p)

    def forward(self, tokens: Tensor, p: Tensor, exists: Tensor, learned: Tensor) -> Tensor:
        """Concentrations (b n k); `learned` (b 1) is 0 where the algebra is exact."""
        count = exists.sum(-1, keepdim=True)
        correction = self.linear(tokens)[..., 0] * learned[..., None]
        pooled = (tokens * exists[..., None]).sum(2) / count
        scale = self.scale(pooled).clamp(-MOST_LOG_SCALE, MOST_LOG_SCALE)
        shape = (functional.softplus(correction) + FLOOR) * count * p
        return torch.exp(scale) * shape.clamp(min=1e-7) * exists


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
