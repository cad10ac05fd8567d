"""Answers of the tables on another machine, with their marginals, and their import.

    ICGI_DATA=… PYTHONPATH=src python benchmarks/answers_elsewhere.py --pack FILE
    ICGI_CLOCK=processor PYTHONPATH=src python benchmarks/answers_elsewhere.py --questions FILE \
        --out FOLDER --seconds 500 --workers 14 [--table table2] [--method ttve …] [--not auto …]
    ICGI_DATA=… PYTHONPATH=src python benchmarks/answers_elsewhere.py --import FOLDER

The first command writes the models of the tables at small scale to a file, the second asks their
engines where neither published instances nor references are: one thread for each of so many
workers, the first seed first; it keeps what each answered in FOLDER/answers.npz, and when the
seconds are over it begins nothing more. The third compares the answers with the references that
are here now, and adds the lines that `icgi bench` would have made: again after a reference was
replaced, without asking anything anew. Answers of other weights than those here are left out.
"""

import argparse
import hashlib
import json
import lzma
import multiprocessing
import os
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from icgi import clock
from icgi.bench.ablation import costs
from icgi.bench.available import identity, trouble
from icgi.bench.references import with_references
from icgi.bench.runner import Run, asked_of
from icgi.bench.table import Column
from icgi.bench.tables import TABLES
from icgi.bench.uncertainty import stored
from icgi.data.jobs import answers
from icgi.data.jobs.job import REFUSED, Question
from icgi.errors import IcgiError

SCALE = "small"
ASKED = ("table2", "uai22", "anytime", "table1", "table3", "table4")
FOLDER = Path("benchmarks/results/bench")
QUESTIONS = "ICGI_QUESTIONS"  # tells workers where the models are
Asked = tuple[str, str, str, str, int, float, int]
"""Table, case, engine as named in the table, engine as asked, seed, seconds, bytes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder to write to")
    parser.add_argument("--seconds", type=float, default=500.0, help="after which none begins")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="append", choices=ASKED)
    parser.add_argument("--method", action="append", help="this column only")
    parser.add_argument("--not", action="append", default=[], dest="left", help="not this column")
    parser.add_argument("--pack", type=Path, help="file to write the models to")
    parser.add_argument("--questions", type=Path, help="file with the models")
    parser.add_argument("--import", type=Path, dest="file", help="folder with answers to add")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the tables' lines")
    given = parser.parse_args()
    if given.file:
        add(given.file, given.folder)
        return
    if given.pack:
        pack(given.pack)
        return
    if not clock.BY_PROCESSOR:
        parser.error("set ICGI_CLOCK=processor: seconds of a busy machine compare nothing")
    os.environ[QUESTIONS] = str(given.questions)
    todo = [
        asked for asked in questions(given.seeds, tuple(given.table or ASKED))
        if (not given.method or asked[1].title in given.method) and asked[1].title not in given.left
    ]  # fmt: skip
    make(given.out, given.seconds, given.workers, [each for each, _ in todo])


def pack(path: Path) -> None:
    """Write the models of all tables, without references; of draws how they are drawn."""
    packed = {
        table: {
            case.name: case.load if "draw" in case.about else partial(_same, _bare(case.load()))
            for case in TABLES[table].scales[SCALE].cases()
        }
        for table in ASKED
    }
    with lzma.open(path, "wb") as file:
        pickle.dump(packed, file, -1)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def _same(question: Question) -> Question:
    return question


def _bare(question: Question) -> Question:
    return replace(question, reference=None)


@cache
def models() -> dict[str, dict[str, Callable[[], Question]]]:
    """What makes the models that were packed, by tables and names."""
    with lzma.open(os.environ[QUESTIONS]) as file:
        found: dict[str, dict[str, Callable[[], Question]]] = pickle.load(file)
    return found


def questions(seeds: int, tables: tuple[str, ...]) -> list[tuple[Asked, Column]]:
    """What there is to ask: seed by seed, tables in turn, models in no order.

    Large ones next to each other would need all memory at once.
    """
    found: list[tuple[tuple[int, int, str], Asked, Column]] = []
    for place, table in enumerate(tables):
        run = Run(TABLES[table], SCALE, FOLDER, seeds)
        kinds = [
            (column, engine, turn, seed)
            for column in run.table.columns
            for engine in column.engines
            if trouble(engine) is None
            for turn, seed in enumerate(run.seeds(column))
        ]
        for name in models()[table]:
            for (column, engine, turn, seed), seconds in product(kinds, run.scale.seconds):
                own = asked_of(column, engine, seed)
                asked = table, name, engine, own, seed, seconds, run.scale.memory
                order = hashlib.sha256(repr(asked).encode()).hexdigest()
                found.append(((turn, place, order), asked, column))
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


def ask(asked: Asked) -> dict[str, Any]:
    """Answer of one engine: its line without errors, and its marginals without the last state."""
    table, name, engine, own, seed, seconds, memory = asked
    question = models()[table][name]()
    try:
        found, line = answers.ask(question, own, seed, seconds, memory)
        if table == "table3":
            line |= costs(question, own, seed, seconds, memory)
        probs = found.probs[:, :-1]
    except (IcgiError, MemoryError) as reason:
        line = {"status": REFUSED, "message": str(reason)}
        probs = np.zeros(0)
    line |= {"hardware": answers.hardware(), "weights": identity(engine)}
    key = _key(table, question, own, seed, seconds, memory)
    return {f"{key}-line": np.array(json.dumps(line)), f"{key}-probs": probs}


def _key(
    table: str, question: Question, own: str, seed: int, seconds: float | None, memory: int
) -> str:  # fmt: skip
    # table 3 keeps costs beside the answer; all others may share one
    kind = [table] if table == "table3" else []
    text = json.dumps([*kind, question.digest, own, seed, seconds, memory])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def add(source: Path, folder: Path) -> None:
    """Lines of all tables from the answers of a folder and the references that are here."""
    kept: dict[str, Any] = {}
    for path in sorted(source.glob("*.npz")):
        with np.load(path, allow_pickle=False) as saved:
            kept |= {name: saved[name] for name in saved.files}
    for table in ASKED:
        run = Run(TABLES[table], SCALE, folder)
        before = run.manifest.finished()
        lines = [line for line in _lines(run, kept) if before.get(line["key"]) != line]
        if lines:
            with run.manifest.writing():
                run.manifest.append(lines)
        print(f"{table}: {len(lines)} lines added")


def _lines(run: Run, kept: dict[str, Any]) -> Iterator[dict[str, Any]]:
    asked = with_references(run.cases(), run.scale.references, run.references)
    for job, question, words in run.todo(list(run.table.columns), asked):
        own = job.settings
        key = _key(
            run.table.name, question, own["engine"], own["seed"], own["seconds"], own["table_bytes"]
        )
        if f"{key}-line" not in kept or question.reference is None:
            continue
        line = json.loads(str(kept[f"{key}-line"]))
        if line.pop("weights") != identity(words["engine"]):
            continue
        if line["status"] == REFUSED:
            yield {"key": job.key, **words, **line, "seconds": 0.0, "memory": 0}
            continue
        first = kept[f"{key}-probs"]
        probs = np.maximum(np.column_stack([first, 1.0 - first.sum(1)]), 0.0)
        probs[np.arange(probs.shape[1]) >= question.model.cards[:, None]] = 0.0
        line |= answers.errors(question, probs)
        if run.table.name == "table4":
            line |= stored(question, probs, own["seed"])
        yield {"key": job.key, **words, **line, "memory": 0}


if __name__ == "__main__":
    main()
