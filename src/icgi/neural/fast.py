"""`icgi:fast`: elimination in closed form with learned corrections, for binary pairwise models.

Spins are eliminated one by one, the one that loses least first; each step is the algebra of
`closed_form`, with the correlations that a first pass found (`spins`), plus corrections that start
at zero. The last `core` spins are summed exactly. Then the spins come back in reverse with means
and covariances, and a head corrects each mean and says how sure it is.
Where the algebra is exact (no spin had more than two neighbours when it went), corrections are off.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.clock import Deadline
from icgi.model.graph import FloatArray
from icgi.neural.arrange import after_elimination
from icgi.neural.batch import Batch, spins_of
from icgi.neural.closed_form import (
    SMALL,
    bounded,
    cheapest,
    enumerate_core,
    project,
    restore,
    signs_like,
)
from icgi.neural.elimination import Sweep, brought_back, eliminated
from icgi.neural.encoder import CrossLayer, EncoderLayer, distance_classes, edge_features
from icgi.neural.heads import TiltedDirichletHead
from icgi.neural.networks import Draws, normal
from icgi.neural.precision import Precision
from icgi.neural.rest import EVERY, ExactRest
from icgi.neural.shrink import bordered, positions, remaining, remaining_pairs, taken
from icgi.neural.spins import Spins

ROW_FEATURES = 10
SIGNALS = 4  # of how far a mean can be trusted, for the head
MOST_JITTER = 0.5  # spread of the factors on elimination costs in training
MOST_INPUT = 4.0  # half log-odds that tokens are given; beyond, gradients of atanh explode


@dataclass(frozen=True, slots=True)
class FastConfig:
    """Sizes of the network; stored next to its weights."""

    features: int = 64
    heads: int = 4
    layers: int = 2  # encoder layers on the whole model
    hidden: int = 32  # width of the corrections
    encode_every: int = 8  # eliminations between two re-encodings of what is left
    classes: int = 8  # distances that attention tells apart
    core: int = 12  # spins that are summed at the end in training


class _Live(NamedTuple):
    """What is left during elimination: each array's axis 1 runs over the remaining spins."""

    couplings: Tensor
    fields: Tensor
    real: Tensor
    distances: Tensor
    correlation: Tensor  # b n n
    tokens: Tensor  # b n 2 d
    mean: Tensor  # b n    of the first pass
    estimate: Tensor
    reliability: Tensor
    jitter: Tensor
    ids: Tensor  # b n    original numbers


class _Gone(NamedTuple):
    """A spin as it was when it went."""

    row: Tensor  # b n    couplings to those that were left
    correlation: Tensor  # b n    with those, by the first pass
    left: Tensor  # b n    original numbers of those
    field: Tensor  # b
    tokens: Tensor  # b 2 d
    loss: Tensor  # b    `inexactness` of the step
    mean: Tensor  # b    of the first pass
    estimate: Tensor  # b
    reliability: Tensor  # b
    id: Tensor  # b


class _Back(NamedTuple):
    """Spins that are back, the last that went last."""

    mean: Tensor  # b n
    covariance: Tensor  # b n n
    tokens: Tensor  # b n 2 d
    ids: Tensor  # b n    original numbers


_Arrays = TypeVar("_Arrays", _Live, _Gone)


class FastNetwork(nn.Module):
    """Dirichlet concentrations of every spin of a batch of Ising models."""

    settings: ClassVar[type[Any]] = FastConfig
    dirichlet: ClassVar[bool] = True
    pairwise: ClassVar[bool] = True
    recorded: ClassVar[bool] = True

    def __init__(self, config: FastConfig) -> None:
        super().__init__()
        self.config = config
        d, h, c = config.features, config.heads, config.classes
        self.embed = nn.Linear(10, d)
        self.refresh = nn.Linear(3, d)
        self.layers = nn.ModuleList(EncoderLayer(d, h, c) for _ in range(config.layers))
        self.again = EncoderLayer(d, h, c)
        self.correct = Corrections(d, config.hidden)
        self.back = nn.Linear(3, d)
        self.cross = CrossLayer(d, h, ROW_FEATURES)
        weigh = nn.Linear(config.hidden, 1)
        nn.init.zeros_(weigh.weight)
        nn.init.constant_(weigh.bias, -1.0)
        self.believe = nn.Sequential(  # weight of the context's estimate
            nn.Linear(d + SIGNALS + 2, config.hidden), nn.GELU(), weigh
        )
        self.head = TiltedDirichletHead(d, SIGNALS)
        self.precision = Precision()  # of several orders together; used by `engine.concentrations`

    def refuse(self, largest_table: int, most_states: int, variables: int, arity: int) -> str:
        """Why a model cannot be taken, or nothing."""
        return "" if most_states <= 2 and arity <= 2 else "two states, at most two in a factor"

    def prepare(self, batch: Batch, deadline: Deadline | None = None) -> Spins:
        """Couplings, fields and the first pass."""
        return spins_of(batch, deadline)

    def noise(self, models: int, variables: int) -> tuple[int, ...]:
        """Noise on the cost of eliminating each spin, and how much of it there is."""
        return models, variables + 1

    def forward(
        self, form: Spins, draws: Draws | None = None, deadline: Deadline | None = None
    ) -> Tensor:
        """Concentrations (b n 2) of states +1 and −1; see `run`."""
        jitter = None
        if draws is not None:
            spread = MOST_JITTER * draws.uniform[:, :1]
            jitter = torch.exp(spread * normal(draws.uniform[:, 1:]))
        alpha = self.run(form, min(self.config.core, form.fields.shape[1]), jitter, deadline)
        padding = torch.stack([torch.ones_like(form.real), torch.zeros_like(form.real)], -1)
        return torch.where(form.real[..., None] > 0, alpha, padding)

    def run(
        self,
        spins: Spins,
        core: int,
        jitter: Tensor | None = None,
        deadline: Deadline | None = None,
        exact: ExactRest | None = None,
    ) -> Tensor:
        """Concentrations (b n 2) of states +1 and −1.

        Parameters
        ----------
        core
            Spins that are left when elimination stops, all of whose 2^core states are summed.
        jitter
            Factors (b n) on the cost of eliminating each spin, to draw other orders; 1 if absent.
        deadline
            Moment after which the run is left at its next step, by `OutOfTime`.
        exact
            Sums what is left of a model as soon as it can; elimination goes on down to `core`
            without it.
        """
        even = torch.ones_like(spins.fields) if jitter is None else jitter
        sweep: Sweep[_Live, _Gone] = Sweep.of(self._start(spins, even))
        which, parts = torch.arange(len(even), device=even.device), []

        def look(sweep: Sweep[_Live, _Gone], t: int) -> bool:
            """Answer the models of which what is left can be summed."""
            nonlocal which
            if exact is None or (t and sweep.live.fields.shape[1] % EVERY):
                return True
            known = _summed(sweep.live, exact, padded=t == 0)
            done = torch.tensor([k is not None for k in known], device=even.device)
            if done.any():
                ready = _some_sweep(sweep, done)
                rest = _stacked([k for k in known if k is not None], sweep.live.fields)
                parts.append((which[done], self._distribute(ready, deadline, rest)))
                left = _some_sweep(sweep, ~done)
                sweep.live, sweep.tape = left.live, left.tape
                sweep.lost, sweep.started, which = left.lost, left.started, which[~done]
            return len(which) > 0

        steps, every = spins.fields.shape[1] - core, self.config.encode_every
        eliminated(sweep, steps, self._eliminate, self._encode_again, every, deadline, look)
        if len(which):
            rest = enumerate_core(sweep.live.couplings, sweep.live.fields)[:2]
            parts.append((which, self._distribute(sweep, deadline, rest)))
        if len(parts) == 1:
            return parts[0][1]
        alpha = torch.zeros(*spins.fields.shape, 2, device=even.device, dtype=even.dtype)
        for which, found in parts:
            alpha[which] = found
        return alpha

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
        first = spins.mean[:, :, None, None] * s
        first_logit = torch.atanh(spins.mean.clamp(-0.999, 0.999))[:, :, None, None] * s
        parts = [odd, torch.tanh(odd), known, torch.tanh(known), first, first_logit, even]
        tokens = self.embed(torch.cat(parts, -1))
        edges = edge_features(spins.couplings, spins.correlation)
        classes = distance_classes(spins.distances, self.config.classes)
        for layer in self.layers:
            tokens = layer(tokens, edges, classes, spins.real)
        b, n = spins.fields.shape
        ids = torch.arange(n, device=s.device).repeat(b, 1)
        return _Live(
            spins.couplings, spins.fields, spins.real, spins.distances, spins.correlation, tokens,
            spins.mean, spins.estimate, spins.reliability, jitter, ids,
        )  # fmt: skip

    def _encode_again(self, live: _Live, started: Tensor) -> _Live:
        """Encode what is left; graphs of which only padding has gone are left as they are."""
        s = signs_like(live.fields)[:, None]
        odd = live.fields[:, :, None, None] * s
        degree = (live.couplings != 0).sum(-1).to(s.dtype).log1p()[:, :, None, None]
        news = torch.cat([odd, torch.tanh(odd), degree.expand_as(odd)], -1)
        tokens = self.again(
            live.tokens + self.refresh(news),
            edge_features(live.couplings, live.correlation),
            distance_classes(live.distances, self.config.classes),
            live.real,
        )
        started = started[:, None, None, None]
        return live._replace(tokens=torch.where(started > 0, tokens, live.tokens))

    def _eliminate(self, live: _Live, t: int) -> tuple[_Gone, _Live, Tensor, Tensor]:
        """Take out the spin that loses least; what is lost, and 1 where it was no padding (b)."""
        pick, loss = cheapest(live.couplings, live.fields, live.real, live.jitter)
        row, couplings = remaining_pairs(live.couplings, pick)
        to, near = remaining_pairs(live.distances, pick)
        related, correlation = remaining_pairs(live.correlation, pick)
        gone = _Gone(
            row,
            related,
            remaining(live.ids, pick),
            taken(live.fields, pick),
            taken(live.tokens, pick),
            loss,
            taken(live.mean, pick),
            taken(live.estimate, pick),
            taken(live.reliability, pick),
            taken(live.ids, pick.to(live.ids.dtype)),
        )
        left = _Live(
            couplings,
            remaining(live.fields, pick),
            remaining(live.real, pick),
            after_elimination(near, to),
            correlation,
            remaining(live.tokens, pick),
            remaining(live.mean, pick),
            remaining(live.estimate, pick),
            remaining(live.reliability, pick),
            remaining(live.jitter, pick),
            gone.left,
        )
        present = (row != 0).to(row.dtype)
        inexact = (present.sum(1) > 2).to(row.dtype)
        gone = gone._replace(loss=loss + SMALL * inexact)
        step = self.correct(gone, left, present)
        on = inexact[:, None]
        means = torch.tanh(0.5 * left.fields * torch.exp(on * step.trust) + on * step.tilt)
        bond = torch.exp(on * step.bond)
        forces, new = project(
            row + on * step.coupling * present,
            gone.field + inexact * step.field,
            means,
            present,
            correlation * (bond[:, :, None] * bond[:, None]),
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
        return gone, left, gone.loss, taken(live.real, pick)

    def _distribute(
        self,
        sweep: Sweep[_Live, _Gone],
        deadline: Deadline | None,
        rest: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Concentrations of all spins, in their original order.

        `rest` are means (b n) and covariances (b n n) of those that are left.
        """
        live, lost = sweep.live, sweep.lost
        total = live.fields.shape[1] + len(sweep.tape)
        learned = (lost > 0).to(lost.dtype)
        mean, covariance = rest
        base = torch.atanh(mean.clamp(-1.0 + 1e-7, 1.0 - 1e-7))
        tokens = live.tokens + self._found(base, live.mean)
        signs = signals(mean, live.mean, torch.zeros_like(mean), lost)
        base = self._blend(base, tokens, signs, live.estimate, live.reliability)
        alpha = self.head(tokens, base, learned, signs)
        corrected = dirichlet_mean(alpha)
        ratio = deviation_ratio(corrected, mean, learned)
        covariance = covariance * ratio[:, :, None] * ratio[:, None]
        back = _Back(corrected, covariance, tokens, live.ids)
        put_back = partial(self._put_back, lost, total)
        return brought_back(back, alpha, sweep.tape, put_back, deadline)

    def _put_back(self, lost: Tensor, total: int, gone: _Gone, back: _Back) -> tuple[_Back, Tensor]:
        """One spin in front of those that are back, and its concentrations (b 1 2)."""
        place = positions(gone.left, back.ids, total)
        row = gone.row.gather(1, place)
        learned = (lost > 0).to(lost.dtype)
        found, cross = restore(row, gone.field, back.mean, back.covariance)
        base, first = found[:, None], gone.mean[:, None]
        present = (row != 0).to(base.dtype)
        own = gone.tokens + self._found(base, first)[:, 0]
        edges = row_features(
            row,
            gone.field,
            torch.atanh(back.mean.clamp(-0.999, 0.999)),
            gone.correlation.gather(1, place),
        )
        own = self.cross(own, back.tokens, edges * present[:, None, None, :, None], present)
        mean = torch.tanh(base)
        signs = signals(mean, first, gone.loss[:, None], lost)
        context = gone.estimate[:, None], gone.reliability[:, None]
        base = self._blend(base, own[:, None], signs, *context)
        alpha = self.head(own[:, None], base, learned, signs)
        new = dirichlet_mean(alpha)  # b 1
        ratio = deviation_ratio(new, mean, learned)
        cross = bounded(cross * ratio, new[:, 0], back.mean)
        grown = _Back(
            torch.cat([new, back.mean], 1),
            bordered((1.0 - new * new)[:, :, None], cross, back.covariance),
            torch.cat([own[:, None], back.tokens], 1),
            torch.cat([gone.id[:, None], back.ids], 1),
        )
        return grown, alpha

    def _found(self, half_logit: Tensor, first: Tensor) -> Tensor:
        """Token part (b n 2 d) for what the algebra found, now and in its first pass."""
        s = signs_like(half_logit)[:, None]
        mean = torch.tanh(half_logit)
        half_logit = half_logit.clamp(-MOST_INPUT, MOST_INPUT)
        value = torch.stack([half_logit, mean, mean - first], -1)
        out: Tensor = self.back(value[:, :, None] * s)
        return out

    def _blend(
        self, base: Tensor, tokens: Tensor, signs: Tensor, estimate: Tensor, reliability: Tensor
    ) -> Tensor:
        """Half log-odds moved towards the context's estimate where there is one."""
        gap = (torch.tanh(estimate) - torch.tanh(base)).abs()
        x = torch.cat([tokens.mean(2), signs, torch.stack([reliability, gap], -1)], -1)
        weight = torch.sigmoid(self.believe(x))[..., 0] * (reliability > 0)
        return base + weight * (estimate - base)


def _some(part: _Arrays, which: Tensor) -> _Arrays:
    """Arrays of some of the models of a batch."""
    return type(part)(*(x[which] for x in part))


def _some_sweep(sweep: Sweep[_Live, _Gone], which: Tensor) -> Sweep[_Live, _Gone]:
    tape = [_some(gone, which) for gone in sweep.tape]
    return Sweep(_some(sweep.live, which), tape, sweep.lost[which], sweep.started[which])


def _summed(
    live: _Live, exact: ExactRest, padded: bool
) -> list[tuple[FloatArray, FloatArray] | None]:
    """Means and covariances of what is left of each model, where that could be summed.

    Only models without padding are looked at, unless nothing is gone yet: when a model is looked
    at then depends on no other model of its batch.
    """
    j, h, real = (x.double().cpu().numpy() for x in (live.couplings, live.fields, live.real))
    whole = np.logical_or(padded, (real > 0).all(1)).tolist()
    return [exact.spins(j[b], h[b]) if whole[b] else None for b in range(len(h))]


def _stacked(known: list[tuple[FloatArray, FloatArray]], like: Tensor) -> tuple[Tensor, Tensor]:
    means, covariances = (np.stack(x) for x in zip(*known, strict=True))
    return torch.from_numpy(means).to(like), torch.from_numpy(covariances).to(like)


class _Step(NamedTuple):
    """Learned corrections of one elimination; all zero in an untrained network but `message`."""

    coupling: Tensor  # b n    added to J_vk
    field: Tensor  # b      added to θ_v
    tilt: Tensor  # b n    added to the half log-odds of the means
    trust: Tensor  # b n    log factor on the field part of the means
    bond: Tensor  # b n    log factor on the spin's correlations
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
        self.pair = nn.Linear(hidden, 5)  # coupling, gate, force, trust, bond
        self.single = nn.Linear(features, 2)  # field, widening
        self.tilt = nn.Linear(features, 1)
        self.message = nn.Linear(hidden, features, bias=False)
        for layer in (self.pair, self.single, self.tilt):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, gone: _Gone, left: _Live, present: Tensor) -> _Step:
        """Corrections for a spin that goes, among those that are left (1 in `present`, b n)."""
        s = signs_like(gone.row)
        own, others = self.norm(gone.tokens), self.norm(left.tokens)
        edges = row_features(gone.row, gone.field, left.fields, gone.correlation)
        edges = edges.permute(0, 3, 2, 4, 1)  # b n v k e
        hidden = functional.gelu(
            self.own(own)[:, None, :, None] + self.other(others)[:, :, None] + self.edge(edges)
        )  # b n v k c
        hidden = hidden * present[:, :, None, None, None]
        pair = self.pair(hidden)  # b n v k 5
        both = s[:, None] * s
        on_state = hidden.sum(2)  # b n k c
        single = self.single(own)  # b 2 2
        tilt = self.tilt(others)[..., 0]
        return _Step(
            coupling=0.25 * (pair[..., 0] * both).sum((2, 3)),
            field=0.5 * (single[:, 0, 0] - single[:, 1, 0]),
            tilt=0.5 * (tilt[..., 0] - tilt[..., 1]),
            trust=pair[..., 3].mean((2, 3)).clamp(-3.0, 3.0),
            bond=pair[..., 4].mean((2, 3)).clamp(-3.0, 0.5),
            widening=single[..., 1].mean(1).clamp(-3.0, 3.0),
            gate=pair[..., 1].mean((2, 3)).clamp(-3.0, 1.0),
            force=0.25 * (pair[..., 2] * s).sum((2, 3)),
            message=self.message(on_state),
        )


def row_features(row: Tensor, field: Tensor, fields: Tensor, correlation: Tensor) -> Tensor:
    """Features (b 10 2 n 2) of the token pairs of one spin and all others."""
    s = signs_like(row)
    both = (s[:, None] * s)[:, None]  # 2 1 2
    j = row[:, None, :, None] * both  # b 2 n 2
    t = torch.tanh(j)
    own = (field[:, None] * s)[:, :, None, None].expand_as(j)
    other = (fields[:, :, None] * s)[:, None].expand_as(j)
    square = (row * row)[:, None, :, None].expand_as(j)
    r = correlation[:, None, :, None] * both
    return torch.stack(
        [j, t, square, t * t, own, torch.tanh(own), other, torch.tanh(other), r, r * r], 1
    )


def signals(mean: Tensor, first: Tensor, loss: Tensor, lost: Tensor) -> Tensor:
    """Signs that a mean may be wrong (b n 4): the first pass differed, steps were inexact.

    `loss` (b n) is that of the spin's own step, `lost` (b 1) that of all.
    """
    change = (mean - first).abs()
    both = torch.stack([change, 1.0 - mean * mean, torch.log1p(20.0 * loss)], -1)
    whole = torch.log1p(lost)[:, :, None].expand(-1, mean.shape[1], 1)
    return torch.cat([both, whole], -1).detach()


def dirichlet_mean(alpha: Tensor) -> Tensor:
    """⟨s⟩ = (α₊ − α₋)/α₀, kept inside (−1, 1)."""
    mean = (alpha[..., 0] - alpha[..., 1]) / alpha.sum(-1)
    return mean.clamp(-1.0 + 1e-7, 1.0 - 1e-7)


def deviation_ratio(new: Tensor, old: Tensor, learned: Tensor) -> Tensor:
    """How much a corrected mean changes the spin's standard deviation, at most twofold."""
    change = (1.0 - new * new).clamp(min=1e-4) / (1.0 - old * old).clamp(min=1e-4)
    return torch.where(learned > 0, change.clamp(0.01, 4.0).sqrt(), 1.0)
