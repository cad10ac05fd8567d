"""A batch of Ising models as the fast network takes it, and the first pass of its algebra.

Eliminating a spin replaces its factor by fields and pairs that fit it best where the other spins
are likely to be. Where that is, only an answer can say. So the algebra runs twice: a first pass
treats the spins that are left as independent; what it finds (means and correlations of all pairs)
tells the second pass, which the network corrects, how they move together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from icgi.clock import Deadline
from icgi.neural.arrange import distances
from icgi.neural.closed_form import cheapest, enumerate_core, project, restore
from icgi.neural.pace import check
from icgi.neural.shrink import bordered, positions, remaining, remaining_pairs, taken

FIRST_CORE = 12  # spins that the first pass sums exactly
CHUNK = 4096  # models whose first pass shares one run
LEAST_VARIANCE = 1e-6


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

    row: Tensor  # b n    couplings to those that were left
    left: Tensor  # b n    original numbers of those
    field: Tensor  # b
    id: Tensor  # b


@torch.no_grad()
def first_pass(
    couplings: Tensor, fields: Tensor, real: Tensor, deadline: Deadline | None = None
) -> tuple[Tensor, Tensor]:
    """Means (b n) and correlations (b n n, 0 on the diagonal) by elimination in closed form."""
    b, n = fields.shape
    ids = torch.arange(n, device=fields.device).expand(b, n)
    even = torch.ones_like(fields)
    tape: list[_Gone] = []
    for _ in range(n - min(FIRST_CORE, n)):
        check(deadline)
        pick, _loss = cheapest(couplings, fields, real, even)
        field = taken(fields, pick)
        row, couplings = remaining_pairs(couplings, pick)
        fields, real, left = (remaining(x, pick) for x in (fields, real, ids))
        means = torch.tanh(0.5 * fields)
        present = (row != 0).to(row.dtype)
        forces, new = project(row, field, means, present)
        couplings = couplings + new
        fields = fields + forces * present - (new * means[:, None]).sum(-1)
        tape.append(_Gone(row, left, field, taken(ids, pick.to(ids.dtype))))
        ids, even = left, even[:, 1:]
    mean, covariance, _ = enumerate_core(couplings, fields)
    for gone in reversed(tape):
        check(deadline)
        row = gone.row.gather(1, positions(gone.left, ids, n))
        half_logit, cross = restore(row, gone.field, mean, covariance)
        own = torch.tanh(half_logit)[:, None]
        covariance = bordered((1.0 - own * own)[:, :, None], cross, covariance)
        mean = torch.cat([own, mean], 1)
        ids = torch.cat([gone.id[:, None], ids], 1)
    everyone = torch.arange(n, device=ids.device).expand(b, n)
    place = positions(ids, everyone, n)
    mean = mean.gather(1, place)
    rows = covariance.gather(1, place[:, :, None].expand(b, n, n))
    covariance = rows.gather(2, place[:, None].expand(b, n, n))
    return mean, _correlation(mean, covariance)


def _correlation(mean: Tensor, covariance: Tensor) -> Tensor:
    deviation = (1.0 - mean * mean).clamp(min=LEAST_VARIANCE).sqrt()
    r = (covariance / (deviation[:, :, None] * deviation[:, None])).clamp(-1.0, 1.0)
    return r * (1.0 - torch.eye(r.shape[1], device=r.device, dtype=r.dtype))
