"""The training loop: batches by step number, so that a run resumed at any step repeats itself."""

import copy
import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from icgi.errors import CheckpointError
from icgi.neural.weights import save_weights
from icgi.train.config import TrainConfig, to_json
from icgi.train.parallel import Group
from icgi.train.task import Batches, Task

MOST_SKIPPED = 0.02  # share of steps without a finite gradient that ends a run
Report = Callable[[dict[str, Any]], None]
Tick = Callable[[int, float], None]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A finished run: the averaged network, and the validation MAE of every check."""

    network: Any
    history: list[dict[str, Any]]
    steps: int


def run_task(
    task: Task,
    folder: Path,
    report: Report = lambda line: None,
    start: nn.Module | None = None,
    tick: Tick = lambda step, progress: None,
) -> Result:
    """Train a network and keep its weights, log and last checkpoint in `folder`.

    A checkpoint found there is continued; the run ends with the same numbers as one that was never
    interrupted. Under `torchrun` every process takes its part of each batch, and the first one has
    the folder: when a node has died, those that are started again go on from there. `start` is a
    network whose weights a new run begins with. `tick` is called at every step, with the share of
    the schedule that is over; `report` at every validation.
    """
    with Group() as group:
        run = Run(task, group, start)
        run.prepare(report)
        path = folder / "checkpoint.pt"
        saved = run.stored(path) if group.first and path.exists() else None
        saved = group.from_first(saved)
        if saved is not None:
            run.restore(saved, path)
        return _loop(run, folder, report, tick)


def _loop(run: "Run", folder: Path, report: Report, tick: Tick) -> Result:
    config, group = run.config, run.group
    if group.first:
        folder.mkdir(parents=True, exist_ok=True)
    # seconds before an interruption count: the schedule goes on where it was
    began = time.perf_counter() - (run.history[-1]["seconds"] if run.history else 0.0)
    while run.step < config.steps:
        elapsed = time.perf_counter() - began
        if math.isfinite(config.seconds):  # by one clock, or processes would part at the end
            elapsed = group.from_first(elapsed)
        progress = max(run.step / config.steps, elapsed / config.seconds)
        if progress >= 1.0 or run.stale >= config.patience:
            break
        tick(run.step, progress)
        loss = run.advance(progress)
        if run.step % config.validate_every == 0 or run.step == config.steps:
            run.check(float(loss), time.perf_counter() - began)
            if group.first:
                _write(run, folder)
                report(run.history[-1])
    if not run.history or run.history[-1]["step"] != run.step:
        run.check(math.nan, time.perf_counter() - began)
        if group.first:
            _write(run, folder)
            report(run.history[-1])
    return Result(run.best, run.history, run.step)


def _write(run: "Run", folder: Path) -> None:
    """Store the checkpoint, the best weights and the log; each replaces the last in one move."""
    (folder / "train.json").write_text(to_json(run.config))
    save_weights(folder / "weights.safetensors", run.best)
    torch.save(run.state(), folder / "checkpoint.new")
    (folder / "checkpoint.new").replace(folder / "checkpoint.pt")
    with (folder / "log.jsonl").open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in run.history)


class Run:
    """Everything that changes during training."""

    def __init__(self, task: Task, group: Group, start: nn.Module | None) -> None:
        self.task, self.config, self.group = task, task.config, group
        self.device = task.device
        config = task.config
        torch.manual_seed(config.seed)
        self.network = task.network().to(self.device)
        if start is not None:
            self.network.load_state_dict(start.state_dict())
        self.average = copy.deepcopy(self.network).requires_grad_(False).eval()
        self.best = copy.deepcopy(self.average)
        self.step, self.stale, self.best_mae = 0, 0, math.inf
        self.history: list[dict[str, Any]] = []
        self.rate = torch.zeros((), device=self.device)
        self.late = torch.zeros((), device=self.device)
        self.skipped = torch.zeros((), device=self.device)  # steps without a finite gradient
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
        self.inputs: Sequence[Batches] = task.batches(group)
        self.steps: list[Callable[[], Tensor]] = []

    def prepare(self, report: Report) -> None:
        """Make one function per bucket that does a training step; on one GPU, a CUDA graph."""
        plain = [partial(self._update, k) for k in range(len(self.inputs))]
        self.steps = list(plain)
        if self.device.type != "cuda" or self.group.count > 1 or not self.task.recorded:
            return
        before = copy.deepcopy(self.network.state_dict())
        try:
            pool = torch.cuda.graph_pool_handle()
            pairs = zip(plain, self.inputs, strict=True)
            self.steps = [_captured(one, inputs, pool) for one, inputs in pairs]
        except RuntimeError as error:  # slower, but the run goes on
            report({"step": 0, "note": f"steps are not recorded: {error}"})
            torch.cuda.synchronize()
            self.steps = list(plain)
        self.network.load_state_dict(before)
        self.skipped.zero_()
        for state in self.optimizer.state.values():  # capturing took steps at rate zero
            for value in state.values():
                value.zero_()
        self.average.load_state_dict(self.network.state_dict())

    def advance(self, progress: float) -> Tensor:
        """One step; its loss stays on the device."""
        config = self.config
        k = self.turns[self.step % len(self.turns)]
        self.inputs[k].draw(self.step, progress)
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
        config = self.config
        loss = self.task.loss(self.wrapped, self.inputs[k], self.late)
        for p in self.network.parameters():
            p.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        used = [p for p in self.network.parameters() if p.grad is not None]
        norm = nn.utils.clip_grad_norm_(used, config.clip)
        # a step whose gradient overflowed is skipped, counted and reported; no branch on the device
        finite = torch.isfinite(norm)
        self.skipped += 1.0 - finite.to(self.skipped.dtype)
        for p in used:
            if p.grad is not None:
                p.grad.copy_(torch.where(finite, torch.nan_to_num(p.grad), 0.0))
        self.optimizer.step()
        with torch.no_grad():
            averaged: list[Tensor] = list(self.average.parameters())
            current: list[Tensor] = list(self.network.parameters())
            torch._foreach_lerp_(averaged, current, 1.0 - config.average)
        return loss.detach()

    def check(self, loss: float, elapsed: float) -> None:
        """Validate the averaged weights and remember the best."""
        errors = self.task.validate(self.average)
        line = {"step": self.step, "loss": loss, "seconds": round(elapsed, 2), "mae": errors}
        if skipped := int(self.skipped):
            line["skipped"] = skipped
            if skipped > MOST_SKIPPED * self.step + 1:
                raise CheckpointError(
                    f"{skipped} of {self.step} steps had no finite gradient; lower the rate, or "
                    "look for models whose potentials are too large"
                )
        self.history.append(line)
        self.stale += 1
        score = math.exp(sum(math.log(max(e, 1e-12)) for e in errors) / len(errors))
        if score < self.best_mae:
            self.best_mae, self.stale = score, 0
            self.best.load_state_dict(self.average.state_dict())

    def state(self) -> dict[str, Any]:
        """Everything needed to continue."""
        index: dict[Tensor, int] = {p: k for k, p in enumerate(self.network.parameters())}
        moments = {index[p]: dict(s) for p, s in self.optimizer.state.items()}
        return {
            "config": to_json(dataclasses.replace(self.config, seconds=math.inf)),
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "best": self.best.state_dict(),
            "moments": moments,
            "counters": (self.step, self.stale, self.best_mae, float(self.skipped)),
            "history": self.history,
        }

    def stored(self, path: Path) -> dict[str, Any]:
        """Read a checkpoint, in the memory of the processor."""
        found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return found

    def restore(self, saved: dict[str, Any], path: Path) -> None:
        """Continue from a checkpoint, in place: captured graphs keep their addresses."""
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
                        state[name] = value.to(self.device, copy=True)
        self.step, self.stale, self.best_mae, skipped = saved["counters"]
        self.skipped.fill_(skipped)
        self.history = saved["history"]


def learning_rate(config: TrainConfig, step: int, progress: float) -> float:
    """Linear warm-up, then half a cosine to a thousandth."""
    warm = min(1.0, (step + 1) / config.warm_up)
    return config.rate * warm * (0.5 * (1.0 + math.cos(math.pi * progress)) + 1e-3)


def _captured(one: Callable[[], Tensor], inputs: Batches, pool: Any) -> Callable[[], Tensor]:
    """Step recorded once and replayed: thousands of small kernels start without Python."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step in range(2):  # allocates optimiser state and library workspaces
            inputs.draw(step, 0.0)
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
