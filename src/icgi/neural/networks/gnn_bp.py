"""`gnn-bp`: recurrent networks that pass hidden states as belief propagation passes messages.

The form of Yoon et al. (2019) has a state for each spin. The form matched to the other networks
has one for each directed edge of the factor graph and each state of its variable; a message does
not go back where it came from, and tables act on a few log messages read from hidden states.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.clock import Deadline
from icgi.neural.batch import Batch
from icgi.neural.general_algebra import ABSENT
from icgi.neural.networks import Draws
from icgi.neural.networks.wiring import (
    POTENTIALS,
    Wired,
    mean_of_states,
    normalised,
    probabilities,
    table_too_large,
)
from icgi.neural.pace import check

NODE_STATE, NODE_WIDTH = 5, 64  # as published
MOST_FIELD = 15.0  # and coupling of spins
AT_ONCE = 2**14  # rows of a recurrent cell, outside training
LOUD = 5.0  # log messages are so many times a linear map of hidden states


@dataclass(frozen=True, slots=True)
class GNNBPConfig:
    """Settings of the network; stored next to its weights."""

    form: Literal["message", "node"] = "message"  # node: as published, for pairs of spins only
    steps: int = 10
    features: int = 64  # of a hidden state of the message form
    heads: int = 4  # log messages that tables act on, in the message form


class NodeForm(nn.Module):
    """h_i ← GRU(Σ_j M(h_i, h_j, J_ij, b_i, b_j), h_i), for every spin; answer R(h_i)."""

    def __init__(self, config: GNNBPConfig) -> None:
        super().__init__()
        self.steps = config.steps
        self.message = _mlp(2 * NODE_STATE + 3, NODE_STATE)
        self.update = nn.GRUCell(NODE_STATE, NODE_STATE)
        self.answer = _mlp(NODE_STATE, 2)

    def forward(self, form: Wired, deadline: Deadline | None) -> Tensor:
        """Logits (v k), zero beyond two states."""
        spins = form.unary[:, :2].clamp(min=-2.0 * MOST_FIELD)
        field = 0.5 * (spins[:, 0] - spins[:, 1]) * form.exists[:, 1]
        to, by, coupling = _couplings(form)
        given = torch.stack([coupling, field[to], field[by]], -1)
        hidden = form.unary.new_zeros(len(field), NODE_STATE)
        for _ in range(self.steps):
            check(deadline)
            ends = [hidden.index_select(0, to), hidden.index_select(0, by)]
            message = self.message(torch.cat([*ends, given], -1))
            hidden = self.update(torch.zeros_like(hidden).index_add(0, to, message), hidden)
        logits: Tensor = self.answer(hidden)
        return functional.pad(logits, (0, form.unary.shape[1] - 2))


def _mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, NODE_WIDTH),
        nn.ReLU(),
        nn.Linear(NODE_WIDTH, NODE_WIDTH),
        nn.ReLU(),
        nn.Linear(NODE_WIDTH, outputs),
    )


def _couplings(form: Wired) -> tuple[Tensor, Tensor, Tensor]:
    """Receiver, sender and J of both directions of every pair."""
    to, by, value = [form.ends[:0]], [form.ends[:0]], [form.unary.new_zeros(0)]
    for group in form.batch.factors:
        flat, t = form.batch.flat(group), group.log_tables
        coupling = 0.25 * (t[:, 0, 0] - t[:, 0, 1] - t[:, 1, 0] + t[:, 1, 1])
        to += [flat[:, 0], flat[:, 1]]
        by += [flat[:, 1], flat[:, 0]]
        value += [coupling.clamp(-MOST_FIELD, MOST_FIELD)] * 2
    return torch.cat(to), torch.cat(by), torch.cat(value)


class MessageForm(nn.Module):
    """States h_{i→f}(x), h_{f→i}(x) of directed edges, each with a recurrent cell of its own.

    h_{i→f} reads Σ_{g ≠ f} h_{g→i} and the potentials of i. Log messages a linear map of h_{j→f}
    go through the table of f as in belief propagation; h_{f→i} reads what comes out of it.
    """

    def __init__(self, config: GNNBPConfig) -> None:
        super().__init__()
        d, heads = config.features, config.heads
        self.steps = config.steps
        self.start = nn.Linear(POTENTIALS, d)
        self.say = nn.Linear(d, heads)
        self.to_factors = nn.GRUCell(d + POTENTIALS, d)
        self.to_variables = nn.GRUCell(2 * heads, d)
        self.answer = nn.Sequential(
            nn.Linear(2 * d + POTENTIALS, d), nn.GELU(), nn.Linear(d, 1, bias=False)
        )

    def forward(self, form: Wired, deadline: Deadline | None) -> Tensor:
        """Logits of all states (v k)."""
        given = form.potentials
        exists = form.spread(form.exists)
        at_edges = form.spread(given)
        out = torch.tanh(self.start(at_edges))
        back = torch.zeros_like(out)
        for _ in range(self.steps):
            check(deadline)
            others = form.spread(form.collect(back)) - back
            out = _cell(self.to_factors, torch.cat([others, at_edges], -1), out)
            back = _cell(self.to_variables, self._through(form, out, exists), back)
        sums = form.collect(back)
        means = mean_of_states(sums, form.exists).expand_as(sums)
        logits: Tensor = self.answer(torch.cat([sums, means, given], -1))
        return logits[..., 0]

    def _through(self, form: Wired, out: Tensor, exists: Tensor) -> Tensor:
        """Log messages of all heads beyond the factors, and their exponentials (e k 2h)."""
        mask = exists[..., None]
        sent = (LOUD * self.say(out)).masked_fill(~mask, ABSENT)
        log = normalised(form.through_factors(sent).mT, exists[:, None]).mT
        return torch.cat([torch.asinh(log), log.exp() * mask], -1)


def _cell(cell: nn.GRUCell, given: Tensor, hidden: Tensor) -> Tensor:
    rows = given.flatten(0, 1), hidden.flatten(0, 1)
    if torch.is_grad_enabled() or len(rows[0]) <= AT_ONCE:
        new: Tensor = cell(*rows)
    else:  # some at a time: less memory, and the clock is looked at in between
        parts = zip(*(torch.split(each, AT_ONCE) for each in rows), strict=True)
        new = torch.cat([cell(*part) for part in parts])
    return new.view(hidden.shape)


class GNNBP(nn.Module):
    """Ten tied steps of hidden messages, then a read-out for each variable."""

    settings: ClassVar[type[Any]] = GNNBPConfig
    dirichlet: ClassVar[bool] = False
    pairwise: ClassVar[bool] = False
    recorded: ClassVar[bool] = False

    def __init__(self, config: GNNBPConfig) -> None:
        super().__init__()
        self.config = config
        self.form = NodeForm(config) if config.form == "node" else MessageForm(config)

    def refuse(self, largest_table: int, most_states: int, variables: int, arity: int) -> str:
        """The published form knows pairs of spins only."""
        if self.config.form == "node" and (arity > 2 or most_states > 2):
            return (
                f"it has variables of {most_states} states and factors of {arity} variables; "
                "form=node reads pairs of binary variables, form=message any"
            )
        return table_too_large(largest_table)

    def prepare(self, batch: Batch, deadline: Deadline | None = None) -> Wired:
        """The batch with its edges."""
        return Wired.of(batch)

    def noise(self, models: int, variables: int) -> tuple[int, ...]:
        """Nothing is random."""
        return ()

    def forward(
        self, form: Wired, draws: Draws | None = None, deadline: Deadline | None = None
    ) -> Tensor:
        """Probabilities (b n k)."""
        return probabilities(self.form(form, deadline), form.batch)
