"""Graph Transformer on tokens per (variable, state): relabelling states permutes tokens."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.neural.closed_form import constant, signs_like

EDGE_FEATURES = 6
HIDE = 1e4  # taken from the logits of padding: softmax then gives it nothing, and no NaN


def edge_features(couplings: Tensor, correlation: Tensor) -> Tensor:
    """Features (b 6 n 2 n 2) of token pairs; all but the last two vanish with the coupling."""
    s = signs_like(couplings)
    n = couplings.shape[1]
    together = (s[:, None] * s).view(1, 1, 2, 1, 2)
    raw = couplings[:, :, None, :, None]
    j = raw * together
    t = torch.tanh(j)
    eye = torch.eye(n, device=s.device, dtype=s.dtype)[None, :, None, :, None]
    other_state = (eye * (0.5 - 0.5 * together)).expand_as(j)
    r = correlation[:, :, None, :, None] * together
    return torch.stack([j, t, (raw * raw).expand_as(j), t * t, r, other_state], 1)


def distance_classes(d: Tensor, count: int) -> Tensor:
    """One-hot distances (b c n n); the last class is for that far and beyond.

    Without gradients their numbers (b n n), which a layer looks up. With gradients one-hot: that of
    a lookup adds a million entries into one small table.
    """
    near = d.clamp(max=count - 1)
    if not torch.is_grad_enabled():
        return near.long()
    steps = constant(tuple(float(x) for x in range(count)), d.device, d.dtype)
    return (near[:, None] == steps[None, :, None, None]).to(d.dtype)


class EncoderLayer(nn.Module):
    """Attention with edge and distance biases, beside a signed sum over edges, then an MLP.

    A = softmax(qᵀk/√(d/h) + w_e·e_ij + b(d_ij)) (eq. spd with an edge term), and the sum over
    neighbours weighted by w'_e·e_ij, which can count where softmax can only average.
    """

    def __init__(
        self, features: int, heads: int, classes: int, edge_count: int = EDGE_FEATURES
    ) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(features)
        self.project = nn.Linear(features, 4 * features)
        self.out = nn.Linear(2 * features, features)
        self.norm_mlp = nn.LayerNorm(features)
        self.up = nn.Linear(features, 2 * features)
        self.down = nn.Linear(2 * features, features)
        self.edge = nn.Parameter(0.3 * torch.randn(2 * heads, edge_count))
        self.distance = nn.Parameter(0.1 * torch.randn(heads, classes))

    def forward(self, tokens: Tensor, edges: Tensor, classes: Tensor, real: Tensor) -> Tensor:
        """New tokens (b n k d).

        Parameters
        ----------
        edges, classes
            Features (b e n k n k) of token pairs, and `distance_classes` of the variables, or
            other features (b c n n) in place of these.
        real
            1 for variables (b n) or states (b n k), 0 for padding.
        """
        b, n, k, d = tokens.shape
        h, m = self.heads, k * n
        x = self.project(self.norm(tokens)).view(b, m, 4 * h, d // h).transpose(1, 2)
        query, key, value = x[:, :h], x[:, h : 2 * h], x[:, 2 * h :]
        by_edge = (self.edge @ edges.flatten(2)).view(b, 2 * h, n, k, n, k)
        if classes.dtype == torch.long:
            by_distance = self.distance[:, classes].transpose(0, 1)
        else:
            by_distance = (self.distance @ classes.flatten(2)).view(b, h, n, n)
        hidden = (real - 1.0).mul(HIDE).reshape(b, 1, 1, 1, n, -1)
        logits = (query @ key.mT / math.sqrt(d // h)).view(b, h, n, k, n, k)
        logits = logits + by_edge[:, :h] + (by_distance[:, :, :, None, :, None] + hidden)
        attention = torch.softmax(logits.view(b, h, m, m), -1)
        signed = by_edge[:, h:].reshape(b, h, m, m)
        mixed = torch.cat([attention, signed], 1) @ value
        tokens = tokens + self.out(mixed.transpose(1, 2).reshape(b, n, k, 2 * d))
        new: Tensor = tokens + self.down(functional.gelu(self.up(self.norm_mlp(tokens))))
        return new


class CrossLayer(nn.Module):
    """One variable's tokens read those of its neighbours: the distribute pass of the network."""

    def __init__(self, features: int, heads: int, edge_count: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_query = nn.LayerNorm(features)
        self.norm_key = nn.LayerNorm(features)
        self.query = nn.Linear(features, features)
        self.key_value = nn.Linear(features, 3 * features)
        self.out = nn.Linear(2 * features, features)
        self.norm_mlp = nn.LayerNorm(features)
        self.up = nn.Linear(features, 2 * features)
        self.down = nn.Linear(2 * features, features)
        self.edge = nn.Parameter(0.3 * torch.randn(2 * heads, edge_count))

    def forward(self, own: Tensor, others: Tensor, edges: Tensor, present: Tensor) -> Tensor:
        """New tokens of the variable (b k d) from those of the others (b n k d).

        Parameters
        ----------
        edges
            Features (b e k n k) of the pairs, zero where there is no edge.
        present
            1 for neighbours (b n) or their states (b n k).
        """
        b, n, k, d = others.shape
        h = self.heads
        query = self.query(self.norm_query(own)).view(b, k, h, d // h).transpose(1, 2)
        x = self.key_value(self.norm_key(others)).view(b, k * n, 3 * h, d // h).transpose(1, 2)
        key, value = x[:, :h], x[:, h:]
        by_edge = (self.edge @ edges.flatten(2)).view(b, 2 * h, k, k * n)
        present = present.reshape(b, n, -1).expand(b, n, k).reshape(b, 1, 1, k * n)
        logits = query @ key.mT / math.sqrt(d // h) + by_edge[:, :h] + (present - 1.0) * HIDE
        any_present = (present.amax(3, keepdim=True) > 0).to(own.dtype)
        attention = torch.softmax(logits, -1) * any_present
        mixed = torch.cat([attention, by_edge[:, h:]], 1) @ value  # b 2h k d/h
        own = own + self.out(mixed.transpose(1, 2).reshape(b, k, 2 * d))
        new: Tensor = own + self.down(functional.gelu(self.up(self.norm_mlp(own))))
        return new
