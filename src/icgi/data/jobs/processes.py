"""Jobs in worker processes of this machine; one that dies takes only its own job along."""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from icgi.data.jobs.job import FAILED, Bundle, Job, Result, perform, processors

TRIES = 2  # of a job whose worker ended: the machine may have been short of memory for a moment
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Processes:
    """Workers that are started as they are needed, each with one thread for linear algebra."""

    workers: int = 0  # 0: as many as processors
    spare: list["_Worker"] = field(default_factory=list, compare=False, repr=False)
    """Workers that are done and wait: starting one loads and compiles what it needs."""

    def results(self, bundles: Iterator[Bundle]) -> Iterator[list[Result]]:
        """Do all jobs; one whose worker ends is tried once more alone, then it has failed."""
        waiting: deque[Bundle] = deque()
        deaths: dict[str, int] = {}
        running, self.spare[:] = [w for w in self.spare if w.process.is_alive()], []
        complete = False

        def next_bundle() -> Bundle | None:
            return waiting.popleft() if waiting else next(bundles, None)

        try:
            while True:
                for worker in running:
                    if not worker.left and (bundle := next_bundle()) is not None:
                        worker.give(bundle)
                while len(running) < (self.workers or processors()):
                    if (bundle := next_bundle()) is None:
                        break
                    running.append(_Worker.start())
                    running[-1].give(bundle)
                busy = {worker.pipe: worker for worker in running if worker.left}
                if not busy:
                    complete = True
                    return
                arrived: list[Result] = []
                for pipe in wait(list(busy)):
                    worker = busy[pipe]  # type: ignore[index]
                    try:
                        while worker.left and pipe.poll():  # type: ignore[union-attr]
                            arrived.append(worker.take())
                    except (EOFError, OSError):
                        running.remove(worker)
                        code = worker.end()
                        arrived += _after_death(worker, code, deaths, waiting)
                if arrived:
                    yield arrived
        finally:
            if complete:
                self.spare.extend(running)
                running = []
            for worker in running:  # every pipe is closed before the first process is waited for
                worker.pipe.close()
            for worker in running:
                worker.end()


@dataclass(slots=True)
class _Worker:
    """A process, what it was given, and which of it has not come back."""

    process: SpawnProcess
    pipe: Connection
    left: deque[Job] = field(default_factory=deque)
    bundle: Bundle | None = None

    @classmethod
    def start(cls) -> "_Worker":
        context = multiprocessing.get_context("spawn")  # threads and fork do not mix
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there,), daemon=True)
        with _environment():
            process.start()
        there.close()
        return cls(process, here)

    def give(self, bundle: Bundle) -> None:
        self.bundle, self.left = bundle, deque(bundle.jobs)
        with suppress(OSError):  # it is dead; the pipe says so when it is read
            self.pipe.send(bundle)

    def take(self) -> Result:
        record, value = self.pipe.recv()
        return Result(self.left.popleft(), record, value)

    def end(self) -> int | None:
        """End the process, if it has not ended by itself; returns its exit code."""
        with suppress(OSError):
            self.pipe.close()
        self.process.join(0.2)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return self.process.exitcode


def _after_death(
    worker: _Worker, code: int | None, deaths: dict[str, int], waiting: deque[Bundle]
) -> list[Result]:
    """Put what a dead worker left behind in line again, the job that it was at alone."""
    assert worker.bundle is not None
    if not worker.left:
        return []
    suspect, rest = worker.left[0], tuple(worker.left)[1:]
    if rest:
        waiting.append(worker.bundle.only(rest))
    deaths[suspect.key] = deaths.get(suspect.key, 0) + 1
    if deaths[suspect.key] < TRIES:
        waiting.append(worker.bundle.only((suspect,)))
        return []
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    message = (
        f"the worker process ended by itself {TRIES} times at this job ({how}), most likely for "
        "lack of memory; give it fewer workers or less memory"
    )
    return [Result(suspect, {"status": FAILED, "message": message, "seconds": 0.0, "memory": 0})]


@contextmanager
def _environment() -> Iterator[None]:
    """Environment that a new worker inherits: as many processes as processors, so one thread."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(pipe: Connection) -> None:
    """Do bundles until the pipe closes; each result is sent at once."""
    follow()
    with suppress(EOFError, OSError):
        while True:
            bundle: Bundle = pipe.recv()
            for job in bundle.jobs:
                result = perform(job, bundle.questions[job.question])
                pipe.send((result.record, result.value))


def follow() -> None:
    """Make a worker leave interrupts to its parent, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            sys.stdout.flush()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
