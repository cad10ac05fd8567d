import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from some_models import make
from typer.testing import CliRunner

from icgi.cli import app
from icgi.engines import ENGINES
from icgi.model.graph import FactorGraph

Run = Callable[..., Any]
FAKES = ("Unsure", "Interrupted", "Patient", "Unanswered", "Compiling", "Sleeper", "Greedy")


@pytest.fixture
def run() -> Run:
    """Run `icgi` in process; `code` is the exit code that the test expects."""

    def invoke(*words: object, code: int = 0, env: dict[str, str] | None = None) -> Any:
        result = CliRunner().invoke(app, [str(word) for word in words], env=env)
        output = f"{result.exception!r}\n{result.stdout}\n{result.stderr}"
        assert result.exit_code == code, output
        assert result.exception is None or isinstance(result.exception, SystemExit), output
        return result

    return invoke


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture(autouse=True)
def engines_in_order() -> Iterator[None]:
    """An engine that a test takes out comes back at its place, not at the end."""
    before = dict(ENGINES)
    yield
    ENGINES.clear()
    ENGINES.update(before)


@pytest.fixture(autouse=True)
def fake_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FAKES:
        monkeypatch.setitem(ENGINES, name.lower(), f"fake_engines:{name}")


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """A command freezes what it has loaded; a process of tests goes on and wants its garbage."""
    yield
    gc.unfreeze()


@pytest.fixture
def grid() -> FactorGraph:
    """`grid.uai`, 16 spins, in the current folder."""
    return make("grid", "grid.uai", rows=4, columns=4)


@pytest.fixture(autouse=True, scope="session")
def interrupts_are_heard() -> None:
    """Children of a suite that runs in the background would inherit a deaf ear for Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
