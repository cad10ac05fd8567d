"""Training on several nodes: one of them dies, the run goes on, the numbers are the same."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

SCRIPT = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_loop import few, tiny_data
from icgi.train.loop import run_task
from icgi.train.task import Task

folder, mark, slow = Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
data = tiny_data(count=8)
config = few(steps=12, validate_every=3, batch=4)

def tick(step, progress):
    mark.with_suffix(".new").write_text(f"{step} {os.getpid()}")
    mark.with_suffix(".new").replace(mark)
    time.sleep(slow)

run_task(Task(config, [data], [data]), folder, tick=tick)
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def node(rank: int, port: int, script: Path, *words: object) -> subprocess.Popen[bytes]:
    """One node of two: an agent, which starts a process of its own."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node_rank={rank}",
        "--nproc_per_node=1", "--max_restarts=0", "--master_addr=127.0.0.1",
        f"--master_port={port}", str(script), *map(str, words),
    ]  # fmt: skip
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def end(process: subprocess.Popen[bytes], mark: Path) -> None:
    """Let a node die at once: its agent, and the process of its own that the agent started."""
    if process.poll() is None:
        process.kill()
        process.wait()
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(mark.read_text().split()[1]), signal.SIGKILL)


def wait_for(path: Path, step: int, seconds: float = 180.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if path.is_file() and int(path.read_text().split()[0]) >= step:
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} did not reach step {step}")


@pytest.mark.slow
def test_a_run_goes_on_after_a_node_has_died(tmp_path: Path) -> None:
    """All nodes are started again, as schedulers do, one of them without the files of a run."""
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def both(folder: Path, other: Path, slow: float) -> list[subprocess.Popen[bytes]]:
        port, here = free_port(), Path(__file__).parent
        for rank, own in enumerate((folder, other)):
            mark = tmp_path / f"mark-{len(started)}"
            started.append((node(rank, port, script, here, own, mark, slow), mark))
        return [process for process, _ in started[-2:]]

    def died(folder: Path) -> None:
        first, _ = both(folder, tmp_path / "elsewhere", 0.3)
        wait_for(started[-1][1], 5)  # beyond the checkpoint of step 3
        end(*started[-1])
        assert first.wait(timeout=120) != 0  # a run does not go on with half of its gradients

    try:
        died(tmp_path / "parts")
        for folder in (tmp_path / "parts", tmp_path / "whole"):
            assert [each.wait(timeout=240) for each in both(folder, tmp_path / "new", 0.0)] == [
                0,
                0,
            ]
    finally:
        for each in started:
            end(*each)
    whole, parts = (
        [json.loads(x) for x in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("whole", "parts")
    )
    assert [line["step"] for line in parts] == [3, 6, 9, 12]
    assert [line["mae"] for line in parts] == [line["mae"] for line in whole]
    assert not (tmp_path / "elsewhere").exists()  # the first process has the files
    assert not (tmp_path / "new").exists()
