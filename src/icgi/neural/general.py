"""`icgi:fast` for any model: elimination of variables of q states with learned corrections.

The plan is that of `neural.fast`: the variable that loses least goes first, the last few are summed
exactly, then the others come back in reverse with marginals and covariances of all states. Models
arrive as pair tables (`general_batch`). Where the algebra is exact, corrections are off.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from icgi.clock import Deadline
from icgi.neural.arrange import after_elimination
from icgi.neural.batch import Batch, tables_of
from icgi.neural.elimination import Sweep, brought_back, eliminated
from icgi.neural.encoder import CrossLayer, EncoderLayer, distance_classes
from icgi.neural.general_algebra import (
    beliefs_of,
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
from icgi.neural.general_batch import MOST_STATES, Tables
from icgi.neural.general_parts import (
    CLIP,
    EDGES,
    ROW_FEATURES,
    SMALLEST,
    GeneralCorrections,
    GeneralHead,
    bordered,
    edge_features,
    input_states,
    moved_covariance,
    row_features,
)
from icgi.neural.networks import Draws, normal
from icgi.neural.pace import check
from icgi.neural.shrink import positions, taken
from icgi.neural.shrink import remaining as rest

MOST_JITTER = 0.5  # spread of the factors on elimination costs in training
CORE_STATES = 1024  # configurations of what is summed at the end in training
HALF = 0.01  # inexactness (the strengths of three edges multiplied) with half corrections
TRUST = 0.5  # of a variable's own fields as its belief, while the rest of the model is not known


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


class _Fixed(NamedTuple):
    """What elimination does not change, side by side: one selection instead of six."""

    packed: Tensor  # … 2k + 4

    @property
    def states(self) -> int:
        return (self.packed.shape[-1] - 4) // 2

    @property
    def exists(self) -> Tensor:
        return self.packed[..., : self.states]

    @property
    def estimate(self) -> Tensor:
        return self.packed[..., self.states : 2 * self.states]

    @property
    def real(self) -> Tensor:
        return self.packed[..., -4]

    @property
    def reliability(self) -> Tensor:
        return self.packed[..., -3]

    @property
    def jitter(self) -> Tensor:
        return self.packed[..., -2]

    @property
    def id(self) -> Tensor:
        """Original numbers."""
        return self.packed[..., -1].long()


class _Live(NamedTuple):
    """What is left during elimination: each array's axis 1 runs over the remaining variables."""

    tables: Tensor  # b n k n k
    unary: Tensor  # b n k
    links: Tensor  # b n n 2    adjacency, distances
    tokens: Tensor  # b n k d
    fixed: _Fixed

    @property
    def adjacency(self) -> Tensor:
        return self.links[..., 0]

    @property
    def ids(self) -> Tensor:
        """Original numbers."""
        return self.fixed.id

    @property
    def distances(self) -> Tensor:
        return self.links[..., 1]


class _Gone(NamedTuple):
    """A variable as it was when it went."""

    row: Tensor  # b n v k    tables to those that were left
    present: Tensor  # b n    1 for neighbours among those
    left: Tensor  # b n    original numbers of those
    unary: Tensor  # b k
    tokens: Tensor  # b k d
    fixed: _Fixed


class _Back(NamedTuple):
    """Variables that are back, the last that went last."""

    marginals: Tensor  # b n k
    covariance: Tensor  # b n k n k
    exists: Tensor  # b n k
    tokens: Tensor  # b n k d
    ids: Tensor  # b n    original numbers


class GeneralNetwork(nn.Module):
    """Dirichlet concentrations of every variable of a batch of pairwise models of q states."""

    settings: ClassVar[type[Any]] = GeneralConfig
    dirichlet: ClassVar[bool] = True
    pairwise: ClassVar[bool] = True
    recorded: ClassVar[bool] = True

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
        self.head = GeneralHead(d)

    def refuse(self, largest_table: int, most_states: int, variables: int, arity: int) -> str:
        """Why a model cannot be taken, or nothing."""
        return "" if most_states <= MOST_STATES else f"variables of up to {MOST_STATES} states"

    def prepare(self, batch: Batch, deadline: Deadline | None = None) -> Tables:
        """Dense pair tables."""
        return tables_of(batch, deadline)

    def noise(self, models: int, variables: int) -> tuple[int, ...]:
        """Noise on the cost of eliminating each variable, and how much of it there is."""
        return models, variables + 1

    def forward(
        self, form: Tables, draws: Draws | None = None, deadline: Deadline | None = None
    ) -> Tensor:
        """Concentrations (b n k), zero for states that do not exist; see `run`."""
        jitter = None
        if draws is not None:
            spread = MOST_JITTER * draws.uniform[:, :1]
            jitter = torch.exp(spread * normal(draws.uniform[:, 1:]))
        k, n = form.exists.shape[2], form.real.shape[1]
        core = min(max(3, int(math.log(CORE_STATES) / math.log(k))), n)
        return self.run(form, core, jitter, deadline)

    def run(
        self,
        batch: Tables,
        core: int,
        jitter: Tensor | None = None,
        deadline: Deadline | None = None,
    ) -> Tensor:
        """Concentrations (b n k), zero for states that do not exist.

        Parameters
        ----------
        core
            Variables that are left when elimination stops, all of whose k^core states are summed;
            at least three.
        jitter
            Factors (b n) on the cost of eliminating each variable, to draw other orders.
        deadline
            Moment after which the run is left at its next step, by `OutOfTime`.
        """
        even = torch.ones_like(batch.real) if jitter is None else jitter
        sweep: Sweep[_Live, _Gone] = Sweep.of(self._start(batch, even, deadline))
        steps, every = batch.real.shape[1] - core, self.config.encode_every
        eliminated(sweep, steps, self._eliminate, self._encode_again, every, deadline)
        return self._distribute(sweep.live, sweep.tape, share(sweep.lost), deadline)

    def _start(self, batch: Tables, jitter: Tensor, deadline: Deadline | None) -> _Live:
        exists = batch.exists
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
        context = batch.estimate.clamp(-CLIP, CLIP) * exists
        per_state = torch.stack(
            [*input_states(batch.unary, exists), context, torch.tanh(context)], -1
        )  # b n k 4
        tokens = self.embed(torch.cat([per_state, per_variable], -1))
        edges = edge_features(batch.tables, exists, strength)
        classes = distance_classes(batch.distances, self.config.classes)
        for layer in self.layers:
            check(deadline)
            tokens = layer(tokens, edges, classes, exists * batch.real[:, :, None])
        ids = torch.arange(exists.shape[1], device=tokens.device).to(jitter.dtype)
        singles = torch.stack(
            [batch.real, batch.reliability, jitter, ids.expand_as(jitter)], -1
        )  # b n 4
        fixed = _Fixed(torch.cat([exists, batch.estimate, singles], -1))
        links = torch.stack([batch.adjacency, batch.distances], -1)
        return _Live(batch.tables, batch.unary, links, tokens, fixed)

    def _encode_again(self, live: _Live, started: Tensor) -> _Live:
        """Encode what is left; graphs of which only padding has gone are left as they are."""
        exists = live.fixed.exists
        degree = live.adjacency.sum(-1).log1p()[:, :, None].expand_as(exists)
        news = torch.stack([*input_states(live.unary, exists), degree], -1)
        tokens = self.again(
            live.tokens + self.refresh(news),
            edge_features(live.tables, exists, strengths(live.tables, exists)),
            distance_classes(live.distances, self.config.classes),
            exists * live.fixed.real[:, :, None],
        )
        started = started[:, None, None, None]
        return live._replace(tokens=torch.where(started > 0, tokens, live.tokens))

    def _eliminate(self, live: _Live, t: int) -> tuple[_Gone, _Live, Tensor, Tensor]:
        """Take out the variable that loses least; how inexact that is, and 1 if no padding (b)."""
        pick, loss = cheapest(live)  # b n, b
        left, to = without(live, pick)
        gone = _Gone(
            rest(taken(live.tables, pick).transpose(1, 2), pick),
            to[..., 0],
            left.fixed.id,
            taken(live.unary, pick),
            taken(live.tokens, pick),
            _Fixed(taken(live.fixed.packed, pick)),
        )
        present, exists = gone.present, left.fixed.exists
        amount = share(loss)
        on = amount[:, None, None]
        step = self.correct(
            gone.tokens, gone.row, gone.fixed.exists, present, left.tokens, left.unary, exists
        )
        field = left.unary * (TRUST * torch.exp(on * step.trust)) + on * step.tilt
        beliefs = beliefs_of(field, exists)
        # corrections of the tables count for this step only: the row stays on the tape as it was
        row = gone.row + on[..., None] * step.table
        found = star(row, gone.unary + amount[:, None] * step.unary, beliefs)
        pairs = present[:, :, None] * present[:, None]
        pairs = pairs * (1.0 - torch.eye(pairs.shape[1], device=pairs.device, dtype=pairs.dtype))
        gate = screening(found, gone.fixed.exists.sum(-1), present)
        gate = gate * torch.exp(on * (step.gate[:, :, None] + step.gate[:, None])) * pairs
        new = new_tables(found) + on[..., None, None] * step.pairs
        both = exists[:, :, :, None, None] * exists[:, None, None]
        new = new * (gate[:, :, None, :, None] * both)
        force = found.gain + on * step.force - compensation(new, found.gain, beliefs)
        # a table is known up to a constant; without it, sums over many steps stay small
        force = force - (force * beliefs).sum(-1, keepdim=True)
        adjacency = torch.maximum(left.adjacency, pairs)
        distances = after_elimination(left.distances, to[..., 1])
        left = left._replace(
            tables=left.tables + new,
            unary=left.unary + force * (present[:, :, None] * exists),
            links=torch.stack([adjacency, distances], -1),
            tokens=left.tokens + step.message,
        )
        return gone, left, loss, gone.fixed.real

    def _distribute(
        self, live: _Live, tape: list[_Gone], learned: Tensor, deadline: Deadline | None
    ) -> Tensor:
        """Concentrations of all variables, in their original order."""
        total = live.unary.shape[1] + len(tape)
        exists = live.fixed.exists
        found, covariance = enumerate_core(live.tables, live.unary)
        tokens = live.tokens + self._found(found, exists)
        fixed = live.fixed
        alpha = self.head(tokens, found, exists, fixed.estimate, fixed.reliability, learned)
        marginals = alpha / alpha.sum(-1, keepdim=True)
        covariance = moved_covariance(covariance, found, marginals, learned)
        back = _Back(marginals, covariance, exists, tokens, fixed.id)
        return brought_back(back, alpha, tape, partial(self._put_back, learned, total), deadline)

    def _put_back(
        self, learned: Tensor, total: int, gone: _Gone, back: _Back
    ) -> tuple[_Back, Tensor]:
        """One variable in front of those that are back, and its concentrations (b 1 k)."""
        place = positions(gone.left, back.ids, total)
        k = gone.row.shape[2]
        row = gone.row.gather(1, place[:, :, None, None].expand(-1, -1, k, k))
        present = gone.present.gather(1, place)
        found, cross = restore(row, gone.unary, back.marginals, back.covariance, present)
        found = found[:, None]
        fixed = _Fixed(gone.fixed.packed[:, None])
        own = gone.tokens + self._found(found, fixed.exists)[:, 0]
        near = present[:, :, None] * back.exists
        own = self.cross(own, back.tokens, row_features(row, gone.fixed.exists, near), near)
        own = own[:, None]
        alpha = self.head(own, found, fixed.exists, fixed.estimate, fixed.reliability, learned)
        new = alpha / alpha.sum(-1, keepdim=True)  # b 1 k
        cross = moved_covariance(cross[:, None], found, new, learned, both=False)[:, 0]
        grown = _Back(
            torch.cat([new, back.marginals], 1),
            bordered(new[:, 0], cross, back.covariance),
            torch.cat([fixed.exists, back.exists], 1),
            torch.cat([own, back.tokens], 1),
            torch.cat([fixed.id, back.ids], 1),
        )
        return grown, alpha

    def _found(self, p: Tensor, exists: Tensor) -> Tensor:
        """Token part (b n k d) for what the algebra found."""
        out: Tensor = self.back(torch.stack([torch.log(p + SMALLEST) * exists, p], -1))
        return out


def without(live: _Live, pick: Tensor) -> tuple[_Live, Tensor]:
    """What is left when one variable is taken out, and its links (b n 2) to them."""
    to = rest(taken(live.links, pick), pick)
    left = _Live(
        rest(rest(live.tables, pick).permute(0, 3, 4, 1, 2), pick),
        rest(live.unary, pick),
        rest(rest(live.links, pick).transpose(1, 2), pick),
        rest(live.tokens, pick),
        _Fixed(rest(live.fixed.packed, pick)),
    )
    return left, to


def share(loss: Tensor) -> Tensor:
    """Part of the corrections that counts: none where nothing is lost, half at `HALF`.

    Where the algebra errs little, what the network adds could only be worse.
    """
    return loss / (loss + HALF)


def cheapest(live: _Live) -> tuple[Tensor, Tensor]:
    """One-hot choice (b n) of the variable to eliminate, and what that loses (b).

    Padding goes first, then the least inexact.
    Among those that lose nothing the weakest goes first: a rule that does not look at numbering.
    """
    with torch.no_grad():
        strength = strengths(live.tables, live.fixed.exists)
        loss = inexactness(strength, live.adjacency)
        weak = strength.sum(-1) + 0.01 * torch.softmax(live.unary, -1).amax(-1)
        cost = torch.where(loss > 0, loss * live.fixed.jitter, -0.5 / (1.0 + weak))
        cost = cost + 2.0 * (live.fixed.real - 1.0)
        pick = one_hot(cost.argmin(1), cost.shape[1]).to(cost.dtype)
        return pick, taken(loss, pick)
