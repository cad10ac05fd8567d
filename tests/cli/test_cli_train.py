"""`icgi train` in process: a run, going on with it, its files, own data, and what it refuses."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from icgi.engines import parse_engine
from icgi.inference import Budget
from icgi.model.graph import FactorGraph
from icgi.neural.networks import NETWORKS
from icgi.train import runs
from icgi.train.config import Bucket, TrainConfig, tiny, to_json
from icgi.train.kinds import Limits
from icgi.train.presets import PRESETS
from icgi.train.runs import configuration

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "cache_folder", lambda: tmp_path / "cache" / "kernels")


def short(tmp_path: Path, steps: int = 4) -> Path:
    """Configuration of a run of a few seconds."""
    config = dataclasses.replace(
        tiny("direct-gnn", features=16, layers=1, heads=2),
        buckets=(Bucket("training", Limits(6, 8), 16),),
        steps=steps, validate_every=2, batch=4, validation=4,
    )  # fmt: skip
    path = tmp_path / f"short-{steps}.json"
    path.write_text(to_json(config))
    return path


def train(run, config: object, folder: Path, *words: str, code: int = 0):
    return run("train", config, "-o", folder, "--tests", "0", *words, code=code)


def test_a_run_leaves_its_files_and_goes_on(run, grid: FactorGraph, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = train(run, short(tmp_path), folder)
    assert "best validation MAE" in done.stdout
    names = {path.name for path in folder.iterdir()}
    assert names >= {"weights.safetensors", "weights.json", "checkpoint.pt", "train.json",
                     "log.jsonl", "results.json"}  # fmt: skip
    steps = [json.loads(x)["step"] for x in (folder / "log.jsonl").read_text().splitlines()]
    assert steps == [2, 4]
    before = (folder / "weights.safetensors").read_bytes()
    again = train(run, folder / "train.json", folder)
    assert "4 steps" in again.stdout
    assert (folder / "weights.safetensors").read_bytes() == before
    rng = np.random.default_rng(0)
    for engine in ("icgi", "direct-gnn"):  # any engine of networks takes the file
        found = parse_engine(f"{engine}:weights={folder / 'weights.safetensors'}")
        assert found(grid, Budget(), rng).probs.sum(1) == pytest.approx(1.0)
    wrong = run("marginals", "grid.uai", "--engine",
                f"bpnn:weights={folder / 'weights.safetensors'}", code=1)  # fmt: skip
    assert "holds a network direct-gnn, not bpnn" in wrong.stderr


def test_steps_and_seed_decide_a_run(run, tmp_path: Path) -> None:
    weights = []
    for k, seed in enumerate(("3", "3", "4")):
        folder = tmp_path / str(k)
        train(run, short(tmp_path, 9), folder, "--steps", "2", "--seed", seed, "--quiet")
        assert json.loads((folder / "train.json").read_text())["steps"] == 2
        weights.append((folder / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


def test_own_models_from_families_are_drawn_again_when_a_run_goes_on(run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ("--data", "tree:n=6,arity=2,states=2", "--data", "ba:n=8,m=2")
    done = train(run, short(tmp_path, 2), folder, *words)
    assert "tree:n=6,arity=2,states=2: 16 labelled models" in done.stderr
    assert "ba:n=8,m=2: 16 labelled models" in done.stderr
    assert "2 steps" in train(run, folder / "train.json", folder).stdout


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nothing", "neither a folder with a labelled set nor a family"),
        ("ba:n=eight", "n='eight' should be a whole number"),
        ("ba:q=3", "does not understand 'q=3'"),
        (".", "is no labelled set"),
    ],
)
def test_sources_that_are_none_are_explained(run, tmp_path: Path, source: str, words: str) -> None:
    output = train(run, short(tmp_path), tmp_path / "run", "--data", source, code=1).stderr
    assert words in output


def test_a_folder_of_another_run_is_refused(run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(run, short(tmp_path, 2), folder)
    other = train(run, short(tmp_path, 4), folder, code=1)
    assert "another configuration" in other.stderr


@pytest.mark.parametrize("preset", ["nothing", "missing.json"])
def test_an_unknown_preset_names_those_there_are(run, tmp_path: Path, preset: str) -> None:
    output = run("train", preset, "-o", str(tmp_path / "run"), code=1).stderr
    assert all(name in output for name in ("general-tiny", *NETWORKS))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["{not json", "{}", '{"network": "paper", "settings": {"x": 1}}'])
def test_a_file_that_is_no_configuration(run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    done = run("train", str(path), "-o", str(tmp_path / "run"), code=1)
    assert "no training configuration" in done.stderr


def test_the_help_names_every_network(run) -> None:
    output = run("train", "--help").stdout
    assert all(name in output for name in NETWORKS)
    assert all(option in output for option in ("--data", "--steps", "--seed", "--start"))


@pytest.mark.parametrize("name", [*PRESETS, *NETWORKS])
def test_configurations_survive_their_files(tmp_path: Path, name: str) -> None:
    path, config = tmp_path / "train.json", configuration(name)
    assert isinstance(config, TrainConfig)
    path.write_text(to_json(config))
    assert configuration(str(path)) == config
