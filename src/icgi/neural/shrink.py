"""Arrays over the spins that are left: one goes at each elimination, and comes back later.

With gradients all that are left are copied at each step. Without, those near the one that goes are,
what they become is written in place, and who went leaves a hole.
"""

import torch
from torch import Tensor

MOST_NEAR = 0.5  # share of what is left that may be near; beyond, all of it is copied
LEAST = 3  # variables that a step looks at: the strongest around one that comes back are summed


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


def entry(x: Tensor, v: Tensor) -> Tensor:
    """Entry of axis 1 that v (b) names."""
    return rows(x, v[:, None])[:, 0]


def rows(x: Tensor, at: Tensor) -> Tensor:
    """Entries of axis 1 at these places (b m)."""
    if len(x) == 1:
        return x.index_select(1, at[0])
    index = at.view(*at.shape, *[1] * (x.ndim - 2))
    return x.gather(1, index.expand(*at.shape, *x.shape[2:]))


def between(x: Tensor, at: Tensor, axis: int) -> Tensor:
    """Entries of axis 1 and of another at these places (b m)."""
    x = rows(x, at)
    if len(x) == 1:
        return x.index_select(axis, at[0])
    shape = list(x.shape)
    shape[axis] = at.shape[1]
    index = at.view(len(at), *[1] * (axis - 1), at.shape[1], *[1] * (x.ndim - axis - 1))
    return x.gather(axis, index.expand(shape))


def near_or_all(here: Tensor, v: Tensor, present: Tensor, others: int) -> Tensor:
    """Places (b m) that a step looks at when v (b) go: neighbours first, or all that is left.

    Parameters
    ----------
    here, present
        1 for who is left, and for neighbours (b n).
    others
        How many are left without the one that goes.
    """
    here = here.scatter(1, v[:, None], 0.0)
    near = int((present > 0).sum(1).max())
    if near > MOST_NEAR * others:
        return those_here(here, others)
    return (here + (present > 0)).topk(min(max(near, LEAST), others), 1).indices


def those_here(here: Tensor, count: int) -> Tensor:
    """Places (b count) of those that are here, in their order."""
    return here.sort(stable=True, dim=1, descending=True).indices[:, :count]
