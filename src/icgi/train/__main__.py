"""`python -m icgi.train fast --out runs/fast`: make data, train, measure."""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import torch

from icgi.neural.fast import FastNetwork
from icgi.neural.paper import PaperConfig
from icgi.neural.weights import load_weights
from icgi.train import evaluate, graph_run
from icgi.train.config import PRESETS, TrainConfig
from icgi.train.graph_task import GraphTask
from icgi.train.labels import Labelled, label
from icgi.train.loop import run_task, train
from icgi.train.mixture import Range, draw_many
from icgi.train.workers import workers

RESERVE = 60.0  # seconds of `--total` that are kept for measuring


def main() -> None:
    """Train a preset and measure it on the test sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset", choices=sorted(PRESETS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=None, help="length of the schedule")
    parser.add_argument("--start", type=Path, default=None, help="weights to begin with")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=None)
    parser.add_argument("--workers", type=int, default=1, help="processes that draw models")
    parser.add_argument("--tests", type=int, default=32, help="models per test set; 0: none")
    parser.add_argument(
        "--total", type=float, default=None, help="seconds for everything; the schedule gets what "
        "preparing leaves, less a reserve for measuring (paper presets only)",
    )  # fmt: skip
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs (paper presets only)")
    given = parser.parse_args()
    config = dataclasses.replace(PRESETS[given.preset], seed=given.seed)
    if given.seconds is not None:
        config = dataclasses.replace(config, seconds=given.seconds, steps=1_000_000)
    if given.rate is not None:
        config = dataclasses.replace(config, rate=given.rate)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - began:6.1f}] {text}", flush=True)

    if isinstance(config.network, PaperConfig):
        train_graphs(config, given, device, began, say)
        return
    with workers(given.workers) as pool:
        data, validation = prepare(config, pool, device)
    say(f"{sum(len(d.up) for d in data)} training models labelled")
    start = None if given.start is None else load_weights(given.start)
    result = train(config, data, validation, given.out, lambda line: say(json.dumps(line)), start)
    say(f"{result.steps} steps")
    if given.tests and device == "cuda":
        table = measure(result.network, config, given.tests, device, say)
        (given.out / "results.json").write_text(json.dumps(table, indent=1))


def train_graphs(
    config: TrainConfig,
    given: argparse.Namespace,
    device: str,
    began: float,
    say: Callable[[str], None],
) -> None:
    """Train and measure the paper's network."""
    given.out.mkdir(parents=True, exist_ok=True)
    with workers(given.workers) as pool:
        data, validation = graph_run.prepare(config, pool, device, say)
    if given.total is not None:
        left = given.total - (time.perf_counter() - began) - RESERVE
        config = dataclasses.replace(config, seconds=max(left, 10.0), steps=1_000_000)
    start = None if given.start is None else load_weights(given.start)
    task = GraphTask(config, data, validation)
    task.recorded = task.recorded and not given.eager
    result = run_task(task, given.out, lambda line: say(json.dumps(line)), start)
    say(f"{result.steps} steps")
    if given.tests:
        graph_run.measure(result.network, validation, given.tests, device, given.out, say)


def prepare(
    config: TrainConfig, pool: Executor | None, device: str
) -> tuple[list[Labelled], list[tuple[Labelled, int]]]:
    """Labelled training sets, one per bucket, and validation sets with their cores."""
    data = []
    for k, bucket in enumerate(config.buckets):
        limits = Range(bucket.smallest, bucket.largest, bucket.most_beta)
        models = draw_many(100 * config.seed + k, config.mixture, limits, bucket.count, pool)
        sweeps = config.label_sweeps
        data.append(label(models, sweeps, config.context_sweeps, config.seed + k, device))
    first = config.buckets[0]
    if device == "cpu":
        limits = Range(first.smallest, first.largest, first.most_beta)
        held_out = draw_many(10_777, config.mixture, limits, 64)
        return data, [(label(held_out, 0, (), 0), first.core)]
    mix = evaluate.validation_models(config.mixture, 512, pool)
    larger = draw_many(20_777, config.mixture, Range(33, 64, 3.0), 256, pool)
    return data, [
        (evaluate.long_labels(mix, device), 12),
        (evaluate.long_labels(larger, device), 16),
    ]


def measure(network: FastNetwork, config, tests: int, device: str, say) -> dict:  # type: ignore[no-untyped-def,type-arg]
    """Errors on the validation mix and on every test set, for several settings."""
    table: dict[str, dict[str, float]] = {}
    untrained = FastNetwork(config.network).to(device)
    sets = {"validation mix N ≤ 32": evaluate.validation_models(config.mixture, 512)}
    sets |= evaluate.test_sets(tests)
    for name, models in sets.items():
        known = evaluate.long_labels(models, device)
        row = {"label_error": float(known.spread.mean() / 8**0.5), "models": len(known.up)}
        for core, orders in ((16, 1), (16, 4), (20, 8)):
            error, rank = evaluate.errors(network, known, core, orders)
            row[f"core {core} orders {orders}"] = float(error.mean())
            row[f"core {core} orders {orders} rank"] = float(rank)
        row["untrained core 16 orders 1"] = float(evaluate.errors(untrained, known, 16)[0].mean())
        for sweeps in (100,):
            told, raw = evaluate.with_context(known, models, sweeps)
            row[f"context {sweeps} core 16"] = float(evaluate.errors(network, told, 16)[0].mean())
            row[f"tempering {sweeps}"] = raw
        table[name] = row
        say(f"{name}: " + " ".join(f"{key}={value:.4f}" for key, value in row.items()))
    return table


if __name__ == "__main__":
    main()
