"""A training run of the paper's network, from drawing its data to the table of its errors."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from icgi.model.graph import FactorGraph
from icgi.neural.paper import PaperNetwork
from icgi.train import evaluate
from icgi.train.config import Bucket, TrainConfig
from icgi.train.graph_data import (
    DRAWS,
    Draw,
    Examples,
    GraphExamples,
    SpinExamples,
    label_all,
    start_drawing,
)
from icgi.train.graph_task import GraphTask, errors_and_rank
from icgi.train.labels import label
from icgi.train.loop import Result, run_task
from icgi.train.mixture import Dense, Range, draw_many

Say = Callable[[str], None]
Table = dict[str, dict[str, float]]
KINDS = ("spins", "any")
HELD_OUT = 30_777  # seed of validation sets; those of training are below 30,000


class GraphJob:
    """What the paper's network needs around the common loop."""

    def task(self, config: TrainConfig, pool: Executor | None, device: str, say: Say) -> GraphTask:
        """Draw and label models of all buckets."""
        return GraphTask(config, *prepare(config, pool, device, say))

    def measure(
        self, task: GraphTask, network: PaperNetwork, count: int, pool: Executor | None, say: Say
    ) -> Table:
        """Errors on the validation mix, on every test set and on every family."""
        sets = sets_to_measure(list(task.validation), count, str(task.device))
        return measure(network, sets, say)


def prepare(
    config: TrainConfig, pool: Executor | None, device: str, say: Say
) -> tuple[list[Examples], list[Examples]]:
    """Labelled training sets, one per bucket, and validation sets.

    Models of many states are labelled by other processes while the device tempers the spins.
    """
    numbers = {kind: [k for k, b in enumerate(config.buckets) if b.kind == kind] for kind in KINDS}
    drawn = {k: _draw(config, k, pool) for k in numbers["spins"]}
    mix = _held_out(config, pool, device)
    any_kind = {
        k: start_drawing(
            100 * config.seed + k, _range(config.buckets[k]), config.buckets[k].count, pool
        )
        for k in numbers["any"]
    }
    held = [start_drawing(HELD_OUT + k, _range(config.buckets[k]), 256, pool) for k in any_kind]
    sweeps, context = config.label_sweeps, config.context_sweeps
    spins = {
        k: SpinExamples(label(models, sweeps, context, config.seed + k, device))
        for k, models in drawn.items()
    }
    exact = device == "cpu"
    known = label(mix, 0, (), 0) if exact else evaluate.long_labels(mix, device)
    say(f"{sum(s.size for s in spins.values())} spin models labelled")
    validation: list[Examples] = [SpinExamples(known)] if spins else []
    data = [
        spins[k] if k in spins else any_kind[k].result().to(device)
        for k in range(len(config.buckets))
    ]
    validation += [drawing.result().to(device) for drawing in held]
    say(f"{sum(d.size for d in data)} training models in all")
    return data, validation


def _range(bucket: Bucket) -> Range:
    return Range(bucket.smallest, bucket.largest, bucket.most_beta)


def _draw(config: TrainConfig, k: int, pool: Executor | None) -> Dense:
    bucket = config.buckets[k]
    return draw_many(100 * config.seed + k, config.mixture, _range(bucket), bucket.count, pool)


def _held_out(config: TrainConfig, pool: Executor | None, device: str) -> Dense:
    if device == "cpu":
        return draw_many(10_777, config.mixture, _range(config.buckets[0]), 64)
    return evaluate.validation_models(config.mixture, 512, pool)


class MeasuredSet(NamedTuple):
    """Labelled models to measure on."""

    name: str
    data: Examples
    batch: int  # models at once
    label_error: float | None = None  # standard error of the references, where they have one


def sets_to_measure(validation: Sequence[Examples], tests: int, device: str) -> list[MeasuredSet]:
    """The validation mix, every test set (on a GPU, which labels them) and every family."""
    names = ["validation mix N ≤ 32", "validation mix of any kind"]
    sets = [MeasuredSet(names[min(k, 1)], data, 128) for k, data in enumerate(validation)]
    for name, models in evaluate.test_sets(tests).items() if device.startswith("cuda") else ():
        known = evaluate.long_labels(models, device)
        sets.append(MeasuredSet(name, SpinExamples(known), 16, float(known.spread.mean() / 8**0.5)))
    sets += [
        MeasuredSet(f"family{make.__name__}", _family(make, 64).to(device), 64) for make in DRAWS
    ]
    return sets


def measure(network: PaperNetwork, sets: Sequence[MeasuredSet], say: Say) -> Table:
    """Errors on every set."""
    network.eval()
    network.low_precision = False
    table: Table = {}
    for name, data, batch, label_error in sets:
        error, rank = errors_and_rank(network, data, batch)
        row = {"mae": float(error.mean()), "rank": float(rank), "models": float(data.size)}
        if label_error is not None:
            row["label_error"] = label_error
        table[name] = row
        say(f"{name}: " + " ".join(f"{key}={value:.4f}" for key, value in row.items()))
    return table


def compare(
    runs: Mapping[str, TrainConfig],
    data: Sequence[Examples],
    validation: Sequence[Examples],
    out: Path,
    seconds: float,
    say: Say,
    total: float = math.inf,
) -> dict[str, Result]:
    """Train networks on the same data, the later ones for as many steps as the first has made.

    Parameters
    ----------
    seconds
        Length of the first one's schedule.
    total
        Of all of them; where it runs out, schedules end with fewer steps, as their results say.
    """
    found: dict[str, Result] = {}
    end = time.perf_counter() + total
    for name, config in runs.items():
        steps, limit = 1_000_000, seconds
        if found:
            steps = next(iter(found.values())).steps
            limit = max(1.0, (end - time.perf_counter()) / (len(runs) - len(found)))
        task = GraphTask(dataclasses.replace(config, steps=steps, seconds=limit), data, validation)
        found[name] = run_task(task, out / name, partial(_tell, say, name))
    return found


def _tell(say: Say, name: str, line: dict[str, Any]) -> None:
    say(f"{name} {line}")


def _family(make: Draw, count: int) -> GraphExamples:
    rng = np.random.default_rng([HELD_OUT, *make.__name__.encode()])

    def model(stream: Generator) -> FactorGraph:
        return make(stream, int(stream.integers(6, 21)), float(stream.uniform(0.3, 2.0)))

    return label_all(model, rng, count, 20)
