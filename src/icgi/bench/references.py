"""Reference marginals of models that come without: made once, kept as lines, their error printed.

Exact where that fits (by width, structure or planarity). Else two runs of tempering from different
seeds, whose mean is the reference, and a second method beside it where one has an answer. Runs are
bounded by sweeps, so that a reference does not depend on how busy a machine was.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from icgi import clock
from icgi.bench.table import Case, References
from icgi.data.jobs.job import REFUSED, Job, Question
from icgi.data.jobs.manifest import Line, Manifest
from icgi.data.jobs.run import Executor, run_jobs
from icgi.engines import parse_engine
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Budget, Marginals, infer
from icgi.metrics import mean_absolute_error
from icgi.model.graph import FloatArray
from icgi.sampling.tempering import ParallelTempering

WORK = "icgi.bench.references:made"
DIGITS = 8
SEEDS = (20261, 20262)


def made(
    question: Question,
    sweeps: int,
    seconds: float,
    second: str,
    second_seconds: float,
    log2_table: float,
) -> dict[str, Any]:
    """Line of one reference: marginals, how they were obtained, and how sure they are."""
    began = clock.now()
    exact = _exact(question, log2_table)
    if exact is not None:
        probs = exact.probs
        line: dict[str, Any] = {"status": "done", "method": "exact", "error": 0.0}
    else:
        budget = Budget(sweeps, seconds)
        tempering = ParallelTempering(threads=1)
        runs = [
            infer(question.model, question.evidence, tempering, budget, _rng(k)) for k in (0, 1)
        ]
        probs = np.asarray((runs[0].probs + runs[1].probs) / 2)
        apart = mean_absolute_error(runs[0].probs, runs[1].probs)
        line = {"status": "done", "method": "pt", "error": _error(runs, apart), "apart": apart}
        line |= {"rhat": max(float(run.stats.get("rhat", math.inf)) for run in runs)}
        line |= _second(question, second, second_seconds, probs)
    rows = [row[:card] for row, card in zip(probs, question.model.cards.tolist(), strict=True)]
    kept = [[round(float(p), DIGITS) for p in row] for row in rows]
    return {**line, "seconds": clock.now() - began, "probs": kept}


def _exact(question: Question, log2_table: float) -> Marginals | None:
    """Exact marginals, None where neither structure nor width allows them."""
    # the largest table and others of a junction tree, some three times as much
    budget = Budget(table_bytes=4 * 8 * int(2**log2_table))
    for engine in ("exact", "jt"):  # the former was seen to refuse what the latter can do
        with suppress(BudgetError, UnsupportedModelError):
            made = parse_engine(engine)
            return infer(question.model, question.evidence, made, budget, _rng(0))
    return None


def _rng(run: int) -> np.random.Generator:
    return np.random.default_rng(SEEDS[run])


def _error(runs: list[Marginals], apart: float) -> float:
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
    except (BudgetError, UnsupportedModelError) as refusal:
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
