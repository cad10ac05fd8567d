"""Training the fast network on spins: its batches, its loss, its check."""

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from icgi.neural import losses
from icgi.neural.fast import FastConfig, FastNetwork
from icgi.train.config import Bucket, TrainConfig
from icgi.train.labels import Labelled
from icgi.train.parallel import Group


class SpinTask:
    """A `Task` of `loop` on binary pairwise models."""

    recorded = True

    def __init__(
        self, config: TrainConfig, data: list[Labelled], validation: list[tuple[Labelled, int]]
    ) -> None:
        self.config, self.data, self.validation = config, data, validation
        self.device = data[0].up.device

    def network(self) -> FastNetwork:
        """Untrained network."""
        if not isinstance(self.config.network, FastConfig):
            raise TypeError("spins train the fast network; graphs train the paper's")
        return FastNetwork(self.config.network)

    def batches(self, group: Group) -> list["SpinBatches"]:
        """One source of batches for each bucket."""
        pairs = zip(self.config.buckets, self.data, strict=True)
        return [SpinBatches(self.config, b, d, group) for b, d in pairs]

    def loss(self, network: nn.Module, batch: "SpinBatches", late: Tensor) -> Tensor:
        """Loss of the drawn batch."""
        alpha = network(batch.spins(), batch.core, batch.jitter)
        return objective(self.config, alpha, batch.part, late)

    def validate(self, network: nn.Module) -> list[float]:
        """MAE on every validation set."""
        return [mean_error(network, part, core) for part, core in self.validation]


class SpinBatches:
    """The batch of one bucket, in arrays that stay where they are."""

    def __init__(self, config: TrainConfig, bucket: Bucket, data: Labelled, group: Group) -> None:
        self.config, self.data, self.group = config, data, group
        self.core = bucket.core
        device = data.up.device
        self.whole = bucket.batch or config.batch
        self.own = self.whole // group.count
        self.index = torch.zeros(self.own, dtype=torch.long, device=device)
        self.kind = torch.zeros(self.own, dtype=torch.long, device=device)
        self.told = torch.zeros(self.own, 1, device=device)
        self.jitter = torch.ones(self.own, bucket.largest, device=device)

    def draw(self, step: int, progress: float) -> None:
        """Choose models, orders and context; a function of seed and step alone."""
        config, whole = self.config, self.whole
        rng = torch.Generator().manual_seed(1_000_003 * config.seed + step)
        index = torch.randint(len(self.data.up), (whole,), generator=rng)
        kinds = max(1, len(self.data.estimates))
        kind = torch.randint(kinds, (whole,), generator=rng)
        told = torch.rand(whole, 1, generator=rng) < config.context_share
        spread = config.jitter * torch.rand(whole, 1, generator=rng)
        jitter = torch.exp(spread * torch.randn(whole, self.jitter.shape[1], generator=rng))
        first = self.group.rank * self.own
        mine = slice(first, first + self.own)
        self.index.copy_(index[mine])
        self.kind.copy_(kind[mine])
        self.told.copy_(told[mine])
        self.jitter.copy_(jitter[mine])

    @property
    def part(self) -> Labelled:
        """The chosen models."""
        return self.data[self.index]

    def spins(self) -> Any:
        """The chosen models with their context, where one was chosen."""
        spins = self.data.spins[self.index]
        if not len(self.data.estimates):
            return spins
        return dataclasses.replace(
            spins,
            estimate=self.data.estimates[self.kind, self.index] * self.told,
            reliability=self.data.reliabilities[self.kind, self.index] * self.told,
        )


def objective(config: TrainConfig, alpha: Tensor, part: Labelled, late: Tensor) -> Tensor:
    """KL + w·L1, plus the paper's composite loss once `late` is 1."""
    reference = torch.stack([part.up, 1.0 - part.up], -1)
    warm = losses.kl(alpha, reference) + config.l1_weight * losses.l1(alpha, reference)
    paper = losses.composite(alpha, reference, part.spread, config.gamma, config.effective)
    total = warm + late * config.composite_weight * paper
    return losses.graph_mean(total, part.spins.real)


@torch.no_grad()
def mean_error(network: nn.Module, data: Labelled, core: int, batch: int = 256) -> float:
    """MAE = mean over graphs of (1/|V|) Σ_i ‖p̂_i − p_i‖₁, without context."""
    return float(graph_errors(network, data, core, batch).mean())


@torch.no_grad()
def graph_errors(network: nn.Module, data: Labelled, core: int, batch: int = 256) -> Tensor:
    """MAE of every graph (b)."""
    errors = []
    for k in range(0, len(data.up), batch):
        part = data[k : k + batch]
        alpha = network(part.spins, min(core, part.up.shape[1]))
        reference = torch.stack([part.up, 1.0 - part.up], -1)
        error = losses.l1(alpha, reference) * part.spins.real
        errors.append(error.sum(1) / part.spins.real.sum(1))
    return torch.cat(errors)
