import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from some_models import make

import icgi
from icgi.data.batches import COLUMNS
from icgi.metrics import mean_absolute_error


@pytest.fixture
def models() -> list[str]:
    """Three grids in `m/`, the first with its exact answer and evidence beside it."""
    Path("m").mkdir()
    names = [f"g{k}.uai" for k in range(3)]
    for k, name in enumerate(names):
        make("grid", f"m/{name}", seed=k, rows=3, columns=3)
    Path("m/g0.uai.evid").write_text("1 4 1\n")
    icgi.marginals(icgi.load("m/g0.uai"), {4: 1}, "enumerate").save("m/g0.uai.MAR")
    return names


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_model_engine_and_seed_has_a_row_with_its_error(run, models) -> None:
    words = ["--engine", "lbp", "--engine", "pt:threads=1", "--seed", 3, "--seed", 4]
    output = run(
        "batch", "m", *words, "--seconds", 0.3, "--cluster", "serial", "-o", "t.csv"
    ).stdout
    rows = rows_of("t.csv")
    expected = [
        (m, e, s) for m in models for e in ("lbp", "pt:threads=1") for s in ("3", "4")
    ]  # fmt: skip
    assert [(r["instance"], r["engine"], r["seed"]) for r in rows] == expected
    assert "12 answers, 12 computed now" in output
    truth = icgi.marginals(icgi.load("m/g0.uai"), {4: 1}, "enumerate").probs
    ours = icgi.marginals(icgi.load("m/g0.uai"), {4: 1}, "lbp", seed=3).probs
    free = [i for i in range(9) if i != 4]
    assert float(rows[0]["mae"]) == pytest.approx(mean_absolute_error(ours[free], truth[free]))
    assert float(rows[2]["mae"]) < 0.05  # sampled
    assert rows[4]["mae"] == ""  # no reference beside it
    assert all(float(r["seconds"]) > 0 for r in rows)


def test_a_second_run_computes_nothing_and_writes_the_same_table(run, models) -> None:
    words = ["batch", "m", "--engine", "mf", "--engine", "jt", "--cluster", "serial", "-o"]
    run(*words, "t.csv")
    first = Path("t.csv").read_text()
    assert "6 answers, 0 computed now" in run(*words, "t.csv").stdout
    assert Path("t.csv").read_text() == first
    make("grid", "m/h.uai", seed=9, rows=3, columns=3)
    assert "8 answers, 2 computed now" in run(*words, "t.csv").stdout


def test_parquet_has_the_same_rows(run, models) -> None:
    import pyarrow.parquet as parquet

    words = ["batch", "m", "--engine", "jt", "--cluster", "serial", "-o"]
    run(*words, "t.csv")
    run(*words, "t.parquet")
    table = parquet.read_table("t.parquet")
    assert table.column_names == list(COLUMNS)
    written = [row["log_z"] for row in table.to_pylist()]
    assert written == [float(row["log_z"]) for row in rows_of("t.csv")]


def test_a_broken_model_and_a_refusal_are_rows(run, models) -> None:
    Path("m/broken.uai").write_text("MARKOV 2 2")
    run("batch", "m", "--engine", "greedy", "--engine", "jt", "--cluster", "serial", "-o", "t.csv")
    rows = {(r["instance"], r["engine"]): r for r in rows_of("t.csv")}
    assert rows["broken.uai", "jt"]["status"] == "refused"
    assert "line 1" in rows["broken.uai", "jt"]["message"]
    assert "greedy needs everything" in rows["g0.uai", "greedy"]["message"]
    assert rows["g0.uai", "jt"]["status"] == "exact"


def test_a_reference_of_another_model_is_refused(run, models) -> None:
    Path("m/g1.uai.MAR").write_text("MAR 1 2 0.5 0.5\n")
    run("batch", "m", "--engine", "jt", "--cluster", "serial", "-o", "t.csv")
    row = rows_of("t.csv")[1]
    assert row["status"] == "refused"
    assert "g1.uai.MAR does not answer this model" in row["message"]


def test_a_list_names_files_and_twins_have_a_row_each(run, models) -> None:
    Path("twin.uai").write_bytes(Path("m/g1.uai").read_bytes())
    Path("list.txt").write_text("# some\nm/g1.uai\n\ntwin.uai\n")
    output = run("batch", "list.txt", "--engine", "jt", "--cluster", "serial", "-o", "t.csv").stdout
    assert [r["instance"] for r in rows_of("t.csv")] == ["m/g1.uai", "twin.uai"]
    assert len({r["log_z"] for r in rows_of("t.csv")}) == 1
    assert "2 answers" in output


def test_wrong_questions_are_refused_before_anything_runs(run, models) -> None:
    assert (
        "did you mean 'lbp'" in run("batch", "m", "--engine", "lpb", "-o", "t.csv", code=1).stderr
    )
    assert ".csv or .parquet" in run("batch", "m", "-o", "t.txt", code=1).stderr
    assert "does not exist" in run("batch", "nowhere", "-o", "t.csv", code=1).stderr
    Path("empty").mkdir()
    assert "holds no models" in run("batch", "empty", "-o", "t.csv", code=1).stderr
    assert "serial" in run("batch", "m", "--cluster", "moon", "-o", "t.csv", code=1).stderr
    assert not Path("t.csv").exists()


def test_ctrl_c_writes_what_is_done_and_the_same_command_goes_on(run) -> None:
    Path("m").mkdir()
    for k in range(6):
        make("sk", f"m/s{k}.uai", seed=k, n=30, beta=3.0)
    words = ["batch", "m", "--engine", "pt", "--seconds", "1", "-o", "t.csv"]
    command = [sys.executable, "-m", "icgi", *words, "--workers", "1"]
    journal = Path("t.csv.jobs.jsonl")
    began = time.monotonic()
    with subprocess.Popen(
        command, start_new_session=True, stderr=subprocess.PIPE, text=True
    ) as child:
        while not (journal.exists() and journal.read_text().count("\n") >= 2):
            assert time.monotonic() - began < 120
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGINT)
        output = child.communicate(timeout=30)[1]
    assert child.returncode == 130, output
    assert "goes on from here" in output
    done = len(rows_of("t.csv"))
    assert 2 <= done < 6
    assert f"6 answers, {6 - done} computed now" in run(*words, "--cluster", "serial").stdout
