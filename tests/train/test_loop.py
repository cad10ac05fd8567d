"""Training on a CPU: it learns, it resumes, it stops, it runs in two processes."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from icgi.errors import CheckpointError
from icgi.neural.weights import load_weights
from icgi.train import evaluate
from icgi.train.config import TrainConfig, tiny
from icgi.train.examples import Examples, Recipe, made
from icgi.train.loop import Result, run_task
from icgi.train.presets import PRESETS
from icgi.train.task import Task, graph_errors

torch.set_num_threads(1)

TINY = PRESETS["tiny"]
QUICK = {
    "paper": {"features": 16, "heads": 2, "layers": 1, "hidden": 8, "rank": 4},
    "fast": {"features": 16, "heads": 2, "layers": 1, "hidden": 8, "core": 3},
}


def tiny_data(seed: int = 0, count: int = 32) -> Examples:
    limits = TINY.buckets[0].limits
    return made(Recipe(TINY.buckets[0].mixture, limits, count, seed), pairwise=True)


def train(config: TrainConfig, data: Examples, folder: Path, report: Any = print) -> Result:
    return run_task(Task(config, [data], [data]), folder, report)


def few(network: str = "paper", **changes: Any) -> TrainConfig:
    """A run of a few steps of a small network."""
    config = tiny(network, **QUICK.get(network, {}))
    return dataclasses.replace(config, **{"steps": 6, "validate_every": 2, "batch": 8} | changes)


def mae(network: Any, data: Examples) -> float:
    return float(graph_errors(network, data).mean())


def test_it_overfits_a_few_graphs_and_keeps_its_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = tiny_data()
    config = tiny("direct-gnn", features=32, layers=2, heads=4)
    config = dataclasses.replace(config, steps=60, validate_every=30)
    result = train(config, data, tmp_path)
    task = Task(config, [data], [data])
    assert mae(result.network, data) < 0.5 * mae(task.network().eval(), data)
    stored = load_weights(tmp_path / "weights.safetensors")
    assert mae(stored, data) == pytest.approx(mae(result.network, data), abs=1e-3)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [30, 60]


@pytest.mark.parametrize("network", ["paper", "bpnn"])
def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path: Path, network: str) -> None:
    data, config = tiny_data(), few(network)
    whole = train(config, data, tmp_path / "whole")

    def interrupt(line: dict[str, Any]) -> None:
        if line["step"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, data, tmp_path / "parts", interrupt)
    resumed = train(config, data, tmp_path / "parts")
    assert resumed.steps == whole.steps == 6
    assert [h["mae"] for h in resumed.history] == [h["mae"] for h in whole.history]
    for a, b in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_another_seed_is_another_run_on_the_same_models(tmp_path: Path) -> None:
    data = tiny_data()
    one, same, other = (
        train(few(seed=seed), data, tmp_path / str(k)) for k, seed in enumerate((0, 0, 1))
    )
    weights = [torch.cat([p.flatten() for p in r.network.parameters()]) for r in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    data = tiny_data(count=8)
    config = few(steps=2)
    train(config, data, tmp_path)
    with pytest.raises(CheckpointError, match="another configuration"):
        train(dataclasses.replace(config, rate=0.1), data, tmp_path)


def test_training_stops_when_validation_no_longer_improves(tmp_path: Path) -> None:
    config = few(steps=50, rate=0.0, weight_decay=0.0, validate_every=1, patience=3, batch=4)
    assert train(config, tiny_data(count=8), tmp_path).steps == 4


def test_every_step_is_reported_and_weights_are_kept_by_all_validation_sets(
    tmp_path: Path,
) -> None:
    data, other = tiny_data(count=8), tiny_data(seed=5, count=8)
    config = few(steps=5, validate_every=1, batch=4)
    seen: list[tuple[int, float]] = []
    task = Task(config, [data], [data, other])
    result = run_task(task, tmp_path, tick=lambda *step: seen.append(step))
    assert [step for step, _ in seen] == [0, 1, 2, 3, 4]
    assert [progress for _, progress in seen] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])
    kept = min(result.history, key=lambda line: line["mae"][0] * line["mae"][1])["mae"]
    found = [mae(result.network, part) for part in (data, other)]
    assert found == pytest.approx(kept)


class Overflows(Task):
    """A task whose loss is infinite at some steps."""

    bad: tuple[int, ...] = ()
    step = 0

    def loss(self, network: Any, batch: Any, late: torch.Tensor) -> torch.Tensor:
        self.step += 1
        found = super().loss(network, batch, late)
        return found * (torch.inf if self.step in self.bad else 1.0)


def test_a_step_without_a_finite_gradient_is_counted_and_does_no_harm(tmp_path: Path) -> None:
    data = tiny_data(count=8)
    task = Overflows(few(steps=4, batch=4), [data], [data])
    task.bad = (2,)
    result = run_task(task, tmp_path)
    assert [line.get("skipped", 0) for line in result.history] == [1, 1]
    assert all(torch.isfinite(p).all() for p in result.network.parameters())


def test_many_such_steps_end_a_run(tmp_path: Path) -> None:
    data = tiny_data(count=8)
    task = Overflows(few(steps=4, batch=4), [data], [data])
    task.bad = (1, 2)
    with pytest.raises(CheckpointError, match="2 of 2 steps had no finite gradient"):
        run_task(task, tmp_path)


def test_the_precision_of_fast_is_fitted_on_held_out_models() -> None:
    torch.manual_seed(0)
    network = Task(few("fast"), [tiny_data(count=2)], []).network().eval()
    before = network.precision.coefficients.clone()
    evaluate.fit_precision(network, [tiny_data(seed=11)])
    assert torch.isfinite(network.precision.coefficients).all()
    assert (network.precision.coefficients != before).any(1).all()  # one order, and four


@pytest.mark.slow
def test_two_processes_train_together(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_loop import few, tiny_data, train\n"
        "config = few(steps=8, validate_every=4)\n"
        f"train(config, tiny_data(), Path({str(tmp_path)!r}) / 'out')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2",
               "--master_port=29611", str(script)]  # fmt: skip
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
    together = [json.loads(x) for x in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    alone = train(few(steps=8, validate_every=4), tiny_data(), tmp_path / "one")
    # same batches, gradients averaged over halves: the same run up to rounding and clipping
    assert together[-1]["mae"][0] == pytest.approx(alone.history[-1]["mae"][0], rel=0.05)
