"""Run the notebooks of docs/notebooks from top to bottom, and keep what their cells show.

python docs/notebooks.py
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent / "notebooks"
PATIENCE = 300  # seconds for a cell


def executed(path: Path, folder: str | Path) -> NotebookNode:
    """The notebook with what its cells show, run in a folder; an exception of a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=PATIENCE,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
    )
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
    return notebook


def main() -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, folder)
        nbformat.write(notebook, path)
        sys.stdout.write(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB\n")


if __name__ == "__main__":
    main()
