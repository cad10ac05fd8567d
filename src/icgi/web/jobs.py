"""Questions as jobs: a bounded queue, worker processes, time limits, and a cancel that works."""

import asyncio
import contextlib
import hashlib
import json
import math
import secrets
import sys
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from icgi import __version__
from icgi.web.limits import Limits
from icgi.web.store import CANCELLED, DONE, FAILED, QUEUED, Job, Store

_STOPPING = 3.0  # seconds that a worker gets to return its best answer when it is asked to stop
_STARTING = 300.0  # seconds that a worker may take to start: it may have to compile
_LONGEST_LINE = 2**28
_LAST_WAITS = 32
_TIDY = 50  # questions after which old ones are looked through


class FullError(Exception):
    """The queue has no place; `retry_after` is in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("too many questions are waiting")
        self.retry_after = retry_after


@dataclass(eq=False)
class _Process:
    """A worker process, and the job it has."""

    process: asyncio.subprocess.Process
    job: str | None = None
    stopping: bool = False

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def receive(self, seconds: float) -> dict[str, Any] | None:
        """Next message; None where the process is gone. Raises `TimeoutError`."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), seconds)
        return json.loads(line) if line.endswith(b"\n") else None

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


@dataclass(eq=False)
class Jobs:
    """All jobs of a service; made and used within one event loop."""

    store: Store
    limits: Limits
    _wake: asyncio.Condition = field(default_factory=asyncio.Condition)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _at_work: dict[str, _Process] = field(default_factory=dict)
    _waiting: "OrderedDict[str, float]" = field(default_factory=OrderedDict)  # id → seconds asked
    _long: int = 0  # long questions at work
    _watched: dict[str, set[asyncio.Event]] = field(default_factory=dict)
    _took: "deque[float]" = field(default_factory=lambda: deque(maxlen=_LAST_WAITS))
    _ready: int = 0
    _asks: int = 0

    async def start(self) -> None:
        """Start the workers, and take up what an earlier service left."""
        for ident, seconds in self.store.waiting():
            self._waiting[ident] = self._asked(seconds)
        self._tasks = [
            asyncio.create_task(self._serve(k), name=f"icgi worker {k}")
            for k in range(self.limits.workers)
        ]

    async def stop(self) -> None:
        """End the workers; what they had is taken up again by the next service."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for ident in list(self._watched):
            self._notify(ident)

    @property
    def ready(self) -> int:
        """Workers that have started."""
        return self._ready

    async def ask(
        self, kind: str, model: str, question: dict[str, Any], urgent: bool = False
    ) -> Job:
        """Queue a question, or find it answered already by this version. Raises `FullError`.

        An urgent one goes first, and is taken where the queue is full, too.
        """
        text = json.dumps([__version__, kind, model, question], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()
        known = self.store.answered(key)
        if known is not None:
            return known
        if len(self._waiting) >= self.limits.queue and not urgent:
            raise FullError(self._retry_after())
        job = Job(
            secrets.token_hex(12), key, kind, model, QUEUED, time.time(), None, None, question,
            None, None, None,
        )  # fmt: skip
        self._asks += 1
        if self._asks % _TIDY == 0:
            self.store.prune(self.limits.kept, self.limits.store_bytes)
        self.store.add_job(job)
        self._waiting[job.id] = self._asked(question.get("seconds"))
        self._waiting.move_to_end(job.id, last=not urgent)
        async with self._wake:
            self._wake.notify_all()
        return job

    async def ended(self, ident: str, seconds: float) -> Job | None:
        """Job after it has ended, or after so many seconds; None where there is none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), contextlib.aclosing(self.changes(ident)) as jobs:
                async for job in jobs:
                    if job.ended:
                        return job
        return self.store.job(ident)

    async def changes(self, ident: str) -> AsyncGenerator[Job, None]:
        """Yield the job now and after everything that happens to it, until it has ended."""
        event = asyncio.Event()
        self._watched.setdefault(ident, set()).add(event)
        try:
            while True:
                event.clear()
                job = self.store.job(ident)
                if job is None:
                    return
                yield job
                if job.ended:
                    return
                await event.wait()
                if not self._tasks or all(task.done() for task in self._tasks):
                    return  # the service ends
        finally:
            self._watched[ident].discard(event)
            if not self._watched[ident]:
                del self._watched[ident]

    def cancel(self, ident: str) -> None:
        """End a job: at once where it waits, else within seconds; the best answer so far stays."""
        if self._waiting.pop(ident, None) is not None:
            self.store.end(ident, CANCELLED)
            self._notify(ident)
        elif ident in self._at_work and not self._at_work[ident].stopping:
            worker = self._at_work[ident]
            worker.stopping = True
            worker.send({"stop": True})
            asyncio.get_running_loop().call_later(_STOPPING, self._kill, worker, ident)

    def cancel_all(self, model: str) -> None:
        """End all jobs of a model."""
        for ident in [*self._waiting, *self._at_work]:
            job = self.store.job(ident)
            if job is not None and job.model == model:
                self.cancel(ident)

    def _kill(self, worker: _Process, ident: str) -> None:
        if worker.job == ident and worker.process.returncode is None:
            worker.process.kill()

    def _asked(self, seconds: float | None) -> float:
        return self.limits.usual_seconds if seconds is None else float(seconds)

    def _retry_after(self) -> int:
        """Seconds until a place is free, as far as the last questions tell."""
        usual = sum(self._took) / len(self._took) if self._took else 1.0
        return max(1, math.ceil(usual * len(self._waiting) / self.limits.workers))

    # workers

    async def _serve(self, number: int) -> None:
        """Keep one worker process busy; a new one is started where it has ended."""
        worker: _Process | None = None
        try:
            while True:
                if worker is None:
                    worker = await self._start_worker()
                ident, long = await self._next()
                try:
                    whole = await self._work(worker, ident)
                finally:
                    self._long -= long
                    async with self._wake:
                        self._wake.notify_all()
                if not whole:
                    self._ready -= 1
                    await worker.end()
                    worker = None
        finally:
            if worker is not None:
                await worker.end()

    async def _start_worker(self) -> _Process:
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "icgi.web.worker", str(self.store.path),
                str(self.limits.memory_bytes), stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, limit=_LONGEST_LINE, start_new_session=True,
            )  # fmt: skip
            worker = _Process(process)
            try:
                if await worker.receive(_STARTING) is not None:
                    self._ready += 1
                    return worker
            except TimeoutError:
                pass
            except BaseException:
                await worker.end()
                raise
            await worker.end()
            await asyncio.sleep(1.0)

    async def _next(self) -> tuple[str, bool]:
        """The oldest question that may start: one worker is kept free of long ones."""
        async with self._wake:
            while True:
                room = self._long < max(1, self.limits.workers - 1)
                for ident, seconds in self._waiting.items():
                    long = seconds > self.limits.short_seconds
                    if room or not long:
                        del self._waiting[ident]
                        self._long += long
                        return ident, long
                await self._wake.wait()

    async def _work(self, worker: _Process, ident: str) -> bool:
        """Have a job done; returns whether the worker can go on."""
        job = self.store.job(ident)
        if job is None or job.ended:
            return True
        seconds = self._asked(job.question.get("seconds"))
        began = time.monotonic()
        self.store.start(ident)
        worker.job, worker.stopping = ident, False
        self._at_work[ident] = worker
        self._notify(ident)
        try:
            worker.send({"kind": job.kind, "model": job.model, "question": job.question})
            return await self._listen(worker, ident, began + seconds + self.limits.grace_seconds)
        finally:
            worker.job = None
            del self._at_work[ident]
            self._took.append(time.monotonic() - began)
            self._notify(ident)

    async def _listen(self, worker: _Process, ident: str, until: float) -> bool:
        while True:
            try:
                message = await worker.receive(max(0.0, until - time.monotonic()))
            except TimeoutError:
                self._fail(ident, "LimitError", "the time of this question is over")
                return False
            if message is None:
                self._died(worker, ident)
                return False
            if "progress" in message:
                self.store.progress(ident, message["progress"])
                self._notify(ident)
                continue
            if worker.stopping:
                self.store.end(ident, CANCELLED, result=message.get("done"))
            elif "done" in message:
                self.store.end(ident, DONE, result=message["done"])
            else:
                self.store.end(ident, FAILED, error=message["failed"])
            return not message.get("leave")

    def _died(self, worker: _Process, ident: str) -> None:
        """A worker that was not asked to end may have been unlucky: its question gets another."""
        if worker.stopping:
            self.store.end(ident, CANCELLED)
        elif self.store.try_again(ident):
            job = self.store.job(ident)
            assert job is not None
            self._waiting[ident] = self._asked(job.question.get("seconds"))
        else:
            self._fail(
                ident, "LimitError", "the process at work ended twice, most likely for want of "
                "memory; ask for less memory, or a cheaper engine",
            )  # fmt: skip

    def _fail(self, ident: str, kind: str, message: str) -> None:
        self.store.end(ident, FAILED, error={"type": kind, "message": message})

    def _notify(self, ident: str) -> None:
        for event in self._watched.get(ident, ()):
            event.set()
