"""The factor that an eliminated variable leaves behind, predicted rather than computed (eq. tt)."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.neural.encoder_paper import EDGE, HIDE
from icgi.neural.local import Messages, state_mean
from icgi.neural.selection import Chosen
from icgi.neural.tensor_train import cores, dense_marginals, marginals, mixed_marginals

DENSE_WIDTH = 5  # neighbours of a dense table (the ablation without tensor trains)
DENSE_ENTRIES = 1024
SMALL = 1e-6
MOST_PMI = 5.0

FactorKind = Literal["tt", "dense"]


class Neighbours(NamedTuple):
    """The neighbours of each eliminated variable, in the order of the train."""

    place: Tensor  # b m w    numbers of variables
    inside: Tensor  # b m w    0 where there are fewer


class Factor(NamedTuple):
    """What is read off the predicted factors, summed over those of one round."""

    unary: Tensor  # b n k 2    for the neighbours' tokens
    pairs: Tensor  # b n n k k    for fill-in edges: gate · log p(x, y)/(p(x) p(y))


class Predictor(nn.Module):
    """Predicts factors over the neighbours of eliminated variables, and reads their marginals.

    Paper: a linear map from the node's embedding; here one hidden layer of the eliminated
    variable's token, the neighbour's token of the state, the messages on their edge and its
    potential, because cores are indexed by state and shared over places.

    With `blocks` the bond is (state a of the eliminated variable, one of r/2 copies) and cores are
    block-diagonal in a: φ = Σ_a q(a) Π_k G_k^a[x_k], the form of eq. ve-step. A bond that does not
    know a cannot tell whether two neighbours agree or disagree through the variable.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        rank: int,
        hidden: int,
        width: int,
        kind: FactorKind,
        blocks: bool = False,
    ) -> None:
        super().__init__()
        self.blocks = blocks and kind == "tt"
        if self.blocks:
            rank = max(1, rank // 2)  # copies: r = 16 for two states
        self.rank, self.width, self.kind = rank, width, kind
        self.norm = nn.LayerNorm(features)
        self.own = nn.Linear(features, hidden)
        self.other = nn.Linear(features, hidden)
        self.edge = nn.Linear(2 * heads, hidden, bias=False)
        self.core = nn.Linear(hidden, rank * rank if kind == "tt" else rank)
        if kind == "dense":
            self.entry = nn.Linear(rank, 1)
        if self.blocks:
            self.pair = nn.Linear(EDGE, hidden, bias=False)
            self.share = nn.Linear(features, 1, bias=False)
            nn.init.normal_(self.pair.weight, std=0.5)
            with torch.no_grad():  # copies begin apart: dense random cores forget within two places
                self.core.bias.copy_((4.0 * torch.eye(rank) - 3.0).flatten())
        self.gate = nn.Linear(features, 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(
        self,
        tokens: Tensor,
        messages: Messages,
        states: Tensor,
        chosen: Chosen,
        near: Tensor,
        score: Tensor,
        edges: Tensor | None = None,
    ) -> Factor:
        """Read the factors of one round.

        Parameters
        ----------
        near
            1 for the neighbours of each chosen variable (b m n).
        score
            Decides the order of a train (b n), largest first: cores do not commute, and an order
            by number would make answers depend on numbering.
        edges
            `edge_features` of the current graph (b n n k k 4), for `blocks`.
        """
        x = self.norm(tokens)
        around = self._neighbours(near, score, states.shape[2])
        exists = _rows(states, around.place) * around.inside[..., None]  # b m w k
        pooled = _rows(state_mean(x, states), chosen.which)  # b m d
        hidden = _rows(self.other(x), around.place)  # b m w k c
        hidden = hidden + self.edge(_edge(messages, around.place, chosen.which))
        if self.blocks and edges is not None:
            unary, pairs = self._by_state(x, hidden, exists, states, chosen, around, edges)
        else:
            hidden = functional.gelu(hidden + self.own(pooled)[:, :, None, None])
            unary, pairs = self._read(self.core(hidden), exists, around.inside)
        gate = self.gate(pooled)[..., 0] * chosen.weight
        return _sum_up(unary, pairs, exists, around, chosen.weight, gate, tokens.shape[1])

    def _by_state(
        self,
        x: Tensor,
        hidden: Tensor,
        exists: Tensor,
        states: Tensor,
        chosen: Chosen,
        around: Neighbours,
        edges: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Marginals of the mixture over states a of the eliminated variable."""
        b, m, w, k = exists.shape
        own = _rows(x, chosen.which)  # b m a d
        place = chosen.which[:, :, None] * edges.shape[1] + around.place
        theta = _rows(edges.flatten(1, 2), place).transpose(2, 3)  # b m a w k 4
        hidden = functional.gelu(
            hidden[:, :, None] + self.own(own)[:, :, :, None, None] + self.pair(theta)
        )  # b m a w k c
        raw = self.core(hidden).view(b, m * k, w, k, self.rank, self.rank)
        inside = around.inside[:, :, None].expand(-1, -1, k, -1).reshape(b, m * k, w)
        there = exists[:, :, None].expand(-1, -1, k, -1, -1).reshape(b, m * k, w, k)
        train = cores(raw, there, inside).view(b, m, k, w, k, self.rank, self.rank)
        mine = _rows(states, chosen.which)  # b m a
        share = torch.softmax(self.share(own)[..., 0] + HIDE * (mine - 1.0), -1)
        return mixed_marginals(train, share)

    def _neighbours(self, near: Tensor, score: Tensor, k: int) -> Neighbours:
        # Paper: φ over all of N(v); here over `width` neighbours at most, because the products
        # of the environments are sequential; the others hear of v through its messages
        width = self.width
        if self.kind == "dense":
            width = min(DENSE_WIDTH, max(2, int(math.log(DENSE_ENTRIES) / math.log(max(k, 2)))))
        with torch.no_grad():
            shown = torch.where(near > 0, score[:, None], -torch.inf)
            top = shown.topk(min(width, near.shape[2]), -1)
            return Neighbours(top.indices, (top.values > -torch.inf).to(near.dtype))

    def _read(self, raw: Tensor, states: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """Unary (b m w k) and pairwise (b m w w k k) marginals."""
        if self.kind == "tt":
            square = raw.view(*raw.shape[:-1], self.rank, self.rank)
            return marginals(cores(square, states, inside))
        w, k = raw.shape[2:4]
        raw = raw * inside[..., None, None]
        total, mask = raw.new_zeros(()), raw.new_ones(())
        for p in range(w):
            shape = [*raw.shape[:2], *(k if q == p else 1 for q in range(w))]
            total = total + raw[:, :, p].reshape(*shape, self.rank)
            outside = (1.0 - inside[:, :, p, None]).expand(-1, -1, k)
            mask = mask * (states[:, :, p] + outside).reshape(shape)
        table = functional.softplus(self.entry(functional.gelu(total)))[..., 0] * mask
        table = table / table.flatten(2).sum(-1).view(*table.shape[:2], *[1] * w)
        return dense_marginals(table)


def _sum_up(
    unary: Tensor, pairs: Tensor, exists: Tensor, around: Neighbours, weight: Tensor, gate: Tensor,
    n: int,
) -> Factor:  # fmt: skip
    b, m, w, k = unary.shape
    count = exists.sum(-1, keepdim=True).clamp(min=1.0)
    log = torch.log(unary + SMALL)
    told = torch.stack([log + torch.log(count), count * unary - 1.0], -1)
    told = told * (exists * weight[:, :, None, None])[..., None]  # b m w k 2
    index = around.place.flatten(1)[:, :, None, None].expand(-1, -1, k, 2)
    on_variables = unary.new_zeros(b, n, k, 2).scatter_add(1, index, told.flatten(1, 2))
    pmi = torch.log(pairs + SMALL) - log[:, :, :, None, :, None] - log[:, :, None, :, None, :]
    both = exists[:, :, :, None, :, None] * exists[:, :, None, :, None, :]
    apart = 1.0 - torch.eye(w, device=log.device, dtype=log.dtype)
    pmi = pmi.clamp(-MOST_PMI, MOST_PMI) * both * apart[:, :, None, None]
    pmi = pmi * gate[:, :, None, None, None, None]
    where = (around.place[..., None] * n + around.place[:, :, :, None].mT).flatten(1)  # b mww
    flat = unary.new_zeros(b, n * n, k * k)
    flat = flat.scatter_add(
        1, where[..., None].expand(-1, -1, k * k), pmi.reshape(b, m * w * w, -1)
    )
    return Factor(on_variables, flat.view(b, n, n, k, k))


def _edge(messages: Messages, place: Tensor, index: Tensor) -> Tensor:
    """Messages to each neighbour's states from the eliminated variable (b m w k 2h)."""
    n = messages.pairs.shape[1]
    sent = _rows(messages.pairs.flatten(1, 2), place * n + index[..., None])
    return torch.cat([sent, torch.exp(sent)], -1)


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Entries of axis 1 of x (b n …) by numbers of any shape (b …)."""
    tail = x.shape[2:]
    flat = index.flatten(1).view(index.shape[0], -1, *[1] * len(tail))
    found = x.gather(1, flat.expand(-1, -1, *tail))
    return found.view(*index.shape, *tail)
