"""Non-negative tensor trains as factors: marginals by environment products, never by a dense table.

φ(x_1, …, x_w) = 1ᵀ G_1[x_1] ⋯ G_w[x_w] 1 (eq. tt), with cores b m w k r r.
"""

import torch
from torch import Tensor
from torch.nn import functional

SMALL = 1e-12  # its inverse squared is finite in float32


def cores(raw: Tensor, states: Tensor, inside: Tensor) -> Tensor:
    """Softplus cores (b m w k r r), scaled so that each, summed over its states, has mass r.

    A factor matters up to a constant, and so does each core. Places outside the factor get cores
    that do not depend on the state and hand the bond on.

    Parameters
    ----------
    raw
        Output of the network (b m w k r r).
    states
        1 for the states that exist (b m w k).
    inside
        1 for places that hold a variable (b m w).
    """
    r = raw.shape[-1]
    positive = functional.softplus(raw) * states[..., None, None]
    positive = positive * (r / positive.sum((-1, -2, -3), keepdim=True).clamp(min=SMALL))
    hand_on = torch.eye(r, device=raw.device, dtype=raw.dtype) / raw.shape[3]
    return torch.where(inside[..., None, None, None] > 0, positive, hand_on)


def marginals(train: Tensor) -> tuple[Tensor, Tensor]:
    """Unary (b m w k) and pairwise (b m w w k k) marginals of normalised trains b m w k r r.

    Paper: the first and the last core are a row and a column; here all are r × r and the ends are
    closed with ones, because which place is last differs between the factors of a batch.
    """
    w, r = train.shape[2], train.shape[-1]
    summed = list(train.sum(3).unbind(2))  # w times b m r r
    scales = []
    left = [train.new_full((*train.shape[:2], 1, r), 1.0 / r)]
    right = [train.new_ones(*train.shape[:2], r, 1)]
    for j in range(w):
        new = left[-1] @ summed[j]
        scale = new.sum(-1, keepdim=True).clamp(min=SMALL)
        summed[j] = summed[j] / scale  # then every product from the left has mass one
        scales.append(scale[:, :, None])
        left.append(new / scale)
    for j in reversed(range(w)):
        new = summed[j] @ right[-1]
        right.append(new / new.sum(-2, keepdim=True).clamp(min=SMALL))
    before = torch.stack(left[:-1], 2)  # b m w 1 r    environment left of each place
    after = torch.stack(right[-2::-1], 2)  # b m w r 1
    opened = (before[:, :, :, None] @ train)[..., 0, :]  # b m w k r    L G[x]
    closed = (train @ after[:, :, :, None])[..., 0]  # b m w k r    G[y] R
    unary = (opened * after[..., 0][:, :, :, None]).sum(-1)
    unary = unary / unary.sum(-1, keepdim=True).clamp(min=SMALL)
    columns = []
    carried = opened[:, :, :0]  # b m j k r    L G_j[x] with the places after j summed
    for place in range(w):
        table = carried @ closed[:, :, place, None].mT  # b m j x y
        columns.append(functional.pad(table, (0, 0, 0, 0, 0, w - place)))
        passed = carried @ summed[place][:, :, None]
        carried = torch.cat([passed, opened[:, :, place, None] / scales[place]], 2)
    upper = torch.stack(columns, 3)  # b m j l x y, zero but for j < l
    both = upper + upper.transpose(2, 3).mT
    return unary, both / both.sum((-1, -2), keepdim=True).clamp(min=SMALL)


def reconstruct(train: Tensor) -> Tensor:
    """Dense table (b m k … k), normalised to sum to one: for tests, and for short trains only."""
    b, m, w, k, r, _ = train.shape
    table = train.new_full((b, m, 1, r), 1.0)
    for j in range(w):
        table = torch.einsum("bmer,bmxrs->bmexs", table, train[:, :, j]).flatten(2, 3)
    dense = table.sum(-1)
    return (dense / dense.sum(-1, keepdim=True)).view(b, m, *[k] * w)


def dense_marginals(table: Tensor) -> tuple[Tensor, Tensor]:
    """Unary (b m w k) and pairwise (b m w w k k) marginals of dense tables b m k … k."""
    w = table.ndim - 2
    axes = range(2, 2 + w)
    unary = torch.stack([_over(table, [a for a in axes if a != p]) for p in axes], 2)
    rows = []
    for p in axes:
        row = []
        for q in axes:
            if p == q:
                row.append(torch.zeros_like(unary[:, :, 0, :, None] * unary[:, :, 0, None]))
                continue
            both = _over(table, [a for a in axes if a not in (p, q)])
            row.append(both if p < q else both.mT)
        rows.append(torch.stack(row, 2))
    return unary, torch.stack(rows, 2)


def _over(table: Tensor, axes: list[int]) -> Tensor:
    return table.sum(axes) if axes else table  # no axes would mean all of them
