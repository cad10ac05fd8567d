"""Whole training runs: data, training, measuring. What `icgi train` starts."""

import dataclasses
import json
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from icgi.errors import CheckpointError, IcgiError
from icgi.neural.fast import FastConfig
from icgi.neural.general import GeneralConfig
from icgi.neural.paper import PaperConfig
from icgi.neural.weights import load_weights, save_weights
from icgi.train import config as settings
from icgi.train import general_task
from icgi.train.general_run import GeneralJob
from icgi.train.graph_run import GraphJob
from icgi.train.labels import LARGEST_EXACT
from icgi.train.loop import Report, Result, Tick, run_task
from icgi.train.spin_run import SpinJob
from icgi.train.workers import workers

Say = Callable[[str], None]
Table = dict[str, dict[str, float]]
RESERVE = 45.0  # seconds of a limit on everything that are kept for measuring

PRESETS: dict[str, Any] = {
    **settings.PRESETS,
    "general": general_task.GENERAL,
    "general-tiny": general_task.TINY,
}


class Job(Protocol):
    """What a kind of network needs around the common loop."""

    def task(self, config: Any, pool: Executor | None, device: str, say: Say) -> Any:
        """Draw and label the data."""
        ...

    def measure(
        self, task: Any, network: Any, count: int, pool: Executor | None, say: Say
    ) -> Table:
        """Errors on test sets of so many models each."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What a person may change about a preset without writing a configuration."""

    seconds: float | None = None  # length of the schedule
    total: float | None = None  # for everything; the schedule gets what preparing leaves
    rate: float | None = None
    seed: int | None = None


def configuration(name: str) -> Any:
    """Return a preset, or the configuration stored in a file."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if not path.is_file():
        raise IcgiError(
            f"{name} is neither a preset ({', '.join(PRESETS)}) nor a file; a run writes its "
            "configuration to train.json in its folder"
        )
    try:
        raw = json.loads(path.read_text())
        if raw.get("kind") == "general":
            return general_task.from_raw({k: v for k, v in raw.items() if k != "kind"})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is no training configuration ({error})") from None
    return settings.load(path)


def require_device(config: Any) -> None:
    """Raise `IcgiError` where a run needs labels from a GPU and there is none."""
    if isinstance(config.network, GeneralConfig) or torch.cuda.is_available():
        return
    spins = [b for b in config.buckets if b.kind == "spins"]
    if config.context_sweeps or any(b.largest > LARGEST_EXACT for b in spins):
        raise IcgiError(
            "this run labels its models by tempering on a CUDA device, and there is none; on a "
            "CPU take a tiny preset, or general"
        )


def job_of(config: Any) -> Job:
    """Choose the kind of run by the network that is trained."""
    if isinstance(config.network, FastConfig):
        return SpinJob()
    return GraphJob() if isinstance(config.network, PaperConfig) else GeneralJob()


def run(
    config: Any,
    out: Path,
    limits: Limits,
    start: Path | None = None,
    processes: int = 1,
    tests: int = 32,
    report: Report = lambda line: None,
    say: Say = lambda text: None,
    tick: Tick = lambda step, progress: None,
) -> tuple[Result, Table]:
    """Draw data, train, measure; everything is kept in the folder `out`.

    A checkpoint found there is continued, if it is of the same configuration.
    """
    began = time.perf_counter()
    changes = {"rate": limits.rate, "seed": limits.seed, "seconds": limits.seconds}
    config = dataclasses.replace(config, **{k: v for k, v in changes.items() if v is not None})
    if limits.seconds is not None or limits.total is not None:
        config = dataclasses.replace(config, steps=1_000_000)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    first = None if start is None else load_weights(start)
    if first is not None and first.config != config.network:
        raise CheckpointError(f"{start} holds a network of other sizes than this run trains")
    job = job_of(config)
    with workers(processes) as pool:
        task = job.task(config, pool, device, say)
        if limits.total is not None:
            left = limits.total - (time.perf_counter() - began) - RESERVE
            task.config = dataclasses.replace(config, seconds=max(left, 1.0))
        result = run_task(task, out, report, first, tick)
        if isinstance(job, SpinJob):
            job.finish(task, result.network, pool)
            save_weights(out / "weights.safetensors", result.network)
        table = job.measure(task, result.network, tests, pool, say) if tests else {}
    (out / "results.json").write_text(json.dumps(table, indent=1))
    return result, table
