"""Every option of a classical engine is on its page, with its default."""

import dataclasses
from pathlib import Path

import pytest

from icgi.engines import engine_class

PAGES = Path(__file__).parents[2] / "docs" / "engines"
ENGINES = ["lbp", "mf", "tap", "trbp", "gbp"]


def documented(name: str) -> dict[str, str]:
    """Default of each option in the table of a page."""
    rows = [line.split("|") for line in (PAGES / f"{name}.md").read_text().splitlines()]
    return {
        row[1].strip().strip("`"): row[2].strip().strip("`")
        for row in rows
        if len(row) > 4 and row[1].strip().startswith("`")
    }


@pytest.mark.parametrize("name", ENGINES)
def test_options_and_defaults_are_documented(name: str) -> None:
    found = documented(name)
    fields = dataclasses.fields(engine_class(name))  # type: ignore[arg-type]
    assert list(found) == [field.name for field in fields]
    for field in fields:
        text = found[field.name]
        if field.default is None:
            assert text == "automatic"
            continue
        assert (
            text == field.default
            if isinstance(field.default, str)
            else (float(text) == field.default)
        )


@pytest.mark.parametrize("name", ENGINES)
def test_page_says_when_it_is_right_and_when_it_fails(name: str) -> None:
    page = " ".join((PAGES / f"{name}.md").read_text().split())
    assert f"--engine {name}" in page
    assert "**When it is right.**" in page
    assert "**When it fails.**" in page
    assert "classical.png" in page or "picture in [lbp.md]" in page
