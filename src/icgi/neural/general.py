"""`icgi:fast` for any model: elimination of variables of q states with learned corrections.

The plan is that of `neural.fast`: the variable that loses least goes first, the last few are summed
exactly, then the others come back in reverse with marginals and covariances of all states. Models
arrive as pair tables (`general_batch`). Where the algebra is exact, corrections are off.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from icgi.neural.arrange import after_elimination
from icgi.neural.encoder import CrossLayer, EncoderLayer, distance_classes
from icgi.neural.fast import positions, remaining, taken
from icgi.neural.general_algebra import (
    TINY,
    compensation,
    enumerate_core,
    inexactness,
    new_tables,
    one_hot,
    restore,
    screening,
    star,
    strengths,
)
from icgi.neural.general_batch import Tables
from icgi.neural.general_parts import (
    EDGES,
    ROW_FEATURES,
    GeneralCorrections,
    GeneralHead,
    bordered,
    centred,
    edge_features,
    moved_covariance,
    row_features,
)

TRUST = 0.5  # of a variable's own fields as its belief, while the rest of the model is not heard


@dataclass(frozen=True, slots=True)
class GeneralConfig:
    """Sizes of the network; stored next to its weights."""

    features: int = 64
    heads: int = 4
    layers: int = 2  # encoder layers on the whole model
    hidden: int = 32  # width of the corrections
    rank: int = 4  # of the learned part of new tables
    encode_every: int = 8  # eliminations between two re-encodings of what is left
    classes: int = 8  # distances that attention tells apart


class _Live(NamedTuple):
    """What is left during elimination: each array's axis 1 runs over the remaining variables."""

    tables: Tensor
    unary: Tensor
    exists: Tensor
    real: Tensor
    adjacency: Tensor
    distances: Tensor
    tokens: Tensor  # b n k d
    estimate: Tensor
    reliability: Tensor
    jitter: Tensor
    ids: Tensor  # b n    original numbers


class _Gone(NamedTuple):
    """A variable as it was when it went."""

    row: Tensor  # b n v k    tables to those that were left
    present: Tensor  # b n    1 for neighbours among those
    left: Tensor  # b n    original numbers of those
    unary: Tensor  # b k
    exists: Tensor  # b k
    tokens: Tensor  # b k d
    estimate: Tensor  # b k
    reliability: Tensor  # b
    id: Tensor  # b


class _Back(NamedTuple):
    """Variables that are back, the last that went last."""

    marginals: Tensor  # b n k
    covariance: Tensor  # b n k n k
    exists: Tensor  # b n k
    tokens: Tensor  # b n k d
    ids: Tensor  # b n    original numbers


class GeneralNetwork(nn.Module):
    """Dirichlet concentrations of every variable of a batch of pairwise models of q states."""

    def __init__(self, config: GeneralConfig) -> None:
        super().__init__()
        self.config = config
        d, h, c = config.features, config.heads, config.classes
        self.embed = nn.Linear(9, d)
        self.refresh = nn.Linear(3, d)
        self.layers = nn.ModuleList(EncoderLayer(d, h, c, EDGES) for _ in range(config.layers))
        self.again = EncoderLayer(d, h, c, EDGES)
        self.correct = GeneralCorrections(d, config.hidden, config.rank)
        self.back = nn.Linear(2, d)
        self.cross = CrossLayer(d, h, ROW_FEATURES)
        self.believe = nn.Linear(d + 1, 1)  # weight of the context's estimate
        nn.init.zeros_(self.believe.weight)
        nn.init.constant_(self.believe.bias, -3.0)
        self.head = GeneralHead(d)

    def forward(self, batch: Tables, core: int, jitter: Tensor | None = None) -> Tensor:
        """Concentrations (b n k), zero for states that do not exist.

        Parameters
        ----------
        core
            Variables that are left when elimination stops, all of whose k^core states are summed;
            at least three.
        jitter
            Factors (b n) on the cost of eliminating each variable, to draw other orders.
        """
        live = self._start(batch, torch.ones_like(batch.real) if jitter is None else jitter)
        learned = torch.zeros_like(batch.real[:, :1])  # b 1    1 once a step was inexact
        started = torch.zeros_like(batch.real[:, 0])  # b    1 once padding is gone
        tape: list[_Gone] = []
        for t in range(batch.real.shape[1] - core):
            if t and live.real.shape[1] % self.config.encode_every == 0:
                live = self._encode_again(live, started)
            gone, live, inexact, was_real = self._eliminate(live)
            learned = torch.maximum(learned, inexact[:, None])
            started = torch.maximum(started, was_real)
            tape.append(gone)
        return self._distribute(live, tape, learned)

    def _start(self, batch: Tables, jitter: Tensor) -> _Live:
        exists = batch.exists
        field = centred(batch.unary, exists)
        told = batch.estimate.clamp(-8.0, 8.0) * exists
        strength = strengths(batch.tables, exists)
        per_variable = torch.stack(
            [
                batch.adjacency.sum(-1).log1p(),
                (strength**2).sum(-1).log1p(),
                exists.sum(-1).log(),
                batch.own,
                batch.reliability,
            ],
            -1,
        )[:, :, None].expand(-1, -1, exists.shape[2], -1)
        per_state = torch.stack([field, torch.tanh(field), told, torch.tanh(told)], -1)
        tokens = self.embed(torch.cat([per_state, per_variable], -1))
        edges = edge_features(batch.tables, exists, strength)
        classes = distance_classes(batch.distances, self.config.classes)
        for layer in self.layers:
            tokens = layer(tokens, edges, classes, exists * batch.real[:, :, None])
        b, n = batch.real.shape
        ids = torch.arange(n, device=tokens.device).expand(b, n)
        return _Live(
            batch.tables, batch.unary, exists, batch.real, batch.adjacency, batch.distances, tokens,
            batch.estimate, batch.reliability, jitter, ids,
        )  # fmt: skip

    def _encode_again(self, live: _Live, started: Tensor) -> _Live:
        """Encode what is left; graphs of which only padding has gone are left as they are."""
        field = centred(live.unary, live.exists)
        degree = live.adjacency.sum(-1).log1p()[:, :, None].expand_as(field)
        news = self.refresh(torch.stack([field, torch.tanh(field), degree], -1))
        tokens = self.again(
            live.tokens + news,
            edge_features(live.tables, live.exists, strengths(live.tables, live.exists)),
            distance_classes(live.distances, self.config.classes),
            live.exists * live.real[:, :, None],
        )
        started = started[:, None, None, None]
        return live._replace(tokens=torch.where(started > 0, tokens, live.tokens))

    def _eliminate(self, live: _Live) -> tuple[_Gone, _Live, Tensor, Tensor]:
        """Take out the variable that loses least; 1 (b) where inexact, 1 (b) where no padding."""
        pick = cheapest(live)  # b n
        gone = _Gone(
            remaining(taken(live.tables, pick).transpose(1, 2), pick),
            remaining(taken(live.adjacency, pick), pick),
            remaining(live.ids, pick),
            taken(live.unary, pick),
            taken(live.exists, pick),
            taken(live.tokens, pick),
            taken(live.estimate, pick),
            taken(live.reliability, pick),
            taken(live.ids, pick.to(live.ids.dtype)),
        )
        left = without(live, pick)
        present = gone.present
        inexact = (present.sum(1) > 2).to(present.dtype)
        on = inexact[:, None, None]
        step = self.correct(gone, left.tokens, left.unary, left.exists)
        field = left.unary * (TRUST * torch.exp(on * step.trust)) + on * step.tilt
        beliefs = torch.softmax(torch.where(left.exists > 0, field, left.unary), -1)
        # corrections of the tables count for this step only: the row stays on the tape as it was
        found = star(
            gone.row + on[..., None] * step.table,
            gone.unary + inexact[:, None] * step.unary,
            beliefs,
        )
        pairs = present[:, :, None] * present[:, None]
        pairs = pairs * (1.0 - torch.eye(pairs.shape[1], device=pairs.device, dtype=pairs.dtype))
        both = left.exists[:, :, :, None, None] * left.exists[:, None, None]
        gate = screening(found, gone.exists.sum(-1), present)
        gate = gate * torch.exp(on * (step.gate[:, :, None] + step.gate[:, None])) * pairs
        new = new_tables(found) + on[..., None, None] * step.pairs
        new = new * gate[:, :, None, :, None] * both
        force = found.gain + on * step.force - compensation(new, found.gain, beliefs)
        # a table is known up to a constant; without it, sums over many steps stay small
        force = force - (force * beliefs).sum(-1, keepdim=True)
        left = left._replace(
            tables=left.tables + new,
            unary=left.unary + force * present[:, :, None] * left.exists,
            adjacency=torch.maximum(left.adjacency, pairs),
            tokens=left.tokens + step.message,
        )
        return gone, left, inexact, taken(live.real, pick)

    def _distribute(self, live: _Live, tape: list[_Gone], learned: Tensor) -> Tensor:
        """Concentrations of all variables, in their original order."""
        total = live.real.shape[1] + len(tape)
        found, covariance = enumerate_core(live.tables, live.unary)
        tokens = live.tokens + self._heard(found, live.exists)
        base = self._blend(found, live.exists, tokens, live.estimate, live.reliability)
        alpha = self.head(tokens, base, live.exists, learned)
        marginals = alpha / alpha.sum(-1, keepdim=True)
        covariance = moved_covariance(covariance, found, marginals, learned)
        back = _Back(marginals, covariance, live.exists, tokens, live.ids)
        parts = [alpha]
        for gone in reversed(tape):
            back, alpha = self._put_back(gone, back, learned, total)
            parts.append(alpha)
        alpha = torch.cat(parts[::-1], 1)
        everyone = torch.arange(total, device=alpha.device).expand_as(back.ids)
        return alpha.gather(1, positions(back.ids, everyone, total)[:, :, None].expand_as(alpha))

    def _put_back(
        self, gone: _Gone, back: _Back, learned: Tensor, total: int
    ) -> tuple[_Back, Tensor]:
        """One variable in front of those that are back, and its concentrations (b 1 k)."""
        place = positions(gone.left, back.ids, total)
        k = gone.row.shape[2]
        row = gone.row.gather(1, place[:, :, None, None].expand(-1, -1, k, k))
        present = gone.present.gather(1, place)
        found, cross = restore(row, gone.unary, back.marginals, back.covariance, present)
        exists = gone.exists[:, None]
        own = gone.tokens + self._heard(found[:, None], exists)[:, 0]
        seen = row_features(row, gone.unary, gone.exists, logits(back.marginals), back.exists)
        near = present[:, :, None] * back.exists
        own = self.cross(own, back.tokens, seen * present[:, None, None, :, None], near)
        told, sure = gone.estimate[:, None], gone.reliability[:, None]
        base = self._blend(found[:, None], exists, own[:, None], told, sure)
        alpha = self.head(own[:, None], base, exists, learned)
        new = alpha / alpha.sum(-1, keepdim=True)  # b 1 k
        cross = moved_covariance(cross[:, None], found[:, None], new, learned, both=False)[:, 0]
        grown = _Back(
            torch.cat([new, back.marginals], 1),
            bordered(new[:, 0], cross, back.covariance),
            torch.cat([exists, back.exists], 1),
            torch.cat([own[:, None], back.tokens], 1),
            torch.cat([gone.id[:, None], back.ids], 1),
        )
        return grown, alpha

    def _heard(self, p: Tensor, exists: Tensor) -> Tensor:
        """Token part (b n k d) that tells what the algebra found."""
        value = centred(logits(p), exists)
        even = p * exists.sum(-1, keepdim=True) - 1.0
        out: Tensor = self.back(torch.stack([value, even], -1))
        return out

    def _blend(
        self, p: Tensor, exists: Tensor, tokens: Tensor, estimate: Tensor, reliability: Tensor
    ) -> Tensor:
        """Probabilities (b n k) moved towards the context's estimate where there is one."""
        count = exists.sum(-1, keepdim=True)
        pooled = (tokens * exists[..., None]).sum(2) / count
        x = torch.cat([pooled, reliability[:, :, None]], -1)
        weight = torch.sigmoid(self.believe(x)) * (reliability > 0)[:, :, None]
        told = torch.softmax(torch.where(exists > 0, estimate, -1e4), -1)
        mixed = torch.log(p + TINY) * (1.0 - weight) + weight * torch.log(told + TINY)
        blended = torch.softmax(mixed, -1) * exists
        return torch.where(reliability[:, :, None] > 0, blended, p)


def logits(p: Tensor) -> Tensor:
    """Log-probabilities cut where networks need not tell them apart, with bounded gradients."""
    return torch.log(p + 3e-4)


def without(live: _Live, pick: Tensor) -> _Live:
    """What is left when one variable is taken out, distances after joining its neighbours."""
    to = remaining(taken(live.distances, pick), pick)
    between = remaining(remaining(live.distances, pick).mT, pick)
    tables = remaining(remaining(live.tables, pick).permute(0, 3, 4, 1, 2), pick)
    return _Live(
        tables,
        remaining(live.unary, pick),
        remaining(live.exists, pick),
        remaining(live.real, pick),
        remaining(remaining(live.adjacency, pick).mT, pick),
        after_elimination(between, to),
        remaining(live.tokens, pick),
        remaining(live.estimate, pick),
        remaining(live.reliability, pick),
        remaining(live.jitter, pick),
        remaining(live.ids, pick),
    )


def cheapest(live: _Live) -> Tensor:
    """One-hot choice (b n) of the variable to eliminate: padding first, then the least inexact."""
    with torch.no_grad():
        strength = strengths(live.tables, live.exists)
        loss = inexactness(strength, live.adjacency)
        weak = strength.sum(-1) + 0.01 * centred(live.unary, live.exists).abs().sum(-1)
        cost = torch.where(loss > 0, loss * live.jitter, -0.5 / (1.0 + weak))
        cost = cost + 2.0 * (live.real - 1.0)
        return one_hot(cost.argmin(1), cost.shape[1]).to(cost.dtype)
