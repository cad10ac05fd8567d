"""A training task: any network of the dictionary, its batches, its loss and its measure."""

from typing import Any

import torch
from torch import Tensor, nn

from icgi.neural import losses
from icgi.neural.networks import Draws, network_class
from icgi.train.config import TrainConfig
from icgi.train.examples import Examples
from icgi.train.parallel import Group

WHOLE = 4096  # models that are prepared at once
CHECKED = 256  # models of a validation set that are answered at once
EASY = 1e-4  # KL of a first pass below which models count alike


class Task:
    """A network on labelled models; the one form in which `loop` trains anything.

    Paper: random node permutations as augmentation; here none, because no network sees the
    numbering.
    """

    def __init__(
        self,
        config: TrainConfig,
        data: list[Examples],
        validation: list[Examples],
    ) -> None:
        self.config, self.data, self.validation = config, data, validation
        self.forms: list[Any] | None = None  # the data as the network reads them
        self.device = data[0].reference.device
        made = network_class(config.network)
        self.recorded: bool = made.recorded  # type: ignore[attr-defined]

    def network(self) -> nn.Module:
        """Untrained network."""
        found: nn.Module = network_class(self.config.network)(self.config.settings)
        return found

    def batches(self, group: Group) -> list["Batches"]:
        """One source of batches for each bucket, this process's part of each."""
        made = self.network().to(self.device)
        if self.recorded and self.forms is None:
            self.forms = [prepared_form(made, data) for data in self.data]
        forms = self.forms or [None] * len(self.data)
        return [
            Batches(self.config, bucket.batch or self.config.batch, data, form, group, made)
            for bucket, data, form in zip(self.config.buckets, self.data, forms, strict=True)
        ]

    def loss(self, network: nn.Module, batch: "Batches", late: Tensor) -> Tensor:
        """Loss of the batch that was drawn; `late` is 1 once the paper's loss counts beside KL."""
        config = self.config
        form, reference, spread, asked, weight = batch.take()
        alpha = network(form, batch.draws)
        paper: Tensor | float = 0.0
        if config.loss != "warm" and batch.dirichlet:
            safe = torch.where(alpha > 0, alpha, 1e-30)
            paper = losses.composite(safe, reference, spread, config.gamma, config.effective)
        if config.loss == "paper" and batch.dirichlet:
            return losses.graph_mean(paper * weight, asked)
        warm = losses.kl(alpha, reference) + config.l1_weight * losses.l1(alpha, reference)
        return losses.graph_mean((warm + late * config.composite_weight * paper) * weight, asked)

    def validate(self, network: nn.Module) -> list[float]:
        """MAE on every validation set; their geometric mean decides which weights are kept."""
        return [float(graph_errors(network, part, CHECKED).mean()) for part in self.validation]


class Batches:
    """The batch of one bucket; arrays of networks that are recorded stay where they are."""

    def __init__(
        self,
        config: TrainConfig,
        whole: int,
        data: Examples,
        form: Any,
        group: Group,
        network: Any,
    ) -> None:
        self.config, self.data, self.group, self.whole = config, data, group, whole
        self.network, self.dirichlet = network, network.dirichlet
        self.own = whole // group.count
        device = data.reference.device
        self.form = form
        self.weight = weights_of(data, form, config.relative)
        self.index = torch.zeros(self.own, dtype=torch.long, device=device)
        shape = network.noise(self.own, data.reference.shape[1])
        self.draws = None
        if shape:
            self.draws = Draws(torch.zeros(shape, device=device), torch.ones((), device=device))

    def draw(self, step: int, progress: float) -> None:
        """Choose models and noise; what is drawn is a function of seed and step alone."""
        rng = torch.Generator().manual_seed(1_000_003 * self.config.seed + step)
        first = self.group.rank * self.own
        mine = slice(first, first + self.own)
        self.index.copy_(torch.randint(len(self.data), (self.whole,), generator=rng)[mine])
        if self.draws is not None:
            shape = (self.whole, *self.draws.uniform.shape[1:])
            self.draws.uniform.copy_(torch.rand(shape, generator=rng)[mine])
            self.draws.temperature.fill_(temperature(self.config, progress))

    def take(self) -> tuple[Any, Tensor, Tensor, Tensor, Tensor]:
        """Chosen models in the network's form, references, ŝ, what counts, models' weights."""
        data, i = self.data, self.index
        form = self.form[i] if self.form is not None else self.network.prepare(data.batch[i])
        return form, data.reference[i], data.spread[i], data.asked[i], self.weight[i][:, None]


@torch.no_grad()
def weights_of(data: Examples, form: Any, power: float) -> Tensor:
    """Weights (b) of mean one: 1/(KL of what is known before the network)^power.

    With the power zero the hardest models decide what is learned; with one, a gain by the same
    factor counts the same on all.
    """
    first = getattr(form, "first", None)
    if not power or first is None:
        return torch.ones_like(data.reference[:, 0, 0])
    error = (losses.kl(first, data.reference) * data.asked).sum(1) / data.asked.sum(1)
    found = (error.clamp(min=0.0) + EASY) ** -power
    return found / found.mean()


@torch.no_grad()
def prepared_form(network: Any, data: Examples) -> Any:
    """All models of a set in the form that the network reads."""
    whole = torch.arange(len(data), device=data.reference.device)
    parts = [network.prepare(data.batch[part]) for part in torch.split(whole, WHOLE)]
    return parts[0] if len(parts) == 1 else type(parts[0]).joined(parts)


def temperature(config: TrainConfig, progress: float) -> float:
    """Return τ, falling geometrically until `cool_until` of the schedule."""
    first, last = config.temperatures
    share = min(1.0, progress / config.cool_until) if config.cool_until else 1.0
    return float(first * (last / first) ** share)


@torch.no_grad()
def answers(network: Any, data: Examples, batch: int = 64) -> Tensor:
    """Concentrations (b n k) that a network gives the models of a set."""
    whole = torch.arange(len(data), device=data.reference.device)
    found = [network(network.prepare(data.batch[part])) for part in torch.split(whole, batch)]
    return torch.cat(found)


def graph_errors(network: Any, data: Examples, batch: int = 64) -> Tensor:
    """MAE of every graph (b): (1/|V|) Σ_i ‖p̂_i − p_i‖₁."""
    error = losses.l1(answers(network, data, batch), data.reference) * data.asked
    return error.sum(1) / data.asked.sum(1)
