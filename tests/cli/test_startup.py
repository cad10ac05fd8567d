import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_engines import Unsure

from icgi.cli.startup import loading


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    yield
    gc.enable()


def test_nothing_is_collected_while_loading() -> None:
    with loading():
        assert not gc.isenabled()
        frozen = gc.get_freeze_count()
        kept = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(kept)


def test_a_failure_to_load_leaves_the_collector_on() -> None:
    with pytest.raises(ValueError, match="no such file"), loading():
        raise ValueError("no such file")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with loading():
        pass
    assert not gc.isenabled()


def test_engines_run_with_the_collector_on(run, grid, monkeypatch) -> None:
    seen = []
    answer = Unsure.__call__

    def watched(*words: object) -> object:
        seen.append(gc.isenabled())
        return answer(*words)

    monkeypatch.setattr(Unsure, "__call__", watched)
    run("marginals", "grid.uai", "--engine", "unsure")
    Path("none.evid").write_text("0\n")
    run("uai", "grid.uai", "none.evid", "none.query", "MAR", "--engine", "unsure")
    assert seen == [True, True]
    assert gc.isenabled()
