"""A batch of Ising models as the fast network takes it, and the first pass of its algebra.

Eliminating a spin replaces its factor by fields and pairs that fit it best where the other spins
are likely to be. Where that is, only an answer can say. So the algebra runs twice: a first pass
treats the spins that are left as independent; what it finds (means and correlations of all pairs)
tells the second pass, which the network corrects, how they move together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from icgi.clock import Deadline
from icgi.neural.arrange import distances
from icgi.neural.closed_form import enumerate_core, losses, project, restore
from icgi.neural.pace import check
from icgi.neural.shrink import between, entry, near_or_all, rows, those_here

FIRST_CORE = 12  # spins that the first pass sums exactly
CHUNK = 4096  # models whose first pass shares one run
LEAST_VARIANCE = 1e-6
NOTHING = 1e-30  # coupling that is there, and has no effect


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
    mean: Tensor  # b n    ⟨s⟩ of the first pass
    correlation: Tensor  # b n n    of the first pass; 0 on the diagonal
    estimate: Tensor  # b n
    reliability: Tensor  # b n

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Spins":
        """Same batch elsewhere."""
        return Spins(*(getattr(self, f.name).to(device, dtype) for f in fields(self)))

    @staticmethod
    def joined(parts: "Sequence[Spins]") -> "Spins":
        """One batch of many that are padded to the same size."""
        return Spins(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Spins)))

    def __getitem__(self, index: Tensor | slice) -> "Spins":
        return Spins(*(getattr(self, f.name)[index] for f in fields(self)))


def make_spins(
    couplings: Tensor, fields: Tensor, real: Tensor, deadline: Deadline | None = None
) -> Spins:
    """Batch without context: distances and the first pass are computed, in chunks of models."""
    parts = []
    for j, h, r in zip(*(torch.split(x, CHUNK) for x in (couplings, fields, real)), strict=True):
        zero = torch.zeros_like(h)
        near = distances((j != 0).to(h.dtype), deadline)
        parts.append(Spins(j, h, r, near, *first_pass(j, h, r, deadline), zero, zero))
    if len(parts) == 1:
        return parts[0]
    return Spins(*(torch.cat([getattr(p, name) for p in parts]) for name in Spins.__slots__))


class _Gone(NamedTuple):
    """A spin as it was when it went."""

    row: Tensor  # b m    couplings to those that the step looked at
    near: Tensor  # b m    numbers of those
    field: Tensor  # b
    id: Tensor  # b


@torch.no_grad()
def first_pass(
    couplings: Tensor, fields: Tensor, real: Tensor, deadline: Deadline | None = None
) -> tuple[Tensor, Tensor]:
    """Means (b n) and correlations (b n n, 0 on the diagonal) by elimination in closed form."""
    b, n = fields.shape
    core = min(FIRST_CORE, n)
    ids = torch.arange(n, device=fields.device).expand(b, n)
    each = torch.arange(b, device=fields.device)[:, None]
    couplings, fields, here = couplings.clone(), fields.clone(), torch.ones_like(fields)
    cost = losses(couplings)
    tape: list[_Gone] = []
    for left in range(n, core, -1):
        check(deadline)
        v = _cheapest(cost, fields, real, here)
        row = entry(couplings, v)
        at = near_or_all(here, v, row != 0, left - 1)
        row, field, near = rows(row, at), entry(fields, v), rows(fields, at)
        means, present = torch.tanh(0.5 * near), (row != 0).to(row.dtype)
        forces, new = project(row, field, means, present)
        near = near + forces * present - (new * means[:, None]).sum(-1)
        new = new + between(couplings, at, 2)
        tape.append(_Gone(row, rows(ids, at), field, entry(ids, v)))
        if at.shape[1] == left - 1:
            couplings, fields, here = new, near, torch.ones_like(near)
            real, ids, cost = rows(real, at), rows(ids, at), losses(couplings)
            continue
        here.scatter_(1, v[:, None], 0.0)
        fields[each, at] = near
        couplings[each[..., None], at[:, :, None], at[:, None]] = new
        couplings[each, at, v[:, None]] = 0.0
        cost[each, at] = losses(couplings[each, at])
    at = those_here(here, core)
    ids, found = rows(ids, at), enumerate_core(between(couplings, at, 2), rows(fields, at))
    mean, covariance = fields.new_zeros(b, n), fields.new_zeros(b, n, n)
    mean[each, ids] = found[0]
    covariance[each[..., None], ids[:, :, None], ids[:, None]] = found[1]
    for gone in reversed(tape):
        check(deadline)
        v = gone.id[:, None]
        # next to a single neighbour its own place, independent of all, counts as the second
        row = torch.zeros_like(mean).scatter(1, v, NOTHING).scatter(1, gone.near, gone.row)
        half_logit, cross = restore(row, gone.field, mean, covariance)  # zero for who is not back
        own = torch.tanh(half_logit)[:, None]
        cross = cross.scatter(1, v, 1.0 - own * own)
        covariance[each, v], covariance[each, :, v] = cross[:, None], cross[:, None]
        mean.scatter_(1, v, own)
    return mean, _correlation(mean, covariance)


def _cheapest(cost: Tensor, fields: Tensor, real: Tensor, here: Tensor) -> Tensor:
    """Choice (b) among those here, by the rule of `closed_form.cheapest`."""
    loss, strength = cost.unbind(-1)
    key = torch.where(loss > 0, loss, -0.5 / (1.0 + strength + 0.1 * fields.abs()))
    return torch.where(here > 0, key + 2.0 * (real - 1.0), math.inf).argmin(1)


def _correlation(mean: Tensor, covariance: Tensor) -> Tensor:
    deviation = (1.0 - mean * mean).clamp(min=LEAST_VARIANCE).sqrt()
    r = (covariance / (deviation[:, :, None] * deviation[:, None])).clamp(-1.0, 1.0)
    return r * (1.0 - torch.eye(r.shape[1], device=r.device, dtype=r.dtype))
