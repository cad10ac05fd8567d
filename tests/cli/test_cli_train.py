"""`icgi train` in process: a run, going on with it, its files, and what it refuses."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from icgi.train.config import FAST, PAPER_TINY, TINY, to_json
from icgi.train.general_task import TINY as GENERAL_TINY
from icgi.train.runs import configuration

torch.set_num_threads(1)


def short(tmp_path: Path, steps: int = 4) -> Path:
    """Configuration of a run of a few seconds."""
    path = tmp_path / f"short-{steps}.json"
    path.write_text(to_json(dataclasses.replace(TINY, steps=steps, validate_every=2, batch=4)))
    return path


def test_a_run_leaves_its_files_and_goes_on(run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = run("train", str(short(tmp_path)), "-o", str(folder), "--tests", "0")
    assert "best validation MAE" in done.stdout
    names = {path.name for path in folder.iterdir()}
    assert names >= {"weights.safetensors", "weights.json", "checkpoint.pt", "train.json",
                     "log.jsonl", "results.json"}  # fmt: skip
    steps = [json.loads(x)["step"] for x in (folder / "log.jsonl").read_text().splitlines()]
    assert steps == [2, 4]
    again = run("train", str(folder / "train.json"), "-o", str(folder), "--tests", "0")
    assert "4 steps" in again.stdout


def test_a_folder_of_another_run_is_refused(run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run("train", str(short(tmp_path, 2)), "-o", str(folder), "--tests", "0")
    other = run("train", str(short(tmp_path, 4)), "-o", str(folder), "--tests", "0", code=1)
    assert "another configuration" in other.stderr


@pytest.mark.parametrize("preset", ["nothing", "missing.json"])
def test_an_unknown_preset_names_those_there_are(run, tmp_path: Path, preset: str) -> None:
    done = run("train", preset, "-o", str(tmp_path / "run"), code=1)
    assert "general-tiny" in done.stderr


def test_a_file_that_is_no_configuration(run, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{not json")
    done = run("train", str(path), "-o", str(tmp_path / "run"), code=1)
    assert "no training configuration" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_run_that_needs_a_device_says_so_before_it_starts(run, tmp_path: Path) -> None:
    done = run("train", "fast", "-o", str(tmp_path / "run"), code=1)
    assert "CUDA" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("config", [TINY, FAST, PAPER_TINY, GENERAL_TINY], ids=str)
def test_configurations_survive_their_files(tmp_path: Path, config) -> None:
    path = tmp_path / "train.json"
    path.write_text(to_json(config))
    assert configuration(str(path)) == config
