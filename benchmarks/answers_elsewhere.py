"""Answers of the tables' drawn models on another machine, with their marginals, and their import.

    ICGI_CLOCK=processor PYTHONPATH=src python benchmarks/answers_elsewhere.py --out FOLDER \
        --seconds 500 --workers 14 [--table table2] [--method ttve …] [--not auto …]
    ICGI_DATA=… PYTHONPATH=src python benchmarks/answers_elsewhere.py --import FOLDER

The first command needs neither published instances nor references: it asks the engines of table 2,
`anytime` and table 4 about their glasses at small scale, one thread for each of so many workers,
the first seed first, and keeps what each answered in FOLDER/answers.npz; when the seconds are over
it begins nothing more. The second command compares the answers with the references that are here
now, and adds the lines that `icgi bench` would have made: again after a reference was replaced,
without asking anything anew. Answers of other weights than those here are left out.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from icgi.bench.available import identity, trouble
from icgi.bench.references import with_references
from icgi.bench.runner import Run, asked_of
from icgi.bench.table import Case, Column
from icgi.bench.tables import TABLES
from icgi.bench.tables.anytime import small_glasses as anytime
from icgi.bench.tables.table2 import small_glasses as table2
from icgi.bench.tables.table4 import small_glasses as table4
from icgi.data.jobs import answers
from icgi.data.jobs.job import Question

SCALE = "small"
DRAWS = {"table2": table2, "anytime": anytime, "table4": table4}
FOLDER = Path("benchmarks/results/bench")
Asked = tuple[str, str, str, str, int, float, int]
"""Table, case, engine as named in the table, engine as asked, seed, seconds, bytes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder to write to")
    parser.add_argument("--seconds", type=float, default=500.0, help="after which none begins")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="append", choices=tuple(DRAWS))
    parser.add_argument("--method", action="append", help="this column only")
    parser.add_argument("--not", action="append", default=[], dest="left", help="not this column")
    parser.add_argument("--import", type=Path, dest="file", help="folder with answers to add")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the tables' lines")
    given = parser.parse_args()
    if given.file:
        add(given.file, given.folder)
        return
    todo = [
        asked for asked in questions(given.seeds, tuple(given.table or DRAWS))
        if (not given.method or asked[1].title in given.method) and asked[1].title not in given.left
    ]  # fmt: skip
    make(given.out, given.seconds, given.workers, [each for each, _ in todo])


def questions(seeds: int, tables: tuple[str, ...]) -> list[tuple[Asked, Column]]:
    """What there is to ask: seed by seed, large models first."""
    found: list[tuple[tuple[int, int, int], Asked, Column]] = []
    for place, table in enumerate(tables):
        run = Run(TABLES[table], SCALE, FOLDER, seeds)
        for case in DRAWS[table]():
            size = sum(t.size for t in case.load().model.log_tables)
            for column in run.table.columns:
                for engine in column.engines:
                    if trouble(engine) is None:
                        for turn, seed in enumerate(run.seeds(column)):
                            own = asked_of(column, engine, seed)
                            for seconds in run.scale.seconds:
                                asked = (
                                    table, case.name, engine, own, seed, seconds, run.scale.memory,
                                )  # fmt: skip
                                found.append(((turn, place, -size), asked, column))
    return [(asked, column) for _, asked, column in sorted(found, key=lambda each: each[0])]


def make(out: Path, seconds: float, workers: int, todo: list[Asked]) -> None:
    """Ask everything, and write what there is after each hundred answers."""
    out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + seconds
    spawn = multiprocessing.get_context("spawn")
    kept: dict[str, Any] = {}
    waiting = iter(todo)
    done = 0
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_alone) as pool:
        flying = {pool.submit(ask, each) for each, _ in zip(waiting, range(workers), strict=False)}
        while flying:
            ended, flying = wait(flying, return_when=FIRST_COMPLETED)
            for each in ended:
                kept |= each.result()
                done += 1
                if time.monotonic() < ends and (following := next(waiting, None)) is not None:
                    flying.add(pool.submit(ask, following))
                if done % 100 == 0:
                    _write(out, kept)
                    print(f"{done} of {len(todo)} answers", flush=True)
    _write(out, kept)
    print(f"{done} of {len(todo)} answers in {seconds - ends + time.monotonic():.0f} s")


def _alone() -> None:
    import torch

    torch.set_num_threads(1)


def _write(out: Path, kept: dict[str, Any]) -> None:
    draft = out / "draft-answers.npz"
    np.savez_compressed(draft, **kept)
    draft.replace(out / "answers.npz")


@cache
def _cases(table: str) -> dict[str, Case]:
    return {case.name: case for case in DRAWS[table]()}


def ask(asked: Asked) -> dict[str, Any]:
    """Answer of one engine: its line without errors, and its marginals without the last state."""
    table, name, engine, own, seed, seconds, memory = asked
    question = _cases(table)[name].load()
    try:
        found, line = answers.ask(question, own, seed, seconds, memory)
        probs = found.probs[:, :-1]
    except Exception as reason:
        line = {"status": "refused", "message": str(reason)}
        probs = np.zeros(0)
    line |= {"hardware": answers.hardware(), "weights": identity(engine)}
    key = _key(question, own, seed, seconds, memory)
    return {f"{key}-line": np.array(json.dumps(line)), f"{key}-probs": probs}


def _key(question: Question, own: str, seed: int, seconds: float | None, memory: int) -> str:
    text = json.dumps([question.digest, own, seed, seconds, memory])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def add(source: Path, folder: Path) -> None:
    """Lines of all tables from the answers of a folder and the references that are here."""
    kept: dict[str, Any] = {}
    for path in sorted(source.glob("*.npz")):
        with np.load(path, allow_pickle=False) as saved:
            kept |= {name: saved[name] for name in saved.files}
    for table in DRAWS:
        run = Run(TABLES[table], SCALE, folder)
        before = run.manifest.finished()
        lines = [line for line in _lines(run, kept) if before.get(line["key"]) != line]
        if lines:
            with run.manifest.writing():
                run.manifest.append(lines)
        print(f"{table}: {len(lines)} lines added")


def _lines(run: Run, kept: dict[str, Any]) -> Iterator[dict[str, Any]]:
    asked = with_references(DRAWS[run.table.name](), run.scale.references, run.references)
    for job, question, words in run.todo(list(run.table.columns), asked):
        own = job.settings
        key = _key(question, own["engine"], own["seed"], own["seconds"], own["table_bytes"])
        if f"{key}-line" not in kept or question.reference is None:
            continue
        line = json.loads(str(kept[f"{key}-line"]))
        if line.pop("weights") != identity(words["engine"]) or line["status"] == "refused":
            continue
        first = kept[f"{key}-probs"]
        probs = np.column_stack([first, 1.0 - first.sum(1)])
        line |= answers.errors(question, probs)
        if job.work != answers.WORK:
            from icgi.bench.uncertainty import stored

            line |= stored(question, probs, own["seed"])
        yield {"key": job.key, **words, **line, "memory": 0}


if __name__ == "__main__":
    main()
