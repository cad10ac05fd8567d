"""One writer at a time: refused with the name of the other, free again when that is gone."""

import json
import os
import signal
import subprocess
import sys

import pytest

from icgi.data import lock
from icgi.data.lock import writing
from icgi.errors import IcgiError

HOLDER = """
import sys, time
from pathlib import Path
from icgi.data.lock import writing
with writing(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_writer_is_told_who_the_first_is(tmp_path) -> None:
    with writing(tmp_path):
        found = json.loads((tmp_path / lock.NAME).read_text())
        assert found["pid"] == os.getpid()
        with (
            pytest.raises(IcgiError, match=f"is being written by process {os.getpid()} on .*since"),
            writing(tmp_path),
        ):
            pass
    assert list(tmp_path.iterdir()) == []
    with writing(tmp_path):
        pass


def test_the_lock_of_another_process_ends_with_it(tmp_path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(IcgiError, match=f"process {child.pid}"), writing(tmp_path):
            pass
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert (tmp_path / lock.NAME).exists(), "left behind"
    with writing(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', "\0" * 100])
def test_a_strange_lock_file_stops_nobody(tmp_path, text: str) -> None:
    (tmp_path / lock.NAME).write_text(text)
    assert lock.holder(tmp_path) == "another process"
    with writing(tmp_path):
        pass


def test_names_in_a_lock_file_are_escaped(tmp_path) -> None:
    found = {"pid": 1, "host": "\x1b[2J", "since": "now", "command": "x"}
    (tmp_path / lock.NAME).write_text(json.dumps(found))
    assert "\x1b" not in lock.holder(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_explained(tmp_path) -> None:
    with pytest.raises(IcgiError, match="cannot be written to"), writing(tmp_path / "absent"):
        pass
