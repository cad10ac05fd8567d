"""Training the network for any model: its configuration, batches, loss and check.

A `Task` of `train.loop` on models with exact labels (`general_mixture`).
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from icgi.neural import losses
from icgi.neural.general import GeneralConfig, GeneralNetwork
from icgi.neural.general_batch import Tables, assemble
from icgi.train.general_mixture import Set, Sizes
from icgi.train.labels import reliability
from icgi.train.parallel import Group


@dataclass(frozen=True, slots=True)
class GeneralBucket:
    """Training models that share a batch."""

    sizes: Sizes
    core: int  # variables that are summed exactly
    count: int  # training models
    batch: int
    share: int = 1  # steps in a round of all buckets


@dataclass(frozen=True, slots=True)
class GeneralRun:
    """A training run: data, optimiser, loss."""

    network: GeneralConfig = field(default_factory=GeneralConfig)
    buckets: tuple[GeneralBucket, ...] = ()
    seed: int = 0
    context_share: float = 0.3  # of training models that see noisy marginals as context
    jitter: float = 0.5  # spread of the factors on elimination costs
    steps: int = 1_000_000
    seconds: float = math.inf  # ends the schedule early where it runs out first
    rate: float = 2e-3
    warm_up: int = 100
    weight_decay: float = 0.01
    momenta: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    average: float = 0.995  # decay of the weights' moving average
    l1_weight: float = 0.3  # of L1 next to KL
    composite_weight: float = 1e-3  # of the paper's loss, which is about M_eff · KL
    composite_from: float = 0.3  # share of the schedule after which it counts
    effective: float = 1000.0
    gamma: float = 5.0
    validate_every: int = 150
    patience: int = 1000  # validations without a better MAE before stopping
    validation: int = 192  # models per bucket


def from_raw(raw: dict[str, Any]) -> GeneralRun:
    """Configuration from the parsed text of `train.config.to_json`."""
    buckets = (GeneralBucket(**{**b, "sizes": Sizes(**b["sizes"])}) for b in raw["buckets"])
    network = GeneralConfig(**raw["network"])
    fixed = {"buckets": tuple(buckets), "network": network, "momenta": tuple(raw["momenta"])}
    return GeneralRun(**{**raw, **fixed})


GENERAL = GeneralRun(
    buckets=(
        GeneralBucket(Sizes(20, 4, 8, 16, 2, 4, 2), core=5, count=12288, batch=256, share=2),
        GeneralBucket(Sizes(32, 4, 12, 26, 2, 4, 2), core=6, count=12288, batch=160, share=2),
        GeneralBucket(Sizes(14, 9, 6, 12, 5, 8, 3), core=3, count=6144, batch=192, share=1),
        GeneralBucket(Sizes(22, 9, 8, 18, 5, 8, 3), core=4, count=6144, batch=96, share=1),
    ),
)
"""The shipped `icgi-general`."""

TINY = GeneralRun(
    network=GeneralConfig(features=16, heads=2, layers=1, hidden=16, encode_every=4),
    buckets=(GeneralBucket(Sizes(14, 4, 8, 9, 2, 4, 2), 3, 24, 24),),
    context_share=0.0,
    steps=50,
    rate=1e-2,
    warm_up=10,
    average=0.9,
    validate_every=25,
    validation=16,
)
"""Overfits 24 small models on a CPU in under a minute."""


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Models on a device with exact marginals."""

    batch: Tables
    reference: Tensor  # b n k
    kind: Tensor  # b
    lbp: Tensor  # b    MAE of loopy belief propagation, where it was run

    def __getitem__(self, index: Tensor | slice) -> "Labels":
        return Labels(
            self.batch[index], self.reference[index], self.kind[index], self.lbp[index]
        )  # fmt: skip


def on_device(data: Set, device: torch.device | str) -> Labels:
    """Dense batch of a set."""
    return Labels(
        assemble(data.edges, device),
        torch.as_tensor(data.reference).to(device),
        torch.as_tensor(data.kind).to(device),
        torch.as_tensor(data.lbp).to(device),
    )


class GeneralTask:
    """A `Task` of `loop` on models of any kind."""

    recorded = True

    def __init__(self, config: GeneralRun, data: list[Labels], validation: list[Labels]) -> None:
        self.config, self.data, self.validation = config, data, validation
        self.device = data[0].reference.device

    def network(self) -> GeneralNetwork:
        """Untrained network."""
        return GeneralNetwork(self.config.network)

    def batches(self, group: Group) -> list["GeneralBatches"]:
        """One source of batches for each bucket."""
        pairs = zip(self.config.buckets, self.data, strict=True)
        return [GeneralBatches(self.config, b, d, group) for b, d in pairs]

    def loss(self, network: nn.Module, batch: "GeneralBatches", late: Tensor) -> Tensor:
        """Loss of the drawn batch."""
        part = batch.data[batch.index]
        given = with_context(part, batch.noise, batch.samples, batch.told)
        alpha = network(given, batch.bucket.core, batch.jitter)
        return objective(self.config, alpha, part, late)

    def validate(self, network: nn.Module) -> list[float]:
        """MAE over all buckets, then of each."""
        pairs = zip(self.validation, self.config.buckets, strict=True)
        each = [float(graph_errors(network, part, b.core).mean()) for part, b in pairs]
        return [sum(each) / len(each), *each]


class GeneralBatches:
    """The batch of one bucket, in arrays that stay where they are."""

    def __init__(
        self, config: GeneralRun, bucket: GeneralBucket, data: Labels, group: Group
    ) -> None:
        self.config, self.bucket, self.data, self.group = config, bucket, data, group
        device, b = data.reference.device, bucket.batch // group.count
        n, k = bucket.sizes.variables, bucket.sizes.states
        self.index = torch.zeros(b, dtype=torch.long, device=device)
        self.jitter = torch.ones(b, n, device=device)
        self.noise = torch.zeros(b, n, k, device=device)
        self.samples = torch.ones(b, 1, device=device)
        self.told = torch.zeros(b, 1, device=device)

    def draw(self, step: int, progress: float) -> None:
        """Choose models, orders and context; a function of seed and step alone."""
        rng = torch.Generator().manual_seed(1_000_003 * self.config.seed + step)
        b, own = self.bucket.batch, len(self.index)
        mine = slice(self.group.rank * own, (self.group.rank + 1) * own)
        self.index.copy_(torch.randint(len(self.data.kind), (b,), generator=rng)[mine])
        spread = self.config.jitter * torch.rand(b, 1, generator=rng)
        draws = torch.randn(b, self.jitter.shape[1], generator=rng)
        self.jitter.copy_(torch.exp(spread * draws)[mine])
        self.noise.copy_(torch.randn(b, *self.noise.shape[1:], generator=rng)[mine])
        self.samples.copy_(torch.exp(2.0 + 5.0 * torch.rand(b, 1, generator=rng))[mine])
        told = torch.rand(b, 1, generator=rng) < self.config.context_share
        self.told.copy_(told[mine].to(self.told.dtype))


def with_context(part: Labels, noise: Tensor, samples: Tensor, told: Tensor) -> Tables:
    """Batch that is told marginals as so many independent samples would give them, where `told`.

    Real samplers err together on variables that move together; here each errs by itself.
    """
    p = part.reference
    exists = part.batch.exists * part.batch.own[:, :, None]
    variance = p * (1.0 - p) / samples[:, :, None]
    guess = ((p + variance.sqrt() * noise).clamp(min=0.0) + 0.5 / samples[:, :, None]) * exists
    logs = torch.log(guess.clamp(min=1e-4)) * exists
    logs = (
        logs - logs.sum(-1, keepdim=True) / exists.sum(-1, keepdim=True).clamp(min=1.0)
    ) * exists
    sure = reliability(variance.amax(-1).sqrt()) * part.batch.own * told
    return part.batch.with_context(logs * told[:, :, None], sure)


def objective(run: GeneralRun, alpha: Tensor, part: Labels, late: Tensor) -> Tensor:
    """KL + w·L1, plus the paper's composite loss once `late` is 1."""
    # states that do not exist have no counts: any small concentration drops out of the loss
    alpha = alpha + 1e-7 * (1.0 - part.batch.exists)
    reference = part.reference
    warm = losses.kl(alpha, reference) + run.l1_weight * losses.l1(alpha, reference)
    exact = torch.zeros_like(part.batch.own)
    paper = losses.composite(alpha, reference, exact, run.gamma, run.effective)
    total = warm + late * run.composite_weight * paper
    return losses.graph_mean(total, part.batch.own)


@torch.no_grad()
def graph_errors(network: nn.Module, data: Labels, core: int, batch: int = 128) -> Tensor:
    """MAE of every graph (b): (1/|V|) Σ_i ‖p̂_i − p_i‖₁ over the model's own variables."""
    errors = []
    for start in range(0, len(data.kind), batch):
        part = data[start : start + batch]
        alpha = network(part.batch, core)
        error = losses.l1(alpha.clamp(min=1e-12), part.reference) * part.batch.own
        errors.append(error.sum(1) / part.batch.own.sum(1))
    return torch.cat(errors)
