"""Reference marginals for training: small models exactly, others by tempering on a GPU."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icgi.neural.closed_form import enumerate_core, half_logit
from icgi.neural.spins import Spins, make_spins
from icgi.sampling.gpu_batches import IsingBatch, Schedule, cupy
from icgi.train.mixture import Dense

LARGEST_EXACT = 16  # variables whose states are summed
LAUNCH = 4096  # models that share one launch of the sampler


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Models, reference p(s = +1), its cross-chain deviation ŝ, and short runs as context."""

    spins: Spins
    up: Tensor  # b n
    spread: Tensor  # b n
    estimates: Tensor  # c b n    half log-odds of each kind of short run
    reliabilities: Tensor  # c b n

    def __getitem__(self, index: Tensor | slice) -> "Labelled":
        return Labelled(
            self.spins[index], self.up[index], self.spread[index],
            self.estimates[:, index], self.reliabilities[:, index],
        )  # fmt: skip

    def to(self, device: torch.device | str) -> "Labelled":
        """Same data elsewhere."""
        return Labelled(*(getattr(self, f.name).to(device) for f in fields(self)))


def spins_of(models: Dense, device: torch.device | str = "cpu") -> Spins:
    """Batch of models without context."""
    j = torch.as_tensor(models.couplings).to(device)
    h = torch.as_tensor(models.fields).to(device)
    n = torch.as_tensor(models.sizes).to(device)
    real = (torch.arange(h.shape[1], device=device) < n[:, None]).to(h.dtype)
    return make_spins(j, h, real)


def label(
    models: Dense,
    sweeps: int,
    context_sweeps: tuple[int, ...],
    seed: int,
    device: torch.device | str = "cpu",
    ensembles: int = 4,
) -> Labelled:
    """Label models; those of up to 16 variables exactly, without a device.

    Larger ones are tempered: the mean over `ensembles` independent chains is the reference, their
    standard deviation is ŝ.
    """
    spins = spins_of(models, device)
    if models.fields.shape[1] <= LARGEST_EXACT and not context_sweeps:
        halves = (torch.split(x.double(), 64) for x in (spins.couplings, spins.fields))
        parts = zip(*halves, strict=True)
        mean = torch.cat([enumerate_core(j, h)[0] for j, h in parts])
        nothing = spins.fields.new_zeros(0, *spins.fields.shape)
        up = (0.5 * (1.0 + mean)).to(spins.fields.dtype)
        return Labelled(spins, up, torch.zeros_like(up), nothing, nothing)
    chains = temper(models, sweeps, ensembles, seed).mean(2)  # b c n
    up = torch.as_tensor(chains.mean(1), dtype=torch.float32)
    spread = torch.as_tensor(chains.std(1, ddof=1), dtype=torch.float32)
    known = [context(models, s, seed + 7919 * (k + 1)) for k, s in enumerate(context_sweeps)]
    empty = torch.zeros(0, *up.shape)
    return Labelled(
        spins,
        up.to(device),
        spread.to(device),
        torch.stack([e for e, _ in known]).to(device) if known else empty.to(device),
        torch.stack([r for _, r in known]).to(device) if known else empty.to(device),
    )


def context(models: Dense, sweeps: int, seed: int) -> tuple[Tensor, Tensor]:
    """Half log-odds and reliability (b n) of one short tempering run."""
    segments = torch.as_tensor(temper(models, sweeps, 1, seed)[:, 0], dtype=torch.float32)  # b s n
    error = segments.std(1) / segments.shape[1] ** 0.5
    return half_logit(segments.mean(1).clamp(1e-3, 1.0 - 1e-3)), reliability(error)


def reliability(error: Tensor) -> Tensor:
    """log(1 + 1/(σ² + 10⁻⁴))/10 of a probability with standard error σ: 0.92 at best."""
    return torch.log1p(1.0 / (error * error + 1e-4)) / 10.0


def temper(
    models: Dense, sweeps: int, ensembles: int, seed: int, replicas: int = 16
) -> NDArray[np.float32]:
    """Mean of p(s = +1 | rest) in every segment of every chain, b c s n."""
    cp = cupy()
    burn, segments = int(0.3 * sweeps), 8
    ladder = np.geomspace(0.1, 1.0, replicas)
    schedule = Schedule(ladder, ensembles, burn, max(1, (sweeps - burn) // segments), segments)
    parts = []
    for k in range(0, len(models.fields), LAUNCH):
        couplings = cp.asarray(models.couplings[k : k + LAUNCH])
        batch = IsingBatch(couplings, cp.asarray(models.fields[k : k + LAUNCH]))
        parts.append(batch.launch_up(schedule, seed + k).sums[..., 0])
    return np.concatenate(parts).astype(np.float32)
