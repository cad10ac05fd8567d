"""One model over several workers, and what a worker costs: the constants of docs/scale.md.

    python benchmarks/scale.py [--parts start,share] [--workers 1,2,4]
    python benchmarks/scale.py --render

`start`: seconds from nothing to the first answer of a worker, bytes of a question and of an answer
as they travel, seconds that a killed worker costs. `share`: one model, four pieces, on 1, 2 and 4
worker processes; the answers are compared bit for bit. Elapsed seconds mean something on a quiet
machine only; those of processors (the workers' included) always do.
"""

import argparse
import json
import os
import pickle
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import icgi
from icgi.data.families import FAMILIES
from icgi.data.jobs.answers import hardware, job
from icgi.data.jobs.job import Question
from icgi.data.jobs.processes import Processes
from icgi.data.jobs.run import arriving
from icgi.inference import Budget
from icgi.model.graph import FactorGraph

LINES = Path(__file__).parent / "results" / "scale.jsonl"
PIECES = 4


def models() -> dict[str, tuple[FactorGraph, str, Budget]]:
    """Models whose work takes some ten seconds of one processor."""

    def drawn(name: str, **given: float) -> FactorGraph:
        return FAMILIES[name].sample(np.random.default_rng(0), **given)

    return {
        "EA 3D, 8 × 8 × 8, β = 1": (drawn("ea3d", L=8, beta=1.0), "pt", Budget(iterations=6000)),
        "EA 2D, 24 × 24": (drawn("ea2d", L=24, beta=1.0), "jt", Budget()),
        "SK, 50 spins, β = 1": (drawn("sk", n=50, beta=1.0), "ttve:escalate=false", Budget()),
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
            old = [line for line in stored() if line["part"] != part]
            new = start() if part == "start" else share(counts)
            new = [{"part": part, **line, "hardware": hardware()} for line in new]
            LINES.write_text("".join(json.dumps(line) + "\n" for line in old + new))
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


def start() -> list[dict[str, object]]:
    """What a worker costs before and after its work."""
    lines: list[dict[str, object]] = []
    for name, (model, _, _) in models().items():
        question = Question(name, model)
        answer = icgi.marginals(model, engine="lbp").marginals
        sizes = {
            "question": len(pickle.dumps(question, -1)),
            "answer": len(pickle.dumps(answer, -1)),
        }
        lines.append({"model": name, "bytes": sizes})
    small = Question(
        "small", FAMILIES["er"].sample(np.random.default_rng(0), n=40, p=0.1, beta=1.0)
    )
    todo = [(job(small, "jt", seed), small) for seed in range(2)]
    for count in (1, 2):
        place = Processes(count)
        _, wall, _ = clocks(lambda p=place, n=count: next(arriving(todo[:n], p)))  # type: ignore[misc]
        lines.append({"workers": count, "seconds to the first answer": round(wall, 2)})
        for worker in place.spare:
            worker.end()
    return lines


def share(counts: list[int]) -> list[dict[str, object]]:
    """One model on several numbers of workers."""
    lines: list[dict[str, object]] = []
    for name, (model, engine, budget) in models().items():
        icgi.marginals(
            model, engine=engine, budget=Budget(iterations=2), cluster="serial", pieces=2
        )
        truth, wall, cpu = clocks(
            lambda m=model, e=engine, b=budget: icgi.marginals(m, engine=e, budget=b)  # type: ignore[misc]
        )
        lines.append({"model": name, "engine": engine, "undivided": round(wall, 2)})
        first = None
        for count in counts:
            found, wall, cpu = clocks(
                lambda m=model, e=engine, b=budget, n=count: icgi.marginals(  # type: ignore[misc]
                    m, engine=e, budget=b, workers=n, pieces=PIECES
                )
            )
            first = found if first is None else first
            same = bool((found.probs == first.probs).all())  # type: ignore[attr-defined]
            apart = float(np.abs(found.probs - truth.probs).max())  # type: ignore[attr-defined]
            line = {"model": name, "engine": engine, "workers": count, "same": same}
            line |= {"seconds": round(wall, 2), "cpu": round(cpu, 2), "apart": apart}
            line |= {"stated": float(found.std_error.max()) if found.std_error is not None else 0.0}  # type: ignore[attr-defined]
            lines.append(line)
            print(json.dumps(line), flush=True)
    return lines


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
