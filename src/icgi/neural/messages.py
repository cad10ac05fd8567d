"""Belief propagation on the networks' own batches: their input and their fallback."""

import torch
from torch import Tensor

from icgi.neural.general_algebra import ABSENT, TINY
from icgi.neural.general_batch import Tables

SWEEPS = 20
DAMPING = 0.5
MOST_LOG = 60.0


@torch.no_grad()
def dense_beliefs(tables: Tables, sweeps: int = SWEEPS) -> Tensor:
    """Beliefs (b n k) of damped belief propagation after a few sweeps on dense pair tables."""
    linked = tables.adjacency[:, :, None, :, None]
    potential = torch.exp(tables.tables.clamp(-MOST_LOG, MOST_LOG))  # b i x j y
    exists = tables.exists
    message = torch.zeros_like(tables.tables[..., 0])  # b i x j    from j to i, in logs
    for _ in range(sweeps):
        total = tables.unary + message.sum(3)  # b n k
        # from i to j, without what came from j: b i x j
        cavity = total[..., None] - message
        cavity = cavity - cavity.amax(2, keepdim=True)
        weight = torch.exp(cavity.clamp(min=ABSENT))
        sent = torch.einsum("bixjy,bjyi->bixj", potential * linked, weight)
        sent = torch.log(sent + TINY) * (exists[..., None] * tables.adjacency[:, :, None])
        sent = (
            sent
            - (sent * exists[..., None]).sum(2, keepdim=True)
            / exists.sum(2, keepdim=True).clamp(min=1.0)[..., None]
        )
        sent = sent * (exists[..., None] * tables.adjacency[:, :, None])
        message = DAMPING * message + (1.0 - DAMPING) * sent
    return torch.softmax(torch.where(exists > 0, tables.unary + message.sum(3), ABSENT), -1)
