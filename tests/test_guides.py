"""Every command and piece of Python in the guides and start.md runs, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
GUIDES = [*sorted((DOCS / "guides").glob("*.md")), DOCS / "start.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
COMMAND = f'set -euo pipefail\nicgi() {{ "{sys.executable}" -m icgi "$@"; }}\n'


def test_there_are_guides() -> None:
    assert {"bayesian-networks", "competitions", "proteins"} <= {page.stem for page in GUIDES}


@pytest.mark.filterwarnings("ignore")  # of libraries that a guide imports
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_works_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    text, names = page.read_text(), {"__name__": "__main__"}
    ran = 0
    for found in BLOCK.finditer(text):
        where = f"{page.name}, line {text.count(chr(10), 0, found.start()) + 1}"
        if found[1] == "sh":
            done = subprocess.run(
                ["bash", "-c", COMMAND + found[2]], capture_output=True, text=True, env=os.environ
            )
            assert done.returncode == 0, f"{where}:\n{found[2]}\n{done.stderr}"
            ran += 1
        elif found[1] == "python":
            exec(compile(found[2], where, "exec"), names)
            ran += 1
    assert ran
