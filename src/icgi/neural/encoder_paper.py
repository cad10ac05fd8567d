"""Layers of the paper's encoder: message passing, attention with distance bias, MLP."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from icgi.neural.arrange import FAR
from icgi.neural.local import Active, Messages, Potentials, Sweep, state_mean

FARTHEST = 64  # distances with a bias of their own; then one for beyond, one for disconnected
CLASSES = FARTHEST + 3
HIDE = 1e4
DIFFUSIONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # times of the heat kernels


class PaperLayer(nn.Module):
    """Tokens b n k d after one sweep, attention between variables, and an MLP for each token.

    Attention reads the mean over states: states of different variables have nothing in common.
    Output projections start at zero.
    """

    def __init__(self, features: int, heads: int, damping: float, expansion: int) -> None:
        super().__init__()
        self.heads = heads
        self.sweep = Sweep(features, heads, damping)
        self.norm = nn.LayerNorm(features)
        self.project = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.norm_mlp = nn.LayerNorm(features)
        self.up = nn.Linear(features, expansion * features)
        self.down = nn.Linear(expansion * features, features)
        for layer in (self.out, self.down):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        tokens: Tensor,
        messages: Messages,
        model: Potentials,
        active: Active,
        bias: Tensor | None,
        half: bool,
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
        """
        tokens, messages = self.sweep(tokens, messages, model, active)
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            if bias is not None:
                pooled = state_mean(self.norm(tokens), model.states)
                tokens = tokens + self._attend(pooled, bias)[:, :, None]
            hidden = functional.gelu(self.up(self.norm_mlp(tokens)))
            tokens = tokens + self.down(hidden)
        return tokens, messages

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
