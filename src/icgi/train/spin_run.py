"""A training run of the fast network: its data, and the table of its errors."""

from collections.abc import Callable
from concurrent.futures import Executor

from icgi.neural.fast import FastNetwork
from icgi.train import evaluate
from icgi.train.config import TrainConfig
from icgi.train.labels import Labelled, label
from icgi.train.mixture import Range, draw_many
from icgi.train.spin_task import SpinTask

Say = Callable[[str], None]
Table = dict[str, dict[str, float]]
SETTINGS = ((16, 1), (16, 4), (20, 8))  # cores and orders that are measured
CONTEXT_SWEEPS = 100


class SpinJob:
    """What the fast network needs around the common loop."""

    def task(self, config: TrainConfig, pool: Executor | None, device: str, say: Say) -> SpinTask:
        """Draw and label models of all buckets, and two validation sets."""
        data, validation = prepare(config, pool, device)
        say(f"{sum(len(d.up) for d in data)} training models labelled")
        return SpinTask(config, data, validation)

    def measure(
        self, task: SpinTask, network: FastNetwork, count: int, pool: Executor | None, say: Say
    ) -> Table:
        """Errors on the validation mix and on every test set, for several settings."""
        device = str(task.device)
        if device == "cpu":  # reference marginals of the test sets come from tempering on a GPU
            return {}
        untrained = FastNetwork(network.config).to(device)
        sets = {"validation mix N ≤ 32": evaluate.validation_models(task.config.mixture, 512)}
        table: Table = {}
        for name, models in (sets | evaluate.test_sets(count)).items():
            known = evaluate.long_labels(models, device)
            row = {"label_error": float(known.spread.mean() / 8**0.5), "models": len(known.up)}
            for core, orders in SETTINGS:
                error, rank = evaluate.errors(network, known, core, orders)
                row[f"core {core} orders {orders}"] = float(error.mean())
                row[f"core {core} orders {orders} rank"] = float(rank)
            error, _ = evaluate.errors(untrained, known, 16)
            row["untrained core 16 orders 1"] = float(error.mean())
            told, raw = evaluate.with_context(known, models, CONTEXT_SWEEPS)
            error, _ = evaluate.errors(network, told, 16)
            row[f"context {CONTEXT_SWEEPS} core 16"] = float(error.mean())
            row[f"tempering {CONTEXT_SWEEPS}"] = raw
            table[name] = row
            say(f"{name}: " + " ".join(f"{key}={value:.4f}" for key, value in row.items()))
        return table


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
