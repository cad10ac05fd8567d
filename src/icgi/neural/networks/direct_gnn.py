"""`direct-gnn`: graph attention from potentials to marginals, without message passing built in.

Every (variable, state) is a token. A token attends to the tokens of the variables that share a
factor with its own, and to its own variable's; attention reads both tokens and the pair's table.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.clock import Deadline
from icgi.neural.batch import Batch, Factors
from icgi.neural.general_algebra import ABSENT
from icgi.neural.networks import Draws
from icgi.neural.networks.wiring import POTENTIALS, Wired, probabilities, table_too_large
from icgi.neural.pace import check

AT_ONCE = 2**24  # numbers in which attention is decided, outside training
MOST_SCORE = 20.0  # of attention; its softmax needs no maximum then
EDGE_FEATURES = 5


@dataclass(frozen=True, slots=True)
class DirectGNNConfig:
    """Sizes of the network; stored next to its weights."""

    features: int = 256
    layers: int = 6
    heads: int = 8
    scores: int = 8  # features of each head in which attention is decided


@dataclass(frozen=True, slots=True, eq=False)
class Attended:
    """A batch, and which variables look at which."""

    wired: Wired
    receivers: Tensor  # e
    senders: Tensor  # e
    edges: Tensor  # e k k 5    features of (state of receiver, state of sender)
    visible: Tensor  # e 1 k    which states the sender has

    def __getitem__(self, index: Tensor | slice) -> "Attended":
        return attended(self.wired.batch[index])


def attended(batch: Batch) -> Attended:
    """Both directions of every pair of variables in a factor, and every variable to itself."""
    b, n, k = batch.sizes
    wired = Wired.of(batch)
    every = torch.arange(b * n, device=batch.unary.device)
    receivers, senders = [every], [every]
    tables = [batch.unary.new_zeros(b * n, k, k)]
    for group in batch.factors:
        flat = batch.flat(group)
        for p in range(group.arity):
            for q in range(p + 1, group.arity):
                table = _pair_table(group, wired.exists[flat], p, q)
                receivers += [flat[:, p], flat[:, q]]
                senders += [flat[:, q], flat[:, p]]
                tables += [table, table.mT]
    to, by = torch.cat(receivers), torch.cat(senders)
    exists = wired.exists[by][:, None]
    loop = (to == by).to(batch.unary.dtype)
    edges = _edge_features(torch.cat(tables), wired.exists[to], wired.exists[by], loop)
    return Attended(wired, to, by, edges, exists)


def _pair_table(group: Factors, exists: Tensor, first: int, second: int) -> Tensor:
    """Log mean over the existing states of all other variables (f k k), of places first < second.

    `exists` is f a k.
    """
    table = group.log_tables
    others = [p for p in range(group.arity) if p not in (first, second)]
    if not others:
        return table
    count, arity, k = exists.shape
    for p in others:
        shape = [k if q == p else 1 for q in range(arity)]
        weight = exists[:, p].to(table.dtype)
        weight = torch.where(exists[:, p], -weight.sum(-1, keepdim=True).log(), ABSENT)
        table = table + weight.reshape(count, *shape)
    return torch.logsumexp(table, [1 + p for p in others])


def _edge_features(table: Tensor, row: Tensor, column: Tensor, loop: Tensor) -> Tensor:
    """Features (e k k 5) of log tables (e k k) between states that exist (e k, e k)."""
    hidden = ~(row[:, :, None] & column[:, None])
    given_row = table.masked_fill(hidden, ABSENT).softmax(2)
    given_column = table.masked_fill(hidden, ABSENT).softmax(1)
    loops = loop[:, None, None].expand_as(table)
    same = loops * torch.eye(table.shape[1], dtype=table.dtype, device=table.device)
    found = torch.stack([torch.asinh(table), given_row, given_column, loops, same], -1)
    return found.masked_fill(hidden[..., None], 0.0)


class AttentionLayer(nn.Module):
    """h ← LayerNorm(h + ELU(Σ_j α_ij V h_j)), α = softmax_j wᵀ LeakyReLU(L h_i + R h_j + E e_ij).

    The average edge features of each head are added, since a softmax alone would lose how strong
    the only edge of a variable is.
    """

    def __init__(self, features: int, heads: int, scores: int) -> None:
        super().__init__()
        self.heads = heads
        self.sides = nn.Linear(features, 2 * heads * scores)
        self.edge = nn.Linear(EDGE_FEATURES, heads * scores, bias=False)
        self.score = nn.Parameter(torch.randn(heads, scores) * scores**-0.5)
        self.value = nn.Linear(features, features)
        self.edge_value = nn.Linear(heads * EDGE_FEATURES, features, bias=False)
        self.norm = nn.LayerNorm(features)

    def forward(self, tokens: Tensor, form: Attended) -> Tensor:
        """New tokens (v k d)."""
        (v, k, d), h = tokens.shape, self.heads
        sides, value = self.sides(tokens), self.value(tokens)
        whole = tokens.new_zeros(v, k, d + h * EDGE_FEATURES + h)
        count = len(form.receivers)
        some = count
        if not torch.is_grad_enabled():  # less memory, and the clock is looked at in between
            some = max(AT_ONCE // (k * k * self.score.numel()), 1)
        for first in range(0, count, max(some, 1)):
            part = slice(first, first + some)
            sent = self._sent(sides, value, form, part)
            whole = whole.index_add(0, form.receivers[part], sent)
        total = whole[..., -h:].clamp(min=1e-30)[..., None]
        mean = whole[..., :d].view(v, k, h, -1) / total
        edges = whole[..., d:-h].view(v, k, h, -1) / total
        found = mean.flatten(2) + self.edge_value(edges.flatten(2))
        new: Tensor = self.norm(tokens + functional.elu(found))
        return new

    def _sent(self, sides: Tensor, value: Tensor, form: Attended, part: slice) -> Tensor:
        """What some edges bring their receivers (e k ·): values, edge features, weights."""
        receivers, senders, features = form.receivers[part], form.senders[part], form.edges[part]
        (_, k, d), h = value.shape, self.heads
        left, right = sides.chunk(2, -1)
        seen = left.index_select(0, receivers)[:, :, None] + self.edge(features)
        seen = seen + right.index_select(0, senders)[:, None]
        seen = functional.leaky_relu(seen, 0.2).view(*seen.shape[:3], h, -1)
        score = MOST_SCORE * torch.tanh((seen * self.score).sum(-1) / MOST_SCORE)
        weight = score.exp() * form.visible[part][..., None]  # e x y h
        sent = value.index_select(0, senders).view(-1, k, h, d // h)
        shares = [weight[:, :, y, :, None] for y in range(k)]
        carried = torch.zeros_like(sent[:, :1])  # e x h d
        along = torch.zeros_like(features[:, :1, :1])  # e x h 5
        for y, share in enumerate(shares):
            carried = carried + share * sent[:, None, y]
            along = along + share * features[:, :, y, None]
        return torch.cat([carried.flatten(2), along.flatten(2), weight.sum(2)], -1)


class DirectGNN(nn.Module):
    """Graph attention over the tokens of a model; softmax over the states of each variable."""

    settings: ClassVar[type[Any]] = DirectGNNConfig
    dirichlet: ClassVar[bool] = False
    pairwise: ClassVar[bool] = False
    recorded: ClassVar[bool] = False

    def __init__(self, config: DirectGNNConfig) -> None:
        super().__init__()
        self.config = config
        self.read = nn.Linear(POTENTIALS, config.features)
        self.layers = nn.ModuleList(
            AttentionLayer(config.features, config.heads, config.scores)
            for _ in range(config.layers)
        )
        self.answer = nn.Linear(config.features, 1, bias=False)

    def refuse(self, largest_table: int, most_states: int, variables: int, arity: int) -> str:
        """Only tables beyond what fits are refused."""
        return table_too_large(largest_table)

    def prepare(self, batch: Batch, deadline: Deadline | None = None) -> Attended:
        """The batch with its edges and their features."""
        return attended(batch)

    def noise(self, models: int, variables: int) -> tuple[int, ...]:
        """Nothing is random."""
        return ()

    def forward(
        self, form: Attended, draws: Draws | None = None, deadline: Deadline | None = None
    ) -> Tensor:
        """Probabilities (b n k)."""
        tokens: Tensor = self.read(form.wired.potentials)
        for layer in self.layers:
            check(deadline)
            tokens = layer(tokens, form)
        return probabilities(self.answer(tokens)[..., 0], form.wired.batch)
