"""`bpnn`: belief propagation with learned changes that keep its fixed points (Kuck et al. 2020).

Every message is m ← m̃ + (1 − a)[H(m_old − m̃) − H(0)], where m̃ is what belief propagation sends.
H, shared over states, messages and iterations, starts at zero: untrained it is belief propagation.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from icgi.clock import Deadline
from icgi.neural.batch import Batch
from icgi.neural.general_algebra import ABSENT
from icgi.neural.networks import Draws
from icgi.neural.networks.wiring import (
    Wired,
    joint,
    mean_of_states,
    normalised,
    probabilities,
    table_too_large,
)
from icgi.neural.pace import check


@dataclass(frozen=True, slots=True)
class BPNNConfig:
    """Settings of the network; stored next to its weights."""

    iterations: int = 15
    hidden: int = 32  # width of H
    correct_log_z: bool = False  # whether the Bethe value of log Z has a learned correction too


class Change(nn.Module):
    """(1 − a)[H(δ) − H(0)] of differences δ between old and new messages (e k).

    H sees the δ of its state, and the mean and the largest |δ| of all states. Its last layer reads
    hidden features and δ itself, so that plain damping is one of its weights.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU()
        )
        self.last = nn.Linear(hidden + 1, 1, bias=False)
        self.share = nn.Parameter(torch.zeros(()))  # log a/(1 − a)
        nn.init.zeros_(self.last.weight)

    def forward(self, difference: Tensor, exists: Tensor) -> Tensor:
        """Changes (e k); zero for states that do not exist, as the differences are."""
        size = difference.abs()
        mean = mean_of_states(size[..., None], exists)[..., 0].expand_as(size)
        most = size.amax(-1, keepdim=True).expand_as(size)
        seen = self.layers(torch.asinh(torch.stack([difference, mean, most], -1)))
        at_rest = self.layers(difference.new_zeros(3))
        change: Tensor = self.last(torch.cat([seen - at_rest, difference[..., None]], -1))[..., 0]
        return torch.sigmoid(-self.share) * change * exists


class BPNN(nn.Module):
    """Belief propagation, all messages at once, with a learned change of each."""

    settings: ClassVar[type[Any]] = BPNNConfig
    dirichlet: ClassVar[bool] = False
    pairwise: ClassVar[bool] = False
    recorded: ClassVar[bool] = False

    def __init__(self, config: BPNNConfig) -> None:
        super().__init__()
        self.config = config
        self.to_factors = Change(config.hidden)
        self.to_variables = Change(config.hidden)
        corrections = [_correction(config.hidden) for _ in range(3)]
        self.terms = nn.ModuleList(corrections) if config.correct_log_z else None

    def refuse(self, largest_table: int, most_states: int, variables: int, arity: int) -> str:
        """Only tables beyond what fits are refused."""
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
        """Beliefs (b n k)."""
        _, back = self.messages(form, deadline)
        return probabilities(form.unary + form.collect(back), form.batch)

    def messages(
        self,
        form: Wired,
        deadline: Deadline | None = None,
        start: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log messages (e k) to factors and to variables after all iterations, uniform at first."""
        exists = form.spread(form.exists)
        silent = normalised(torch.zeros_like(exists, dtype=form.unary.dtype), exists)
        out, back = (silent, silent) if start is None else start
        for _ in range(self.config.iterations):
            check(deadline)
            sent = form.spread(form.unary + form.collect(back)) - back
            out = self._moved(self.to_factors, out, sent, exists)
            found = form.through_factors(out.masked_fill(~exists, ABSENT)[..., None])[..., 0]
            back = self._moved(self.to_variables, back, found, exists)
        return out, back

    def _moved(self, change: Change, old: Tensor, found: Tensor, exists: Tensor) -> Tensor:
        new = normalised(found, exists)
        return normalised(new + change(old - new, exists), exists)

    def log_z(self, form: Wired, deadline: Deadline | None = None) -> Tensor:
        """Bethe's log Z (b) of the batch as it is laid out, at the final messages.

        Σ_f log Σ exp(θ_f + Σ_i n_{i→f}) + Σ_i log Σ exp(u_i + Σ_f m_{f→i})
        − Σ_{i,f} log Σ exp(n_{i→f} + m_{f→i}); with `correct_log_z` each term is corrected.
        """
        out, back = self.messages(form, deadline)
        hidden = ~form.spread(form.exists)
        b, n, _ = form.batch.sizes
        at_variables = torch.logsumexp(form.unary + form.collect(back), -1).view(b, n)
        at_edges = torch.logsumexp((out + back).masked_fill(hidden, ABSENT), -1)
        total = (self._term(0, at_variables) * form.batch.real).sum(1)
        total = total.index_add(0, form.ends // n, -self._term(1, at_edges))
        for group, sent in form.by_group(out.masked_fill(hidden, ABSENT)[..., None]):
            at_factors = torch.logsumexp(joint(group, sent).flatten(1), -1)
            total = total.index_add(0, group.graph, self._term(2, at_factors))
        return total

    def _term(self, kind: int, value: Tensor) -> Tensor:
        if self.terms is None:
            return value
        correction: Tensor = self.terms[kind](value[..., None])[..., 0]
        return value + correction


def _correction(hidden: int) -> nn.Module:
    layers = nn.Sequential(nn.Linear(1, hidden), nn.GELU(), nn.Linear(hidden, 1))
    for parameter in layers[2].parameters():
        nn.init.zeros_(parameter)
    return layers
