import os
import sys
from pathlib import Path

import pytest

from icgi.data.jobs.manifest import Manifest


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers inherit where to look for modules."""
    here = str(Path(__file__).parent)
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.syspath_prepend(here)
    assert here in sys.path


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return Manifest(tmp_path / "run" / "jobs.jsonl")
