"""One model over several workers, and what a worker costs: the constants of docs/scale.md.

    python benchmarks/scale.py [--parts start,share] [--workers 1,2,4]
    python benchmarks/scale.py --render

`start`: seconds from nothing to the first answer of a worker, bytes of a question and of an answer
as they travel, seconds that a killed worker costs. `share`: one model, four pieces: processor
seconds of the model undivided and of every piece, what that gains with 1, 2 and 4 workers of a
processor each, and elapsed seconds, which mean something on a quiet machine only; the answers are
compared bit for bit.
"""

import argparse
import json
import os
import pickle
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import icgi
from icgi.data.families import FAMILIES
from icgi.data.jobs.answers import hardware, job
from icgi.data.jobs.job import Question
from icgi.data.jobs.processes import Processes
from icgi.data.jobs.run import arriving
from icgi.engines import parse_engine
from icgi.inference import Budget, infer
from icgi.model.graph import FactorGraph
from icgi.portfolio.division import divide

LINES = Path(__file__).parent / "results" / "scale.jsonl"
PIECES = 4


def models() -> dict[str, tuple[FactorGraph, str, Budget]]:
    """Models whose work takes some seconds of one processor."""

    def drawn(name: str, **given: float) -> FactorGraph:
        return FAMILIES[name].sample(np.random.default_rng(0), **given)

    return {
        "EA 3D, 6 × 6 × 6": (drawn("ea3d", L=6), "pt:threads=1", Budget(iterations=20_000)),
        "EA 2D, 22 × 22": (drawn("ea2d", L=22), "jt", Budget()),
        "EA 2D, 40 × 40": (drawn("ea2d", L=40), "ttve:escalate=false,exact_entries=0", Budget()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default="start,share")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if not options.render:
        counts = [int(each) for each in options.workers.split(",")]
        for part in options.parts.split(","):
            for line in start() if part == "start" else share(counts):
                old = [x for x in stored() if (x["part"], x.get("model")) != (part, line["model"])]
                new = {"part": part, **line, "hardware": hardware()}
                LINES.write_text("".join(json.dumps(each) + "\n" for each in [*old, new]))
    for line in stored():
        print(json.dumps(line))


def stored() -> list[dict[str, object]]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def clocks(action: Callable[[], object]) -> tuple[object, float, float]:
    """Result, elapsed seconds, and processor seconds of this process and its ended children."""

    def spent() -> float:
        kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
        return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)

    before, cpu = time.perf_counter(), spent()
    found = action()
    return found, time.perf_counter() - before, spent() - cpu


def start() -> Iterator[dict[str, object]]:
    """What a worker costs before and after its work."""
    for name, (model, _, _) in models().items():
        question = Question(name, model)
        answer = icgi.marginals(model, engine="lbp").marginals
        sizes = {
            "question": len(pickle.dumps(question, -1)),
            "answer": len(pickle.dumps(answer, -1)),
        }
        yield {"model": name, "bytes": sizes}
    small = Question(
        "small", FAMILIES["er"].sample(np.random.default_rng(0), n=40, p=0.1, beta=1.0)
    )
    todo = [(job(small, "jt", seed), small) for seed in range(2)]
    for count in (1, 2):
        place = Processes(count)
        _, wall, _ = clocks(lambda p=place, n=count: next(arriving(todo[:n], p)))  # type: ignore[misc]
        yield {"model": f"{count} workers", "seconds to the first answer": round(wall, 2)}
        for worker in place.spare:
            worker.end()


def share(counts: list[int]) -> Iterator[dict[str, object]]:
    """One model undivided, its pieces one by one, and all of it on several numbers of workers."""
    for name, (model, engine, budget) in models().items():
        brief = Budget(iterations=2, table_bytes=budget.table_bytes)
        icgi.marginals(model, engine=engine, budget=brief, cluster="serial", pieces=2)
        truth, _, whole = clocks(
            lambda m=model, e=engine, b=budget: icgi.marginals(m, engine=e, budget=b)  # type: ignore[misc]
        )
        division = divide(model, parse_engine(engine), PIECES, np.random.default_rng(0))
        spent = []
        for each in division.pieces:
            run = lambda p=each, e=engine, b=budget: infer(  # noqa: E731
                p.model, p.evidence, parse_engine(e), b, np.random.default_rng(p.seed)
            )
            spent.append(round(clocks(run)[2], 2))
        line = {"model": name, "engine": engine, "cpu undivided": round(whole, 2), "cpu": spent}
        line["gain"] = {n: round(sum(spent) / longest(spent, n), 2) for n in counts}
        first = None
        for count in counts:
            found, wall, _ = clocks(
                lambda m=model, e=engine, b=budget, n=count: icgi.marginals(  # type: ignore[misc]
                    m, engine=e, budget=b, workers=n, pieces=PIECES
                )
            )
            first = found if first is None else first
            line[f"seconds, {count} workers"] = round(wall, 2)
            line["same"] = bool((found.probs == first.probs).all())  # type: ignore[attr-defined]
        line["apart"] = float(np.abs(first.probs - truth.probs).max())  # type: ignore[attr-defined]
        yield {**line, "load": round(os.getloadavg()[0], 1)}


def longest(spent: list[float], workers: int) -> float:
    """Seconds of the busiest of some workers, each taking the next piece when it is free."""
    busy = [0.0] * workers
    for each in spent:
        busy[busy.index(min(busy))] += each
    return max(busy)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
