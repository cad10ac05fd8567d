"""`icgi:fast`: elimination in closed form with learned corrections, for binary pairwise models.

Spins are eliminated one by one, the one that loses least first; each step is the algebra of
`closed_form` plus corrections that start at zero. The last `core` spins are summed exactly. Then
the spins come back in reverse with means and covariances, and a head corrects each mean and says
how sure it is.
Where the algebra is exact (no spin had more than two neighbours when it went), corrections are off.
"""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.neural.arrange import after_elimination
from icgi.neural.closed_form import (
    bounded,
    enumerate_core,
    inexactness,
    one_hot,
    project,
    restore,
    signs_like,
)
from icgi.neural.encoder import CrossLayer, EncoderLayer, distance_classes, edge_features
from icgi.neural.heads import TiltedDirichletHead

ROW_FEATURES = 8
MOST_HEARD = 4.0  # half log-odds that tokens are told; beyond, gradients of atanh explode


@dataclass(frozen=True, slots=True)
class FastConfig:
    """Sizes of the network; stored next to its weights."""

    features: int = 64
    heads: int = 4
    layers: int = 2  # encoder layers on the whole model
    hidden: int = 32  # width of the corrections
    encode_every: int = 8  # eliminations between two re-encodings of what is left
    classes: int = 8  # distances that attention tells apart


@dataclass(frozen=True, slots=True, eq=False)
class Spins:
    """A batch of Ising models exp(Σ J s s + Σ θ s), padded to one size, and what is known of them.

    `estimate` and `reliability` are optional context: the half log-odds that another method found
    for each spin, and log(1 + 1/(standard error² + 10⁻⁴))/10 of its probability, 0 for none.
    """

    couplings: Tensor  # b n n
    fields: Tensor  # b n
    real: Tensor  # b n    0 for padding
    distances: Tensor  # b n n
    estimate: Tensor  # b n
    reliability: Tensor  # b n

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Spins":
        """Same batch elsewhere."""
        return Spins(*(getattr(self, f.name).to(device, dtype) for f in fields(self)))

    def __getitem__(self, index: Tensor | slice) -> "Spins":
        return Spins(*(getattr(self, f.name)[index] for f in fields(self)))

    def without_context(self) -> "Spins":
        """Same batch with no estimates."""
        zero = torch.zeros_like(self.fields)
        return replace(self, estimate=zero, reliability=zero)


class _Live(NamedTuple):
    """What is left during elimination: each array's axis 1 runs over the remaining spins."""

    couplings: Tensor
    fields: Tensor
    real: Tensor
    distances: Tensor
    tokens: Tensor  # b n 2 d
    estimate: Tensor
    reliability: Tensor
    jitter: Tensor
    ids: Tensor  # b n    original numbers


class _Gone(NamedTuple):
    """A spin as it was when it went."""

    row: Tensor  # b n    couplings to those that were left
    left: Tensor  # b n    original numbers of those
    field: Tensor  # b
    tokens: Tensor  # b 2 d
    estimate: Tensor  # b
    reliability: Tensor  # b
    id: Tensor  # b


class _Back(NamedTuple):
    """Spins that are back, the last that went last."""

    mean: Tensor  # b n
    covariance: Tensor  # b n n
    tokens: Tensor  # b n 2 d
    ids: Tensor  # b n    original numbers


class FastNetwork(nn.Module):
    """Dirichlet concentrations of every spin of a batch of Ising models."""

    def __init__(self, config: FastConfig) -> None:
        super().__init__()
        self.config = config
        d, h, c = config.features, config.heads, config.classes
        self.embed = nn.Linear(8, d)
        self.refresh = nn.Linear(3, d)
        self.layers = nn.ModuleList(EncoderLayer(d, h, c) for _ in range(config.layers))
        self.again = EncoderLayer(d, h, c)
        self.correct = Corrections(d, config.hidden)
        self.back = nn.Linear(2, d)
        self.cross = CrossLayer(d, h, ROW_FEATURES)
        self.believe = nn.Linear(d + 1, 1)  # weight of the context's estimate
        nn.init.zeros_(self.believe.weight)
        nn.init.constant_(self.believe.bias, -3.0)
        self.head = TiltedDirichletHead(d)

    def forward(self, spins: Spins, core: int, jitter: Tensor | None = None) -> Tensor:
        """Concentrations (b n 2) of states +1 and −1.

        Parameters
        ----------
        core
            Spins that are left when elimination stops, all of whose 2^core states are summed.
        jitter
            Factors (b n) on the cost of eliminating each spin, to draw other orders; 1 if absent.
        """
        live = self._start(spins, torch.ones_like(spins.fields) if jitter is None else jitter)
        learned = torch.zeros_like(spins.fields[:, :1])  # b 1    1 once a step was inexact
        started = torch.zeros_like(spins.fields[:, 0])  # b    1 once padding is gone
        tape: list[_Gone] = []
        for t in range(spins.fields.shape[1] - core):
            if t and live.fields.shape[1] % self.config.encode_every == 0:
                live = self._encode_again(live, started)
            gone, live, inexact, was_real = self._eliminate(live)
            learned = torch.maximum(learned, inexact[:, None])
            started = torch.maximum(started, was_real)
            tape.append(gone)
        return self._distribute(live, tape, learned)

    def _start(self, spins: Spins, jitter: Tensor) -> _Live:
        s = signs_like(spins.fields)[:, None]
        adjacent = (spins.couplings != 0).to(s.dtype)
        odd = spins.fields[:, :, None, None] * s  # b n 2 1
        known = spins.estimate[:, :, None, None] * s
        even = torch.stack(
            [
                spins.fields.abs(),
                adjacent.sum(-1).log1p(),
                (spins.couplings**2).sum(-1).log1p(),
                spins.reliability,
            ],
            -1,
        )  # b n 4
        even = even[:, :, None].expand(-1, -1, 2, -1)
        tokens = self.embed(torch.cat([odd, torch.tanh(odd), known, torch.tanh(known), even], -1))
        edges = edge_features(spins.couplings)
        classes = distance_classes(spins.distances, self.config.classes)
        for layer in self.layers:
            tokens = layer(tokens, edges, classes, spins.real)
        b, n = spins.fields.shape
        ids = torch.arange(n, device=s.device).expand(b, n)
        return _Live(
            spins.couplings, spins.fields, spins.real, spins.distances, tokens, spins.estimate,
            spins.reliability, jitter, ids,
        )  # fmt: skip

    def _encode_again(self, live: _Live, started: Tensor) -> _Live:
        """Encode what is left; graphs of which only padding has gone are left as they are."""
        s = signs_like(live.fields)[:, None]
        odd = live.fields[:, :, None, None] * s
        degree = (live.couplings != 0).sum(-1).to(s.dtype).log1p()[:, :, None, None]
        news = torch.cat([odd, torch.tanh(odd), degree.expand_as(odd)], -1)
        tokens = self.again(
            live.tokens + self.refresh(news),
            edge_features(live.couplings),
            distance_classes(live.distances, self.config.classes),
            live.real,
        )
        started = started[:, None, None, None]
        return live._replace(tokens=torch.where(started > 0, tokens, live.tokens))

    def _eliminate(self, live: _Live) -> tuple[_Gone, _Live, Tensor, Tensor]:
        """Take out the spin that loses least; also 1 (b) where inexact, 1 (b) where no padding."""
        pick = cheapest(live)  # b n
        row = remaining(taken(live.couplings, pick), pick)
        gone = _Gone(
            row,
            remaining(live.ids, pick),
            taken(live.fields, pick),
            taken(live.tokens, pick),
            taken(live.estimate, pick),
            taken(live.reliability, pick),
            taken(live.ids, pick.to(live.ids.dtype)),
        )
        to = remaining(taken(live.distances, pick), pick)
        rows_kept = remaining(live.couplings, pick)
        couplings = remaining(rows_kept.mT, pick).mT
        d = remaining(remaining(live.distances, pick).mT, pick).mT
        present = (row != 0).to(row.dtype)
        inexact = (present.sum(1) > 2).to(row.dtype)
        left = _Live(
            couplings,
            remaining(live.fields, pick),
            remaining(live.real, pick),
            after_elimination(d, to),
            remaining(live.tokens, pick),
            remaining(live.estimate, pick),
            remaining(live.reliability, pick),
            remaining(live.jitter, pick),
            gone.left,
        )
        step = self.correct(gone.tokens, left.tokens, row, gone.field, left.fields, present)
        on = inexact[:, None]
        means = torch.tanh(0.5 * left.fields * torch.exp(on * step.trust) + on * step.tilt)
        forces, new = project(
            row + on * step.coupling * present,
            gone.field + inexact * step.field,
            means,
            present,
            torch.exp(inexact * step.widening),
        )
        gate = torch.exp(on * step.gate)
        new = new * (gate[:, :, None] * gate[:, None])
        forces = (forces + on * step.force) * present - (new * means[:, None]).sum(-1)
        left = left._replace(
            couplings=left.couplings + new,
            fields=left.fields + forces,
            tokens=left.tokens + step.message,
        )
        return gone, left, inexact, taken(live.real, pick)

    def _distribute(self, live: _Live, tape: list[_Gone], learned: Tensor) -> Tensor:
        """Concentrations of all spins, in their original order."""
        total = live.fields.shape[1] + len(tape)
        mean, covariance, _ = enumerate_core(live.couplings, live.fields)
        base = torch.atanh(mean.clamp(-1.0 + 1e-7, 1.0 - 1e-7))
        tokens = live.tokens + self._heard(base)
        base = self._blend(base, tokens, live.estimate, live.reliability)
        alpha = self.head(tokens, base, learned)
        corrected = dirichlet_mean(alpha)
        ratio = deviation_ratio(corrected, mean, learned)
        covariance = covariance * ratio[:, :, None] * ratio[:, None]
        back = _Back(corrected, covariance, tokens, live.ids)
        parts = [alpha]
        for gone in reversed(tape):
            back, alpha = self._put_back(gone, back, learned, total)
            parts.append(alpha)
        alpha = torch.cat(parts[::-1], 1)
        everyone = torch.arange(total, device=alpha.device).expand_as(back.ids)
        return alpha.gather(1, positions(back.ids, everyone, total)[:, :, None].expand(-1, -1, 2))

    def _put_back(
        self, gone: _Gone, back: "_Back", learned: Tensor, total: int
    ) -> tuple["_Back", Tensor]:
        """One spin in front of those that are back, and its concentrations (b 1 2)."""
        row = gone.row.gather(1, positions(gone.left, back.ids, total))
        found, cross = restore(row, gone.field, back.mean, back.covariance)
        base = found[:, None]
        present = (row != 0).to(base.dtype)
        own = gone.tokens + self._heard(base)[:, 0]
        edges = row_features(row, gone.field, torch.atanh(back.mean.clamp(-0.999, 0.999)))
        own = self.cross(own, back.tokens, edges * present[:, None, None, :, None], present)
        told, sure = gone.estimate[:, None], gone.reliability[:, None]
        alpha = self.head(own[:, None], self._blend(base, own[:, None], told, sure), learned)
        new = dirichlet_mean(alpha)  # b 1
        ratio = deviation_ratio(new, torch.tanh(base), learned)
        cross = bounded(cross * ratio, new[:, 0], back.mean)
        grown = _Back(
            torch.cat([new, back.mean], 1),
            bordered((1.0 - new * new)[:, :, None], cross, back.covariance),
            torch.cat([own[:, None], back.tokens], 1),
            torch.cat([gone.id[:, None], back.ids], 1),
        )
        return grown, alpha

    def _heard(self, half_logit: Tensor) -> Tensor:
        """Token part (b n 2 d) that tells what the algebra found."""
        s = signs_like(half_logit)[:, None]
        half_logit = half_logit.clamp(-MOST_HEARD, MOST_HEARD)
        value = torch.stack([half_logit, torch.tanh(half_logit)], -1)
        out: Tensor = self.back(value[:, :, None] * s)
        return out

    def _blend(self, base: Tensor, tokens: Tensor, estimate: Tensor, reliability: Tensor) -> Tensor:
        """Half log-odds moved towards the context's estimate where there is one."""
        x = torch.cat([tokens.mean(2), reliability[:, :, None]], -1)
        weight = torch.sigmoid(self.believe(x))[..., 0] * (reliability > 0)
        return base + weight * (estimate - base)


class _Step(NamedTuple):
    """Learned corrections of one elimination; all zero in an untrained network but `message`."""

    coupling: Tensor  # b n    added to J_vk
    field: Tensor  # b      added to θ_v
    tilt: Tensor  # b n    added to the half log-odds of the means
    trust: Tensor  # b n    log factor on the field part of the means
    widening: Tensor  # b      log factor on the Gaussian's variance
    gate: Tensor  # b n    log factor on new couplings
    force: Tensor  # b n    added to the fields
    message: Tensor  # b n 2 d    added to the neighbours' tokens


class Corrections(nn.Module):
    """What the network adds to the algebra when a spin is eliminated."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.own = nn.Linear(features, hidden)
        self.other = nn.Linear(features, hidden)
        self.edge = nn.Linear(ROW_FEATURES, hidden)
        self.pair = nn.Linear(hidden, 4)  # coupling, gate, force, trust
        self.single = nn.Linear(features, 2)  # field, widening
        self.tilt = nn.Linear(features, 1)
        self.message = nn.Linear(hidden, features, bias=False)
        for layer in (self.pair, self.single, self.tilt):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        own: Tensor,
        others: Tensor,
        row: Tensor,
        field: Tensor,
        fields: Tensor,
        present: Tensor,
    ) -> _Step:
        """Corrections for a spin with tokens `own` (b 2 d) among `others` (b n 2 d)."""
        s = signs_like(row)
        own, others = self.norm(own), self.norm(others)
        edges = row_features(row, field, fields).permute(0, 3, 2, 4, 1)  # b n v k e
        hidden = functional.gelu(
            self.own(own)[:, None, :, None] + self.other(others)[:, :, None] + self.edge(edges)
        )  # b n v k c
        hidden = hidden * present[:, :, None, None, None]
        pair = self.pair(hidden)  # b n v k 4
        both = s[:, None] * s
        on_state = hidden.sum(2)  # b n k c
        single = self.single(own)  # b 2 2
        tilt = self.tilt(others)[..., 0]
        return _Step(
            coupling=0.25 * (pair[..., 0] * both).sum((2, 3)),
            field=0.5 * (single[:, 0, 0] - single[:, 1, 0]),
            tilt=0.5 * (tilt[..., 0] - tilt[..., 1]),
            trust=pair[..., 3].mean((2, 3)).clamp(-3.0, 3.0),
            widening=single[..., 1].mean(1).clamp(-3.0, 3.0),
            gate=pair[..., 1].mean((2, 3)).clamp(-3.0, 1.0),
            force=0.25 * (pair[..., 2] * s).sum((2, 3)),
            message=self.message(on_state),
        )


def row_features(row: Tensor, field: Tensor, fields: Tensor) -> Tensor:
    """Features (b 8 2 n 2) of the token pairs of one spin and all others."""
    s = signs_like(row)
    both = (s[:, None] * s)[:, None]  # 2 1 2
    j = row[:, None, :, None] * both  # b 2 n 2
    t = torch.tanh(j)
    own = (field[:, None] * s)[:, :, None, None].expand_as(j)
    other = (fields[:, :, None] * s)[:, None].expand_as(j)
    square = (row * row)[:, None, :, None].expand_as(j)
    return torch.stack([j, t, square, t * t, own, torch.tanh(own), other, torch.tanh(other)], 1)


def cheapest(live: _Live) -> Tensor:
    """One-hot choice (b n) of the spin to eliminate: padding first, then the least inexact.

    Among those that lose nothing the weakest goes first: a rule that does not look at numbering.
    """
    with torch.no_grad():
        loss = inexactness(live.couplings)
        strength = torch.tanh(live.couplings).abs().sum(-1) + 0.1 * live.fields.abs()
        cost = torch.where(loss > 0, loss * live.jitter, -0.5 / (1.0 + strength))
        cost = cost + 2.0 * (live.real - 1.0)
        return one_hot(cost.argmin(1), cost.shape[1]).to(cost.dtype)


def taken(x: Tensor, pick: Tensor) -> Tensor:
    """Entry of axis 1 that a one-hot choice (b n) names."""
    weight = pick.view(*pick.shape, *[1] * (x.ndim - 2))
    return (x * weight).sum(1)


def remaining(x: Tensor, pick: Tensor) -> Tensor:
    """All entries of axis 1 but the chosen one, whose place the first entry takes.

    Selection by `where` has a cheap and deterministic gradient, unlike gathering by index.
    """
    moved = pick[:, 1:].bool().view(pick.shape[0], -1, *[1] * (x.ndim - 2))
    return torch.where(moved, x[:, :1], x[:, 1:])


def positions(ids: Tensor, wanted: Tensor, total: int) -> Tensor:
    """Where in `ids` (b n) each of the `wanted` numbers (b n), all below `total`, stands."""
    b, n = ids.shape
    place = torch.arange(n, device=ids.device).expand(b, n)
    table = torch.zeros(b, total, dtype=ids.dtype, device=ids.device).scatter(1, ids, place)
    return table.gather(1, wanted)


def dirichlet_mean(alpha: Tensor) -> Tensor:
    """⟨s⟩ = (α₊ − α₋)/α₀, kept inside (−1, 1)."""
    mean = (alpha[..., 0] - alpha[..., 1]) / alpha.sum(-1)
    return mean.clamp(-1.0 + 1e-7, 1.0 - 1e-7)


def deviation_ratio(new: Tensor, old: Tensor, learned: Tensor) -> Tensor:
    """How much a corrected mean changes the spin's standard deviation, at most twofold."""
    change = (1.0 - new * new).clamp(min=1e-4) / (1.0 - old * old).clamp(min=1e-4)
    return torch.where(learned > 0, change.clamp(0.01, 4.0).sqrt(), 1.0)


def bordered(corner: Tensor, edge: Tensor, block: Tensor) -> Tensor:
    """Symmetric matrices with one more row in front: corner (b 1 1), edge (b n), block (b n n)."""
    top = torch.cat([corner, edge[:, None]], 2)
    return torch.cat([top, torch.cat([edge[:, :, None], block], 2)], 1)
