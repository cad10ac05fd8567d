"""Training the paper's network: its batches with Gumbel noise, its loss, its check."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from icgi.neural import losses
from icgi.neural.graphs import in_batches
from icgi.neural.paper import PaperConfig, PaperNetwork, plan
from icgi.neural.selection import gumbel
from icgi.train.config import Bucket, TrainConfig
from icgi.train.evaluate import rank_correlation
from icgi.train.graph_data import Batch, Examples
from icgi.train.parallel import Group


class GraphTask:
    """A `Task` of `loop` on factor graphs of any kind.

    Paper: random node permutations as augmentation; here none, because the network does not see
    the numbering.
    """

    def __init__(
        self, config: TrainConfig, data: Sequence[Examples], validation: Sequence[Examples]
    ) -> None:
        if not isinstance(config.network, PaperConfig):
            raise TypeError("graphs train the paper's network; spins train the fast one")
        self.config, self.data, self.validation = config, data, validation
        self.settings = config.network
        self.device = data[0].device
        self.recorded = self.settings.positions == "spd"  # eigenvectors cannot be recorded

    def network(self) -> PaperNetwork:
        """Untrained network."""
        made = PaperNetwork(self.settings)
        made.low_precision = self.config.low_precision and self.device.type == "cuda"
        return made

    def batches(self, group: Group) -> list["GraphBatches"]:
        """One source of batches for each bucket."""
        pairs = zip(self.config.buckets, self.data, strict=True)
        return [GraphBatches(self.config, bucket, data, group) for bucket, data in pairs]

    def loss(self, network: nn.Module, batch: "GraphBatches", late: Tensor) -> Tensor:
        """KL + w·L1, plus the paper's composite loss once `late` is 1.

        What the head says after earlier layers counts too, with weights that rise to `deep_weight`.
        """
        drawn = batch.take()
        config = self.config
        deep = config.deep_weight > 0
        said = network(drawn.graphs, batch.noise, batch.temperature, early=deep)
        alpha = said[-1] if deep else said
        warm = self._warm(alpha, drawn.reference)
        early = len(said) - 1 if deep else 0
        for k in range(early):
            share = config.deep_weight * 2.0 * (k + 1) / (early * (early + 1))
            warm = warm + share * self._warm(said[k], drawn.reference)
        paper = losses.composite(
            alpha, drawn.reference, drawn.spread, config.gamma, config.effective
        )
        total = warm + late * config.composite_weight * paper
        return losses.graph_mean(total, drawn.graphs.real)

    def _warm(self, alpha: Tensor, reference: Tensor) -> Tensor:
        far = losses.l1(alpha, reference)
        return losses.kl(alpha, reference) + self.config.l1_weight * far

    def validate(self, network: nn.Module) -> list[float]:
        """MAE on every validation set, in single precision and with the order of the test."""
        network.low_precision = False  # type: ignore[assignment]
        return [float(graph_errors(network, part).mean()) for part in self.validation]


class GraphBatches:
    """The batch of one bucket, in arrays that stay where they are."""

    def __init__(self, config: TrainConfig, bucket: Bucket, data: Examples, group: Group) -> None:
        self.config, self.data, self.group = config, data, group
        self.whole = bucket.batch or config.batch
        self.own = self.whole // group.count
        rounds = 1
        if isinstance(config.network, PaperConfig):
            rounds = plan(config.network, data.variables)[0] or 1
        zeros = torch.zeros(self.own, device=data.device)
        self.index, self.kind = zeros.long(), zeros.long()
        self.told = zeros.clone()
        self.temperature = torch.ones((), device=data.device)
        self.noise = torch.zeros(self.own, rounds, data.variables, device=data.device)

    def draw(self, step: int, progress: float) -> None:
        """Choose models, noise and context by seed and step, τ by progress."""
        config = self.config
        rng = torch.Generator().manual_seed(1_000_003 * config.seed + step)
        whole = self.whole
        index = torch.randint(self.data.size, (whole,), generator=rng)
        kind = torch.randint(max(1, len(config.context_sweeps)), (whole,), generator=rng)
        told = torch.rand(whole, generator=rng) < config.context_share
        noise = gumbel((whole, *self.noise.shape[1:]), rng)
        first = self.group.rank * self.own
        mine = slice(first, first + self.own)
        self.index.copy_(index[mine])
        self.kind.copy_(kind[mine])
        self.told.copy_(told[mine])
        self.noise.copy_(noise[mine])
        self.temperature.fill_(temperature(config, progress))

    def take(self) -> Batch:
        """The chosen models, with their context where one was chosen."""
        batch = self.data[self.index]
        known = self.data.context(self.index, self.kind)
        if known is None:
            return batch
        estimate, sure = known
        told = self.told[:, None] * batch.graphs.real
        graphs = batch.graphs.with_context(estimate * told[..., None], sure * told)
        return dataclasses.replace(batch, graphs=graphs)


def temperature(config: TrainConfig, progress: float) -> float:
    """Return τ, falling geometrically until `cool_until` of the schedule."""
    first, last = config.temperatures
    share = min(1.0, progress / config.cool_until) if config.cool_until else 1.0
    return float(first * (last / first) ** share)


def graph_errors(network: nn.Module, data: Examples, batch: int = 128) -> Tensor:
    """MAE of every graph (b): (1/|V|) Σ_i ‖p̂_i − p_i‖₁."""
    return errors_and_rank(network, data, batch)[0]


@torch.no_grad()
def errors_and_rank(network: nn.Module, data: Examples, batch: int = 128) -> tuple[Tensor, Tensor]:
    """MAE of every graph (b), and the rank correlation of 1/α₀ with the error of all variables."""
    errors, precision, wrong = [], [], []
    for part in in_batches(data.size, batch):
        drawn = data[part]
        real = drawn.graphs.real
        alpha = network(drawn.graphs)
        error = losses.l1(alpha, drawn.reference)
        errors.append((error * real).sum(1) / real.sum(1))
        precision.append(alpha.sum(-1)[real > 0])
        wrong.append(error[real > 0])
    return torch.cat(errors), rank_correlation(-torch.cat(precision), torch.cat(wrong))
