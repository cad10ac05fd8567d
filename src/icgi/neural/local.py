"""Message passing on the factor graph, in several heads that start as damped belief propagation.

Messages are logarithms; their largest entry is about 0. Products are taken in linear space, where
tables floored at e⁻³⁰ and messages floored at e⁻³⁰ leave every sum above the smallest float32.
"""

import math
import string
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.clock import Deadline
from icgi.neural.graphs import FLOOR, Factors, Graphs
from icgi.neural.heads import FLOOR as HEAD_FLOOR
from icgi.neural.heads import MOST_LOG_SCALE
from icgi.neural.pace import check

PIECE = 8192  # factors of one piece of a sweep
HIDE = 1e6  # taken from the logarithm of states that do not exist; beyond any sum of messages
MOST_INPUT = 15.0  # centred log belief that tokens are given
MOST_READOUT = 6.0  # centred log belief of an answer: a token must be able to correct it


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
    `spread` moves log λ/(1 − λ) of the heads apart, since heads that begin alike say the same.
    """

    def __init__(self, features: int, heads: int, damping: float, spread: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.tilt = nn.Linear(features, heads, bias=False)
        self.gate = nn.Linear(features, heads, bias=False)
        share = min(max(damping, 1e-9), 1.0 - 1e-9)
        first = math.log(share / (1.0 - share))
        self.damping = nn.Parameter(first + spread * torch.linspace(-1.0, 1.0, heads))
        self.cavity = nn.Parameter(torch.ones(heads))
        self.read = nn.Linear(2 * heads, features)
        nn.init.zeros_(self.tilt.weight)
        nn.init.zeros_(self.gate.weight)

    def forward(
        self,
        tokens: Tensor,
        messages: Messages,
        model: Potentials,
        active: Active,
        deadline: Deadline | None = None,
    ) -> tuple[Tensor, Messages]:
        """Tokens that know the new beliefs, and the new messages."""
        x = self.norm(tokens)
        tilt, gate = self.tilt(x), self.gate(state_mean(x, model.states))
        ruler: list[Tensor] = []
        messages, tilt, gate = _contained(messages, tilt, gate, ruler)
        sent = beliefs(model, messages) + tilt  # b n k h
        keep = torch.sigmoid(self.damping + gate)  # b n h
        pairs = messages.pairs
        if pairs.shape[1]:
            cavity = sent[:, None] - self.cavity * pairs.transpose(1, 2)  # b i j y h
            new = pair_messages(model, cavity)
            share = keep[:, :, None, None]
            moved = share * pairs + (1.0 - share) * new
            pairs = torch.where(active.pairs[..., None, None] > 0, moved, pairs)
        groups = tuple(
            self._group(sent, keep, model.states[..., None], deadline, *parts)
            for parts in zip(
                messages.groups, model.groups, model.scopes, active.groups, strict=True
            )
        )
        new_messages = _measured(Messages(pairs, groups), ruler)
        check(deadline)
        news = belief_features(beliefs(model, new_messages), model.states)
        return tokens + self.read(news), new_messages

    def _group(
        self, sent: Tensor, keep: Tensor, states: Tensor, deadline: Deadline | None,
        old: Tensor, table: Tensor, scopes: Tensor, active: Tensor,
    ) -> Tensor:  # fmt: skip
        if deadline is None or scopes.shape[1] <= PIECE:
            return self._piece(sent, keep, states, old, table, scopes, active)
        parts = []
        for piece in zip(
            *(torch.split(x, PIECE, 1) for x in (old, table, scopes, active)), strict=True
        ):
            check(deadline)
            parts.append(self._piece(sent, keep, states, *piece))
        return torch.cat(parts, 1)

    def _piece(
        self, sent: Tensor, keep: Tensor, states: Tensor,
        old: Tensor, table: Tensor, scopes: Tensor, active: Tensor,
    ) -> Tensor:  # fmt: skip
        states = at_places(states, scopes)
        cavity = at_places(sent, scopes) - self.cavity * old  # b f a y h
        share = at_places(keep[:, :, None], scopes)
        moved = share * old + (1.0 - share) * group_messages(table, cavity, states)
        return torch.where(active[..., None, None] > 0, moved, old)


def _measured(messages: Messages, ruler: list[Tensor]) -> Messages:
    if not torch.is_grad_enabled():
        return messages
    pairs, *groups = _same(_Measure, ruler, messages.pairs, *messages.groups)
    return Messages(pairs, tuple(groups))


def _contained(
    messages: Messages, tilt: Tensor, gate: Tensor, ruler: list[Tensor]
) -> tuple[Messages, Tensor, Tensor]:
    """Same values; no graph's gradient leaves a sweep larger than it came.

    Belief propagation is chaotic on frustrated models: over twenty sweeps gradients of single
    graphs grow to 10¹³ while those of others stay near 1, and a batch is decided by one graph.
    """
    if not torch.is_grad_enabled():
        return messages, tilt, gate
    pairs, *groups = _same(_Limit, ruler, messages.pairs, *messages.groups)
    (tilt,), (gate,) = _same(_Limit, ruler, tilt), _same(_Limit, ruler, gate)
    return Messages(pairs, tuple(groups)), tilt, gate


def _same(kind: Any, ruler: list[Tensor], *parts: Tensor) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = kind.apply(ruler, *parts)
    return found


def _graph_norm(parts: Sequence[Tensor]) -> Tensor:
    """Norm of each graph's part of some tensors (b)."""
    # in double precision: squares of 10²⁰ are beyond single
    squares = [p.double().flatten(1).square().sum(1) for p in parts]
    return torch.stack(squares).sum(0).sqrt()


class _Measure(torch.autograd.Function):
    """Identity that notes the norm of every graph's gradient."""

    @staticmethod
    def forward(ctx: Any, ruler: list[Tensor], *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.ruler = ruler
        return tuple(p.view_as(p) for p in parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ctx.ruler.append(_graph_norm(gradients))
        return None, *gradients


class _Limit(_Measure):
    """Identity whose gradient is scaled down, graph by graph, to the norm that was noted."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        norm = _graph_norm(gradients).clamp(min=1e-300)
        share = (ctx.ruler[-1] / norm).clamp(max=1.0)
        return None, *(g * share.to(g.dtype).view(-1, *[1] * (g.ndim - 1)) for g in gradients)


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
    found = (model.pairs[..., None] * weight).sum(-2)
    return log_normalised(found, model.states[:, :, None, :, None])


def group_messages(table: Tensor, cavity: Tensor, states: Tensor) -> Tensor:
    """Return log Σ exp(θ_f + Σ_{q≠p} a_q) over all places but p, for every p (b f a x h).

    `states` are those of the variable at each place (b f a k 1).
    """
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
    return log_normalised(torch.stack(found, 2), states)


def linear(log: Tensor) -> Tensor:
    """Exponentials of logarithms (… k h), the largest moved to 0, floored but for hidden states."""
    shifted = log - log.amax(-2, keepdim=True).detach()
    return torch.exp(torch.where(shifted < -0.5 * HIDE, shifted, shifted.clamp(min=FLOOR)))


def log_normalised(x: Tensor, states: Tensor) -> Tensor:
    """Logarithms of positive numbers (… k h), the largest of states that exist (… k 1) at 0."""
    log = torch.log(x)
    top = log.detach() + HIDE * (states - 1.0)
    return (log - top.amax(-2, keepdim=True)) * states


def belief_features(belief: Tensor, states: Tensor) -> Tensor:
    """Input of tokens: log p + log K and K·p − 1 of beliefs, both 0 for uniform (b n k 2h)."""
    count = states.sum(-1).clamp(min=1.0)[..., None, None]
    log = torch.log_softmax(belief, 2)
    logs = (log + torch.log(count)).clamp(-MOST_INPUT, MOST_INPUT)
    both = torch.cat([logs, count * torch.exp(log) - 1.0], -1)
    return both * states[..., None]


def state_mean(tokens: Tensor, states: Tensor) -> Tensor:
    """Mean over the states that exist (b n d) of tokens b n k d."""
    total = (tokens * states[..., None]).sum(2)
    return total / states.sum(-1, keepdim=True).clamp(min=1.0)


class BeliefHead(nn.Module):
    """α_x = e^c (softplus(W h_x + b) + 10⁻³) K p_x, where p are the beliefs, averaged over heads.

    W and c start at zero: the untrained mean is belief propagation's. Paper: α comes from the token
    alone; here the token corrects what the messages found, which a normalised token blurs, and
    e^c lets α₀ grow without large weights.
    """

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1)
        self.scale = nn.Linear(features, 1)
        self.mix = nn.Parameter(torch.full((heads,), 1.0 / heads))
        for layer in (self.linear, self.scale):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, tokens: Tensor, belief: Tensor, states: Tensor) -> Tensor:
        """Concentrations (b n k) of tokens b n k d and log beliefs b n k h."""
        count = states.sum(-1, keepdim=True).clamp(min=1.0)
        log = torch.log_softmax(belief, 2) * states[..., None]
        log = log - log.sum(2, keepdim=True) / count[..., None]
        centred = (log * self.mix).sum(-1).clamp(-MOST_READOUT, MOST_READOUT)
        p = torch.softmax(centred - HIDE * (1.0 - states), -1)
        scale = self.scale(state_mean(tokens, states)).clamp(-MOST_LOG_SCALE, MOST_LOG_SCALE)
        shape = (functional.softplus(self.linear(tokens)[..., 0]) + HEAD_FLOOR) * count * p
        return torch.exp(scale) * shape.clamp(min=1e-7)


def at_places(values: Tensor, scopes: Tensor) -> Tensor:
    """Values (b n k h) of the variable at each place of each factor (b f a k h)."""
    index = scopes.flatten(1)[:, :, None, None].expand(-1, -1, *values.shape[2:])
    return values.gather(1, index).view(*scopes.shape, *values.shape[2:])
