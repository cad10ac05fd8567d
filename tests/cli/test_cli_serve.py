"""`icgi serve`: what it refuses, and that it starts and ends."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("fastapi")


def test_refusals_come_before_anything_listens(run, grid) -> None:
    assert "nothing.uai: no such file" in run("serve", "nothing.uai", code=1).stderr
    Path("bad.bif").write_text("network")
    assert "bad.bif" in run("serve", "bad.bif", code=1).stderr
    assert "letters, digits" in run("serve", "--token", "short", code=2).stderr
    assert "not a size" in run("serve", "--memory", "much", code=2).stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run("serve", "grid.uai", "--port", port, code=1).stderr
        assert "Address already in use; give another --port" in refused.replace("\n", " ")


def test_a_store_in_use_is_refused_or_left_alone(run, grid, monkeypatch) -> None:
    from icgi.cli.serve import _usual_store
    from icgi.web.store import Store

    monkeypatch.setenv("XDG_STATE_HOME", str(Path.cwd()))
    usual = _usual_store(8080, quiet=True)
    assert usual == Path.cwd() / "icgi" / "serve.sqlite"
    running = Store(usual)
    try:
        refused = run("serve", "grid.uai", "--port", "0", "--store", usual, code=1).stderr
        assert "is used by another service" in refused
        assert "Traceback" not in refused
        assert _usual_store(8081, quiet=True).name == "serve-8081.sqlite"
    finally:
        running.close()
    assert _usual_store(8081, quiet=True) == usual
    Path("no.sqlite").write_text("this is no data base, and long enough to be seen as such")
    refused = run("serve", "grid.uai", "--port", "0", "--store", "no.sqlite", code=1).stderr
    assert "is no store of this service" in refused


def test_without_the_extra_it_says_how_to_install_it(run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    refused = run("serve", code=1).stderr
    assert "icgi serve needs fastapi" in refused
    assert "[web]" in refused


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_it_starts_and_ends(grid, host) -> None:
    words = ["serve", "grid.uai", "--port", "0", "--host", host, "--store", "s.sqlite"]
    process = subprocess.Popen(
        [sys.executable, "-m", "icgi", *words], stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        address = process.stderr.readline().strip()
        address, _, token = address.partition("?token=")
        assert bool(token) == (host == "0.0.0.0")
        asked = urllib.request.Request(f"{address}health")
        if token:
            with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                urllib.request.urlopen(asked, timeout=60)
            refused.value.close()
        asked.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(asked, timeout=60) as found:
            assert found.status == 200
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read().count("\n") == bool(token)
