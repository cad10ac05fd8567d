"""What the map costs: 2,000 small models in a plain loop and through the map.

    python benchmarks/batches.py [--count 2000] [--workers 1] [--cluster here]

`--cluster`: here, ray, nodes (a Ray cluster of three node processes, two of them with a processor),
client (the same through ray://, as from another machine).

The same jobs are done in a loop in this process, which is what they cost; then through the map,
with keys, handing over and the journal. The overhead is what the map takes over the loop, less one:
on the wall times the number of workers, and in seconds of processors, those of workers and of a
cluster that was started here among them. Starting workers is left out: they do one job each before.
On a busy machine only the seconds of processors mean something. Rounds of loop and map alternate,
and the median of the ratios is printed with the least and the largest.
"""

import argparse
import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from icgi.data.families import FAMILIES
from icgi.data.jobs import answers
from icgi.data.jobs.executors import executor
from icgi.data.jobs.job import Job, Question
from icgi.data.jobs.manifest import Line, Manifest
from icgi.data.jobs.run import run_jobs


def questions(count: int) -> list[Question]:
    made = []
    for k in range(count):
        rng = np.random.default_rng(k)
        made.append(Question(f"m{k}", FAMILIES["er"].sample(rng, n=40, p=0.1, beta=1.0)))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cluster", default="here")
    parser.add_argument("--engine", default="jt")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    models = questions(options.count)

    def asked(most: int | None = None) -> Iterator[tuple[Job, Question, Line]]:
        for question in models[:most]:
            yield answers.job(question, options.engine, 0), question, {"name": question.name}

    def loop() -> None:
        for question in models:
            answers.answer(question, **settings)

    settings = next(asked())[0].settings
    answers.answer(models[0], **settings)
    with tempfile.TemporaryDirectory() as folder, running(options.cluster) as name:
        place = executor(name, options.workers)

        def through_map(name: str, most: int | None = None) -> Spent:
            journal = Manifest(Path(folder) / name)
            for question in models:
                question.__dict__.pop("digest", None)  # the map has to compute it
            return spent(lambda: run_jobs(asked(most), journal, place))

        through_map("start.jsonl", 4 * options.workers)
        found = []
        for k in range(options.rounds):
            plain, mapped = spent(loop), through_map(f"{k}.jsonl")
            found.append((plain, mapped))
            print(
                f"loop {plain.wall:.2f} s, {plain.cpu:.2f} s of processors; "
                f"map {mapped.wall:.2f} s, {mapped.cpu:.2f} s of processors"
            )
        again = through_map("0.jsonl")
    each = statistics.median(plain.cpu for plain, _ in found) / len(models)
    print(f"{len(models)} jobs of {1e3 * each:.2f} ms of a processor; {options.workers} workers")
    wall = [options.workers * mapped.wall / plain.wall - 1 for plain, mapped in found]
    cpu = [mapped.cpu / plain.cpu - 1 for plain, mapped in found]
    for name, ratios in (("wall", wall), ("processors", cpu)):
        low, high = min(ratios), max(ratios)
        print(f"overhead ({name}): {statistics.median(ratios):.1%} ({low:.1%} to {high:.1%})")
    print(f"the same again, all known: {1e3 * again.wall / len(models):.2f} ms a job")


@contextlib.contextmanager
def running(cluster: str) -> Iterator[str]:
    """Keep a Ray cluster alive over all rounds, since starting one takes seconds; its name."""
    if cluster not in ("ray", "nodes", "client"):
        yield cluster
        return
    import ray

    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    with contextlib.ExitStack() as stack:
        address = None
        if cluster != "ray":
            from ray.cluster_utils import Cluster

            nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
            stack.callback(nodes.shutdown)
            for _ in range(2):
                nodes.add_node(num_cpus=1)
            nodes.wait_for_nodes()
            address = nodes.address
            if cluster == "client":
                address = stack.enter_context(served(address))
        stack.callback(ray.shutdown)
        ray.init(address=address, **quiet)
        yield "ray"


@contextlib.contextmanager
def served(address: str, port: int = 10001) -> Iterator[str]:
    """Address ray://… of a cluster, as those who are not on its machines use it."""
    command = [sys.executable, "-m", "ray.util.client.server", "--mode", "proxy"]
    command += ["--address", address, "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield f"ray://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


class Spent(NamedTuple):
    """Seconds on the wall, and of processors by this process and all that it has started."""

    wall: float
    cpu: float


def spent(work: Callable[[], object]) -> Spent:
    before, began = processor_seconds(), time.perf_counter()
    work()
    return Spent(time.perf_counter() - began, processor_seconds() - before)


def processor_seconds() -> float:
    here = psutil.Process()
    total = sum(here.cpu_times()[:4])
    for process in here.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:2])
    return total


if __name__ == "__main__":
    main()
