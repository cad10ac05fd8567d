"""Compiled kernels are found again on disk, and never when a source they depend on has changed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import icgi
from icgi import kernels

CALLEE = """
from icgi.kernels import kernel

FACTOR = {factor}

@kernel
def scaled(x):
    return FACTOR * x
"""
CALLER = """
from icgi.{callee} import scaled
from icgi.kernels import kernel

@kernel
def twice(x):
    return 2 * scaled(x)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of the same name that holds the modules under test alone."""
    home = tmp_path / "icgi"
    home.mkdir()
    (home / "__init__.py").write_text("")
    for name in ("kernels.py", "clock.py"):
        (home / name).write_bytes((Path(icgi.__file__).parent / name).read_bytes())
    (home / "callee.py").write_text(CALLEE.format(factor=3))
    (home / "caller.py").write_text(CALLER.format(callee="callee"))
    return home


def run(package: Path, cache: Path, code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "ICGI_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ASK = """
from icgi import kernels
count = [0]
def say(): count[0] += 1
kernels.when_compiling(say)
from icgi.caller import twice
print(twice(1), 'compiled' if count[0] else 'loaded')
"""


def test_a_changed_callee_in_another_file_is_compiled_anew(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run(package, cache, ASK) == "6 compiled"
    assert run(package, cache, ASK) == "6 loaded"
    (package / "callee.py").write_text(CALLEE.format(factor=5))
    assert run(package, cache, ASK) == "10 compiled"
    assert run(package, cache, ASK) == "10 loaded"


def test_a_broken_cache_costs_time_not_the_answer(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run(package, cache, ASK)
    for file in (cache / "kernels").rglob("*.nb?"):
        file.write_bytes(file.read_bytes()[:40])
    assert run(package, cache, ASK) == "6 compiled"


def test_without_a_folder_kernels_stay_in_memory(package: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    assert run(package, blocked, ASK) == "6 compiled"


def test_the_key_follows_imports_through_other_files() -> None:
    source = Path(icgi.__file__).parent
    reached = kernels._imported(source / "exact" / "passes.py")
    assert source / "kernels.py" in reached
    assert kernels.source_key(source / "exact" / "passes.py") != kernels.source_key(
        source / "exact" / "tree.py"
    )


def test_code_that_nobody_loads_is_removed_after_a_month(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "kernel.nbc").write_bytes(b"x")
    month = time.time() - 40 * 86400
    os.utime(old, (month, month))
    kernels.remove_unused(tmp_path)
    assert not old.exists()
    assert new.exists()


SMALL = """
import json
import sys
from icgi import kernels
count = [0]
def say(): count[0] += 1
kernels.when_compiling(say)
import icgi
answer = icgi.marginals(icgi.load(sys.argv[1]), {0: 1})
print(json.dumps([count[0], answer.probs.tolist(), answer.log_z, dict(answer.stats)]))
"""


def test_a_small_question_is_interpreted_where_nothing_is_compiled(tmp_path: Path) -> None:
    lines = ["MARKOV", "4", "2 3 2 2", "3", "2 0 1", "3 1 2 3", "1 2"]
    lines += ["6", "0.1 0.2 0.3 1e-3 2 1.5", "12", " ".join(map(str, range(1, 13))), "2", "0.3 0.7"]
    path = tmp_path / "small.uai"
    path.write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "ICGI_CACHE": str(tmp_path / "cache"), "ICGI_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SMALL, str(path)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    compiled, probs, log_z, stats = json.loads(done.stdout)  # numpy's numbers could not be dumped
    assert compiled == 0
    expected = icgi.marginals(icgi.load(path), {0: 1})
    np.testing.assert_allclose(probs, expected.probs, atol=1e-14)
    assert log_z == pytest.approx(expected.log_z, abs=1e-12)
    assert stats == dict(expected.stats)


def test_much_to_do_is_compiled(package: Path, tmp_path: Path, monkeypatch) -> None:
    few, many = (
        ASK.replace("print(", f"with kernels.brief({steps}): print(") for steps in (10, 1e9)
    )
    monkeypatch.setenv("ICGI_INTERPRET", "1")
    assert run(package, tmp_path / "cache", few) == "6 loaded"  # not compiled: interpreted
    assert run(package, tmp_path / "cache", many) == "6 compiled"
