"""`icgi:paper`: the paper's network for any factor graph (Algorithm 1), started at exact algebra.

A Graph Transformer encodes the model. One variable after the other is chosen and eliminated; the
factor that it leaves behind is a tensor train whose first bond states are the exact star
Σ_v ψ_v Π_k ψ_vk and whose further ones are predicted; fill-in and distances are updated, and what
is left is encoded again. A distribute pass brings the variables back in reverse, and a Dirichlet
head answers. Learned parts start small or at zero: untrained, this is elimination in closed form.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.clock import Deadline
from icgi.errors import CheckpointError
from icgi.neural import closed_form
from icgi.neural.arrange import DIFFUSIONS, after_elimination, heat_kernels
from icgi.neural.batch import Batch, spins_of, tables_of
from icgi.neural.elimination import Sweep, brought_back, eliminated, within
from icgi.neural.encoder import CrossLayer, EncoderLayer, distance_classes
from icgi.neural.general import share
from icgi.neural.general_algebra import (
    TINY,
    Star,
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
from icgi.neural.general_batch import MOST_STATES, Tables, core_size
from icgi.neural.general_parts import (
    EDGES,
    ROW_FEATURES,
    SMALLEST,
    bordered,
    edge_features,
    input_states,
    moved_covariance,
    row_features,
)
from icgi.neural.heads import FLOOR, MOST_LOG_SCALE
from icgi.neural.messages import dense_beliefs
from icgi.neural.networks import Draws, gumbel
from icgi.neural.pace import check
from icgi.neural.shrink import positions, taken
from icgi.neural.shrink import remaining as rest

Order = Literal["least-loss", "min-degree", "learned", "random"]
Factor = Literal["train", "star", "free"]
Position = Literal["spd", "static", "laplacian", "none"]

TRUST = 0.5  # of a variable's own fields as its belief, while the rest of the model is not known
SMALL_LOSS = 1e-3  # inexactness below which variables hardly differ as choices
RARE = -6.0  # log weight of a predicted bond state relative to the star, before training
MOST_TOKENS = 2048  # variables, auxiliaries included, times states
SURE = 1e3  # key of what goes first whatever the scores say


@dataclass(frozen=True, slots=True)
class PaperConfig:
    """Sizes and switches of the network; stored next to its weights.

    Paper: features=256, heads=8, layers=6, rank=16, encode_every=1, order="min-degree"; here
    smaller by default, because two cores train it in an hour.
    """

    features: int = 64  # D
    heads: int = 4  # H
    layers: int = 3  # of the encoder on the whole model
    rank: int = 8  # bond dimension r, states of the eliminated variable included
    hidden: int = 32  # width of the prediction of cores and corrections
    distances: int = 66  # distinguished by the bias b(d): 0 … 64 and beyond
    encode_every: int = 4  # eliminations between two encodings of what is left
    core: int = 3  # least number of variables left when elimination stops; they are summed
    core_states: int = 4096  # it stops as soon as what is left has no more configurations
    steps: int | None = None  # most variables to eliminate; belief propagation answers the rest
    order: Order = "least-loss"  # at test
    train_order: Order = "learned"
    factors: Factor = "train"
    positions: Position = "spd"
    distribute: bool = True
    corrected: bool = True  # whether the algebra of an elimination step is corrected
    two_passes: bool = True  # whether correlations of a first, uncorrected pass are known
    # inexactness of a step, and of all, beyond which learned corrections fade: more was not seen
    most_step: float = math.inf
    most_total: float = math.inf
    # effective number of neighbours, same: of many weak ones the Gaussian of the algebra is right
    most_near: float = math.inf

    def __post_init__(self) -> None:
        if self.features % self.heads or min(self.rank, self.layers, self.encode_every) < 1:
            raise CheckpointError(
                "features must be a multiple of heads; rank, layers, encode_every at least 1"
            )
        if self.core < 3:
            raise CheckpointError("core must be 3 or more: putting a variable back needs three")


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Dense pair tables of a batch, and what a first pass without learned parts found."""

    tables: Tables
    first: Tensor  # b n k    marginals: the closed form's for spins, else belief propagation's
    correlation: Tensor  # b n n    of spins; zero for models of more states
    kernels: Tensor  # b n n t    static encodings, where the network reads them; else t = 0

    @staticmethod
    def joined(parts: "Sequence[Form]") -> "Form":
        """One form of many that are padded to the same size."""
        others = (torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Form)[1:])
        return Form(Tables.joined([p.tables for p in parts]), *others)

    def __getitem__(self, index: Tensor | slice) -> "Form":
        return Form(*(getattr(self, f.name)[index] for f in fields(self)))

    def to(self, device: torch.device | str) -> "Form":
        """Same models elsewhere."""
        return Form(*(getattr(self, f.name).to(device) for f in fields(self)))


class _Live(NamedTuple):
    """What is left during elimination: each array's axis 1 runs over the remaining variables."""

    tables: Tensor  # b n k n k
    unary: Tensor  # b n k
    links: Tensor  # b n n c    adjacency, distances, correlation, static kernels
    tokens: Tensor  # b n k d
    fixed: Tensor  # b n 2k+2    states, first marginals, real, number

    @property
    def states(self) -> Tensor:
        return self.fixed[..., : self.unary.shape[2]]

    @property
    def first(self) -> Tensor:
        return self.fixed[..., self.unary.shape[2] : -2]

    @property
    def real(self) -> Tensor:
        return self.fixed[..., -2]

    @property
    def ids(self) -> Tensor:
        return self.fixed[..., -1].long()


class _Gone(NamedTuple):
    """A variable as it was when it went."""

    row: Tensor  # b n v k    tables to those that were left
    present: Tensor  # b n    1 for neighbours among those
    left: Tensor  # b n    numbers of those
    unary: Tensor  # b k
    tokens: Tensor  # b k d
    states: Tensor  # b k
    first: Tensor  # b k
    id: Tensor  # b
    alone: Tensor  # b k    its marginal as far as it was known when it went
    trusted: Tensor  # b    inexactness of the step, as far as corrections of it count


class _Back(NamedTuple):
    """Variables that are back, the last that went last."""

    marginals: Tensor  # b n k
    covariance: Tensor  # b n k n k
    states: Tensor  # b n k
    tokens: Tensor  # b n k d
    ids: Tensor  # b n


class PaperNetwork(nn.Module):
    """Dirichlet concentrations of every variable of a batch of factor graphs."""

    settings: ClassVar[type[Any]] = PaperConfig
    dirichlet: ClassVar[bool] = True
    pairwise: ClassVar[bool] = True
    recorded: ClassVar[bool] = True

    def __init__(self, config: PaperConfig) -> None:
        super().__init__()
        self.config = config
        d, h = config.features, config.heads
        classes = len(DIFFUSIONS) if config.positions == "laplacian" else config.distances
        self.embed = nn.Linear(8, d)
        self.refresh = nn.Linear(3, d)
        self.layers = nn.ModuleList(
            EncoderLayer(d, h, classes, EDGES + 1) for _ in range(config.layers)
        )
        self.again = EncoderLayer(d, h, classes, EDGES + 1)
        self.score = nn.Linear(d, 1, bias=False)
        self.kappa = nn.Parameter(torch.ones(()))
        self.correct = Corrections(d, config.hidden, config.rank)
        self.found = nn.Linear(4, d)
        self.cross = CrossLayer(d, h, ROW_FEATURES)
        self.head = Head(d)
        nn.init.normal_(self.score.weight, std=0.1 * d**-0.5)

    def refuse(self, largest_table: int, most_states: int, variables: int, arity: int) -> str:
        """Why a model cannot be taken, or nothing."""
        if most_states > MOST_STATES:
            return f"variables (auxiliary ones for large factors) of up to {MOST_STATES} states"
        if variables * most_states > MOST_TOKENS:
            return f"up to {MOST_TOKENS} states in all, padded to the largest variable"
        return ""

    def prepare(self, batch: Batch, deadline: Deadline | None = None) -> Form:
        """Dense tables, and the first pass."""
        tables = tables_of(batch, deadline)
        b, n, k = batch.sizes
        nothing = tables.adjacency.new_zeros(b, n, n)
        static = nothing[..., None][..., :0]
        if self.config.positions == "laplacian":
            static = heat_kernels(tables.adjacency)
        if k > 2 or not self.config.two_passes:
            return Form(tables, dense_beliefs(tables), nothing, static)
        spins = spins_of(batch, deadline)
        up = 0.5 * (1.0 + spins.mean)
        first = torch.stack([up, 1.0 - up], -1) * batch.states
        return Form(tables, first / first.sum(-1, keepdim=True), spins.correlation, static)

    def noise(self, models: int, variables: int) -> tuple[int, ...]:
        """Noise on the choice of the variable at each step."""
        return models, max(variables - self.config.core, 1), variables

    def forward(
        self, form: Form, draws: Draws | None = None, deadline: Deadline | None = None
    ) -> Tensor:
        """Concentrations (b n k), zero for states that do not exist.

        Parameters
        ----------
        draws
            Noise on the choices: in training, or to draw other orders.
        deadline
            Moment after which the run is left at its next step, by `OutOfTime`.
        """
        sweep: Sweep[_Live, _Gone] = Sweep.of(self._start(form, deadline))
        steps = form.tables.exists.shape[1] - self._core(form.tables.exists)
        if self.config.steps is not None:
            steps = min(steps, self.config.steps)
        every = self.config.encode_every

        def eliminate(live: _Live, t: int) -> tuple[_Gone, _Live, Tensor, Tensor]:
            return self._eliminate(live, t, draws)

        eliminated(sweep, steps, eliminate, self._encode_again, every, deadline)
        return self._distribute(sweep.live, sweep.tape, sweep.lost, deadline)

    def _core(self, states: Tensor, total: int | None = None) -> int:
        """Variables that are left when elimination stops, of models of these states (b n k)."""
        n = states.shape[1] if total is None else total
        return max(self.config.core, core_size(states.shape[2], n, self.config.core_states))

    def _start(self, form: Form, deadline: Deadline | None) -> _Live:
        x = form.tables
        strength = strengths(x.tables, x.exists)
        k = x.exists.shape[2]
        per_variable = torch.stack(
            [
                x.adjacency.sum(-1).log1p(),
                (strength**2).sum(-1).log1p(),
                x.exists.sum(-1).log(),
                x.own,
            ],
            -1,
        )[:, :, None].expand(-1, -1, k, -1)
        first = form.first * x.exists
        known = [torch.log(first + SMALLEST) * x.exists, first]
        per_state = torch.stack([*input_states(x.unary, x.exists), *known], -1)
        tokens = self.embed(torch.cat([per_state, per_variable], -1))
        links = [x.adjacency, x.distances, form.correlation, *form.kernels.unbind(-1)]
        ids = torch.arange(x.real.shape[1], device=tokens.device).to(tokens.dtype)
        singles = torch.stack([x.real, ids.expand_as(x.real)], -1)
        fixed = torch.cat([x.exists, first, singles], -1)
        live = _Live(x.tables, x.unary, torch.stack(links, -1), tokens, fixed)
        edges, classes = self._edges(live), self._classes(live)
        for layer in self.layers:
            check(deadline)
            tokens = layer(tokens, edges, classes, x.exists * x.real[:, :, None])
        return live._replace(tokens=tokens)

    def _edges(self, live: _Live) -> Tensor:
        """Features (b 6 n k n k) of token pairs."""
        states = live.states
        usual = edge_features(live.tables, states, strengths(live.tables, states))
        n, k = states.shape[1:]
        correlation = live.links[..., 2]
        if k == 2:
            s = closed_form.signs_like(correlation)
            together = (s[:, None] * s).view(2, 1, 2)
            last = correlation[:, :, None, :, None] * together
        else:
            last = correlation[:, :, None, :, None].expand(-1, n, k, n, k)
        return torch.cat([usual, last[:, None]], 1)

    def _classes(self, live: _Live) -> Tensor:
        """What the position bias reads (b c n n): one-hot distances, or the static kernels."""
        if self.config.positions == "laplacian":
            return live.links[..., 3:].permute(0, 3, 1, 2)
        classes = distance_classes(live.links[..., 1], self.config.distances)
        return classes if self.config.positions != "none" else torch.zeros_like(classes)

    def _encode_again(self, live: _Live, started: Tensor) -> _Live:
        """Encode what is left; graphs of which only padding has gone are left as they are."""
        states = live.states
        degree = live.links[..., 0].sum(-1).log1p()[:, :, None].expand_as(states)
        news = torch.stack([*input_states(live.unary, states), degree], -1)
        tokens = self.again(
            live.tokens + self.refresh(news),
            self._edges(live),
            self._classes(live),
            states * live.real[:, :, None],
        )
        started = started[:, None, None, None]
        return live._replace(tokens=torch.where(started > 0, tokens, live.tokens))

    def _choose(
        self, live: _Live, t: int, draws: Draws | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One-hot choice (b n), what it loses, effective neighbours, 1 with its gradient (b each).

        Straight-through: what the chosen variable sends is multiplied by 1 + π − stop(π), π its
        Gumbel-Softmax probability (eq. gumbel), so that the score learns whether more would help.
        """
        order = self.config.train_order if self.training else self.config.order
        noise = None if draws is None else gumbel(draws.uniform[:, t, : live.real.shape[1]])
        with torch.no_grad():
            strength = strengths(live.tables, live.states)
            degree = live.links[..., 0].sum(-1)
            loss = inexactness(strength, live.links[..., 0])
            weak = strength.sum(-1) + 0.01 * torch.softmax(live.unary, -1).amax(-1)
            cheap = -torch.log(loss + SMALL_LOSS)
        pooled = (live.tokens * live.states[..., None]).sum(2) / live.states.sum(-1)[..., None]
        score = self.score(pooled)[..., 0] + self.kappa * cheap
        if order == "min-degree":
            key = 0.01 * cheap - degree
        elif order == "random":
            key = _fixed_draw(live) if noise is None else noise
        else:
            key = score if order == "learned" else cheap
            key = key if noise is None else key + noise
        with torch.no_grad():
            if order != "random":  # what loses nothing goes first, the weakest of it
                key = torch.where(loss > 0, key, SURE + 1.0 / (1.0 + weak))
            key = torch.where(live.real > 0, key, 2.0 * SURE)
            pick = one_hot(key.argmax(1), key.shape[1]).to(key.dtype)
            lost, near = taken(loss, pick), effective(taken(strength, pick))
        sent = torch.ones_like(lost)
        if order == "learned" and draws is not None and noise is not None:
            soft = (score + noise) / draws.temperature + 1e4 * (live.real - 1.0)
            pi = taken(torch.softmax(soft, 1), pick) * (lost > 0)  # not where nothing was chosen
            sent = sent + pi - pi.detach()
        return pick, lost, near, sent

    def _eliminate(
        self, live: _Live, t: int, draws: Draws | None
    ) -> tuple[_Gone, _Live, Tensor, Tensor]:
        """Take one variable out; how inexact that is (b), and whether it was no padding (b)."""
        pick, loss, near, sent = self._choose(live, t, draws)
        fixed, links = taken(live.fixed, pick), rest(taken(live.links, pick), pick)
        left = _Live(
            rest(rest(live.tables, pick).permute(0, 3, 4, 1, 2), pick),
            rest(live.unary, pick),
            rest(rest(live.links, pick).transpose(1, 2), pick),
            rest(live.tokens, pick),
            rest(live.fixed, pick),
        )
        k = live.unary.shape[2]
        own, unary, present = taken(live.tokens, pick), taken(live.unary, pick), links[..., 0]
        row = rest(taken(live.tables, pick).transpose(1, 2), pick)
        known = within(near, self.config.most_near) ** 2
        amount = _within(loss, self.config.most_step) * known
        amount = amount if self.config.corrected else torch.zeros_like(loss)
        step = self.correct(own, row, fixed[:, :k], present, left.tokens, left.unary, left.states)
        on = amount[:, None, None]
        field = left.unary * (TRUST * torch.exp(on * step.trust)) + on * step.tilt
        beliefs = beliefs_of(field, left.states)
        corrected = row + on[..., None] * step.table
        exact = star(corrected, unary + amount[:, None] * step.unary, beliefs)
        new, force = self._left_behind(exact, corrected, unary, fixed[:, :k], beliefs, links, left,
                                       step, amount, present)  # fmt: skip
        # a table is known up to a constant; without it, sums over many steps stay small
        force = force - (force * beliefs).sum(-1, keepdim=True)
        sent = sent[:, None, None]
        adjacency = torch.maximum(left.links[..., 0], _pairs(present))
        distances = left.links[..., 1]
        if self.config.positions != "static":
            distances = after_elimination(distances, links[..., 1])
        stacked = torch.cat([torch.stack([adjacency, distances], -1), left.links[..., 2:]], -1)
        gone = _Gone(row, present, left.ids, unary, own, fixed[:, :k], fixed[:, k:-2],
                     fixed[:, -1].long(), exact.weight, loss * known)  # fmt: skip
        left = left._replace(
            tables=left.tables + new * sent[..., None, None],
            unary=left.unary + force * (present[:, :, None] * left.states) * sent,
            links=stacked,
            tokens=left.tokens + step.message * sent[..., None],
        )
        return gone, left, loss, fixed[:, -2]

    def _left_behind(
        self, exact: Star, row: Tensor, unary: Tensor, own: Tensor, beliefs: Tensor, links: Tensor,
        left: _Live, step: "_Step", amount: Tensor, present: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Pair tables (b n k n k) and fields (b n k) read off the train that is left behind."""
        on = amount[:, None, None]
        states, pairs = left.states, _pairs(present)
        both = states[:, :, :, None, None] * states[:, None, None]
        gate = torch.exp(on * (step.gate[:, :, None] + step.gate[:, None])) * pairs
        gate = gate[:, :, None, :, None] * both
        if self.config.factors == "free":
            found = _free(exact, step)
            new = new_tables(found) * gate
            return new, found.gain - compensation(new, found.gain, beliefs)
        added: Tensor | float = 0.0
        if self.config.factors == "train":
            wider = _wider(exact, step)
            added = on[..., None, None] * (new_tables(wider) - new_tables(exact))
        if states.shape[2] == 2:
            s = closed_form.signs_like(unary)
            field = 0.5 * ((unary + amount[:, None] * step.unary) * s).sum(-1)
            bond = torch.exp(on[..., 0] * step.bond)
            correlation = left.links[..., 2] * (bond[:, :, None] * bond[:, None])
            new, force = _project(row, field, beliefs, present, correlation)
            new = (new + added) * gate
            moved = torch.einsum("bjxky,bky->bjx", new, beliefs)
            return new, force + on * step.force - moved
        screened = screening(exact, own.sum(-1), present)
        new = (new_tables(exact) + added) * gate * screened[:, :, None, :, None]
        return new, exact.gain + on * step.force - compensation(new, exact.gain, beliefs)

    def _distribute(
        self, live: _Live, tape: list[_Gone], lost: Tensor, deadline: Deadline | None
    ) -> Tensor:
        """Concentrations of all variables, in their original order."""
        total = live.unary.shape[1] + len(tape)
        states = live.states
        if live.unary.shape[1] <= self._core(live.unary, total):
            found = enumerate_core(live.tables, live.unary)
        else:
            found = _rest_by_messages(live)
        tokens = live.tokens + self._news(found[0], live.first, states)
        learned = _within(lost, self.config.most_total)
        if tape:
            trusted = torch.stack([gone.trusted for gone in tape]).sum(0)[:, None]
            learned = learned * trusted / lost.clamp(min=TINY)
        alpha = self.head(tokens, found[0], states, lost, learned)
        marginals = alpha / alpha.sum(-1, keepdim=True)
        covariance = moved_covariance(found[1], found[0], marginals, learned)
        back = _Back(marginals, covariance, states, tokens, live.ids)

        def put_back(gone: _Gone, back: _Back) -> tuple[_Back, Tensor]:
            if self.config.distribute:
                return self._put_back(gone, back, lost, learned, total)
            # Algorithm 1 to the letter: what goes never gets anything from the rest
            own = gone.tokens + self._news(gone.alone, gone.first, gone.states)
            alone, mine = gone.alone[:, None], gone.states[:, None]
            alpha = self.head(own[:, None], alone, mine, lost, learned)
            return back._replace(ids=torch.cat([gone.id[:, None], back.ids], 1)), alpha

        return brought_back(back, alpha, tape, put_back, deadline)

    def _put_back(
        self, gone: _Gone, back: _Back, lost: Tensor, learned: Tensor, total: int
    ) -> tuple[_Back, Tensor]:
        """One variable in front of those that are back, and its concentrations (b 1 k)."""
        place = positions(gone.left, back.ids, total)
        k = gone.row.shape[2]
        row = gone.row.gather(1, place[:, :, None, None].expand(-1, -1, k, k))
        present = gone.present.gather(1, place)
        found, cross = _restored(row, gone.unary, back, present)
        states = gone.states[:, None]
        own = gone.tokens + self._news(found, gone.first, gone.states)
        near = present[:, :, None] * back.states
        own = self.cross(own, back.tokens, row_features(row, gone.states, near), near)
        alpha = self.head(own[:, None], found[:, None], states, lost, learned)
        new = alpha / alpha.sum(-1, keepdim=True)  # b 1 k
        cross = moved_covariance(cross[:, None], found[:, None], new, learned, both=False)[:, 0]
        grown = _Back(
            torch.cat([new, back.marginals], 1),
            bordered(new[:, 0], cross, back.covariance),
            torch.cat([states, back.states], 1),
            torch.cat([own[:, None], back.tokens], 1),
            torch.cat([gone.id[:, None], back.ids], 1),
        )
        return grown, alpha

    def _news(self, p: Tensor, first: Tensor, states: Tensor) -> Tensor:
        """Token part (… k d) for what the algebra found, now and in its first pass."""
        log = torch.log(p + SMALLEST) * states
        before = torch.log(first + SMALLEST) * states
        out: Tensor = self.found(torch.stack([log, p, log - before, p - first], -1))
        return out


def effective(strength: Tensor) -> Tensor:
    """Effective number of neighbours (Σ t²)²/Σ t⁴ of strengths t (… n): d for d equal ones."""
    square = strength * strength
    return square.sum(-1) ** 2 / (square * square).sum(-1).clamp(min=TINY)


def _within(loss: Tensor, most: float) -> Tensor:
    """Part of the corrections that counts: `share`, falling as 1/loss beyond `most`."""
    return share(loss) * within(loss, most)


def _fixed_draw(live: _Live) -> Tensor:
    """Numbers (b n) of the remaining variables whose order is random, the same in every batch."""
    drawn = np.random.default_rng(0).random(int(live.ids.max()) + 1)
    return torch.from_numpy(drawn).to(live.real)[live.ids]


def _rest_by_messages(live: _Live) -> tuple[Tensor, Tensor]:
    """Marginals and covariances, those of different variables unknown, of what is left."""
    distances = live.links[..., 1]
    left = Tables(live.tables, live.unary, live.states, live.real, live.real,
                  live.links[..., 0], distances, live.unary, live.real)  # fmt: skip
    p = dense_beliefs(left)
    own = torch.diag_embed(p) - p[..., None] * p[:, :, None]  # b n k k
    same = torch.eye(p.shape[1], device=p.device, dtype=p.dtype)[:, None, :, None]
    return p, own[:, :, :, None] * same


def _pairs(present: Tensor) -> Tensor:
    """1 for pairs of different neighbours (b n n)."""
    pairs = present[:, :, None] * present[:, None]
    return pairs * (1.0 - torch.eye(pairs.shape[1], device=pairs.device, dtype=pairs.dtype))


def _free(exact: Star, step: "_Step") -> Star:
    """Train that is predicted from scratch, as the paper describes."""
    weight = torch.softmax(step.share, -1)
    mean = (step.cores * weight[:, None, :, None]).sum(2)
    return exact._replace(likelihood=step.cores, weight=weight, gain=torch.log(mean + TINY))


def _wider(exact: Star, step: "_Step") -> Star:
    """The star with predicted bond states beside those of the eliminated variable.

    φ = Σ_s w_s Π_k L_s(x_k) is a train of diagonal cores G_k[x] = diag(L_s(x)), non-negative as a
    softplus made it; its bond is the number of s.
    """
    weight = torch.cat([exact.weight, torch.exp(step.share + RARE)], -1)
    weight = weight / weight.sum(-1, keepdim=True)
    likelihood = torch.cat([exact.likelihood, step.cores], 2)
    mean = (likelihood * weight[:, None, :, None]).sum(2)
    return exact._replace(likelihood=likelihood, weight=weight, gain=torch.log(mean + TINY))


def _project(
    row: Tensor, field: Tensor, beliefs: Tensor, present: Tensor, correlation: Tensor
) -> tuple[Tensor, Tensor]:
    """Closed form of spins as tables (b n 2 n 2) and fields (b n 2), without their product."""
    coupling, on_own, on_other = (row.flatten(2) @ _basis(row)).unbind(-1)
    s = closed_form.signs_like(field)
    force, new = closed_form.project(
        coupling * present,
        field + (on_own * present).sum(1),
        (beliefs * s).sum(-1),
        present,
        correlation,
    )
    tables = new[:, :, None, :, None] * (s[:, None] * s).view(2, 1, 2)
    return tables, (force + on_other)[..., None] * s


def _basis(like: Tensor) -> Tensor:
    """Coupling, field of the first and field of the second spin of a flat 2×2 table (4 3)."""
    rows = (0.25, 0.25, 0.25, -0.25, 0.25, -0.25, -0.25, -0.25, 0.25, 0.25, -0.25, -0.25)
    return closed_form.constant(rows, like.device, like.dtype).view(4, 3)


def _restored(row: Tensor, unary: Tensor, back: _Back, present: Tensor) -> tuple[Tensor, Tensor]:
    """p(x_v) (b v) of a variable that is put back, and its covariances (b v n k)."""
    if unary.shape[1] > 2:
        return restore(row, unary, back.marginals, back.covariance, present)
    s = closed_form.signs_like(unary)
    half, cov = closed_form.restore(
        (row.flatten(2) @ _basis(row)[:, 0]) * present,
        (0.5 * (unary * s).sum(-1)).clamp(-40.0, 40.0),
        (back.marginals * s).sum(-1),
        torch.einsum("bnxmy,x,y->bnm", back.covariance, s, s),
    )
    p = torch.sigmoid(2.0 * half[:, None] * s)
    return p, 0.25 * cov[:, None, :, None] * (s[:, None, None] * s)


class _Step(NamedTuple):
    """Learned parts of one elimination."""

    table: Tensor  # b n v k    added to Θ_vl: corrections of the star's cores
    unary: Tensor  # b v    added to θ_v
    tilt: Tensor  # b n k    added to the logs of the beliefs
    trust: Tensor  # b n 1    log factor on the field part of the beliefs
    gate: Tensor  # b n    log factor on new tables
    bond: Tensor  # b n    log factor on correlations
    force: Tensor  # b n k    added to the fields
    cores: Tensor  # b n r k    predicted bond states of the train, positive
    share: Tensor  # b r    logs of their weights
    message: Tensor  # b n k d    added to the neighbours' tokens


class Corrections(nn.Module):
    """Predicts the train that an eliminated variable leaves behind (PredictTTCores).

    Paper: a linear map from the node's embedding; here one hidden layer of both tokens and the
    edge, because cores are indexed by state and shared over places.
    """

    def __init__(self, features: int, hidden: int, rank: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.own = nn.Linear(features, hidden)
        self.other = nn.Linear(features, hidden)
        self.edge = nn.Linear(ROW_FEATURES, hidden)
        self.news = nn.Linear(2, hidden)
        self.pair = nn.Linear(hidden, 5)  # table, force, trust, gate, bond
        self.single = nn.Linear(features, 1)
        self.tilt = nn.Linear(features, 1)
        self.core = nn.Linear(hidden, rank)
        self.share = nn.Linear(features, rank)
        self.message = nn.Linear(hidden, features, bias=False)
        for layer in (self.pair, self.single, self.tilt, self.share):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self, own: Tensor, row: Tensor, own_states: Tensor, present: Tensor, others: Tensor,
        unary: Tensor, states: Tensor,
    ) -> _Step:  # fmt: skip
        """Learned parts for a variable of tokens b v d that goes.

        Parameters
        ----------
        row, own_states
            Its tables (b n v k) and states (b v).
        present
            1 for its neighbours (b n).
        others, unary, states
            Tokens (b n k d), θ (b n k) and states (b n k) of those that stay.
        """
        own, others = self.norm(own), self.norm(others)
        near = present[:, :, None] * states
        edges = row_features(row, own_states, near)
        news = self.news(torch.stack(input_states(unary, states), -1))
        hidden = functional.gelu(
            self.own(own)[:, None, :, None]
            + (self.other(others) + news)[:, :, None]
            + self.edge(edges.permute(0, 3, 2, 4, 1))
        )  # b n v k c
        both = (own_states[:, None, :, None] * near[:, :, None])[..., None]  # b n v k 1
        hidden = hidden * both
        pair = self.pair(hidden) * both
        table, push, *whole = pair.unbind(-1)
        mean = torch.stack(whole, -1).sum((2, 3)) / both.sum((2, 3)).clamp(min=1.0)  # b n 3
        trust, gate, bond = mean.clamp(-3.0, 3.0).unbind(-1)
        count = own_states.sum(-1)[:, None, None]  # b 1 1
        on_state = hidden.sum(2) / count[..., None]  # b n k c
        pooled = (own * own_states[..., None]).sum(1) / count[:, 0]  # b d
        cores = functional.softplus(self.core(on_state)).transpose(2, 3) * states[:, :, None]
        # mean one under flat beliefs; variables that are no neighbours hand the bond on unchanged
        scale = cores.sum(-1, keepdim=True) / states.sum(-1)[:, :, None, None]
        cores = torch.where(present[:, :, None, None] > 0, cores / (scale + TINY), 1.0)
        return _Step(
            table=table,
            unary=self.single(own)[..., 0] * own_states,
            tilt=self.tilt(others)[..., 0] * states,
            trust=trust[..., None],
            gate=gate.clamp(max=1.0),
            bond=bond.clamp(max=1.0),
            force=push.sum(2) / count,
            cores=cores,
            share=self.share(pooled).clamp(-6.0, 6.0),
            message=self.message(on_state),
        )


class Head(nn.Module):
    """α_x = e^c (softplus(W z_x) + 10⁻³) · K p_x for K states, p what the algebra found.

    Paper: softplus(W h + b) + 10⁻³ of the token alone; here the token corrects p, as far as the
    algebra was inexact, and a scale of its own lets α₀ reach 10³ without large weights.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1, bias=False)
        self.scale = nn.Linear(features + 1, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.scale.weight)
        nn.init.constant_(self.scale.bias, math.log(20.0))

    def forward(
        self, tokens: Tensor, p: Tensor, states: Tensor, lost: Tensor, learned: Tensor
    ) -> Tensor:
        """Concentrations (b n k).

        Parameters
        ----------
        lost, learned
            Inexactness of the elimination, and how far the token may move the mean (b 1).
        """
        count = states.sum(-1, keepdim=True)
        pooled = (tokens * states[..., None]).sum(2) / count
        inexact = torch.log(lost + SMALL_LOSS)[..., None].expand(-1, pooled.shape[1], -1)
        scale = self.scale(torch.cat([pooled, inexact], -1)).clamp(-MOST_LOG_SCALE, MOST_LOG_SCALE)
        correction = self.linear(tokens)[..., 0] * learned[..., None]
        shape = (functional.softplus(correction) + FLOOR) * (count * p)
        return (torch.exp(scale) * states) * shape.clamp(min=1e-7)
