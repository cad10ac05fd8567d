"""A job is one piece of work on one question, named by everything its result depends on."""

import hashlib
import json
import math
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

import numpy as np

from icgi import __version__, clock
from icgi.answer import model_digest
from icgi.errors import BudgetError, IcgiError
from icgi.model.condition import Evidence
from icgi.model.graph import FactorGraph, Flat, FloatArray, assembled, flattened

_SHAPE = attrgetter("shape")
UNPACKED = 16  # questions, or jobs on them, that are unpacked together
SHARED = 0.02  # seconds for which jobs share what the system says about memory
REFUSED, FAILED = "refused", "failed"
"""Statuses of jobs without an answer: the question was wrong for the work, or the work broke."""


@dataclass(frozen=True, eq=False)
class Question:
    """A model with its evidence, and the reference marginals of it where there are any."""

    name: str
    model: FactorGraph
    evidence: Evidence = field(default_factory=dict)
    reference: FloatArray | None = None  # n k
    reference_error: float = 0.0  # standard error of the mean L1 distance to the reference

    @cached_property
    def digest(self) -> str:
        """Thirty-two hexadecimal characters: the same for the same numbers, whatever the names."""
        observed = sorted((int(i), int(x)) for i, x in self.evidence.items())
        return _hash(model_digest(self.model), observed)

    def __getstate__(self) -> dict[str, Any]:
        """State with all tables in a row of bytes, and how many next to each other have a shape.

        The row and its offsets travel, too: engines that need them would make them for each answer.
        """
        state, model = dict(self.__dict__), self.model
        flat = model.flat or flattened(model.scopes, model.log_tables)
        runs = [(shape, len(list(run))) for shape, run in groupby(map(_SHAPE, model.log_tables))]
        whole = (model.cards, flat.scope_start, flat.scope, flat.table_start)
        size = "<i4" if max(len(flat.values), len(flat.scope)) < 2**31 else "<i8"
        numbers = [each.astype(size, copy=False).tobytes() for each in whole]
        entries = flat.values.astype("<f8", copy=False).tobytes()
        state["model"] = size, numbers, entries, runs, model.names, model.states
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Put the model together again, scopes and tables of a run at once."""
        size, numbers, entries, runs, names, states = state["model"]
        cards, scope_start, scope, table_start = (
            np.frombuffer(each, size).astype(np.int64) for each in numbers
        )
        values = np.frombuffer(entries, "<f8")  # cannot be written to, as no table can
        variables = iter(scope.tolist())
        scopes: list[tuple[int, ...]] = []
        tables: list[FloatArray] = []
        at = 0
        for shape, count in runs:
            end = at + count * math.prod(shape)
            many = values[at:end].reshape(count, *shape)
            tables += list(many) if shape else [many[k : k + 1].reshape(()) for k in range(count)]
            scopes += (
                islice(zip(*[variables] * len(shape), strict=False), count)
                if shape
                else [()] * count
            )
            at = end
        flat = Flat(scope_start, scope, table_start, values)
        model = assembled(cards, tuple(scopes), tuple(tables), names, states, flat)
        self.__dict__.update({**state, "model": model})


NOTHING = Question("nothing", FactorGraph(np.zeros(0, np.int64), (), ()))
"""Question of jobs whose settings say what they are about, such as models to draw."""


@dataclass(frozen=True)
class Job:
    """Work on one question: a function of a module, called with the question and settings.

    `work` is `module:function`, so that it means the same in every process and on every machine.
    Jobs of one `group` are expected to take about the same time.
    """

    work: str
    question: str  # digest
    settings: Mapping[str, Any]  # as JSON can hold them
    group: str = ""
    version: str = __version__

    @cached_property
    def key(self) -> str:
        """Digest of the question, the work, its settings (engine, budget, seed) and the version."""
        return _hash(self.question, self.work, dict(self.settings), self.version)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as arguments, without the key: workers do not need it."""
        return Job, (self.work, self.question, self.settings, self.group, self.version)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Jobs that are done one after the other by one worker, each question in it once."""

    jobs: tuple[Job, ...]
    questions: Mapping[str, Question]  # by digest

    def only(self, jobs: tuple[Job, ...]) -> "Bundle":
        """Same bundle with some of its jobs."""
        return Bundle(jobs, {job.question: self.questions[job.question] for job in jobs})

    def packed(self) -> "Parcel":
        """Same bundle as it travels."""
        questions = {digest: pickle.dumps(q, -1) for digest, q in self.questions.items()}
        return Parcel(self.jobs, questions)


@dataclass(frozen=True, slots=True)
class Parcel:
    """A bundle on its way: a few questions are unpacked at a time, when their jobs begin.

    Hundreds of models at once would need fresh memory, which takes longer than unpacking does; one
    by one, each would find the processor's caches full of the answer before.
    """

    jobs: tuple[Job, ...]
    questions: Mapping[str, bytes]  # by digest

    def results(self) -> Iterator["Result"]:
        """Do all jobs here, one after the other."""
        memory = Memory()
        for k in range(0, len(self.jobs), UNPACKED):
            some = self.jobs[k : k + UNPACKED]
            packed = {job.question: self.questions[job.question] for job in some}
            questions = {digest: pickle.loads(each) for digest, each in packed.items()}
            for job in some:
                yield perform(job, questions[job.question], memory)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a job."""

    job: Job
    record: dict[str, Any]  # has `status`, `seconds` and `memory`; `message` where it failed
    value: Any = None  # what the work returned, where that is no mapping


class Memory:
    """Memory that the jobs of this process take, one after the other.

    Asking the system takes as long as a tenth of a small job, so jobs of a few milliseconds share
    what it says.
    """

    def __init__(self) -> None:
        self._before = self._most = 0
        self._begun = self._read = -math.inf

    def begin(self) -> None:
        """Let the peak begin anew."""
        now = time.monotonic()
        if now - self._begun > SHARED:
            _forget_peak()
            self._before, self._begun = _resident(b"VmRSS"), now

    def end(self) -> int:
        """Bytes of the peak above what was held before."""
        now = time.monotonic()
        if now - self._read > SHARED:
            self._most, self._read = max(_resident(b"VmHWM") - self._before, 0), now
        return self._most


def perform(job: Job, question: Question, memory: Memory | None = None) -> Result:
    """Do a job here. Nothing but an interrupt gets out: failures are results."""
    memory = memory or Memory()
    memory.begin()
    began = clock.now()
    value: Any = None
    try:
        value = _function(job.work)(question, **job.settings)
        record = dict(value) if isinstance(value, Mapping) else {"status": "done"}
    except (IcgiError, MemoryError) as refusal:
        text = str(refusal) or "the machine has not enough memory for this"
        short = isinstance(refusal, BudgetError | MemoryError)
        record = {"status": REFUSED, "message": text, "budget": short}
    except Exception as problem:
        record = {"status": FAILED, "message": f"{type(problem).__name__}: {problem}"}
    record.setdefault("seconds", clock.now() - began)
    record["memory"] = memory.end()
    return Result(job, record, None if isinstance(value, Mapping) else value)


def _function(work: str) -> Callable[..., Any]:
    """Function `module:name`; looked up each time, so that tests may put another in its place."""
    module, _, name = work.partition(":")
    found: Callable[..., Any] = getattr(sys.modules.get(module) or import_module(module), name)
    return found


def _hash(*parts: object) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _forget_peak() -> None:
    """Let the peak of this process's memory begin anew, where the system can do that (Linux)."""
    with suppress(OSError):
        os.pwrite(_opened("/proc/self/clear_refs", os.O_WRONLY, os.getpid()), b"5", 0)


def _resident(word: bytes) -> int:
    """Bytes of memory this process holds (`VmRSS`), or held at most (`VmHWM`)."""
    with suppress(OSError, ValueError, IndexError):
        text = os.pread(_opened("/proc/self/status", os.O_RDONLY, os.getpid()), 8192, 0)
        return 1024 * int(text.partition(b"\n" + word)[2].split(None, 2)[1])
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


@cache
def _opened(name: str, flags: int, process: int) -> int:
    """File of the system about this process, which stays open: small jobs are many."""
    return os.open(name, flags)


def processors() -> int:
    """Processors that this process may use."""
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
