"""The guides on spin glasses and on learning do what they say, from top to bottom."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from icgi.cli import app

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


@pytest.mark.parametrize("name", ["spin-glasses", "learning"])
def test_every_block_runs(name: str, tmp_path, monkeypatch) -> None:
    pytest.importorskip("torch" if name == "learning" else "matplotlib")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    blocks = re.findall(
        r"^```(sh|python)\n(.*?)^```$", (GUIDES / f"{name}.md").read_text(), re.M | re.S
    )
    assert blocks
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, name, "exec"), scope)
            continue
        for line in text.splitlines():
            result = CliRunner().invoke(app, shlex.split(line)[1:])
            assert result.exit_code == 0, (line, result.output)
