"""Elimination orders of many graphs at once, and the distances that elimination changes."""

import torch
from torch import Tensor

FAR = 1000.0  # distance of variables that no path joins; above any real one


def min_degree_order(adjacency: Tensor, real: Tensor, noise: Tensor) -> Tensor:
    """Order of elimination (b n) of each graph: padding first, then least degree plus noise.

    Padding goes first, so that the last variables, which are summed exactly, are real ones.

    Parameters
    ----------
    adjacency
        1 for edges (b n n).
    real
        1 for variables, 0 for padding (b n).
    noise
        Added to the degrees (b n): breaks ties, and makes the order random where it is large.
    """
    b, n = real.shape
    graph = adjacency.clone()
    rows = torch.arange(b, device=graph.device)
    gone = torch.zeros_like(real, dtype=torch.bool)
    order = []
    for _ in range(n):
        key = graph.sum(-1) + noise - 1e4 * (1.0 - real)
        v = key.masked_fill(gone, torch.inf).argmin(-1)  # b
        order.append(v)
        gone[rows, v] = True
        near = graph[rows, v]  # b n
        graph = torch.maximum(graph, near[:, :, None] * near[:, None])
        graph.diagonal(dim1=1, dim2=2).zero_()
        graph[rows, v] = 0.0
        graph[rows, :, v] = 0.0
    return torch.stack(order, 1)


def distances(adjacency: Tensor) -> Tensor:
    """Shortest-path distances (b n n), `FAR` where no path leads."""
    d = torch.where(adjacency > 0, 1.0, FAR).to(adjacency.dtype)
    d.diagonal(dim1=1, dim2=2).zero_()
    for v in range(d.shape[1]):
        d = torch.minimum(d, d[:, :, v, None] + d[:, v, None])
    return d.clamp(max=FAR)


def after_elimination(d: Tensor, to: Tensor) -> Tensor:
    """Distances when a variable at distances `to` (b n) has been eliminated, its neighbours joined.

    d'(x, y) = min(d(x, y), d(x, v) + d(v, y) − 1), exact: every shortest path through v is one
    edge shorter by fill-in, and no other path changes.
    """
    return torch.minimum(d, to[:, :, None] + to[:, None] - 1.0)


def permuted(matrix: Tensor, order: Tensor) -> Tensor:
    """Rows and columns of b n n matrices in the given order."""
    b, n = order.shape
    rows = matrix.gather(1, order[:, :, None].expand(b, n, n))
    return rows.gather(2, order[:, None].expand(b, n, n))
