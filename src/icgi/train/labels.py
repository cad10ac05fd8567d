"""Reference marginals of training models: exact where that is quick, tempering elsewhere.

On a CPU this is `data.labels.label`, model by model, with a number of sweeps where it samples, so
that labels do not depend on the machine. On a CUDA device spins are labelled in batches, by summing
all states of small models and by the tempering kernel.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from icgi.data.jobs.job import Question
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ising import as_ising
from icgi.model.ordering import find_order
from icgi.neural.batch import Batch, spins_of
from icgi.neural.closed_form import enumerate_core

LARGEST_TABLE = 19.0  # log₂ entries of a junction tree that is quick; larger ones are sampled
SWEEPS = 3000  # of every replica of a sampled model
LARGEST_SUM = 24  # spins whose states are all summed on a device
SUMMED = 2**30  # states of all models that one run sums
SEGMENTS, ENSEMBLES, REPLICAS = 8, 8, 16
LAUNCH = 4096  # models that share one launch of the sampler


class Known(NamedTuple):
    """Reference marginals of a model, and the deviation ŝ between independent ensembles."""

    probs: FloatArray  # n k
    spread: FloatArray  # n    zero where exact


def label(model: FactorGraph, rng: Generator) -> Known:
    """Reference marginals of one model."""
    if (summed := _all_states(model, rng)) is not None:
        return Known(summed, np.zeros(model.n_variables))
    from icgi.data.labels import Labelling
    from icgi.data.labels import label as reference
    from icgi.sampling.tempering import ParallelTempering

    own = Labelling(LARGEST_TABLE, sweeps=SWEEPS, tempering=ParallelTempering(ensembles=ENSEMBLES))
    found = reference(model, own, rng)
    spread = np.zeros(model.n_variables) if found.s_hat is None else found.s_hat
    return Known(found.probs, spread)


WORK = "icgi.train.labels:labelled"


def labelled(question: Question, seed: int) -> dict[str, Any]:
    """Work of a job: label of a model, from a random stream of its own."""
    found = label(question.model, np.random.default_rng(seed))
    return {"status": "done", "probs": found.probs.tolist(), "spread": found.spread.tolist()}


@torch.no_grad()
def _all_states(model: FactorGraph, rng: Generator) -> FloatArray | None:
    """Exact marginals (n 2) of few spins that a junction tree would not be quick for."""
    n = model.n_variables
    arrays = as_ising(model) if 2 <= n <= LARGEST_SUM else None
    if arrays is None or find_order(model, rng, restarts=0).log2_table <= LARGEST_TABLE:
        return None
    couplings = torch.zeros(1, n, n)
    i, j = torch.from_numpy(arrays.edges).T
    couplings[0, i, j] = couplings[0, j, i] = torch.from_numpy(arrays.couplings).float()
    mean = enumerate_core(couplings, torch.from_numpy(arrays.fields).float()[None])[0][0]
    up = 0.5 * (1.0 + mean.double().clamp(-1.0, 1.0).numpy())
    return np.asarray(np.stack([1.0 - up, up], 1))  # state 0 is spin −1


@torch.no_grad()
def label_spins(batch: Batch, sweeps: int, seed: int) -> tuple[Tensor, Tensor]:
    """Reference p (b n 2) and ŝ (b n) of binary pairwise models, on the batch's CUDA device."""
    spins = spins_of(batch)
    n = spins.fields.shape[1]
    if n <= LARGEST_SUM:
        up = _summed(spins.couplings, spins.fields, batch.real)
        spread = torch.zeros_like(up)
    else:
        chains = _tempered(spins.couplings, spins.fields, sweeps, seed)
        device = spins.fields.device
        up = torch.as_tensor(chains.mean(1)).to(device)
        spread = torch.as_tensor(chains.std(1, ddof=1)).to(device)
    up = torch.where(batch.real > 0, up.clamp(0.0, 1.0), 1.0)  # rounding may leave the interval
    return torch.stack([up, 1.0 - up], -1), spread * batch.real


def _summed(couplings: Tensor, fields: Tensor, real: Tensor) -> Tensor:
    """p(s = +1) (b n) by summing all states, models of one size together: padding costs most."""
    up = torch.ones_like(fields)
    sizes = real.sum(1).long()
    for n in sorted(set(sizes.tolist())):
        which = (sizes == n).nonzero()[:, 0]
        for part in torch.split(which, max(1, SUMMED // 2**n)):
            mean, _, _ = enumerate_core(couplings[part, :n, :n], fields[part, :n])
            up[part, :n] = 0.5 * (1.0 + mean)
    return up


def _tempered(couplings: Tensor, fields: Tensor, sweeps: int, seed: int) -> NDArray[np.float32]:
    """Mean of p(s = +1 | rest) of every chain (b c n)."""
    from icgi.sampling.gpu_batches import IsingBatch, Schedule, cupy

    cp = cupy()
    burn = int(0.3 * sweeps)
    ladder = np.geomspace(0.1, 1.0, REPLICAS)
    length = max(1, (sweeps - burn) // SEGMENTS)
    schedule = Schedule(ladder, ENSEMBLES, burn, length, SEGMENTS)
    parts = []
    for k in range(0, len(fields), LAUNCH):
        part = slice(k, k + LAUNCH)
        models = IsingBatch(
            cp.asarray(couplings[part].cpu().numpy()), cp.asarray(fields[part].cpu().numpy())
        )
        parts.append(models.launch_up(schedule, seed + k).sums[..., 0].mean(2))
    return np.concatenate(parts).astype(np.float32)
