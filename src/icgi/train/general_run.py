"""A training run of the network for any model: its data, and the table of its errors."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import cast

from torch import nn

from icgi.neural.general import GeneralNetwork
from icgi.train.general_mixture import KINDS, Set, Sizes, draw_many
from icgi.train.general_task import (
    GeneralRun,
    GeneralTask,
    Labels,
    graph_errors,
    on_device,
)

VALIDATION_SEED = 20_778  # training seeds are small
TEST_SEED = 20_878

Say = Callable[[str], None]
Table = dict[str, dict[str, float]]

TESTS = {
    "4 states": (Sizes(32, 4, 12, 26, 2, 4, 2), 6),
    "4 states, larger than trained on": (Sizes(48, 4, 24, 36, 2, 4, 2), 6),
    "9 states": (Sizes(22, 9, 8, 18, 5, 8, 3), 4),
    "9 states, larger than trained on": (Sizes(32, 9, 16, 26, 5, 8, 3), 4),
    "16 states, never trained on": (Sizes(20, 16, 8, 12, 4, 4, 4), 3),
}
"""Sizes of test models, and the core to measure them with."""


class GeneralJob:
    """What the network for any model needs around the common loop."""

    def task(self, config: GeneralRun, pool: Executor | None, device: str, say: Say) -> GeneralTask:
        """Draw models, with exact labels."""
        data, held_out = prepare(config, pool, device)
        say(f"{sum(len(d.kind) for d in data)} training models labelled")
        return GeneralTask(config, data, held_out)

    def measure(
        self, task: GeneralTask, network: nn.Module, count: int, pool: Executor | None, say: Say
    ) -> Table:
        """MAE per test set and kind of model: network, untrained network, loopy BP."""
        table: Table = {}
        device = str(task.device)
        for name, row in measure(network, test_sets(TESTS, count, pool), device).items():
            table[name] = row
            say(f"{name}: " + " ".join(f"{key}={value:.4f}" for key, value in row.items()))
        return table


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


def measure(network: nn.Module, tests: Mapping[str, tuple[Set, int]], device: str) -> Table:
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
