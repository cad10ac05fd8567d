"""`icgi warm` leaves compiled code where later answers find it."""

from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_part_lies_compiled_on_the_disk(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("ICGI_CACHE", str(tmp_path))
    result = run("warm", "mf", "--processes", "1")
    assert "1 parts compiled in" in result.stdout
    assert str(tmp_path) in result.stdout
    assert list(tmp_path.rglob("*.nbi"))


@pytest.mark.parametrize("name", ["structures", "everything"])
def test_an_unknown_part_is_refused(run, name: str) -> None:
    result = run("warm", name, code=1)
    assert f"unknown part '{name}'" in result.stderr
    assert "ttve" in result.stderr
