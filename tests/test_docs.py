"""The docs stay true: what exists is mentioned, and what is shown runs."""

import re
import runpy
from pathlib import Path

import pytest

import zoo
from icgi.engines import ENGINES
from icgi.errors import UnsupportedModelError
from icgi.inference import Status

ROOT = Path(__file__).parent.parent


def test_the_skeleton_engine_keeps_the_contract() -> None:
    skeleton = runpy.run_path(str(ROOT / "docs" / "skeleton_engine.py"))["Skeleton"]
    for name in zoo.MODELS:
        answer = zoo.run(skeleton(damping=0.1), name)
        assert answer.probs.sum(1) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_in_the_readme(name: str) -> None:
    assert f"| `{name}` |" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    "engine", [*ENGINES, "icgi:paper", "gbp:regions=join-graph", "ttve:exact_entries=0,samples=20"]
)
def test_every_statistic_is_in_the_glossary(engine: str) -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    for name in zoo.MODELS:
        try:
            stats = zoo.run(zoo.engine_or_skip(engine), name).stats
        except UnsupportedModelError:
            continue
        for key in stats:
            assert f"\n| `{key}` | " in glossary, f"docs/glossary.md does not explain {key}"


def test_the_glossary_is_in_order_and_knows_every_status() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    keys = re.findall(r"^\| `(\w+)` \| ", glossary.partition("## Statistics")[2], re.M)
    assert keys == sorted(set(keys))
    assert all(f"\n| {status.value} | " in glossary for status in Status)


def test_the_list_of_files_is_up_to_date() -> None:
    layout = runpy.run_path(str(ROOT / "docs" / "layout.py"))
    assert layout["section"](ROOT) in (ROOT / "docs" / "architecture.md").read_text(), "make docs"


def test_every_page_of_the_docs_is_in_the_navigation() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
    assert sorted(map(Path, listed)) == pages
