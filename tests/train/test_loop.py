"""Training on a CPU: it learns, it resumes, it stops, it runs in two processes."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from icgi.errors import CheckpointError
from icgi.neural.fast import FastNetwork
from icgi.neural.weights import load_weights
from icgi.train import evaluate
from icgi.train.config import TINY, TrainConfig
from icgi.train.labels import Labelled, label
from icgi.train.loop import mean_error, run_task, train
from icgi.train.mixture import Range, draw_many
from icgi.train.spin_task import SpinTask

torch.set_num_threads(1)


def tiny_data(config: TrainConfig = TINY, seed: int = 0) -> Labelled:
    bucket = config.buckets[0]
    limits = Range(bucket.smallest, bucket.largest, bucket.most_beta)
    models = draw_many(seed, config.mixture, limits, bucket.count)
    return label(models, 0, (), seed)


def test_the_tiny_preset_overfits_thirty_two_graphs(tmp_path: Path) -> None:
    data = tiny_data()
    result = train(TINY, [data], [(data, 3)], tmp_path)
    before = mean_error(type(result.network)(TINY.network), data, 3)
    after = mean_error(result.network, data, 3)
    assert after < 0.5 * before
    stored = load_weights(tmp_path / "weights.safetensors")
    assert mean_error(stored, data, 3) == pytest.approx(after, abs=1e-3)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [50, 100, 150]


def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path: Path) -> None:
    data = tiny_data()
    config = dataclasses.replace(TINY, steps=6, validate_every=2, batch=8, context_share=0.3)
    whole = train(config, [data], [(data, 3)], tmp_path / "whole")

    lines = []

    def interrupt(line: dict) -> None:
        lines.append(line)
        if line["step"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, [data], [(data, 3)], tmp_path / "parts", interrupt)
    resumed = train(config, [data], [(data, 3)], tmp_path / "parts")
    assert resumed.steps == whole.steps == 6
    assert [h["mae"] for h in resumed.history] == [h["mae"] for h in whole.history]
    for a, b in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    data = tiny_data()
    config = dataclasses.replace(TINY, steps=2, validate_every=2, batch=4)
    train(config, [data], [(data, 3)], tmp_path)
    with pytest.raises(CheckpointError, match="another configuration"):
        train(dataclasses.replace(config, rate=0.1), [data], [(data, 3)], tmp_path)


def test_training_stops_when_validation_no_longer_improves(tmp_path: Path) -> None:
    data = tiny_data()
    config = dataclasses.replace(
        TINY, steps=50, rate=0.0, weight_decay=0.0, validate_every=1, patience=3, batch=4
    )
    result = train(config, [data], [(data, 3)], tmp_path)
    assert result.steps == 4


def test_every_step_is_told_and_weights_are_kept_by_all_validation_sets(tmp_path: Path) -> None:
    data, other = tiny_data(), tiny_data(seed=5)
    config = dataclasses.replace(TINY, steps=5, validate_every=1, batch=4)
    told: list[tuple[int, float]] = []
    task = SpinTask(config, [data], [(data, 3), (other, 3)])
    result = run_task(task, tmp_path, tick=lambda *step: told.append(step))
    assert [step for step, _ in told] == [0, 1, 2, 3, 4]
    assert [progress for _, progress in told] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])
    kept = min(result.history, key=lambda line: line["mae"][0] * line["mae"][1])["mae"]
    found = [mean_error(result.network, part, 3) for part in (data, other)]
    assert found == pytest.approx(kept)


def test_calibration_makes_stated_deviations_cover_errors() -> None:
    torch.manual_seed(0)
    network = FastNetwork(TINY.network)
    evaluate.calibrate(network, [tiny_data(seed=s) for s in (11, 12, 13)], 3)
    found = evaluate.quality(network, tiny_data(seed=14), 3, orders=4)
    assert found.covered > 0.85
    assert found.rank > 0.5


@pytest.mark.slow
def test_two_processes_train_together(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import dataclasses, sys, torch\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_loop import TINY, tiny_data, train\n"
        "config = dataclasses.replace(TINY, steps=8, validate_every=4)\n"
        "data = tiny_data()\n"
        f"train(config, [data], [(data, 3)], Path({str(tmp_path)!r}) / 'out')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2",
               "--master_port=29611", str(script)]  # fmt: skip
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
    together = [json.loads(x) for x in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    data = tiny_data()
    alone = train(
        dataclasses.replace(TINY, steps=8, validate_every=4), [data], [(data, 3)], tmp_path / "one"
    )
    # same batches, gradients averaged over halves: the same run up to rounding and clipping
    assert together[-1]["mae"][0] == pytest.approx(alone.history[-1]["mae"][0], rel=0.05)
