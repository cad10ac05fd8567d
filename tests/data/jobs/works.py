"""Work that ends in ways real work ends in rarely; workers import it by name."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from icgi.data.jobs.job import Job, Question
from icgi.errors import BudgetError
from icgi.model.graph import FactorGraph


def question(k: int) -> Question:
    """A model of one variable, different for every k."""
    table = np.array([0.0, float(k)])
    return Question(f"q{k}", FactorGraph(np.array([2]), ((0,),), (table,)))


def jobs(count: int, work: str = "count", **settings: Any) -> list[tuple[Job, Question, dict]]:
    made = []
    for k in range(count):
        q = question(k)
        made.append((Job(f"works:{work}", q.digest, settings, work), q, {"name": q.name}))
    return made


def count(question: Question, folder: str = "") -> dict[str, Any]:
    """Says who did it, and leaves one character in a file."""
    if folder:
        with (Path(folder) / question.name).open("a") as file:
            file.write("x")
    return {"status": "done", "pid": os.getpid()}


def slow(question: Question, seconds: float) -> dict[str, Any]:
    time.sleep(seconds)
    return {"status": "done"}


def suicidal(question: Question, victim: str, once: str = "", folder: str = "") -> dict[str, Any]:
    """Kills its own process at one question: always, or the first time only."""
    if question.name == victim and not (once and Path(once).exists()):
        if once:
            Path(once).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return count(question, folder)


def refusing(question: Question) -> dict[str, Any]:
    raise BudgetError("wants more")


def broken(question: Question) -> dict[str, Any]:
    raise ZeroDivisionError("by zero")


def greedy(question: Question, megabytes: int) -> dict[str, Any]:
    kept = np.ones(megabytes * 2**17)
    return {"status": "done", "sum": float(kept.sum())}


def environment(question: Question) -> dict[str, Any]:
    return {"status": "done", "threads": os.environ.get("OMP_NUM_THREADS")}
