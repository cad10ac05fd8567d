"""`python -m icgi.train.general --out runs/general`: train the network for any model."""

import argparse
import dataclasses
import json
import time
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import cast

import torch
from torch import nn

from icgi.neural.general import GeneralNetwork
from icgi.train.general_mixture import KINDS, Set, Sizes, draw_many, workers
from icgi.train.general_task import (
    GENERAL,
    TINY,
    GeneralRun,
    GeneralTask,
    Labels,
    graph_errors,
    on_device,
)
from icgi.train.loop import Task, run_task

VALIDATION_SEED = 20_778  # training seeds are small
TEST_SEED = 20_878
RESERVE = 30.0  # seconds of `--total` that are kept for measuring

TESTS = {
    "4 states": (Sizes(32, 4, 12, 26, 2, 4, 2), 6),
    "4 states, larger than trained on": (Sizes(48, 4, 24, 36, 2, 4, 2), 6),
    "9 states": (Sizes(22, 9, 8, 18, 5, 8, 3), 4),
    "9 states, larger than trained on": (Sizes(32, 9, 16, 26, 5, 8, 3), 4),
    "16 states, never trained on": (Sizes(20, 16, 8, 12, 4, 4, 4), 3),
}
"""Sizes of test models, and the core to measure them with."""


def main() -> None:
    """Train the preset and measure it on seeds of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=420.0, help="length of the schedule")
    parser.add_argument(
        "--total", type=float, default=None, help="seconds for everything, instead of --seconds"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes that make models")
    parser.add_argument("--tests", type=int, default=384, help="models per test set; 0: none")
    parser.add_argument("--tiny", action="store_true", help="the preset of the tests")
    given = parser.parse_args()
    config = dataclasses.replace(TINY if given.tiny else GENERAL, seed=given.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - began:6.1f}] {text}", flush=True)

    # test models are made while the network trains: processes that made training models are free
    with workers(given.workers) as pool, ThreadPoolExecutor(1) as beside:
        data, held_out = prepare(config, pool, device)
        say(f"{sum(len(d.kind) for d in data)} training models labelled")
        tests = beside.submit(test_sets, TESTS if given.tests else {}, given.tests, pool)
        seconds = given.seconds
        if given.total is not None:
            seconds = max(1.0, given.total - RESERVE - (time.perf_counter() - began))
        config = dataclasses.replace(config, seconds=seconds)
        task = cast(Task, GeneralTask(config, data, held_out))
        result = run_task(task, given.out, lambda line: say(json.dumps(line)))
        say(f"{result.steps} steps")
        table = {}
        for name, row in measure(result.network, tests.result(), device).items():
            table[name] = row
            say(f"{name}: " + " ".join(f"{key}={value:.4f}" for key, value in row.items()))
        (given.out / "results.json").write_text(json.dumps(table, indent=1))


def prepare(
    config: GeneralRun, pool: Executor | None, device: str
) -> tuple[list[Labels], list[Labels]]:
    """Training and validation sets, one of each per bucket."""
    data, held_out = [], []
    for k, bucket in enumerate(config.buckets):
        train = draw_many(100 * config.seed + k, bucket.sizes, bucket.count, pool)
        check = draw_many(VALIDATION_SEED + k, bucket.sizes, config.validation, pool)
        data.append(on_device(train, device))
        held_out.append(on_device(check, device))
    return data, held_out


def test_sets(
    tests: Mapping[str, tuple[Sizes, int]], count: int, pool: Executor | None
) -> dict[str, tuple[Set, int]]:
    """Models of every test set with the errors of loopy BP, and the core to measure with."""
    return {
        name: (draw_many(TEST_SEED + k, sizes, count, pool, lbp=True), core)
        for k, (name, (sizes, core)) in enumerate(tests.items())
    }


def measure(
    network: nn.Module, tests: Mapping[str, tuple[Set, int]], device: str
) -> dict[str, dict[str, float]]:
    """MAE per test set and kind of model: network, untrained network, loopy BP."""
    untrained = GeneralNetwork(cast(GeneralNetwork, network).config).to(device)
    table = {}
    for name, (found, core) in tests.items():
        data = on_device(found, device)
        errors = {
            "network": graph_errors(network, data, core, 64),
            "untrained": graph_errors(untrained, data, core, 64),
            "lbp": data.lbp,
        }
        for index, kind in enumerate(KINDS):
            chosen = data.kind == index
            if not chosen.any():
                continue
            row = {word: float(error[chosen].mean()) for word, error in errors.items()}
            table[f"{name}: {kind}"] = {**row, "models": int(chosen.sum())}
        row = {word: float(error.mean()) for word, error in errors.items()}
        table[f"{name}: all"] = {**row, "models": len(data.kind)}
    return table


if __name__ == "__main__":
    main()
