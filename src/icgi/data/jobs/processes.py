"""Jobs in worker processes of this machine; one that dies takes only its own job along."""

import multiprocessing
import os
import pickle
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue

from icgi.data.jobs.job import FAILED, Bundle, Job, Parcel, Question, Result, processors
from icgi.errors import IcgiError

TRIES = 2  # of a job whose worker ended: the machine may have been short of memory for a moment
GATHER = 0.05  # seconds in which results of small jobs gather, so that they are written together
NEVER_BEGAN = (
    "a worker process ended before its first job ({how}); a script that starts workers has to do "
    "so under `if __name__ == '__main__':`, because each of them imports it"
)
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
        try:
            while True:
                self._hand_out(running, waiting, bundles)
                busy = {worker.pipe: worker for worker in running if worker.left}
                if not busy:
                    complete = True
                    return
                ready = [busy[pipe] for pipe in wait(list(busy))]  # type: ignore[index]
                if all(len(worker.left) > 1 for worker in ready):
                    time.sleep(GATHER)
                arrived: list[Result] = []
                for worker in ready:
                    try:
                        for result in worker.arrived():  # what comes before an end is kept
                            arrived.append(result)
                    except (EOFError, OSError):
                        running.remove(worker)
                        code = worker.end()
                        if not worker.ready and not any(other.ready for other in running):
                            raise IcgiError(NEVER_BEGAN.format(how=_how(code))) from None
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

    def _hand_out(
        self, running: list["_Worker"], waiting: deque[Bundle], bundles: Iterator[Bundle]
    ) -> None:
        """Give work to all who want more, and to new workers while there are too few."""

        def next_bundle() -> Bundle | None:
            return waiting.popleft() if waiting else next(bundles, None)

        for worker in running:
            if worker.wants_more and (bundle := next_bundle()) is not None:
                worker.give(bundle)
        while len(running) < (self.workers or processors()):
            if (bundle := next_bundle()) is None:
                break
            running.append(_Worker.start())
            running[-1].give(bundle)


@dataclass(slots=True)
class _Worker:
    """A process, what it was given, and which of it has not come back."""

    process: SpawnProcess
    pipe: Connection
    left: deque[tuple[Job, Question]] = field(default_factory=deque)
    given: int = 0  # jobs of the last bundle
    ready: bool = False  # it has begun to work
    watch: "select.poll | None" = None  # of the pipe, where the system has that

    @classmethod
    def start(cls) -> "_Worker":
        context = multiprocessing.get_context("spawn")  # threads and fork do not mix
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there,), daemon=True)
        with _environment():
            process.start()
        there.close()
        watch = None
        if hasattr(select, "poll"):
            watch = select.poll()
            watch.register(here, select.POLLIN)
        return cls(process, here, watch=watch)

    @property
    def wants_more(self) -> bool:
        """Whether it is done, or soon will be with many small jobs: the next ones travel then."""
        return len(self.left) <= self.given // 4

    def has_more(self) -> bool:
        """Whether something has come through the pipe, or it is closed."""
        if self.watch is None:
            return self.pipe.poll()
        return bool(self.watch.poll(0))  # ten times as quick as `Connection.poll`

    def give(self, bundle: Bundle) -> None:
        self.left.extend((job, bundle.questions[job.question]) for job in bundle.jobs)
        self.given = len(bundle.jobs)
        with suppress(OSError):  # it is dead; the pipe says so when it is read
            self.pipe.send(bundle.packed())

    def arrived(self) -> Iterator[Result]:
        """Results that are in the pipe; ends with an error where the process has ended."""
        while self.left and self.has_more():
            if self.ready:
                record, value = pickle.loads(self.pipe.recv_bytes())
                yield Result(self.left.popleft()[0], record, value)
            else:
                self.ready = self.pipe.recv()

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
    if not worker.left:
        return []
    (suspect, question), *rest = worker.left
    if rest:
        waiting.append(Bundle(tuple(j for j, _ in rest), {j.question: q for j, q in rest}))
    deaths[suspect.key] = deaths.get(suspect.key, 0) + 1
    if deaths[suspect.key] < TRIES:
        waiting.append(Bundle((suspect,), {suspect.question: question}))
        return []
    message = (
        f"the worker process ended by itself {TRIES} times at this job ({_how(code)}), most likely "
        "for lack of memory; give it fewer workers or less memory"
    )
    return [Result(suspect, {"status": FAILED, "message": message, "seconds": 0.0, "memory": 0})]


def _how(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


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
    """Do what comes through the pipe until it closes; each result is sent at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    parcels: SimpleQueue[Parcel] = SimpleQueue()

    def receive() -> None:
        with suppress(EOFError, OSError):
            while True:
                parcels.put(pipe.recv())
        os._exit(1)  # the parent has closed the pipe, or is gone

    threading.Thread(target=receive, daemon=True).start()
    with suppress(OSError):
        pipe.send(True)  # whatever ends it from here on is due to a job
    while True:
        for result in parcels.get().results():
            text = pickle.dumps((result.record, result.value), -1)
            with suppress(OSError):
                pipe.send_bytes(text)
