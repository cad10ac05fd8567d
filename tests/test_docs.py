"""The docs stay true: what exists is mentioned, and what is shown runs."""

import re
import runpy
from pathlib import Path

import pytest

import zoo
from icgi.cli.engines import describe
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
def test_every_engine_is_listed_and_has_a_page_to_finish(name: str) -> None:
    assert f"| `{name}` |" in (ROOT / "docs" / "engines" / "index.md").read_text()
    page = (ROOT / "docs" / "engines" / f"{name}.md").read_text()
    assert f"--engine {name}" in page
    for part in ("What it is for", "What its status says", "What it costs"):
        assert f"\n| **{part}** | " in page
    found = describe(name)
    assert found is not None
    for option in found.options:
        assert f"`{option.name}`" in page, f"docs/engines/{name}.md does not explain {option.name}"


def test_the_readme_is_short_and_its_example_runs() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 800
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    for name, found in (("answer", "0.508"), ("seen", "0.175")):
        assert f"{names[name]['Rain']['yes']:.3f}" == found  # type: ignore[index]
        assert found in example


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_python_in_the_docs_compiles(page: Path) -> None:
    """Guides are run by test_guides; start.md is, too."""
    if page.parent.name != "reference":  # signatures, made from the source
        for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S):
            compile(block, str(page), "exec")


def test_the_picture_of_engines_has_the_numbers_of_the_docs() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "figures" / "which_engine.py"))["picture"]()
    assert (ROOT / "docs" / "figures" / "which_engine.svg").read_text() == made, "make docs"


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


def test_the_reference_is_up_to_date() -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "reference.py"))["pages"]()
    for name, text in pages.items():
        assert (ROOT / "docs" / "reference" / name).read_text() == text, "python docs/reference.py"


def test_every_page_of_the_docs_is_in_the_navigation() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
    assert sorted(map(Path, listed)) == pages
