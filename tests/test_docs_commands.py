"""Every `icgi …` that the docs show is understood by the command line, and the cheap ones run."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from icgi.bench.tables import TABLES
from icgi.cli import app
from icgi.cli.engines import describe
from icgi.data.families import FAMILIES
from icgi.engines import ENGINES
from icgi.neural.networks import NETWORKS
from icgi.train.presets import PRESETS

ROOT = Path(__file__).parent.parent
PAGES = [
    page
    for page in sorted(
        [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    )
    if page.parent.name not in ("reference", "guides")  # made from the help; run by test_guides
]
SHOWN = re.compile(r"^(?:    |)(?:\$ )?(icgi [^\n]*)$|`(icgi [a-z][^`]*)`", re.M)
CHEAP = ("engines", "generate --list", "info", "--version", "--help")


def commands(text: str) -> list[list[str]]:
    """Words of the commands in a page; what stands for anything is left out."""
    found = []
    for groups in SHOWN.findall(text):
        line = re.sub(r"\s#.*$|…|[\[\]]", " ", " ".join("".join(groups).split()))
        found.append(shlex.split(re.split(r" [|>&] ", line)[0])[1:])
    return [words for words in found if words]


def understood(words: list[str]) -> None:
    """Raise where a command, an option or an engine with its options does not exist."""
    group: Any = typer.main.get_command(app)
    assert words[0] in group.commands or words[0].startswith("-"), (
        f"icgi {words[0]}: no such command"
    )
    if words[0].startswith("-"):
        return
    command = group.commands[words[0]]
    context = command.context_class(command, info_name=words[0])
    values, _, _ = command.make_parser(context).parse_args(list(words[1:]))
    engines = values.get("engine") or values.get("engines") or []
    for engine in [engines] if isinstance(engines, str) else engines:
        if not engine.isupper():
            known(engine)
    first = next((w for w in words[1:] if not w.startswith("-")), "")
    if words[0] == "generate" and first and not first.isupper():
        assert first in FAMILIES, f"{first}: no such family"
    if words[0] == "bench" and first and not first.isupper() and first != "render":
        assert first in TABLES, f"{first}: no such table"
    if words[0] == "train" and first and not first.isupper() and first != "CONFIG":
        assert first in {*PRESETS, *NETWORKS}, f"{first}: no such preset"


def known(engine: str) -> None:
    """Raise where an engine or one of its options does not exist."""
    name, _, options = engine.partition(":")
    assert name in ENGINES, f"{name}: no such engine"
    found = describe(name)
    assert found is not None
    names = {option.name for option in found.options}
    for option in filter(None, options.split(",")):
        assert "=" not in option or option.partition("=")[0] in names, f"{engine}: no {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_are_understood(page: Path) -> None:
    for words in commands(page.read_text()):
        understood(words)


@pytest.mark.parametrize(
    "line",
    [
        "icgi marginal m.uai",
        "icgi info m.uai --engin jt",
        "icgi mpe m.uai --engine",
        "icgi bench t9",
    ],
)
def test_what_does_not_exist_is_not_understood(line: str) -> None:
    (words,) = commands(f"    {line}\n")
    with pytest.raises(Exception, match=r"no such|No such|requires an argument"):
        understood(words)
    with pytest.raises(AssertionError, match="no such engine"):
        known("lpb:damping=0.5")
    with pytest.raises(AssertionError, match="no dumping"):
        known("lbp:dumping=0.5")


def test_cheap_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need no file, and `info` of a generated model in place of any."""
    monkeypatch.chdir(tmp_path)
    model = ["generate", "ea2d", "L=3", "-o", "model.uai"]
    assert CliRunner().invoke(app, model).exit_code == 0
    shown = {tuple(words) for page in PAGES for words in commands(page.read_text())}
    ran = 0
    for words in sorted(shown):
        if " ".join(words).startswith(CHEAP) and not any(word.isupper() for word in words[2:]):
            given = ["model.uai" if w == "MODEL" or w.endswith(".uai") else w for w in words]
            given = given if given != ["info"] else ["info", "model.uai"]
            result = CliRunner().invoke(app, ["engines"] if given[1:] == ["NAME"] else given)
            assert result.exit_code == 0, (words, result.output)
            ran += 1
    assert ran >= 3
