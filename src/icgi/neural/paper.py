"""`icgi:paper`: the paper's network for any factor graph (Algorithm 1).

A Graph Transformer encodes the model. Round by round variables are chosen, the factors they leave
behind are predicted as tensor trains, fill-in and distances are updated and what is left is
encoded again. A distribute pass brings the variables back in reverse. The Dirichlet head reads the
tokens. Tokens are per (variable, state), weights are shared over states.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from icgi.clock import Deadline
from icgi.errors import CheckpointError
from icgi.neural.arrange import FAR, after_elimination
from icgi.neural.encoder_paper import (
    Attention,
    DistanceBias,
    LaplacianBias,
    PaperLayer,
    between_tokens,
    edge_features,
    heat_kernels,
    hidden_keys,
)
from icgi.neural.graphs import Graphs
from icgi.neural.heads import DirichletHead
from icgi.neural.local import (
    Active,
    BeliefHead,
    Messages,
    Potentials,
    all_active,
    beliefs,
    potentials,
    silence,
    state_mean,
)
from icgi.neural.pace import OutOfTime
from icgi.neural.predicted import FactorKind, Predictor
from icgi.neural.selection import Chosen, Order, Score, choose, keys

ABSENT = 1e-30  # concentration of states that do not exist; log Γ of it is finite
MOST_FILL = 10.0


@dataclass(frozen=True, slots=True)
class PaperConfig:
    """Sizes and switches of the network; stored next to its weights. The paper's where it says."""

    features: int = 256  # D
    heads: int = 8  # H, of attention and of message passing
    layers: int = 6  # of the encoder
    rank: int = 16  # bond dimension r
    expansion: int = 2  # width of the MLPs, in D
    hidden: int = 64  # width of the prediction of cores
    width: int = 16  # neighbours of one tensor train
    damping: float = 0.3  # of the sweeps of an untrained network
    rounds: int = 8  # of elimination
    at_once: int = 8  # variables of one round, where rounds are parallel
    order: Order = "min-degree"  # at test
    train_order: Order = "learned"
    factors: FactorKind = "tt"
    positions: Literal["spd", "laplacian"] = "spd"
    autoregressive: bool = True
    distribute: bool = True
    parallel_rounds: bool = True
    # what follows was added later: weights that do not say it were trained without
    attention: Attention = "variables"
    blocks: bool = False  # the bond of a train knows the eliminated variable's state
    readout: Literal["token", "belief"] = "token"
    spread: float = 0.0  # of the heads' damping before training
    repeats: int = 0  # of one further layer without elimination: the recurrent control

    def __post_init__(self) -> None:
        if self.features % self.heads or min(self.rank, self.layers, self.width) < 1:
            raise CheckpointError(
                "features must be a multiple of heads, and rank, layers and width at least 1"
            )
        if self.attention == "none" and self.autoregressive:
            raise CheckpointError("elimination needs attention; set autoregressive to false")


class Outcome(NamedTuple):
    """What a run found."""

    alpha: Tensor  # b n k    Dirichlet concentrations
    belief: Tensor  # b n k h    log beliefs of the message passing, not normalised
    eliminated: Tensor  # b    variables
    early: tuple[Tensor, ...] = ()  # concentrations after each layer, where they were asked for
    complete: bool = True  # whether there was time for all of it
    sweeps: int = 0  # layers that tokens passed through


class _Gone(NamedTuple):
    """One round: who went, and the graph they went from."""

    mask: Tensor  # b n
    active: Active  # messages that come back to them
    alive: Tensor  # b n    before the round
    position: Tensor  # distances before the round, or the static kernels
    model: Potentials  # before the round, with the fill-in of those that went earlier
    edges: Tensor | None  # features of its potentials


class PaperNetwork(nn.Module):
    """Dirichlet concentrations of every variable of a batch of factor graphs."""

    def __init__(self, config: PaperConfig) -> None:
        super().__init__()
        self.config = config
        self.low_precision = False  # bfloat16 in attention and MLPs; training on a GPU turns it on
        d, h = config.features, config.heads
        make = partial(
            PaperLayer, d, h, config.damping, config.expansion, config.spread, config.attention
        )
        self.embed = nn.Linear(9, d)
        self.layers = nn.ModuleList(make() for _ in range(config.layers))
        if config.attention != "none":
            spd = config.positions == "spd"
            self.bias = (DistanceBias if spd else LaplacianBias)(config.layers + 2, h)
        if config.autoregressive:
            self.score = Score(d)
            self.predict = Predictor(
                d, h, config.rank, config.hidden, config.width, config.factors, config.blocks
            )
            self.told = nn.Linear(2, d, bias=False)
            self.refresh = nn.Linear(1, d)
            if config.distribute:
                self.back = make()
        if config.autoregressive or config.repeats:
            self.again = make()
        self.norm = nn.LayerNorm(d)  # as any Transformer of this kind ends; keeps rates comparable
        self.head = BeliefHead(d, h) if config.readout == "belief" else DirichletHead(d)

    def forward(
        self,
        graphs: Graphs,
        noise: Tensor | None = None,
        temperature: Tensor | None = None,
        steps: int | None = None,
        early: bool = False,
    ) -> Tensor:
        """Concentrations (b n k), tiny for states that do not exist; see `run`.

        With `early` also what the head says after every layer, before the last (l b n k).
        """
        found = self.run(graphs, noise, temperature, steps, early)
        return torch.stack([*found.early, found.alpha]) if early else found.alpha

    def run(
        self,
        graphs: Graphs,
        noise: Tensor | None = None,
        temperature: Tensor | None = None,
        steps: int | None = None,
        early: bool = False,
        deadline: Deadline | None = None,
    ) -> Outcome:
        """Encode, eliminate, distribute, answer.

        Parameters
        ----------
        noise
            Gumbel noise (b t n), for as many rounds as there may be, in training; for random
            orders also at test.
        temperature
            τ of the relaxed choice; no gradient reaches the scores without it.
        steps
            Most variables to eliminate in each graph: partial elimination; as configured if absent.
        early
            Whether to answer after every layer too.
        deadline
            Moment after which no further layer begins; the answer is that of the tokens so far.
        """
        config = self.config
        model = potentials(graphs)
        active, real = all_active(graphs), graphs.real
        messages = silence(graphs, config.heads)
        tokens: Tensor = self.embed(_features(graphs))
        position, biases, edges = self._position(graphs), None, None
        if graphs.dense and config.attention != "none":
            biases = self.bias(position, slice(0, config.layers + 1)) + hidden_keys(real)
            features = self._edge_features(graphs.pairs, model)
            edges = None if features is None else between_tokens(features)
        after_layers: list[Tensor] = []
        layers = [*self.layers]
        if config.repeats and not config.autoregressive:
            layers += [self.again] * config.repeats
        late = partial(_late, deadline)
        sweeps = 0
        for number, layer in enumerate(layers):
            if late():
                break
            bias = None if biases is None else biases[min(number, config.layers)]
            try:
                tokens, messages = layer(
                    tokens, messages, model, active, bias, self.low_precision, edges, deadline
                )
            except OutOfTime:
                break
            sweeps += 1
            if early:
                after_layers.append(self._answer(graphs, model, tokens, messages))
        eliminated = torch.zeros_like(real[:, 0])
        if self.config.autoregressive and graphs.dense and not late():
            tokens, messages, left, tape, passed = self._eliminate(
                graphs, model, tokens, messages, position, noise, temperature, steps, deadline
            )
            eliminated = (real - left).sum(1)
            sweeps += passed
            if self.config.distribute:
                tokens, messages, passed = self._distribute(tokens, messages, tape, deadline)
                sweeps += passed
        alpha = self._answer(graphs, model, tokens, messages)
        belief = beliefs(model, messages)
        return Outcome(alpha, belief, eliminated, tuple(after_layers), not late(), sweeps)

    def _answer(
        self, graphs: Graphs, model: Potentials, tokens: Tensor, messages: Messages
    ) -> Tensor:
        tokens = self.norm(tokens)
        if isinstance(self.head, BeliefHead):
            alpha = self.head(tokens, beliefs(model, messages), graphs.states)
        else:
            alpha = self.head(tokens)
        alpha = torch.where(graphs.states > 0, alpha, ABSENT)
        return torch.where(graphs.real[..., None] > 0, alpha, 1.0)  # padding: anything finite

    def _edge_features(self, log_pairs: Tensor, model: Potentials) -> Tensor | None:
        if self.config.attention != "states" and not self.config.blocks:
            return None
        return edge_features(log_pairs, model.states)

    def _position(self, graphs: Graphs) -> Tensor:
        if self.config.positions == "laplacian" and graphs.dense:
            return heat_kernels(graphs.adjacency)
        return graphs.distances

    def _eliminate(
        self,
        graphs: Graphs,
        model: Potentials,
        tokens: Tensor,
        messages: Messages,
        position: Tensor,
        noise: Tensor | None,
        temperature: Tensor | None,
        steps: int | None,
        deadline: Deadline | None,
    ) -> tuple[Tensor, Messages, Tensor, list[_Gone], int]:
        """Tokens, messages, what is left (b n), the rounds that were made, layers passed."""
        config = self.config
        alive, adjacency = graphs.real, graphs.adjacency
        fill, current = torch.zeros_like(graphs.pairs), model
        edges = self._edge_features(graphs.pairs, model)
        tape: list[_Gone] = []
        rounds, at_once = plan(config, alive.shape[1], steps)
        passed = 0
        # by each graph's own size, so that padding does not decide
        limit = (alive.sum(1) // 4).clamp(min=config.at_once if at_once > 1 else 1)
        left = torch.full_like(limit, float(alive.shape[1] if steps is None else steps))
        for t in range(rounds):
            if _late(deadline):
                break
            # asking costs a wait for the device, and cannot be recorded in a CUDA graph
            if not self.training and not bool(alive.any()):
                break
            drawn = None if noise is None else noise[:, t % noise.shape[1]]
            degree = adjacency.sum(-1)
            score, own = self.score(state_mean(tokens, model.states), degree)
            order = config.train_order if self.training else config.order
            key = keys(order, score, own, degree, alive, drawn)
            soft = None if temperature is None or drawn is None else (score + drawn) / temperature
            chosen = choose(key, adjacency, alive, at_once, soft, torch.minimum(limit, left))
            left = left - chosen.valid.sum(1)
            near = _rows_of(adjacency, chosen)
            factor = self.predict(tokens, messages, model.states, chosen, near, own, edges)
            fill = (fill + factor.pairs).clamp(-MOST_FILL, MOST_FILL)
            tokens = tokens + self.told(factor.unary)
            back = _coming_back(graphs, chosen.mask, alive, adjacency)
            between = None if edges is None else between_tokens(edges)
            tape.append(_Gone(chosen.mask, back, alive, position, current, between))
            alive = alive * (1.0 - chosen.mask)
            adjacency = _filled(adjacency, near, alive)
            if config.positions == "spd":
                position = _closer(position, chosen)
            current = model._replace(pairs=torch.exp(graphs.pairs + fill))
            edges = self._edge_features((graphs.pairs + fill) * _wide(adjacency), model)
            degrees = torch.log1p(adjacency.sum(-1))[..., None]
            bias = self.bias(position, slice(config.layers, config.layers + 1))[0]
            try:
                new, messages = self.again(
                    tokens + self.refresh(degrees)[:, :, None],
                    messages,
                    current,
                    _still_active(graphs, adjacency, alive),
                    bias + hidden_keys(alive),
                    self.low_precision,
                    None if edges is None else between_tokens(edges),
                    deadline,
                )
            except OutOfTime:
                break
            tokens = torch.where(alive[..., None, None] > 0, new, tokens)
            passed += 1
        return tokens, messages, alive, tape, passed

    def _distribute(
        self,
        tokens: Tensor,
        messages: Messages,
        tape: list[_Gone],
        deadline: Deadline | None,
    ) -> tuple[Tensor, Messages, int]:
        """Variables come back in reverse and hear those that left after them.

        Paper: an eliminated variable keeps the token it had; here it knows of the rest, as exact
        elimination needs it, because its marginal depends on what is decided after it has gone.
        """
        last = self.config.layers + 1
        passed = 0
        for gone in reversed(tape):
            if _late(deadline):
                break
            bias = self.bias(gone.position, slice(last, last + 1))[0] + hidden_keys(gone.alive)
            try:
                new, messages = self.back(
                    tokens, messages, gone.model, gone.active, bias, self.low_precision,
                    gone.edges, deadline,
                )  # fmt: skip
            except OutOfTime:
                break
            tokens = torch.where(gone.mask[..., None, None] > 0, new, tokens)
            passed += 1
        return tokens, messages, passed


def _late(deadline: Deadline | None) -> bool:
    return deadline is not None and deadline.passed


def plan(config: PaperConfig, n: int, steps: int | None = None) -> tuple[int, int]:
    """Rounds, and the most variables of each, for graphs of n variables.

    Larger graphs than those of training take more at once rather than more rounds.
    """
    limit = n if steps is None else min(steps, n)
    if not config.parallel_rounds:
        return min(limit, config.rounds * config.at_once), 1
    return min(config.rounds, limit), min(max(config.at_once, n // 4), limit)


def _features(graphs: Graphs) -> Tensor:
    """What tokens begin with (b n k 9); all of it permutes with the states."""
    states, count = graphs.states, graphs.states.sum(-1, keepdim=True).clamp(min=1.0)
    log = torch.log_softmax(graphs.unary - 1e4 * (1.0 - states), -1) * states
    degree = graphs.adjacency.sum(-1) if graphs.dense else torch.zeros_like(graphs.real)
    large = torch.zeros_like(graphs.real)
    for group in graphs.groups:
        seen = group.present[:, :, None].expand_as(group.scopes).flatten(1)
        large = large.scatter_add(1, group.scopes.flatten(1), seen)
    own = torch.stack(
        [
            log + torch.log(count) * states,
            torch.exp(log) * count - 1.0,
            graphs.estimate,
            torch.exp(graphs.estimate) - 1.0,
        ],
        -1,
    )  # b n k 4
    same = torch.stack(
        [
            torch.log1p(degree),
            torch.log1p(large),
            torch.log(count[..., 0]),
            graphs.reliability,
            (graphs.reliability > 0).to(states.dtype),
        ],
        -1,
    )  # b n 5
    both = torch.cat([own, same[:, :, None].expand(-1, -1, states.shape[2], -1)], -1)
    return both * states[..., None]


def _rows_of(adjacency: Tensor, chosen: Chosen) -> Tensor:
    """Neighbours of the chosen variables (b m n)."""
    n = adjacency.shape[1]
    rows = adjacency.gather(1, chosen.which[:, :, None].expand(-1, -1, n))
    return rows * chosen.valid[:, :, None]


def _filled(adjacency: Tensor, near: Tensor, alive: Tensor) -> Tensor:
    """Graph of those that are left, the neighbours of each that went joined to each other."""
    joined = ((near.mT @ near) > 0).to(adjacency.dtype)
    apart = 1.0 - torch.eye(adjacency.shape[1], device=near.device, dtype=near.dtype)
    return torch.maximum(adjacency, joined * apart) * alive[:, :, None] * alive[:, None]


@torch.no_grad()
def _closer(d: Tensor, chosen: Chosen) -> Tensor:
    """Distances after the chosen variables have gone, one after the other."""
    n = d.shape[1]
    index = chosen.which[:, :, None].expand(-1, -1, n)
    nobody = (1.0 - chosen.valid) * FAR  # moves empty slots out of reach
    for m in range(index.shape[1]):
        to = d.gather(1, index[:, m, None])[:, 0] + nobody[:, m, None]
        d = after_elimination(d, to)
    return d.clamp(min=0.0)  # a variable that went has no distances


def _coming_back(graphs: Graphs, mask: Tensor, alive: Tensor, adjacency: Tensor) -> Active:
    """Messages to the variables that go, from those that were their neighbours."""
    groups = []
    for group in graphs.groups:
        whole = _at(alive, group.scopes).amin(-1) * group.present
        groups.append(_at(mask, group.scopes) * whole[..., None])
    return Active(mask[:, :, None] * adjacency, tuple(groups))


def _still_active(graphs: Graphs, adjacency: Tensor, alive: Tensor) -> Active:
    """Messages between variables that are left; those of variables that went stay as they were."""
    groups = []
    for group in graphs.groups:
        whole = _at(alive, group.scopes).amin(-1) * group.present
        groups.append(whole[..., None].expand_as(group.scopes))
    return Active(adjacency, tuple(groups))


def _wide(matrix: Tensor) -> Tensor:
    return matrix[..., None, None]


def _at(values: Tensor, scopes: Tensor) -> Tensor:
    return values.gather(1, scopes.flatten(1)).view(scopes.shape)
