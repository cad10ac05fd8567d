"""`icgi label` and `icgi data info`: sets are made, interrupted, resumed and looked at."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.testing import assert_array_equal

from icgi.data.families import FAMILIES
from icgi.data.store import LabelledSet
from icgi.model.formats.uai import write_model
from icgi.model.graph import FactorGraph

ICGI = [sys.executable, "-m", "icgi"]
PATIENCE = 120  # seconds until a test that waits gives up


def glasses(count: int) -> None:
    """`models/`, SK instances that have to be sampled."""
    Path("models").mkdir()
    rng = np.random.default_rng(0)
    for k in range(count):
        write_model(FAMILIES["sk"].sample(rng, n=40), Path(f"models/sk{k}.uai"))


def grids(count: int) -> None:
    """`models/`, grids that are exact at once."""
    Path("models").mkdir()
    rng = np.random.default_rng(1)
    for k in range(count):
        write_model(FAMILIES["ea2d"].sample(rng, L=4), Path(f"models/g{k}.uai"))


def wait_until(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.is_file() else 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_loses_only_what_is_in_flight(run, how: signal.Signals) -> None:
    glasses(24)  # many, so that a slow machine has not labelled all when the signal comes
    words = ["label", "models", "-o", "set", "--workers", "2", "--seconds", "0.5"]
    words += ["--error", "1e-6"]  # never reached: every instance takes its time
    child = subprocess.Popen([*ICGI, *words], start_new_session=True, stderr=subprocess.PIPE)
    wait_until(lambda: lines(Path("set/pending.jsonl")) >= 3)
    workers = psutil.Process(child.pid).children(recursive=True)
    if how is signal.SIGINT:
        os.killpg(child.pid, how)  # Ctrl-C reaches the workers too
    else:
        os.kill(child.pid, how)
    output = child.communicate(timeout=PATIENCE)[1].decode()
    if how is signal.SIGINT:
        assert child.returncode == 130
        assert "goes on from here" in output
        assert "Traceback" not in output
    wait_until(lambda: not any(worker.is_running() for worker in workers))
    kept = {item.identity.name: item.label.probs for item in LabelledSet("set")}
    assert 3 <= len(kept) < 24
    output = run("label", "set", "--seconds", 0.1, "--workers", 1).stdout
    assert f"{24 - len(kept)} labelled now, 24 in all" in output
    stored = LabelledSet("set")
    assert stored.verify() == []
    for item in stored:
        if item.identity.name in kept:
            assert_array_equal(item.label.probs, kept[item.identity.name])


def test_a_set_is_made_from_a_folder_and_described(run) -> None:
    grids(3)
    assert "3 labelled now, 3 in all" in run("label", "models", "-o", "set", "--workers", 1).stdout
    assert "0 labelled now, 3 in all" in run("label", "set", "--workers", 1).stdout
    output = run("data", "info", "set", "--plot", "set.png").stdout
    assert "models" in output
    assert "jt 3" in output
    assert Path("set.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(run("data", "info", "set", "--json").stdout)
    assert found["damaged"] == []
    assert found["groups"][0]["methods"] == {"jt": 3}
    assert found["groups"][0]["unconverged"] == 0


def test_the_manifest_says_how_labels_were_made(run) -> None:
    grids(1)
    run("label", "models", "-o", "set", "--workers", 1, "--seed", 7)
    run("label", "set", "--workers", 1, "--seed", 7)
    manifest = json.loads(Path("set/manifest.json").read_text())
    assert [entry["seed"] for entry in manifest["labelling"]] == [7]
    assert manifest["labelling"][0]["std_error"] == 0.005
    assert manifest["source"] == {"source": "models", "scale": "small"}
    assert all(len(shard["sha256"]) == 64 for shard in manifest["models"] + manifest["answers"])


def test_sampled_labels_are_described_by_their_errors(run) -> None:
    glasses(2)
    run("label", "models", "-o", "set", "--seconds", 1, "--workers", 1)
    group = json.loads(run("data", "info", "set", "--json").stdout)["groups"][0]
    assert group["methods"] == {"pt": 2}
    assert 0 < group["max_std_error"] < 0.5
    assert group["max_s_hat"] > 0
    run("data", "info", "set", "--plot", "set.png")
    assert Path("set.png").stat().st_size > 10_000


def test_an_instance_without_a_label_does_not_stop_the_others(run) -> None:
    grids(2)
    differ = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    scopes = tuple((i, j) for j in range(4) for i in range(j))
    write_model(FactorGraph(np.full(4, 3), scopes, (differ,) * 6), Path("models/never.uai"))
    result = run("label", "models", "-o", "set", "--workers", 1, code=1)
    assert "2 labelled now, 2 in all" in result.stdout
    assert "never.uai" in result.stderr


def test_damage_is_told(run) -> None:
    grids(1)
    run("label", "models", "-o", "set", "--workers", 1)
    path = Path("set/manifest.json")
    manifest = json.loads(path.read_text())
    manifest["answers"][0]["sha256"] = "0" * 64
    path.write_text(json.dumps(manifest))
    found = json.loads(run("data", "info", "set", "--json").stdout)
    assert found["damaged"] == ["answers-00000.parquet: differs from the hash in the manifest"]
    assert "answers-00000.parquet" in run("data", "info", "set").stderr


def test_what_cannot_be_read_is_listed(run) -> None:
    grids(1)
    run("label", "models", "-o", "set", "--workers", 1)
    Path("set/answers-00000.parquet").write_bytes(b"no table")
    output = run("data", "info", "set", code=1).stderr
    assert "answers-00000.parquet: differs from the hash" in output


def test_two_runs_at_once_are_one_and_a_refusal(run) -> None:
    glasses(3)
    run("label", "models", "-o", "set", "--workers", 1, "--seconds", 0.1)
    words = [
        "label",
        "models",
        "-o",
        "other",
        "--workers",
        "1",
        "--seconds",
        "2",
        "--error",
        "1e-6",
    ]
    child = subprocess.Popen([*ICGI, *words], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: lines(Path("other/pending.jsonl")) >= 1)
        output = run("label", "other", "--workers", 1, code=1).stderr
        assert f"is being written by process {child.pid}" in " ".join(output.split())
    finally:
        child.communicate(timeout=PATIENCE)
    assert child.returncode == 0
    assert LabelledSet("other").verify() == []
    assert len(list(LabelledSet("other"))) == 3


def test_a_torn_line_costs_one_label_and_is_told(run) -> None:
    grids(3)
    run("label", "models", "-o", "set", "--workers", 1)
    items = list(LabelledSet("set"))
    path = Path("set/manifest.json")
    manifest = json.loads(path.read_text()) | {"answers": [], "marginals": []}
    path.write_text(json.dumps(manifest))
    stored = LabelledSet("set")
    for item in items[:2]:
        stored.append(item.identity.name, item.label)
    os.truncate("set/pending.jsonl", os.path.getsize("set/pending.jsonl") - 100)
    result = run("label", "set", "--workers", 1)
    assert "torn" in result.stderr
    assert "2 labelled now, 3 in all" in result.stdout
    assert LabelledSet("set").verify() == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("label", "models"), 1, "-o FOLDER"),
        (("label", "nothing"), 1, "neither a set, nor a preset"),
        (("label", "sk-paper", "--scale", "huge"), 2, "smoke, small or paper"),
        (("label", "sk-paper", "--workers", 0), 2, "--workers"),
        (("data", "info", "models"), 1, "manifest.json"),
        (("data", "show", "models"), 2, "there is: info"),
    ],
)
def test_mistakes_are_explained(run, words, code: int, message: str) -> None:
    grids(1)
    assert message in run(*words, code=code).stderr


def test_help_mentions_every_option(run) -> None:
    output = run("label", "--help").stdout
    for option in ("output", "scale", "seconds", "error", "memory", "workers", "seed", "quiet"):
        assert f"--{option}" in output
    assert "--plot" in run("data", "--help").stdout
