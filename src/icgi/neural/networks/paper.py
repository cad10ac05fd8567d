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
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from icgi.clock import Deadline
from icgi.errors import CheckpointError
from icgi.neural import closed_form
from icgi.neural.arrange import DIFFUSIONS, heat_kernels
from icgi.neural.batch import Batch, spins_of, tables_of
from icgi.neural.elimination import Sweep, brought_back, eliminated, within
from icgi.neural.encoder import CrossLayer, EncoderLayer, distance_classes
from icgi.neural.general_algebra import (
    TINY,
    beliefs_of,
    enumerate_core,
    inexactness,
    star,
    strengths,
)
from icgi.neural.general_batch import MOST_STATES, Tables, core_size
from icgi.neural.general_parts import (
    EDGES,
    ROW_FEATURES,
    SMALLEST,
    edge_features,
    input_states,
    moved_covariance,
    row_features,
)
from icgi.neural.messages import dense_beliefs
from icgi.neural.networks import Draws, gumbel
from icgi.neural.networks.paper_state import Back, Gone, Left
from icgi.neural.networks.paper_step import (
    SMALL_LOSS,
    Corrections,
    Head,
    effective,
    faded,
    left_behind,
    pairs_of,
    restored,
)
from icgi.neural.pace import check
from icgi.neural.shrink import between, entry, rows

Order = Literal["least-loss", "min-degree", "learned", "random"]
Factor = Literal["train", "star", "free"]
Position = Literal["spd", "static", "laplacian", "none"]

TRUST = 0.5  # of a variable's own fields as its belief, while the rest of the model is not known
MOST_TOKENS = 2048  # variables, auxiliaries included, times states
FEWER = 0.75  # share of places in use from which holes are closed
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
    encode_every: int = 4  # eliminations between two encodings of what is left, at least
    encodings: int | None = None  # most of them; none: after every so many eliminations
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
    # states of a variable beyond which the head moves no mean: it was not trained on more
    most_states: int | None = None
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

    @property
    def inexactness(self) -> Tensor:
        """What eliminating a variable first would lose, on average over the variables (b)."""
        x = self.tables
        lost = inexactness(strengths(x.tables, x.exists), x.adjacency) * x.real
        return lost.sum(1) / x.real.sum(1)

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
        sweep: Sweep[Left, Gone] = Sweep.of(self._start(form, deadline))
        steps = form.tables.exists.shape[1] - self._core(form.tables.exists)
        if self.config.steps is not None:
            steps = min(steps, self.config.steps)
        every = self.config.encode_every
        if self.config.encodings is not None:
            every = max(every, math.ceil(steps / max(self.config.encodings, 1)))

        def eliminate(live: Left, t: int) -> tuple[Gone, Left, Tensor, Tensor]:
            return self._eliminate(live, t, draws)

        def encode(live: Left, started: Tensor) -> Left:
            if live.size % every == 0 and self.config.encodings != 0:
                return self._encode_again(live.dense(), started)
            return live.dense() if live.size < FEWER * live.here.shape[1] else live

        eliminated(sweep, steps, encode=encode, eliminate=eliminate, every=1, deadline=deadline)
        return self._distribute(sweep.live.dense(), sweep.tape, sweep.lost, deadline)

    def _core(self, states: Tensor, total: int | None = None) -> int:
        """Variables that are left when elimination stops, of models of these states (b n k)."""
        n = states.shape[1] if total is None else total
        return max(self.config.core, core_size(states.shape[2], n, self.config.core_states))

    def _start(self, form: Form, deadline: Deadline | None) -> Left:
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
        ids = torch.arange(x.real.shape[1], device=tokens.device).to(tokens.dtype)
        singles = torch.stack([x.real, ids.expand_as(x.real)], -1)
        fixed = torch.cat([x.exists, first, singles], -1)
        live = Left(
            x.tables, x.unary, x.adjacency, x.distances, form.correlation, form.kernels, tokens,
            fixed, strength, x.real, torch.ones_like(x.real), x.real.shape[1],
        ).measured()  # fmt: skip
        if not torch.is_grad_enabled():  # steps write in place
            live = live._replace(tables=x.tables.clone(), unary=x.unary.clone(),
                                 adjacency=x.adjacency.clone(),
                                 distances=x.distances.clone())  # fmt: skip
        edges, classes = self._edges(live), self._classes(live)
        for layer in self.layers:
            check(deadline)
            tokens = layer(tokens, edges, classes, x.exists * x.real[:, :, None])
        return live._replace(tokens=tokens)

    def _edges(self, live: Left) -> Tensor:
        """Features (b 6 n k n k) of token pairs."""
        states = live.states
        graded = torch.is_grad_enabled()  # the strengths that are kept have no gradient
        strength = strengths(live.tables, states) if graded else live.strength
        usual = edge_features(live.tables, states, strength)
        n, k = states.shape[1:]
        correlation = live.correlation
        if k == 2:
            s = closed_form.signs_like(correlation)
            together = (s[:, None] * s).view(2, 1, 2)
            last = correlation[:, :, None, :, None] * together
        else:
            last = correlation[:, :, None, :, None].expand(-1, n, k, n, k)
        return torch.cat([usual, last[:, None]], 1)

    def _classes(self, live: Left) -> Tensor:
        """What the position bias reads (b c n n): one-hot distances, or the static kernels."""
        if self.config.positions == "laplacian":
            return live.kernels.permute(0, 3, 1, 2)
        if self.config.positions == "none":
            nothing = live.distances[:, None]
            return torch.zeros_like(nothing).expand(-1, self.config.distances, -1, -1)
        return distance_classes(live.distances, self.config.distances)

    def _encode_again(self, live: Left, started: Tensor) -> Left:
        """Encode what is left; graphs of which only padding has gone are left as they are."""
        states = live.states
        degree = live.adjacency.sum(-1).log1p()[:, :, None].expand_as(states)
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
        self, live: Left, t: int, draws: Draws | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The choice (b), what it loses, effective neighbours, 1 with its gradient (b each).

        Straight-through: what the chosen variable sends is multiplied by 1 + π − stop(π), π its
        Gumbel-Softmax probability (eq. gumbel), so that the score learns whether more would help.
        """
        order = self.config.train_order if self.training else self.config.order
        noise = None if draws is None else gumbel(draws.uniform[:, t, : live.real.shape[1]])
        loss, degree, weak = live.cost.unbind(-1)
        cheap = -torch.log(loss + SMALL_LOSS)
        if order == "min-degree":
            key = 0.01 * cheap - degree
        elif order == "random":
            key = _fixed_draw(live) if noise is None else noise
        else:
            score = self._score(live, cheap) if order == "learned" else cheap
            key = score if noise is None else score + noise
        with torch.no_grad():
            if order != "random":  # what loses nothing goes first, the weakest of it
                key = torch.where(loss > 0, key, SURE + 1.0 / (1.0 + weak))
            key = torch.where(live.real > 0, key, 2.0 * SURE)
            key = torch.where(live.here > 0, key, -math.inf)
            v = key.argmax(1)
            lost, near = entry(loss, v), effective(entry(live.strength, v))
        sent = torch.ones_like(lost)
        if order == "learned" and draws is not None and noise is not None:
            soft = (score + noise) / draws.temperature + 1e4 * (live.real * live.here - 1.0)
            pi = entry(torch.softmax(soft, 1), v) * (lost > 0)  # not where nothing was chosen
            sent = sent + pi - pi.detach()
        return v, lost, near, sent

    def _score(self, live: Left, cheap: Tensor) -> Tensor:
        pooled = (live.tokens * live.states[..., None]).sum(2) / live.states.sum(-1)[..., None]
        score: Tensor = self.score(pooled)[..., 0] + self.kappa * cheap
        return score

    def _eliminate(
        self, live: Left, t: int, draws: Draws | None
    ) -> tuple[Gone, Left, Tensor, Tensor]:
        """Take one variable out; how inexact that is (b), and whether it was no padding (b)."""
        v, loss, near, sent = self._choose(live, t, draws)
        linked = entry(live.adjacency, v)
        at = live.around(v, linked)
        left, present = live.near(at), rows(linked, at)
        k = live.unary.shape[2]
        fixed, own, unary = (entry(x, v) for x in (live.fixed, live.tokens, live.unary))
        row = rows(entry(live.tables, v).transpose(1, 2), at)
        known = within(near, self.config.most_near) ** 2
        amount = faded(loss, self.config.most_step) * known
        amount = amount if self.config.corrected else torch.zeros_like(loss)
        step = self.correct(own, row, fixed[:, :k], present, left.tokens, left.unary, left.states)
        on = amount[:, None, None]
        field = left.unary * (TRUST * torch.exp(on * step.trust)) + on * step.tilt
        beliefs = beliefs_of(field, left.states)
        corrected = row + on[..., None] * step.table
        exact = star(corrected, unary + amount[:, None] * step.unary, beliefs)
        new, force = left_behind(self.config.factors, exact, corrected, unary, fixed[:, :k],
                                 beliefs, left.correlation, left.states, step, amount,
                                 present)  # fmt: skip
        # a table is known up to a constant; without it, sums over many steps stay small
        force = force - (force * beliefs).sum(-1, keepdim=True)
        gone = Gone(row, present, left.ids, unary, own, fixed[:, :k], fixed[:, k:-2],
                    fixed[:, -1].long(), exact.weight, loss * known)  # fmt: skip
        sent = sent[:, None, None]
        left = left._replace(
            tables=left.tables + new * sent[..., None, None],
            unary=left.unary + force * (present[:, :, None] * left.states) * sent,
            adjacency=torch.maximum(left.adjacency, pairs_of(present)),
            tokens=left.tokens + step.message * sent[..., None],
        )
        static = self.config.positions == "static"
        return gone, live.without(v, at, left, static=static), loss, fixed[:, -2]

    def _distribute(
        self, live: Left, tape: list[Gone], lost: Tensor, deadline: Deadline | None
    ) -> Tensor:
        """Concentrations of all variables, in their original order."""
        total = live.unary.shape[1] + len(tape)
        states = live.states
        if live.unary.shape[1] <= self._core(live.unary, total):
            found = enumerate_core(live.tables, live.unary)
        else:
            found = _rest_by_messages(live)
        tokens = live.tokens + self._news(found[0], live.first, states)
        learned = faded(lost, self.config.most_total)
        if tape:
            trusted = torch.stack([gone.trusted for gone in tape]).sum(0)[:, None]
            learned = learned * trusted / lost.clamp(min=TINY)
        most = self.config.most_states
        if most is not None and live.unary.shape[2] > most:
            learned = torch.zeros_like(learned)
        alpha = self.head(tokens, found[0], states, lost, learned)
        marginals = alpha / alpha.sum(-1, keepdim=True)
        covariance = moved_covariance(found[1], found[0], marginals, learned)
        back = Back.of(total, live.ids, marginals, covariance, states, tokens)

        def put_back(gone: Gone, back: Back) -> tuple[Back, Tensor]:
            if self.config.distribute:
                return self._put_back(gone, back, lost, learned)
            # Algorithm 1 to the letter: what goes never gets anything from the rest
            own = gone.tokens + self._news(gone.alone, gone.first, gone.states)
            alone, mine = gone.alone[:, None], gone.states[:, None]
            alpha = self.head(own[:, None], alone, mine, lost, learned)
            return back._replace(ids=torch.cat([gone.id[:, None], back.ids], 1)), alpha

        return brought_back(back, alpha, tape, put_back, deadline)

    def _put_back(
        self, gone: Gone, back: Back, lost: Tensor, learned: Tensor
    ) -> tuple[Back, Tensor]:
        """One variable more that is back, and its concentrations (b 1 k)."""
        around, states = rows(back.states, gone.near), gone.states[:, None]
        known = gone.present[:, :, None] * gone.present[:, None]  # others have no covariances
        covariance = between(back.covariance, gone.near, 3) * known[:, :, None, :, None]
        marginals = rows(back.marginals, gone.near)
        found, cross = restored(gone.row, gone.unary, marginals, covariance, gone.present)
        own = gone.tokens + self._news(found, gone.first, gone.states)
        near = gone.present[:, :, None] * around
        edges = row_features(gone.row, gone.states, near)
        own = self.cross(own, rows(back.tokens, gone.near), edges, near)
        alpha = self.head(own[:, None], found[:, None], states, lost, learned)
        new = alpha / alpha.sum(-1, keepdim=True)  # b 1 k
        cross = moved_covariance(cross[:, None], found[:, None], new, learned, both=False)[:, 0]
        return back.grown(gone.id, gone.near, new[:, 0], cross, gone.states, own), alpha

    def _news(self, p: Tensor, first: Tensor, states: Tensor) -> Tensor:
        """Token part (… k d) for what the algebra found, now and in its first pass."""
        log = torch.log(p + SMALLEST) * states
        before = torch.log(first + SMALLEST) * states
        out: Tensor = self.found(torch.stack([log, p, log - before, p - first], -1))
        return out


def _fixed_draw(live: Left) -> Tensor:
    """Numbers (b n) of the remaining variables whose order is random, the same in every batch."""
    drawn = np.random.default_rng(0).random(int(live.ids.max()) + 1)
    return torch.from_numpy(drawn).to(live.real)[live.ids]


def _rest_by_messages(live: Left) -> tuple[Tensor, Tensor]:
    """Marginals and covariances, those of different variables unknown, of what is left."""
    left = Tables(live.tables, live.unary, live.states, live.real, live.real,
                  live.adjacency, live.distances, live.unary, live.real)  # fmt: skip
    p = dense_beliefs(left)
    own = torch.diag_embed(p) - p[..., None] * p[:, :, None]  # b n k k
    same = torch.eye(p.shape[1], device=p.device, dtype=p.dtype)[:, None, :, None]
    return p, own[:, :, :, None] * same
