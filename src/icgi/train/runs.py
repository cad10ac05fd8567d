"""Whole training runs: data, training, measuring. What `icgi train` starts."""

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from icgi.data.jobs.executors import executor
from icgi.errors import CheckpointError, IcgiError
from icgi.kernels import cache_folder
from icgi.neural.networks import NETWORKS, network_class
from icgi.neural.weights import load_weights, save_weights
from icgi.train import evaluate
from icgi.train.config import TrainConfig, load
from icgi.train.examples import Examples, Recipe, made, of_sources
from icgi.train.loop import Report, Result, Tick, run_task
from icgi.train.parallel import first_process, own_device
from icgi.train.presets import PRESETS, RATES
from icgi.train.task import Task

Say = Callable[[str], None]
RESERVE = 45.0  # seconds of a limit on everything that are kept for measuring
MOST_DRAWN = 2000  # models of each of a user's families
HELD = 5  # every fifth of a user's own models decides which weights are kept


@dataclass(frozen=True, slots=True)
class Limits:
    """What a person may change about a preset without writing a configuration."""

    seconds: float | None = None  # length of the schedule
    total: float | None = None  # for everything; the schedule gets what preparing leaves
    rate: float | None = None
    seed: int | None = None
    sources: tuple[str, ...] = ()
    steps: int | None = None


def configuration(name: str) -> TrainConfig:
    """Return a preset, any network on equal terms, or the configuration stored in a file."""
    if name in PRESETS:
        return PRESETS[name]
    if name in NETWORKS:
        config = TrainConfig(name)
        return dataclasses.replace(config, rate=RATES.get(name, config.rate))
    path = Path(name)
    if not path.is_file():
        known = ", ".join(sorted({*PRESETS, *NETWORKS}))
        raise IcgiError(
            f"{name} is neither a preset ({known}) nor a file; a run writes its "
            "configuration to train.json in its folder"
        )
    try:
        return load(path)
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is no training configuration ({error})") from None


def run(
    config: TrainConfig,
    out: Path,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    start: Path | None = None,
    processes: int = 1,
    tests: int = 32,
    report: Report = lambda line: None,
    say: Say = lambda text: None,
    tick: Tick = lambda step, progress: None,
) -> tuple[Result, evaluate.Table]:
    """Draw data, train, measure; everything is kept in the folder `out`.

    A checkpoint found there is continued, if it is of the same configuration.
    """
    began = time.perf_counter()
    config = changed(config, limits)
    device = own_device()
    first = None if start is None else load_weights(start)
    if first is not None and first.config != config.settings:
        raise CheckpointError(f"{start} holds a network of other sizes than this run trains")
    task = prepared_task(config, processes, device, say)
    if limits.total is not None:
        left = limits.total - (time.perf_counter() - began) - RESERVE
        task.config = dataclasses.replace(config, seconds=max(left, 1.0))
    result = run_task(task, out, report, first, tick)
    if not first_process():
        return result, {}
    finish(task, result.network)
    save_weights(out / "weights.safetensors", result.network)
    table = measure(result.network, task.validation, tests, say)
    (out / "results.json").write_text(json.dumps(table, indent=1))
    return result, table


def changed(config: TrainConfig, limits: Limits) -> TrainConfig:
    """Return a configuration with what a person asked for."""
    wanted: dict[str, Any] = {
        "rate": limits.rate, "seed": limits.seed, "seconds": limits.seconds,
        "steps": limits.steps, "sources": limits.sources or None,
    }  # fmt: skip
    config = dataclasses.replace(config, **{k: v for k, v in wanted.items() if v is not None})
    if limits.steps is None and (limits.seconds is not None or limits.total is not None):
        config = dataclasses.replace(config, steps=1_000_000)
    return config


def prepared_task(config: TrainConfig, processes: int, device: str, say: Say) -> Task:
    """Draw and label the training and validation sets, or read them from the cache."""
    pairwise: bool = network_class(config.network).pairwise  # type: ignore[attr-defined]
    cache = cache_folder().parent / "training"
    place = executor("here" if processes > 1 else "serial", processes)
    if config.sources:
        # one bucket that is left as it was: the stored configuration must say the same again
        config = dataclasses.replace(config, buckets=config.buckets[:1])
        count = min(config.buckets[0].count, MOST_DRAWN)
        network = network_class(config.network)(config.settings)
        own = cache if first_process() else None  # a file has one writer
        every = of_sources(config.sources, count, config.data_seed, network, say, place, own)
        numbers = torch.arange(len(every))
        held = every[numbers[numbers % HELD == 0]].to(device)
        shown = every[numbers[numbers % HELD != 0] if len(every) > 1 else numbers].to(device)
        return Task(config, [shown], [held])
    data = []
    for k, bucket in enumerate(config.buckets):
        seed = config.data_seed + k if bucket.seed is None else bucket.seed
        recipe = Recipe(bucket.mixture, bucket.limits, bucket.count, seed)
        data.append(made(recipe, pairwise, place, device, cache))
        say(f"{bucket.count} models of {bucket.mixture!r} labelled")
    held_out: dict[str, Examples] = {}
    kinds = {b.mixture if b.mixture in evaluate.HELD_OUT else "wide" for b in config.buckets}
    for mixture in sorted(kinds):
        held_out |= evaluate.validation_sets(mixture, config.validation, pairwise, device, cache)
    return Task(config, data, list(held_out.values()))


def finish(task: Task, network: Any) -> None:
    """Fit what a network fits after training, on models that training did not see."""
    if task.config.network == "fast":
        evaluate.fit_precision(network, task.validation)


def measure(network: Any, validation: list[Examples], tests: int, say: Say) -> evaluate.Table:
    """Errors on the validation sets and on every test set."""
    network.eval()
    device = validation[0].reference.device
    pairwise: bool = network.pairwise
    cache = cache_folder().parent / "training"
    table: evaluate.Table = {}

    def add(name: str, data: Examples) -> None:
        table[name] = evaluate.quality(network, data.to(device), 16).row()
        say(f"{name}: " + " ".join(f"{key}={value:.4f}" for key, value in table[name].items()))

    for k, part in enumerate(validation):
        add(f"validation {k}", part)
    for name in evaluate.TESTS if tests else ():
        add(name, evaluate.test_set(name, tests, pairwise, cache))
    return table
