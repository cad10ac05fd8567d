"""Non-negative tensor trains as factors: marginals by environment products, never by a dense table.

φ(x_1, …, x_w) = 1ᵀ G_1[x_1] ⋯ G_w[x_w] 1 (eq. tt), with cores b m w k r r.
"""

import torch
from torch import Tensor
from torch.nn import functional

SMALL = 1e-12  # its inverse squared is finite in float32


def cores(raw: Tensor, states: Tensor, inside: Tensor) -> Tensor:
    """Softplus cores (b m w k r r), each row of the bond summing to one over states and next bond.

    Every non-negative train has this gauge, so nothing is lost; in it all environments from the
    right are ones, and the factor sums to one as it stands. Places outside the factor get cores
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
    positive = functional.softplus(raw) * states[..., None, None]
    positive = positive / positive.sum((-1, -3), keepdim=True).clamp(min=SMALL)
    hand_on = torch.eye(raw.shape[-1], device=raw.device, dtype=raw.dtype) / raw.shape[3]
    return torch.where(inside[..., None, None, None] > 0, positive, hand_on)


def marginals(train: Tensor) -> tuple[Tensor, Tensor]:
    """Unary (b m w k) and pairwise (b m w w k k) marginals of trains in the gauge of `cores`."""
    return mixed_marginals(train[:, :, None], train.new_ones(*train.shape[:2], 1))


def mixed_marginals(train: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Same of Σ_a share_a φ_a, trains whose cores are block-diagonal in a.

    p(x_j) = L_j G_j[x_j] 1 and p(x_j, x_l) = L_j G_j[x_j] (Π_{j<i<l} Ḡ_i) G_l[x_l] 1, where Ḡ sums
    over states and L_j = 1ᵀ/r Ḡ_1 ⋯ Ḡ_{j−1} is the environment from the left.

    Paper: the first and the last core are a row and a column; here all are r × r and the ends are
    closed with ones, because which place is last differs between the factors of a batch.

    Parameters
    ----------
    train
        Cores of every block (b m a w k r r).
    share
        Weights of the blocks (b m a), summing to one over a.
    """
    b, m, a, w, k, r, _ = train.shape
    flat = train.flatten(0, 2)  # bma w k r r
    summed = flat.sum(2).unbind(1)  # w times bma r r
    left = [(share / r).reshape(-1, 1, 1).expand(-1, 1, r)]
    for matrix in summed[:-1]:
        left.append(left[-1] @ matrix)
    opened = (torch.stack(left, 1)[:, :, None] @ flat)[..., 0, :]  # bma w k r
    unary = opened.sum(-1).view(b, m, a, w, k).sum(2)
    apart = torch.eye(w, device=train.device, dtype=train.dtype)
    # row j of step l begins as L_j G_j[x] at l = j and is carried on by the places after it
    begin = (opened[:, :, None] * apart[:, :, None, None]).view(b * m * a, w, w * k, r).unbind(1)
    carried = torch.zeros_like(begin[0])  # bma jk r
    before = []
    for place in range(w):
        before.append(carried)
        carried = torch.baddbmm(begin[place], carried, summed[place])
    closed = flat.sum(-1)  # bma w y r    G[y] 1
    upper = (torch.stack(before, 1) @ closed.mT).view(b, m, a, w, w, k, k).sum(2)
    # l j x y, zero for j ≥ l
    return unary, upper.mT + upper.transpose(2, 3)


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
