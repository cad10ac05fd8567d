"""The pages of the samplers name every option with its default, and every number they report."""

import dataclasses
from pathlib import Path

import pytest

import zoo
from icgi.data.families import FAMILIES, PRESETS
from icgi.sampling.annealing import PopulationAnnealing
from icgi.sampling.gpu import GpuTempering
from icgi.sampling.tempering import ParallelTempering

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"pt": ParallelTempering, "pa": PopulationAnnealing, "pt-gpu": GpuTempering}


@pytest.mark.parametrize("name", PAGES)
def test_options_and_defaults(name: str) -> None:
    page = (DOCS / "engines" / f"{name}.md").read_text()
    for option in dataclasses.fields(PAGES[name]):
        line = next(row for row in page.splitlines() if row.startswith(f"| `{option.name}` |"))
        documented = line.split("|")[2].strip().strip("`")
        if option.default is None:
            assert documented.startswith("none")
        elif isinstance(option.default, bool | str):
            assert documented == str(option.default).lower()
        else:
            assert float(documented) == option.default


@pytest.mark.parametrize("engine", [ParallelTempering(hottest=0.2), PopulationAnnealing()])
def test_stats(engine) -> None:
    name = "pt" if isinstance(engine, ParallelTempering) else "pa"
    page = (DOCS / "engines" / f"{name}.md").read_text()
    for key in zoo.run(engine, "grid-3x3").stats:
        assert f"`{key}`" in page


def test_families_and_presets() -> None:
    page = (DOCS / "data.md").read_text()
    for name in (*FAMILIES, *PRESETS):
        assert f"`{name}`" in page
