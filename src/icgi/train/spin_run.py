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
HELD_OUT = ((Range(10, 32, 2.5), 512), (Range(33, 64, 3.0), 256), (Range(65, 100, 3.0), 128))
CALIBRATION_CORE = 16


class SpinJob:
    """What the fast network needs around the common loop."""

    def task(self, config: TrainConfig, pool: Executor | None, device: str, say: Say) -> SpinTask:
        """Draw and label models of all buckets, and two validation sets."""
        data, validation = prepare(config, pool, device)
        say(f"{sum(len(d.up) for d in data)} training models labelled")
        return SpinTask(config, data, validation)

    def finish(self, task: SpinTask, network: FastNetwork, pool: Executor | None) -> None:
        """Fit how sure answers are, on models that neither training nor validation saw."""
        config, device = task.config, str(task.device)
        if device == "cpu":
            first = config.buckets[0]
            limits = Range(first.smallest, first.largest, first.most_beta)
            small = label(draw_many(30_777, config.mixture, limits, 64), 0, (), 0)
            evaluate.calibrate(network, [small], first.core)
            return
        sets = [
            draw_many(30_777 + k, config.mixture, limits, count, pool)
            for k, (limits, count) in enumerate(HELD_OUT)
        ]
        labelled = [evaluate.long_labels(models, device) for models in sets]
        evaluate.calibrate(network, labelled, CALIBRATION_CORE)

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
                found = evaluate.quality(network, known, core, orders)
                name_of = f"core {core} orders {orders}"
                row[name_of] = float(found.mae.mean())
                row[f"{name_of} rank"], row[f"{name_of} covered"] = found.rank, found.covered
            found = evaluate.quality(untrained, known, 16)
            row["untrained core 16 orders 1"] = float(found.mae.mean())
            told, raw = evaluate.with_context(known, models, CONTEXT_SWEEPS)
            found = evaluate.quality(network, told, 16)
            row[f"context {CONTEXT_SWEEPS} core 16"] = float(found.mae.mean())
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
