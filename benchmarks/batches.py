"""What the map costs: 2,000 small models in a plain loop and through the map.

    python benchmarks/batches.py [--count 2000] [--workers 1] [--cluster here]

The same jobs are done in a loop in this process, which is what they cost; then through the map,
with keys, handing over and the journal. The overhead is what the map takes over the loop, less one;
the start of the workers is measured with one job for each and left out. On a busy machine only the
seconds of processors mean something (those of a cluster's own processes are not seen).
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from icgi.data.families import FAMILIES
from icgi.data.jobs import answers
from icgi.data.jobs.executors import executor
from icgi.data.jobs.job import Question, perform
from icgi.data.jobs.manifest import Manifest
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
    options = parser.parse_args()
    asked = []
    for question in questions(options.count):
        asked.append((answers.job(question, options.engine, 0), question, {"name": question.name}))
    perform(asked[0][0], asked[0][1])
    loop = spent(lambda: [answers.answer(q, **job.settings) for job, q, _ in asked])
    each = f"{1e3 * loop.wall / len(asked):.2f} ms a model"
    print(f"loop: {loop.wall:.2f} s, {loop.cpu:.2f} s of processors, {each}")
    with tempfile.TemporaryDirectory() as folder:
        place = executor(options.cluster, options.workers)
        first, journal = (
            Manifest(Path(folder) / "start.jsonl"),
            Manifest(Path(folder) / "all.jsonl"),
        )
        start = spent(lambda: run_jobs(asked[: options.workers], first, place))
        whole = spent(lambda: run_jobs(asked, journal, place))
        again = spent(lambda: run_jobs(asked, journal, place))
    print(
        f"start of {options.workers} workers: {start.wall:.2f} s, {start.cpu:.2f} s of processors"
    )
    wall = options.workers * (whole.wall - start.wall) / loop.wall - 1
    cpu = (whole.cpu - start.cpu) / loop.cpu - 1
    print(f"map: {whole.wall:.2f} s, overhead {wall:.1%} on the wall, {cpu:.1%} of processors")
    print(f"the same again, all known: {again.wall:.2f} s")


class Spent(NamedTuple):
    """Seconds on the wall, and of processors by this process and its ended children."""

    wall: float
    cpu: float


def spent(work: Callable[[], object]) -> Spent:
    before, began = os.times(), time.perf_counter()
    work()
    after = os.times()
    return Spent(time.perf_counter() - began, sum(after[:4]) - sum(before[:4]))


if __name__ == "__main__":
    main()
