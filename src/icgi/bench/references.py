"""Reference marginals of models that come without: made once, kept as lines, their error printed.

Exact where tables or planarity allow it. Else two runs of tempering from different seeds, whose
mean is the reference, and a second method beside it where one has an answer.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from icgi import clock
from icgi.bench.table import Case, References
from icgi.data.jobs.job import REFUSED, Job, Question
from icgi.data.jobs.manifest import Line, Manifest
from icgi.data.jobs.run import Executor, run_jobs
from icgi.data.labels import Labelling, label
from icgi.data.records import Label
from icgi.engines import parse_engine
from icgi.errors import IcgiError
from icgi.inference import Budget, infer
from icgi.metrics import mean_absolute_error
from icgi.model.graph import FloatArray
from icgi.sampling.tempering import ParallelTempering

WORK = "icgi.bench.references:made"
DIGITS = 8
SEEDS = (20261, 20262)


def made(
    question: Question, seconds: float, std_error: float, second: str, log2_table: float
) -> dict[str, Any]:
    """Line of one reference: marginals, how they were obtained, and how sure they are."""
    began = clock.now()
    tempering = ParallelTempering(threads=1)
    settings = Labelling(
        log2_table=log2_table, std_error=std_error, seconds=seconds / 2, tempering=tempering
    )
    runs = [label(question.model, settings, _rng(0), question.evidence)]
    line: dict[str, Any] = {"status": "done", "method": runs[0].method, "error": 0.0}
    probs = runs[0].probs
    if runs[0].std_error is not None:
        runs.append(label(question.model, settings, _rng(1), question.evidence))
        probs = np.asarray((runs[0].probs + runs[1].probs) / 2)
        apart = mean_absolute_error(runs[0].probs, runs[1].probs)
        line |= {"error": _error(runs, apart), "apart": apart, "rhat": max(r.r_hat for r in runs)}
        line |= _second(question, second, seconds, probs)
    rows = [row[:card] for row, card in zip(probs, question.model.cards.tolist(), strict=True)]
    kept = [[round(float(p), DIGITS) for p in row] for row in rows]
    return {**line, "seconds": clock.now() - began, "probs": kept}


def _rng(run: int) -> np.random.Generator:
    return np.random.default_rng(SEEDS[run])


def _error(runs: list[Label], apart: float) -> float:
    """Standard error of the mean L1 of two runs: what they state, or half of what they differ."""
    stated = [float(r.std_error.sum(1).mean()) for r in runs if r.std_error is not None]
    return max(math.hypot(*stated) / len(runs), apart / 2)


def _second(question: Question, engine: str, seconds: float, probs: FloatArray) -> dict[str, Any]:
    try:
        made = parse_engine(engine)
        found = infer(
            question.model, question.evidence, made, Budget(seconds=seconds, table_bytes=2**31),
            _rng(0),
        )  # fmt: skip
    except IcgiError as refusal:
        return {"second": engine, "second_status": REFUSED, "second_message": str(refusal)[:200]}
    return {
        "second": engine,
        "second_status": found.status.value,
        "second_apart": mean_absolute_error(found.probs, probs),
    }


def make_references(
    cases: list[Case],
    settings: References | None,
    manifest: Manifest,
    executor: Executor,
    done: Callable[[Line], None],
) -> None:
    """Compute the references that cases need and the manifest does not have."""
    if settings is None:
        return

    def todo() -> Iterator[tuple[Job, Question, Line]]:
        for case in cases:
            question = case.load()
            if question.reference is None:
                yield _job(case, question, settings), question, {"case": case.name}

    run_jobs(todo(), manifest, executor, done)


def with_references(
    cases: list[Case], settings: References | None, manifest: Manifest
) -> Iterator[tuple[Case, Question, str]]:
    """Questions of cases with their references, and what names those."""
    lines = manifest.finished() if settings is not None else {}
    for case in cases:
        question = case.load()
        if question.reference is not None or settings is None:
            yield case, question, "published" if question.reference is not None else "none"
            continue
        job = _job(case, question, settings)
        line = lines.get(job.key, {})
        if "probs" not in line:
            yield case, question, "none"
            continue
        full = np.zeros((question.model.n_variables, question.model.max_states))
        for i, row in enumerate(line["probs"]):
            full[i, : len(row)] = row
        known = replace(question, reference=full, reference_error=float(line["error"]))
        yield case, known, job.key


def _job(case: Case, question: Question, settings: References) -> Job:
    return Job(WORK, question.digest, asdict(settings), f"reference {case.group}")
