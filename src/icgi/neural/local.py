"""Message passing on the factor graph, in several heads that start as damped belief propagation.

Messages are logarithms; their largest entry is about 0. Products are taken in linear space, where
tables floored at e⁻³⁰ and messages floored at e⁻³⁰ leave every sum above the smallest float32.
"""

import math
import string
from typing import NamedTuple

import torch
from torch import Tensor, nn

from icgi.neural.graphs import FLOOR, Factors, Graphs

HIDE = 1e6  # taken from the logarithm of states that do not exist; beyond any sum of messages
MOST_HEARD = 15.0  # centred log belief that tokens are told


class Messages(NamedTuple):
    """Log messages to variables; the last axis runs over heads."""

    pairs: Tensor  # b n n k h    to i from j; b 0 0 k h where pairs are a list
    groups: tuple[Tensor, ...]  # b f a k h    to the variable at each place of each factor


class Active(NamedTuple):
    """Which messages a sweep may change."""

    pairs: Tensor  # b n n    to i from j
    groups: tuple[Tensor, ...]  # b f a


class Potentials(NamedTuple):
    """The current model, in linear space."""

    states: Tensor  # b n k
    unary: Tensor  # b n k    log
    pairs: Tensor  # b n n k k    exp θ
    groups: tuple[Tensor, ...]  # b f k … k    exp θ
    scopes: tuple[Tensor, ...]  # b f a


def potentials(graphs: Graphs) -> Potentials:
    """Linear tables of a batch."""
    return Potentials(
        graphs.states,
        graphs.unary - HIDE * (1.0 - graphs.states),
        torch.exp(graphs.pairs),
        tuple(torch.exp(g.log_tables) for g in graphs.groups),
        tuple(g.scopes for g in graphs.groups),
    )


def silence(graphs: Graphs, heads: int) -> Messages:
    """Messages that say nothing."""
    b, _, k = graphs.states.shape
    p = graphs.adjacency.shape[1]
    groups = (graphs.unary.new_zeros(b, *g.scopes.shape[1:], k, heads) for g in graphs.groups)
    return Messages(graphs.unary.new_zeros(b, p, p, k, heads), tuple(groups))


def all_active(graphs: Graphs) -> Active:
    """Every message of the model."""
    return Active(graphs.adjacency, tuple(_places(g) for g in graphs.groups))


def _places(group: Factors) -> Tensor:
    return group.present[:, :, None].expand_as(group.scopes)


class Sweep(nn.Module):
    """One parallel sweep, in each head m ← λ m + (1 − λ) log Σ exp(θ_f + Σ_j a_{j→f}).

    a_{j→f} = b_j + tilt(h_j) − c m_{f→j}, where b_j is the belief. The tilt starts at zero, c at
    one and λ at the damping, for all variables: an untrained sweep is damped belief propagation.
    """

    def __init__(self, features: int, heads: int, damping: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.tilt = nn.Linear(features, heads, bias=False)
        self.gate = nn.Linear(features, heads, bias=False)
        share = min(max(damping, 1e-9), 1.0 - 1e-9)
        self.damping = nn.Parameter(torch.full((heads,), math.log(share / (1.0 - share))))
        self.cavity = nn.Parameter(torch.ones(heads))
        self.read = nn.Linear(2 * heads, features)
        nn.init.zeros_(self.tilt.weight)
        nn.init.zeros_(self.gate.weight)

    def forward(
        self, tokens: Tensor, messages: Messages, model: Potentials, active: Active
    ) -> tuple[Tensor, Messages]:
        """Tokens that heard the new beliefs, and the new messages."""
        x = self.norm(tokens)
        told = beliefs(model, messages) + self.tilt(x)  # b n k h
        keep = torch.sigmoid(self.damping + self.gate(state_mean(x, model.states)))  # b n h
        pairs = messages.pairs
        if pairs.shape[1]:
            cavity = told[:, None] - self.cavity * pairs.transpose(1, 2)  # b i j y h
            new = pair_messages(model, cavity)
            share = keep[:, :, None, None]
            moved = share * pairs + (1.0 - share) * new
            pairs = torch.where(active.pairs[..., None, None] > 0, moved, pairs)
        groups = tuple(
            self._group(told, keep, *parts)
            for parts in zip(
                messages.groups, model.groups, model.scopes, active.groups, strict=True
            )
        )
        heard = Messages(pairs, groups)
        return tokens + self.read(hearing(beliefs(model, heard), model.states)), heard

    def _group(
        self, told: Tensor, keep: Tensor, old: Tensor, table: Tensor, scopes: Tensor, active: Tensor
    ) -> Tensor:
        cavity = at_places(told, scopes) - self.cavity * old  # b f a y h
        share = at_places(keep[:, :, None], scopes)
        moved = share * old + (1.0 - share) * group_messages(table, cavity)
        return torch.where(active[..., None, None] > 0, moved, old)


def beliefs(model: Potentials, messages: Messages) -> Tensor:
    """Return log b_i(x) = θ_i(x) + Σ_f m_{f→i}(x), not normalised (b n k h)."""
    b, n, k = model.states.shape
    belief = (
        model.unary[..., None] + messages.pairs.sum(2)
        if messages.pairs.shape[1]
        else (model.unary[..., None].expand(b, n, k, messages.pairs.shape[-1]))
    )
    for message, scopes in zip(messages.groups, model.scopes, strict=True):
        index = scopes.flatten(1)[:, :, None, None].expand(-1, -1, k, message.shape[-1])
        belief = belief.scatter_add(1, index, message.flatten(1, 2))
    return belief


def pair_messages(model: Potentials, cavity: Tensor) -> Tensor:
    """Return log Σ_y exp θ_ij(x, y) + a_{j→i}(y), to i from j (b i j x h)."""
    weight = linear(cavity)[:, :, :, None]  # b i j 1 y h
    return log_normalised((model.pairs[..., None] * weight).sum(-2))


def group_messages(table: Tensor, cavity: Tensor) -> Tensor:
    """Return log Σ exp(θ_f + Σ_{q≠p} a_q) over all places but p, for every p (b f a x h)."""
    weight = linear(cavity)
    arity = cavity.shape[2]
    axes = [c for c in string.ascii_lowercase if c not in "bfh"][:arity]
    found = []
    for p in range(arity):
        others = [q for q in range(arity) if q != p]
        terms = "".join(f",bf{axes[q]}h" for q in others)
        # contracting one place after the other never holds more than the table times the heads
        rule = f"bf{''.join(axes)}{terms}->bf{axes[p]}h"
        found.append(torch.einsum(rule, table, *(weight[:, :, q] for q in others)))
    return log_normalised(torch.stack(found, 2))


def linear(log: Tensor) -> Tensor:
    """Exponentials of logarithms (… k h), the largest moved to 0, floored but for hidden states."""
    shifted = log - log.amax(-2, keepdim=True).detach()
    return torch.exp(torch.where(shifted < -0.5 * HIDE, shifted, shifted.clamp(min=FLOOR)))


def log_normalised(x: Tensor) -> Tensor:
    """Logarithms of positive numbers (… k h), the largest entry moved to 0."""
    log = torch.log(x)
    return log - log.amax(-2, keepdim=True).detach()


def hearing(belief: Tensor, states: Tensor) -> Tensor:
    """What tokens are told of beliefs: log p + log K and K·p − 1, both 0 for uniform (b n k 2h)."""
    count = states.sum(-1).clamp(min=1.0)[..., None, None]
    log = torch.log_softmax(belief, 2)
    told = (log + torch.log(count)).clamp(-MOST_HEARD, MOST_HEARD)
    both = torch.cat([told, count * torch.exp(log) - 1.0], -1)
    return both * states[..., None]


def state_mean(tokens: Tensor, states: Tensor) -> Tensor:
    """Mean over the states that exist (b n d) of tokens b n k d."""
    total = (tokens * states[..., None]).sum(2)
    return total / states.sum(-1, keepdim=True).clamp(min=1.0)


def at_places(values: Tensor, scopes: Tensor) -> Tensor:
    """Values (b n k h) of the variable at each place of each factor (b f a k h)."""
    index = scopes.flatten(1)[:, :, None, None].expand(-1, -1, *values.shape[2:])
    return values.gather(1, index).view(*scopes.shape, *values.shape[2:])
