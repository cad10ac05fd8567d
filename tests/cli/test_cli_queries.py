import csv
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
from icgi.cli.scan import _betas
from icgi.queries.scan import with_error


@pytest.fixture
def travel() -> icgi.FactorGraph:
    """Named variables in `travel.bif`."""
    text = "network travel {}\n"
    for name, states in (("storm", "no, yes"), ("late", "no, yes"), ("missed", "no, yes")):
        text += f"variable {name} {{ type discrete [ 2 ] {{ {states} }}; }}\n"
    text += "probability ( storm ) { table 0.8, 0.2; }\n"
    text += "probability ( late | storm ) { (no) 0.9, 0.1; (yes) 0.3, 0.7; }\n"
    text += "probability ( missed | late ) { (no) 0.95, 0.05; (yes) 0.4, 0.6; }\n"
    Path("travel.bif").write_text(text)
    return icgi.load("travel.bif")


def test_show_prints_the_chosen_variables_in_order(run, travel) -> None:
    lines = run("marginals", "travel.bif", "--show", "missed,storm", "-q").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["missed", "storm"]
    assert "more variables" not in "\n".join(lines)


def test_joint_is_printed_with_mutual_information(run, travel) -> None:
    text = run("marginals", "travel.bif", "--joint", "storm,missed", "-q").stdout
    joint = icgi.marginals(travel).joint("storm", "missed")
    assert f"{joint['no', 'no']:.6f}" in text
    assert f"mutual information {joint.mutual_information()[0]:.6g} bits" in text


def test_joint_as_json(run, travel) -> None:
    words = ["--joint", "storm,missed", "--joint", "late", "--observe", "late=yes", "--json"]
    found = json.loads(run("marginals", "travel.bif", *words).stdout)
    pair, single = found["joints"]
    expected = icgi.marginals(travel, {"late": "yes"}).joint("storm", "missed")
    assert pair["variables"] == ["storm", "missed"]
    assert pair["states"] == [["no", "yes"], ["no", "yes"]]
    assert_allclose(pair["probabilities"], expected.probs)
    assert single["probabilities"] == [0.0, 1.0]


@pytest.mark.parametrize("word", ["--joint", "--show"])
def test_unknown_names_get_near_ones(run, travel, word: str) -> None:
    assert "did you mean 'storm'" in run("marginals", "travel.bif", word, "strom", code=1).stderr


def test_a_joint_beyond_the_budget_is_refused(run, grid) -> None:
    run("marginals", "grid.uai", "--memory", "1k", "--joint", "0,1,2,3,4,5,6,7", code=4)


def test_mpe_prints_writes_and_says_exact(run, travel) -> None:
    result = run("mpe", "travel.bif", "--observe", "missed=yes", "-o", "best.MPE")
    found = icgi.mpe(travel, {"missed": "yes"})
    for name in ("storm", "late"):
        assert [name, found[name]] in [line.split()[:2] for line in result.stdout.splitlines()]
    assert "(observed)" in result.stdout
    assert f"exact; log weight = {found.log_weight:.10g}" in result.stdout
    assert Path("best.MPE").read_text() == "MPE\n3 " + " ".join(map(str, found.states)) + "\n"


def test_mpe_as_json_and_best_found(run, travel) -> None:
    words = ["--engine", "pt", "--iterations", 50, "--json", "-o", "best.json"]
    found = json.loads(run("mpe", "travel.bif", *words).stdout)
    assert found["status"] == "best found"
    assert found == json.loads(Path("best.json").read_text())
    assert found["configuration"] == {"storm": "no", "late": "no", "missed": "no"}
    assert run("mpe", "travel.bif", "-o", "best.txt", code=1).stderr.count("ending should be")
    run("mpe", "travel.bif", "--engine", "lbp", code=1)


def test_sample_prints_names_and_repeats_itself(run, travel) -> None:
    first = run("sample", "travel.bif", "-n", 200, "--observe", "late=yes", "-q").stdout
    assert first == run("sample", "travel.bif", "-n", 200, "--observe", "late=yes").stdout
    rows = list(csv.DictReader(first.splitlines()))
    assert len(rows) == 200
    assert {row["late"] for row in rows} == {"yes"}
    share = np.mean([row["missed"] == "yes" for row in rows])
    assert abs(share - 0.6) < 0.15
    run("sample", "travel.bif", "-n", 200, "--observe", "late=yes", "-o", "drawn.csv", "-q")
    assert Path("drawn.csv").read_text() == first


def test_sample_of_elimination_has_weights(run, grid) -> None:
    words = ["-n", 20, "--engine", "ttve", "--rank", 2]
    result = run("sample", "grid.uai", *words)
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert sum(float(row["weight"]) for row in rows) == pytest.approx(1.0)
    assert "use their weights" in result.stderr
    found = json.loads(run("sample", "grid.uai", *words, "--json").stdout)
    assert np.array(found["states"]).shape == (20, 16)


def test_explain_sorts_observations_by_what_they_move(run, travel) -> None:
    words = ["--target", "storm", "--observe", "late=yes", "--observe", "missed=yes"]
    lines = run("explain", "travel.bif", *words, "-q").stdout.splitlines()
    assert lines[3].startswith("late=yes")
    assert lines[4].startswith("missed=yes")
    found = json.loads(run("explain", "travel.bif", *words, "--json").stdout)
    assert found["target"] == "storm"
    assert found["removed"][1]["change"] == pytest.approx(0.0, abs=1e-12)  # late screens it off
    assert "no evidence" in run("explain", "travel.bif", "--target", "storm", code=1).stderr


def test_scan_as_table_file_and_picture(run, grid) -> None:
    words = ["--beta", "0.2:1:0.4", "--pair", "0,1", "-o", "scan.csv", "--plot", "scan.png"]
    result = run("scan", "grid.uai", *words)
    assert "jt: exact" in result.stdout
    exact = icgi.scan(grid, [0.2, 0.6, 1.0], pairs=[("0", "1")])
    with Path("scan.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert_allclose([float(row["log_z"]) for row in rows], exact["log_z"])
    assert_allclose([float(row["correlation 0,1"]) for row in rows], exact["correlation 0,1"])
    assert Path("scan.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(run("scan", "grid.uai", "--beta", "0.5,1", "--json").stdout)
    assert found["beta"] == [0.5, 1.0]
    assert len(found["values"]["energy"]) == 2


@pytest.mark.parametrize("text", ["x", "1:0:0.1", "0:1:0", "0:1", "-1,2", "0:1:1e-9"])
def test_ranges_that_are_none_are_wrong_usage(run, grid, text: str) -> None:
    assert "is no range" in run("scan", "grid.uai", f"--beta={text}", code=2).stderr


def test_ranges_have_both_ends() -> None:
    assert _betas("0.2:2:0.1")[-1] == 2.0
    assert len(_betas("0.2:2:0.1")) == 19
    assert _betas("1") == [1.0]


def test_numbers_carry_the_error_of_their_last_digits() -> None:
    assert with_error(1.23456, 0.0123) == "1.235(12)"
    assert with_error(-392.97796, 0.64) == "-392.98(64)"
    assert with_error(2.5, 0.0) == "2.5"
    assert with_error(float("nan"), float("nan")) == "–"


@pytest.mark.parametrize("verb", ["mpe", "sample", "explain", "scan"])
def test_help_explains(run, verb: str) -> None:
    text = run(verb, "--help").stdout
    assert "Usage" in text
    assert "--json" in text
