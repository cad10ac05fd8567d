"""The training loop: batches by step number, so that a run resumed at any step repeats itself."""

import copy
import dataclasses
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from icgi.errors import CheckpointError
from icgi.neural import losses
from icgi.neural.fast import FastNetwork
from icgi.neural.weights import save_weights
from icgi.train.config import Bucket, TrainConfig, to_json
from icgi.train.labels import Labelled
from icgi.train.parallel import Group

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A finished run: the averaged network, and the validation MAE of every check."""

    network: FastNetwork
    history: list[dict[str, Any]]
    steps: int


def train(
    config: TrainConfig,
    data: list[Labelled],
    validation: list[tuple[Labelled, int]],
    folder: Path,
    report: Report = lambda line: None,
    start: FastNetwork | None = None,
) -> Result:
    """Train a network and keep its weights, log and last checkpoint in `folder`.

    A checkpoint found there is continued; the run ends with the same numbers as one that was never
    interrupted. Under `torchrun` every process takes its part of each batch.

    Parameters
    ----------
    data
        One labelled set per bucket of the configuration.
    validation
        Labelled sets and the size of the core to check them with; the first decides which weights
        are kept.
    start
        Network whose weights a new run begins with.
    """
    with Group() as group:
        run = _Run(config, data, group, start)
        run.prepare()
        if (folder / "checkpoint.pt").exists():
            run.restore(folder / "checkpoint.pt")
        return _loop(run, validation, folder, report)


def _loop(
    run: "_Run", validation: list[tuple[Labelled, int]], folder: Path, report: Report
) -> Result:
    config, group = run.config, run.group
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    while run.step < config.steps:
        elapsed = time.perf_counter() - began
        progress = max(run.step / config.steps, elapsed / config.seconds)
        if progress >= 1.0 or run.stale >= config.patience:
            break
        loss = run.advance(progress)
        if run.step % config.validate_every == 0 or run.step == config.steps:
            run.check(validation, float(loss), time.perf_counter() - began)
            if group.first:
                _write(run, folder)
                report(run.history[-1])
    if not run.history or run.history[-1]["step"] != run.step:
        run.check(validation, math.nan, time.perf_counter() - began)
        if group.first:
            _write(run, folder)
            report(run.history[-1])
    return Result(run.best, run.history, run.step)


def _write(run: "_Run", folder: Path) -> None:
    """Store the checkpoint, the best weights and the log; each replaces the last in one move."""
    (folder / "train.json").write_text(to_json(run.config))
    save_weights(folder / "weights.safetensors", run.best)
    torch.save(run.state(), folder / "checkpoint.new")
    (folder / "checkpoint.new").replace(folder / "checkpoint.pt")
    with (folder / "log.jsonl").open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in run.history)


class _Run:
    """Everything that changes during training."""

    def __init__(self, config: TrainConfig, data: list[Labelled], group: Group, start: FastNetwork | None) -> None:
        self.config, self.data, self.group = config, data, group
        self.device = data[0].up.device
        torch.manual_seed(config.seed)
        self.network = FastNetwork(config.network).to(self.device)
        if start is not None:
            self.network.load_state_dict(start.state_dict())
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.best = copy.deepcopy(self.average)
        self.step, self.stale, self.best_mae = 0, 0, math.inf
        self.history: list[dict[str, Any]] = []
        self.rate = torch.zeros((), device=self.device)
        self.late = torch.zeros((), device=self.device)
        cuda = self.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=self.rate if cuda else config.rate,
            betas=config.momenta,
            weight_decay=config.weight_decay,
            capturable=cuda,
        )
        self.wrapped: nn.Module = group.wrap(self.network)
        self.turns = [k for k, b in enumerate(config.buckets) for _ in range(b.share)]
        self.inputs = [_Inputs(config, b, d, group) for b, d in zip(config.buckets, data, strict=True)]
        self.steps: list[Callable[[], Tensor]] = []

    def prepare(self) -> None:
        """Make one function per bucket that does a training step; on one GPU, a CUDA graph."""
        plain = [lambda k=k: self._update(k) for k in range(len(self.data))]
        if self.device.type != "cuda" or self.group.count > 1:
            self.steps = plain
            return
        pool = torch.cuda.graph_pool_handle()
        self.steps = [_captured(one, self.inputs[k], pool) for k, one in enumerate(plain)]
        for state in self.optimizer.state.values():  # capturing took steps at rate zero
            for value in state.values():
                value.zero_()
        self.average.load_state_dict(self.network.state_dict())

    def advance(self, progress: float) -> Tensor:
        """One step; its loss stays on the device."""
        config = self.config
        k = self.turns[self.step % len(self.turns)]
        self.inputs[k].draw(self.step)
        rate = learning_rate(config, self.step, progress)
        if self.device.type == "cuda":
            self.rate.fill_(rate)
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        self.late.fill_(1.0 if progress >= config.composite_from else 0.0)
        loss = self.steps[k]()
        self.step += 1
        return loss

    def _update(self, k: int) -> Tensor:
        config, inputs = self.config, self.inputs[k]
        spins = inputs.spins()
        alpha = self.wrapped(spins, config.buckets[k].core, inputs.jitter)
        loss = objective(config, alpha, inputs.part, self.late)
        for p in self.network.parameters():
            p.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        used = [p for p in self.network.parameters() if p.grad is not None]
        for p in used:
            torch.nan_to_num_(p.grad, 0.0, 0.0, 0.0)  # a rare overflow must not end the run
        nn.utils.clip_grad_norm_(used, config.clip)
        self.optimizer.step()
        with torch.no_grad():
            averaged = list(self.average.parameters())
            torch._foreach_lerp_(averaged, list(self.network.parameters()), 1.0 - config.average)
        return loss.detach()

    def check(self, validation: list[tuple[Labelled, int]], loss: float, elapsed: float) -> None:
        """Validate the averaged weights and remember the best."""
        errors = [mean_error(self.average, part, core) for part, core in validation]
        line = {"step": self.step, "loss": loss, "seconds": round(elapsed, 2), "mae": errors}
        self.history.append(line)
        self.stale += 1
        if errors[0] < self.best_mae:
            self.best_mae, self.stale = errors[0], 0
            self.best.load_state_dict(self.average.state_dict())

    def state(self) -> dict[str, Any]:
        """Everything needed to continue."""
        index = {p: k for k, p in enumerate(self.network.parameters())}
        moments = {index[p]: dict(s) for p, s in self.optimizer.state.items()}
        return {
            "config": to_json(dataclasses.replace(self.config, seconds=math.inf)),
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "best": self.best.state_dict(),
            "moments": moments,
            "counters": (self.step, self.stale, self.best_mae),
            "history": self.history,
        }

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint, in place: captured graphs keep their addresses."""
        saved = torch.load(path, map_location=self.device, weights_only=True)
        if saved["config"] != to_json(dataclasses.replace(self.config, seconds=math.inf)):
            raise CheckpointError(
                f"{path} was written by a run with another configuration; give another folder, or "
                "the configuration stored beside it"
            )
        for name in ("network", "average", "best"):
            getattr(self, name).load_state_dict(saved[name])
        for k, p in enumerate(self.network.parameters()):
            if k in saved["moments"]:
                state = self.optimizer.state[p]
                for name, value in saved["moments"][k].items():
                    if name in state:
                        state[name].copy_(value)
                    else:
                        state[name] = value.clone()
        self.step, self.stale, self.best_mae = saved["counters"]
        self.history = saved["history"]


class _Inputs:
    """The batch of one bucket, in arrays that stay where they are."""

    def __init__(self, config: TrainConfig, bucket: Bucket, data: Labelled, group: Group) -> None:
        self.config, self.data, self.group = config, data, group
        device = data.up.device
        self.own = config.batch // group.count
        self.index = torch.zeros(self.own, dtype=torch.long, device=device)
        self.kind = torch.zeros(self.own, dtype=torch.long, device=device)
        self.told = torch.zeros(self.own, 1, device=device)
        self.jitter = torch.ones(self.own, bucket.largest, device=device)

    def draw(self, step: int) -> None:
        """Choose models, orders and context; a function of seed and step alone."""
        config, whole = self.config, self.config.batch
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


def learning_rate(config: TrainConfig, step: int, progress: float) -> float:
    """Linear warm-up, then half a cosine to a thousandth."""
    warm = min(1.0, (step + 1) / config.warm_up)
    return config.rate * warm * (0.5 * (1.0 + math.cos(math.pi * progress)) + 1e-3)


@torch.no_grad()
def mean_error(network: FastNetwork, data: Labelled, core: int, batch: int = 256) -> float:
    """MAE = mean over graphs of (1/|V|) Σ_i ‖p̂_i − p_i‖₁, without context."""
    return float(graph_errors(network, data, core, batch).mean())


@torch.no_grad()
def graph_errors(network: FastNetwork, data: Labelled, core: int, batch: int = 256) -> Tensor:
    """MAE of every graph (b)."""
    errors = []
    for k in range(0, len(data.up), batch):
        part = data[k : k + batch]
        alpha = network(part.spins, min(core, part.up.shape[1]))
        reference = torch.stack([part.up, 1.0 - part.up], -1)
        error = losses.l1(alpha, reference) * part.spins.real
        errors.append(error.sum(1) / part.spins.real.sum(1))
    return torch.cat(errors)


def _captured(one: Callable[[], Tensor], inputs: _Inputs, pool: Any) -> Callable[[], Tensor]:
    """Step recorded once and replayed: thousands of small kernels start without Python."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step in range(2):  # allocates optimiser state and library workspaces
            inputs.draw(step)
            one()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        loss = one()

    def replay() -> Tensor:
        graph.replay()
        return loss

    return replay


