"""One large model over many workers: its pieces are jobs of the map, its answer is theirs.

The answer depends on the seed and on the number of pieces, never on how many workers there are or
where they are. Workers that die take one piece along, which is done again.
"""

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.random import Generator

from icgi.data.jobs.answers import alone
from icgi.data.jobs.executors import executor
from icgi.data.jobs.job import REFUSED, Job, Question, Result, processors
from icgi.data.jobs.run import arriving
from icgi.errors import BudgetError, EvidenceError, IcgiError
from icgi.inference import Budget, Engine, Marginals, infer
from icgi.model.graph import FactorGraph
from icgi.portfolio.division import divide

WORK = "icgi.workers:piece"


@dataclass(frozen=True, slots=True)
class Shared:
    """An engine whose work on a model is divided among workers.

    Parameters
    ----------
    workers
        Processes, or tasks in flight on a cluster; None: as many as processors.
    pieces
        How many pieces the work is divided into; None: as many as workers.
    place
        Where the workers are, as `icgi batch --cluster` takes it.
    """

    engine: Engine
    workers: int | None = None
    pieces: int | None = None
    place: str | None = None

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Divide, let all pieces be answered, combine."""
        workers = self.workers or processors()
        division = divide(model, self.engine, self.pieces or workers, rng)
        count = len(division.pieces)
        here = self.place in (None, "here", "serial")
        side_by_side = 1 if self.place == "serial" else min(workers, count)
        settings = {
            "engine": alone(self.engine),
            "iterations": budget.iterations,
            "seconds": budget.seconds / math.ceil(count / side_by_side),
            "table_bytes": budget.table_bytes // side_by_side if here else budget.table_bytes,
        }
        jobs: list[tuple[Job, Question]] = []
        for number, each in enumerate(division.pieces):
            question = Question(f"piece {number}", each.model, each.evidence)
            own = {**settings, "seed": each.seed}
            jobs.append((Job(WORK, question.digest, own, group=str(number)), question))
        place = {job.key: number for number, (job, _) in enumerate(jobs)}
        answers: list[Marginals | None] = [None] * count
        with closing(arriving(jobs, executor(self.place, self.workers, count))) as incoming:
            for result in chain.from_iterable(incoming):
                answers[place[result.job.key]] = _answered(result)
        found = division.combine(answers)
        return replace(found, note=found.note or division.words)


def piece(
    question: Question,
    engine: Engine,
    seed: int,
    iterations: int | None,
    seconds: float,
    table_bytes: int,
) -> Mapping[str, Any]:
    """Answer of one piece; `answer` is None where it is impossible."""
    budget = Budget(iterations, seconds, table_bytes)
    rng = np.random.default_rng(seed)
    try:
        answer = infer(question.model, question.evidence, engine, budget, rng)
    except EvidenceError:
        answer = None
    return {"status": "done", "answer": answer}


def _answered(result: Result) -> Marginals | None:
    """Answer of a piece; the error that it failed with is raised here."""
    record = result.record
    if "answer" in record:
        found: Marginals | None = record["answer"]
        return found
    kind = BudgetError if record["status"] == REFUSED and record.get("budget") else IcgiError
    raise kind(f"a piece of the work failed: {record.get('message', record['status'])}")
