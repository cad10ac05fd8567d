"""The work of `icgi batch` and of the tables: one engine on one question, and how far it is off."""

import dataclasses
import math
import os
import platform
import time
from functools import cache, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from icgi import clock
from icgi.answer import Answer
from icgi.data.jobs.job import Job, Question, processors
from icgi.engines import parse_engine
from icgi.inference import Budget, Engine, Marginals, infer
from icgi.metrics import hellinger, kl, l1, uai_2022_score
from icgi.model.graph import FloatArray, IntArray

WORK = "icgi.data.jobs.answers:answer"
_SIZE = attrgetter("size")


def job(
    question: Question,
    engine: str,
    seed: int,
    seconds: float = math.inf,
    table_bytes: int = 2**32,
    identity: str = "",
) -> Job:
    """Job of one engine on a question; `identity` says more than the engine's name, if needed."""
    settings: dict[str, Any] = {
        "engine": engine,
        "seed": seed,
        "seconds": seconds if math.isfinite(seconds) else None,
        "table_bytes": table_bytes,
        "identity": identity,
    }
    size = sum(map(_SIZE, question.model.log_tables))
    return Job(WORK, question.digest, settings, group=f"{engine} {size.bit_length()}")


def answer(
    question: Question,
    engine: str,
    seed: int,
    seconds: float | None,
    table_bytes: int,
    identity: str = "",
) -> dict[str, Any]:
    """Line of one answer: how it ended, what it cost, and its errors where there is a reference."""
    return ask(question, engine, seed, seconds, table_bytes)[1]


def ask(
    question: Question, engine: str, seed: int, seconds: float | None, table_bytes: int
) -> tuple[Marginals, dict[str, Any]]:
    """Answer of an engine, and its line."""
    made = _engine(engine)
    budget = Budget(seconds=math.inf if seconds is None else seconds, table_bytes=table_bytes)
    began, worked = clock.now(), time.process_time()
    rng = np.random.default_rng(seed)
    found = infer(question.model, question.evidence, made, budget, rng)
    spent, worked = clock.now() - began, time.process_time() - worked
    line: dict[str, Any] = {
        "status": found.status.value,
        "seconds": spent,
        "cpu": worked,
        "log_z": found.log_z if found.log_z is None or math.isfinite(found.log_z) else None,
        "expected": expected_error(question, found, engine, spent),
        "note": found.note,
    }
    return found, line | errors(question, found.probs)


@lru_cache(32)
def _engine(text: str) -> Engine:
    """Engine of a job; reading its text takes as long as a tenth of a small answer."""
    return alone(parse_engine(text))


def alone(engine: Engine) -> Engine:
    """Same engine on one thread: there is a worker for every processor."""
    fields = {f.name for f in dataclasses.fields(engine)}  # type: ignore[arg-type]
    if "threads" in fields and getattr(engine, "threads", 1) is None:
        return dataclasses.replace(engine, threads=1)  # type: ignore[type-var]
    return engine


def free_variables(question: Question) -> IntArray:
    """Variables that are not observed: those that errors are taken over."""
    return np.setdiff1d(np.arange(question.model.n_variables), list(question.evidence))


def expected_error(
    question: Question, found: Marginals, engine: str, seconds: float
) -> float | None:
    """What the engine expects of itself: mean over variables of the largest standard error."""
    stated = Answer(question.model, question.evidence, found, engine, seconds).std_error
    free = free_variables(question)
    if stated is None or not free.size:
        return None
    return float(stated[free].max(1).mean())


def errors(question: Question, probs: FloatArray) -> dict[str, Any]:
    """Distances to the reference over the unobserved variables; nothing where there is none.

    KL is None where a state is excluded that the reference allows; `excluded` counts variables.
    """
    free = free_variables(question)
    if question.reference is None or not free.size:
        return {}
    ours, truth, cards = probs[free], question.reference[free], question.model.cards[free]
    apart, divergence = l1(ours, truth), kl(ours, truth)
    infinite = int(np.isinf(divergence).sum())
    return {
        "mae": float(apart.mean()),
        "max": float(apart.max()),
        "kl": None if infinite else float(divergence.mean()),
        "excluded": infinite,
        "hellinger": float(hellinger(ours, truth).mean()),
        "score": uai_2022_score(ours, truth, cards),
        "reference_error": question.reference_error,
    }


@cache
def hardware() -> str:
    """Processor and how many of it this process may use, in a few words."""
    name = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.is_file():
        found = [x for x in cpu.read_text().splitlines() if x.startswith("model name")]
        name = found[0].partition(":")[2].strip() if found else name
    counted = ", seconds of processor time" if clock.BY_PROCESSOR else ""
    return f"{name}, {processors()} of {os.cpu_count()} cores{counted}"
