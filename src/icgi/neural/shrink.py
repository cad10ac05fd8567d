"""Arrays over the spins that are left: one goes at each elimination, and comes back later."""

import torch
from torch import Tensor


def taken(x: Tensor, pick: Tensor) -> Tensor:
    """Entry of axis 1 that a one-hot choice (b n) names."""
    weight = pick.view(*pick.shape, *[1] * (x.ndim - 2))
    return (x * weight).sum(1)


def remaining(x: Tensor, pick: Tensor) -> Tensor:
    """All entries of axis 1 but the chosen one, whose place the first entry takes."""
    b, n = pick.shape
    place = torch.arange(1, n, device=x.device)
    index = torch.where(pick[:, 1:] > 0, 0, place).view(b, n - 1, *[1] * (x.ndim - 2))
    return x.gather(1, index.expand(b, n - 1, *x.shape[2:]))


def remaining_pairs(x: Tensor, pick: Tensor) -> tuple[Tensor, Tensor]:
    """Row of the chosen one (b n-1) in a symmetric array (b n n), and the array without it."""
    row = remaining(taken(x, pick), pick)
    return row, remaining(remaining(x, pick).mT, pick).mT


def positions(ids: Tensor, wanted: Tensor, total: int) -> Tensor:
    """Where in `ids` (b n) each of the `wanted` numbers (b n), all below `total`, stands."""
    b, n = ids.shape
    place = torch.arange(n, device=ids.device).expand(b, n)
    table = torch.zeros(b, total, dtype=ids.dtype, device=ids.device).scatter(1, ids, place)
    return table.gather(1, wanted)


def bordered(corner: Tensor, edge: Tensor, block: Tensor) -> Tensor:
    """Symmetric matrices with one more row in front: corner (b 1 1), edge (b n), block (b n n)."""
    top = torch.cat([corner, edge[:, None]], 2)
    return torch.cat([top, torch.cat([edge[:, :, None], block], 2)], 1)
