"""Distances between variables: shortest paths, their updates in elimination, static encodings."""

import torch
from torch import Tensor

from icgi.clock import Deadline
from icgi.neural.pace import check

DIFFUSIONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # times of the heat kernels, doubling
TERMS = 12  # of the series for the first, ½¹³/13! below rounding
NEARBY = 6  # distances up to which all pairs are found at once
FAR = 1000.0  # distance of variables that no path joins; above any real one


def distances(adjacency: Tensor, deadline: Deadline | None = None) -> Tensor:
    """Shortest-path distances (b n n), `FAR` where no path leads.

    Nearby pairs are found step by step, for all at once; what is left then, one variable at a time.
    """
    linked = (adjacency > 0).to(adjacency.dtype)
    d = torch.where(linked > 0, 1.0, FAR).to(linked.dtype)
    d.diagonal(dim1=1, dim2=2).zero_()
    for steps in range(2, NEARBY + 1):
        check(deadline)
        new = (((d < steps).to(d.dtype) @ linked) > 0) & (d == FAR)
        if not new.any():
            return d
        d.masked_fill_(new, float(steps))
    for v in range(d.shape[1]):
        check(deadline)
        torch.minimum(d, d[:, :, v, None] + d[:, v, None], out=d)
    return d.clamp_(max=FAR)


def after_elimination(d: Tensor, to: Tensor) -> Tensor:
    """Distances when a variable at distances `to` (b n) has been eliminated, its neighbours joined.

    d'(x, y) = min(d(x, y), d(x, v) + d(v, y) − 1), exact: every shortest path through v is one
    edge shorter by fill-in, and no other path changes.
    """
    return torch.minimum(d, to[:, :, None] + to[:, None] - 1.0)


def heat_kernels(adjacency: Tensor) -> Tensor:
    """exp(−t L) (b n n t) of the normalised Laplacian, whose eigenvalues are at most two.

    Each of the times is twice the one before, so each kernel is the square of the one before; the
    first is a series. An eigenvalue routine would not do: it fails on some devices where
    eigenvalues repeat.
    """
    degree = adjacency.sum(-1)
    scale = degree.clamp(min=1.0).rsqrt()
    eye = torch.eye(adjacency.shape[1], device=adjacency.device, dtype=adjacency.dtype)
    laplacian = eye * (degree > 0)[:, None].to(eye.dtype)
    laplacian = laplacian - scale[:, :, None] * adjacency * scale[:, None]
    kernel = eye.expand_as(laplacian)
    for k in range(TERMS, 0, -1):  # Horner's rule
        kernel = eye - (DIFFUSIONS[0] / k) * (laplacian @ kernel)
    found = [kernel]
    for _ in DIFFUSIONS[1:]:
        found.append(found[-1] @ found[-1])
    return torch.stack(found, -1)
