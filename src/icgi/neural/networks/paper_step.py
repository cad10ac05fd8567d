"""Learned parts of the paper's network, and the factor that one elimination leaves behind.

Corrections of a step and the train's further bond states are predicted from tokens; the head turns
what the algebra found into concentrations. All start small or at zero.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from icgi.neural import closed_form
from icgi.neural.elimination import within
from icgi.neural.general import share
from icgi.neural.general_algebra import (
    TINY,
    Star,
    compensation,
    new_tables,
    restore,
    screening,
)
from icgi.neural.general_parts import ROW_FEATURES, input_states, row_features
from icgi.neural.heads import FLOOR, MOST_LOG_SCALE

SMALL_LOSS = 1e-3  # inexactness below which variables hardly differ as choices
RARE = -6.0  # log weight of a predicted bond state relative to the star, before training


def effective(strength: Tensor) -> Tensor:
    """Effective number of neighbours (Σ t²)²/Σ t⁴ of strengths t (… n): d for d equal ones."""
    square = strength * strength
    return square.sum(-1) ** 2 / (square * square).sum(-1).clamp(min=TINY)


def faded(loss: Tensor, most: float) -> Tensor:
    """Part of the corrections that counts: `share`, falling as 1/loss beyond `most`."""
    return share(loss) * within(loss, most)


def left_behind(
    factors: str, exact: Star, row: Tensor, unary: Tensor, own: Tensor, beliefs: Tensor,
    correlation: Tensor, states: Tensor, step: "Step", amount: Tensor, present: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Pair tables (b n k n k) and fields (b n k) read off the train that is left behind.

    Parameters
    ----------
    factors
        `train`, `star` or `free`.
    exact, row, unary, own
        Star, corrected tables (b n v k), θ (b v) and states (b v) of the variable that goes.
    beliefs, correlation, states, present
        Of those that stay: b n k, b n n (spins), b n k, and 1 for neighbours (b n).
    amount
        How far corrections count (b).
    """
    on = amount[:, None, None]
    both = states[:, :, :, None, None] * states[:, None, None]
    gate = torch.exp(on * (step.gate[:, :, None] + step.gate[:, None])) * pairs_of(present)
    gate = gate[:, :, None, :, None] * both
    if factors == "free":
        found = free(exact, step)
        new = new_tables(found) * gate
        return new, found.gain - compensation(new, found.gain, beliefs)
    added: Tensor | float = 0.0
    if factors == "train":
        added = on[..., None, None] * (new_tables(wider(exact, step)) - new_tables(exact))
    if states.shape[2] == 2:
        s = closed_form.signs_like(unary)
        field = 0.5 * ((unary + amount[:, None] * step.unary) * s).sum(-1)
        bond = torch.exp(on[..., 0] * step.bond)
        correlation = correlation * (bond[:, :, None] * bond[:, None])
        new, force = project(row, field, beliefs, present, correlation)
        new = (new + added) * gate
        moved = torch.einsum("bjxky,bky->bjx", new, beliefs)
        return new, force + on * step.force - moved
    screened = screening(exact, own.sum(-1), present)
    new = (new_tables(exact) + added) * gate * screened[:, :, None, :, None]
    return new, exact.gain + on * step.force - compensation(new, exact.gain, beliefs)


def pairs_of(present: Tensor) -> Tensor:
    """1 for pairs of different neighbours (b n n)."""
    pairs = present[:, :, None] * present[:, None]
    return pairs * (1.0 - torch.eye(pairs.shape[1], device=pairs.device, dtype=pairs.dtype))


def free(exact: Star, step: "Step") -> Star:
    """Train that is predicted from scratch, as the paper describes."""
    weight = torch.softmax(step.share, -1)
    mean = (step.cores * weight[:, None, :, None]).sum(2)
    return exact._replace(likelihood=step.cores, weight=weight, gain=torch.log(mean + TINY))


def wider(exact: Star, step: "Step") -> Star:
    """The star with predicted bond states beside those of the eliminated variable.

    φ = Σ_s w_s Π_k L_s(x_k) is a train of diagonal cores G_k[x] = diag(L_s(x)), non-negative as a
    softplus made it; its bond is the number of s.
    """
    weight = torch.cat([exact.weight, torch.exp(step.share + RARE)], -1)
    weight = weight / weight.sum(-1, keepdim=True)
    likelihood = torch.cat([exact.likelihood, step.cores], 2)
    mean = (likelihood * weight[:, None, :, None]).sum(2)
    return exact._replace(likelihood=likelihood, weight=weight, gain=torch.log(mean + TINY))


def project(
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


def restored(
    row: Tensor, unary: Tensor, marginals: Tensor, covariance: Tensor, present: Tensor
) -> tuple[Tensor, Tensor]:
    """p(x_v) (b v) of a variable that is put back, and its covariances (b v n k)."""
    if unary.shape[1] > 2:
        return restore(row, unary, marginals, covariance, present)
    s = closed_form.signs_like(unary)
    half, cov = closed_form.restore(
        (row.flatten(2) @ _basis(row)[:, 0]) * present,
        (0.5 * (unary * s).sum(-1)).clamp(-40.0, 40.0),
        (marginals * s).sum(-1),
        torch.einsum("bnxmy,x,y->bnm", covariance, s, s),
    )
    p = torch.sigmoid(2.0 * half[:, None] * s)
    return p, 0.25 * cov[:, None, :, None] * (s[:, None, None] * s)


class Step(NamedTuple):
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
    ) -> Step:  # fmt: skip
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
        return Step(
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
