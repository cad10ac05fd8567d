"""`icgi convert`: another format, and what it could not hold."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import icgi
from icgi.cli import app
from some_networks import SPRINKLER

RUNNER = CliRunner()


@pytest.fixture
def garden(tmp_path: Path) -> Path:
    path = tmp_path / "garden.bif"
    path.write_text(SPRINKLER)
    return path


def test_a_network_by_way_of_uai(garden: Path, tmp_path: Path) -> None:
    middle, last = tmp_path / "garden.uai", tmp_path / "garden.xmlbif.gz"
    first = RUNNER.invoke(app, ["convert", str(garden), str(middle)])
    assert first.exit_code == 0
    assert "names of variables are not kept" in first.stderr
    assert first.stdout == ""
    second = RUNNER.invoke(app, ["convert", str(middle), str(last)])
    assert second.exit_code == 0
    assert second.stderr == ""
    before, after = icgi.load(garden), icgi.load(last)
    assert after.names == ("0", "1", "2")
    for a, b in zip(before.log_tables, after.log_tables, strict=True):
        assert_array_equal(a.argmax(), b.argmax())
        assert np.abs(np.exp(a) - np.exp(b)).max() < 1e-15


def test_a_file_is_not_replaced_unasked(garden: Path, tmp_path: Path) -> None:
    target = tmp_path / "taken.json"
    target.write_text("precious")
    refused = RUNNER.invoke(app, ["convert", str(garden), str(target)])
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    assert target.read_text() == "precious"
    assert RUNNER.invoke(app, ["convert", str(garden), str(target), "--force"]).exit_code == 0
    assert icgi.load(target).names == ("Rain", "Wet grass", "Sprinkler")


def test_what_would_change_the_meaning_is_refused(tmp_path: Path) -> None:
    spins = tmp_path / "spins.uai"
    icgi.save(icgi.from_ising(np.ones((3, 3)) - np.eye(3)), spins)
    refused = RUNNER.invoke(app, ["convert", str(spins), str(tmp_path / "spins.bif")])
    assert refused.exit_code == 1
    assert "Bayesian networks only" in refused.stderr
    assert not (tmp_path / "spins.bif").exists()
