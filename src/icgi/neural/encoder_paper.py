"""Layers of the paper's encoder: message passing, attention with distance bias, MLP."""

from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from icgi.clock import Deadline
from icgi.neural.arrange import FAR
from icgi.neural.local import Active, Messages, Potentials, Sweep, state_mean
from icgi.neural.pace import check

EDGE = 4  # features of a pair of states
ROWS = 2048  # tokens of one piece of an MLP

FARTHEST = 64  # distances with a bias of their own; then one for beyond, one for disconnected
CLASSES = FARTHEST + 3
HIDE = 1e4
MOST_EDGE = 6.0
DIFFUSIONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # times of the heat kernels


Attention = Literal["variables", "states", "none"]


class PaperLayer(nn.Module):
    """Tokens b n k d after one sweep, attention, and an MLP for each token.

    Attention is between states: their pair's potential is a bias of the logits and the weight of a
    second sum, as the edges of the paper carry features of ψ_ij. Between variables it reads the
    mean over states, which cannot tell ψ_ij from one with the states of j exchanged.
    Output projections start at zero.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        damping: float,
        expansion: int,
        spread: float = 0.0,
        attention: Attention = "variables",
    ) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.sweep = Sweep(features, heads, damping, spread)
        states = attention == "states"
        if attention != "none":
            self.norm = nn.LayerNorm(features)
            self.project = nn.Linear(features, (4 if states else 3) * features)
            self.out = nn.Linear((2 if states else 1) * features, features)
            nn.init.zeros_(self.out.weight)
            nn.init.zeros_(self.out.bias)
        if states:
            self.edge = nn.Linear(EDGE, 2 * heads, bias=False)
        self.norm_mlp = nn.LayerNorm(features)
        self.up = nn.Linear(features, expansion * features)
        self.down = nn.Linear(expansion * features, features)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(
        self,
        tokens: Tensor,
        messages: Messages,
        model: Potentials,
        active: Active,
        bias: Tensor | None,
        half: bool,
        edges: Tensor | None = None,
        deadline: Deadline | None = None,
    ) -> tuple[Tensor, Messages]:
        """New tokens and messages.

        Parameters
        ----------
        active
            Messages that may change.
        bias
            Added to the attention logits (b h n n); no attention if absent.
        half
            Attention and MLP in bfloat16; never the sweep, whose sums of logarithms would suffer.
        edges
            `edge_features` (b nk nk 4), for attention between states.
        deadline
            Moment after which the layer is left, by `OutOfTime`.
        """
        tokens, messages = self.sweep(tokens, messages, model, active, deadline)
        check(deadline)
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            if bias is not None and self.attention == "states" and edges is not None:
                tokens = tokens + self._attend_states(tokens, model.states, bias, edges)
            elif bias is not None and self.attention == "variables":
                pooled = state_mean(self.norm(tokens), model.states)
                tokens = tokens + self._attend(pooled, bias)[:, :, None]
            check(deadline)
            tokens = tokens + self._mlp(tokens, deadline)
        return tokens, messages

    def _mlp(self, tokens: Tensor, deadline: Deadline | None) -> Tensor:
        """Each token by itself; in pieces where there is a deadline, which one product may pass."""
        b, n, k, _ = tokens.shape
        rows = n if deadline is None else max(1, ROWS // (b * k))
        parts = []
        for piece in torch.split(tokens, max(rows, 1), 1):
            check(deadline)
            parts.append(self.down(functional.gelu(self.up(self.norm_mlp(piece)))))
        return torch.cat(parts, 1)

    def _attend_states(self, tokens: Tensor, states: Tensor, bias: Tensor, edges: Tensor) -> Tensor:
        """[softmax(qᵀk/√(D/H) + b(d) + e) v, Σ e' v'] for tokens b n k d."""
        b, n, k, d = tokens.shape
        h, m = self.heads, n * k
        parts = self.project(self.norm(tokens)).view(b, m, 4, h, d // h).permute(2, 0, 3, 1, 4)
        query, key, value, other = parts.unbind(0)
        logit, weight = self.edge(edges).permute(0, 3, 1, 2).split(h, 1)  # b h nk nk
        hidden = ((states - 1.0) * HIDE)[:, None, None, None]  # b 1 1 1 n k
        far = (bias[:, :, :, None, :, None] + hidden).expand(b, h, n, k, n, k)
        logit = query @ key.mT * (d // h) ** -0.5 + logit + far.reshape(b, h, m, m)
        mixed = torch.cat([torch.softmax(logit, -1).to(value.dtype) @ value, weight @ other], 1)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(b, m, 2 * d))
        return out.view(b, n, k, d)

    def _attend(self, x: Tensor, bias: Tensor) -> Tensor:
        """softmax(qᵀk/√(D/H) + b(d)) v (eq. spd); x b n d."""
        b, n, d = x.shape
        parts = self.project(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        # fused kernels want the last axis of the bias in one piece; only the plain one is sure to
        # have a gradient for it, on every device
        mask = bias.to(query.dtype).contiguous()
        plain = bias.requires_grad and x.device.type == "cuda"
        with sdpa_kernel(SDPBackend.MATH) if plain else nullcontext():
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(b, n, d))
        return out


def edge_features(log_pairs: Tensor, states: Tensor) -> Tensor:
    """What the potential of two variables says of two of their states (b n n k k 4).

    θ without its means over either variable's states, in four forms that vanish with it.
    """
    both = states[:, :, None, :, None] * states[:, None, :, None]
    theta = log_pairs * both
    for axis in (-1, -2):
        count = both.sum(axis, keepdim=True).clamp(min=1.0)
        theta = (theta - theta.sum(axis, keepdim=True) / count) * both
    bent = torch.tanh(theta)
    return torch.stack(
        [theta.clamp(-MOST_EDGE, MOST_EDGE), bent, bent * bent, torch.log1p(theta * theta)], -1
    )


def between_tokens(features: Tensor) -> Tensor:
    """Same features (b nk nk c) in the order of tokens."""
    b, n, _, k, _, c = features.shape
    return features.transpose(2, 3).reshape(b, n * k, n * k, c)


class DistanceBias(nn.Module):
    """b(d) for each layer and head: one for 0 … 64, one for beyond, one for disconnected."""

    def __init__(self, layers: int, heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(CLASSES, layers * heads))
        self.heads = heads

    def forward(self, d: Tensor, layers: slice) -> Tensor:
        """Biases (l b h n n) of some layers, of distances b n n."""
        table = self.table[:, layers.start * self.heads : layers.stop * self.heads]
        index = torch.where(d >= FAR, float(CLASSES - 1), d.clamp(max=FARTHEST + 1))
        if torch.is_grad_enabled():
            # one-hot: the gradient of a lookup would add a million entries into one small table
            classes = torch.arange(CLASSES, device=d.device, dtype=d.dtype)
            found = (index[..., None] == classes).to(table.dtype) @ table
        else:
            found = table[index.long()]
        return found.view(*found.shape[:3], -1, self.heads).permute(3, 0, 4, 1, 2)


class LaplacianBias(nn.Module):
    """The ablation: biases from the eigenvectors of the first graph, never updated.

    Σ_m e^{−t λ_m} u_m(i) u_m(j) for eight times t: signs and bases of eigenvectors do not matter.
    """

    def __init__(self, layers: int, heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(len(DIFFUSIONS), layers * heads))
        self.heads = heads

    def forward(self, kernels: Tensor, layers: slice) -> Tensor:
        """Biases (l b h n n) of some layers, from heat kernels b n n t."""
        table = self.table[:, layers.start * self.heads : layers.stop * self.heads]
        found = kernels @ table
        return found.view(*found.shape[:3], -1, self.heads).permute(3, 0, 4, 1, 2)


def heat_kernels(adjacency: Tensor) -> Tensor:
    """exp(−t L) (b n n t) of the normalised Laplacian, by its eigenvectors."""
    degree = adjacency.sum(-1)
    scale = degree.clamp(min=1.0).rsqrt()
    eye = torch.eye(adjacency.shape[1], device=adjacency.device, dtype=adjacency.dtype)
    laplacian = eye * (degree > 0)[:, None].to(eye.dtype)
    laplacian = laplacian - scale[:, :, None] * adjacency * scale[:, None]
    values, vectors = torch.linalg.eigh(laplacian)
    times = adjacency.new_tensor(DIFFUSIONS)
    decay = torch.exp(-times[:, None] * values[:, None])  # b t m
    return torch.einsum("bim,btm,bjm->bijt", vectors, decay, vectors)


def hidden_keys(alive: Tensor) -> Tensor:
    """Bias (b 1 1 n) that hides variables; finite, so that no row is without a key."""
    return (alive - 1.0)[:, None, None] * HIDE
