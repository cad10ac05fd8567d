"""Shortest-path distances of many graphs at once, and how elimination changes them."""

import torch
from torch import Tensor

from icgi.clock import Deadline
from icgi.neural.pace import check

FAR = 1000.0  # distance of variables that no path joins; above any real one


def distances(adjacency: Tensor, deadline: Deadline | None = None) -> Tensor:
    """Shortest-path distances (b n n), `FAR` where no path leads."""
    d = torch.where(adjacency > 0, 1.0, FAR).to(adjacency.dtype)
    d.diagonal(dim1=1, dim2=2).zero_()
    for v in range(d.shape[1]):
        check(deadline)
        d = torch.minimum(d, d[:, :, v, None] + d[:, v, None])
    return d.clamp(max=FAR)


def after_elimination(d: Tensor, to: Tensor) -> Tensor:
    """Distances when a variable at distances `to` (b n) has been eliminated, its neighbours joined.

    d'(x, y) = min(d(x, y), d(x, v) + d(v, y) − 1), exact: every shortest path through v is one
    edge shorter by fill-in, and no other path changes.
    """
    return torch.minimum(d, to[:, :, None] + to[:, None] - 1.0)
