"""The docs stay true: what exists is mentioned, and what is shown runs."""

import runpy
from pathlib import Path

import pytest

import zoo
from icgi.engines import ENGINES

ROOT = Path(__file__).parent.parent


def test_the_skeleton_engine_keeps_the_contract() -> None:
    skeleton = runpy.run_path(str(ROOT / "docs" / "skeleton_engine.py"))["Skeleton"]
    for name in zoo.MODELS:
        answer = zoo.run(skeleton(damping=0.1), name)
        assert answer.probs.sum(1) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_in_the_readme(name: str) -> None:
    assert f"| `{name}` |" in (ROOT / "README.md").read_text()


def test_the_layout_in_the_readme_is_up_to_date() -> None:
    layout = runpy.run_path(str(ROOT / "docs" / "layout.py"))
    assert layout["section"](ROOT) in (ROOT / "README.md").read_text(), "run: make docs"
