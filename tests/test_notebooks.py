"""Every cell of the notebooks runs, and what is stored in them is what their cells show."""

import json
import runpy
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def shown(notebook: Any) -> list[tuple[str, list[str]]]:
    """Source of each cell of code, and the kinds of things that it shows.

    Pieces of text that follow each other are one: how many there are is a matter of timing.
    """
    kinds = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            outputs = [sorted(out.get("data", {"text": ""})) for out in cell["outputs"]]
            kinds.append(
                ("".join(cell["source"]), [kind for kind, _ in groupby(map(" ".join, outputs))])
            )
    return kinds


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["bayesian_network", "spin_glass"]


@pytest.mark.filterwarnings("ignore")  # of the libraries that start a kernel
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("matplotlib")
    pytest.importorskip("anywidget")
    executed = runpy.run_path(str(DOCS / "notebooks.py"))["executed"]
    stored = json.loads(path.read_text())
    assert shown(executed(path, tmp_path)) == shown(stored), "python docs/notebooks.py"
    assert any(outputs for _, outputs in shown(stored))


@pytest.mark.filterwarnings("ignore")
def test_a_cell_that_fails_would_be_seen(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    path = tmp_path / "bad.ipynb"
    cell = nbformat.v4.new_code_cell("assert 1 == 2")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    executed = runpy.run_path(str(DOCS / "notebooks.py"))["executed"]
    with pytest.raises(client.exceptions.CellExecutionError):
        executed(path, tmp_path)
