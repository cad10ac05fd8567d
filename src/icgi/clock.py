"""The clock that budgets are measured on, and how a deadline reaches compiled code.

It is the wall clock, except that it stands still while kernels are compiled (once after an
installation, and nobody's fault), and that a request to stop ends every deadline at once: all of
them (`request_stop`), or those that were set within one part of the work (`part`). Comparisons on
a busy machine set `ICGI_CLOCK=processor`: then it is the processor time of the process, of all its
threads together.
"""

import itertools
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

BY_PROCESSOR = os.environ.get("ICGI_CLOCK") == "processor"
OFTEN = 0.02  # seconds between two looks at the processor time, which the wall clock cannot foresee
_read = process_time if BY_PROCESSOR else perf_counter

_changed = threading.Condition()  # guards everything below
_paused = 0.0  # seconds that have been taken out so far
_pause_began = math.nan
_depth = 0  # pauses may be nested: compiling one kernel compiles those it calls
_flags: "dict[int, tuple[Deadline, NDArray[np.uint8]]]" = {}  # those in use
_numbers = itertools.count()
_watching = False  # whether the thread that raises flags has been started


def now() -> float:
    """Seconds on this clock; only differences mean anything."""
    with _changed:
        return _now()


def _now() -> float:
    return (_pause_began if _depth else _read()) - _paused


def pause() -> None:
    """Stop counting, until `resume` has been called as often."""
    global _depth, _pause_began
    with _changed:
        if _depth == 0:
            _pause_began = _read()
        _depth += 1


def resume() -> None:
    """Count again."""
    global _depth, _paused
    with _changed:
        _depth -= 1
        if _depth == 0:
            _paused += _read() - _pause_began


@contextmanager
def paused_while() -> Iterator[None]:
    """Within it the clock stands still: something is loaded or compiled, once a process."""
    pause()
    try:
        yield
    finally:
        resume()


def paused() -> bool:
    """Whether the clock stands still now."""
    return _depth > 0


class Part:
    """A part of the work that can be asked to stop; parts within it stop with it."""

    def __init__(self, whole: "Part | None" = None) -> None:
        self._whole = whole
        self._stop = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether this part, or one that it belongs to, was asked to stop."""
        return self._stop.is_set() or (self._whole is not None and self._whole.stopped)

    def stop(self) -> None:
        """Let every deadline set in this part pass now."""
        self._stop.set()
        with _changed:
            for deadline, raised in _flags.values():
                if deadline.part.stopped:
                    raised[0] = 1

    def forget(self) -> None:
        """Take a request back."""
        self._stop.clear()


_ALL = Part()
_current: ContextVar[Part] = ContextVar("part", default=_ALL)


def request_stop() -> None:
    """Let every deadline pass now: engines return the best answer so far."""
    _ALL.stop()


def stop_requested() -> bool:
    """Whether somebody asked to stop and the run has not ended yet."""
    return _ALL.stopped


@contextmanager
def stoppable() -> Iterator[None]:
    """Run within which a request to stop counts; it is forgotten at the end."""
    _ALL.forget()
    try:
        yield
    finally:
        _ALL.forget()


@contextmanager
def part(of: Part | None = None) -> Iterator[Part]:
    """Part of the current work, or of another; deadlines set meanwhile in this thread are its."""
    made = Part(of or _current.get())
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on this clock by which an engine has to be done."""

    at: float = math.inf
    part: Part = field(default_factory=_current.get, compare=False, repr=False)

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Deadline so many seconds from now; infinitely many never pass, but for a stop."""
        return cls() if seconds == math.inf else cls(now() + seconds)

    @property
    def passed(self) -> bool:
        """Whether the time is over, or a stop was requested."""
        return self.part.stopped or (self.at < math.inf and now() >= self.at)

    @property
    def left(self) -> float:
        """Seconds until then; 0 once passed."""
        if self.part.stopped:
            return 0.0
        return max(self.at - now(), 0.0) if self.at < math.inf else math.inf

    def within(self, seconds: float) -> "Deadline":
        """The earlier of this deadline and the moment so many seconds from now."""
        return replace(self, at=min(self.at, now() + seconds))

    def share(self, part: float) -> "Deadline":
        """Deadline after this part of the time that is left."""
        return self if math.isinf(self.at) else replace(self, at=now() + part * self.left)

    def flag(self) -> "_Flag":
        """Within it, an array of one number that becomes 1 once the deadline has passed.

        Compiled code cannot ask the clock; it reads `stop[0]` in its outer loops instead. Another
        thread writes it, which works because kernels do not hold the interpreter's lock.
        """
        return _Flag(self)


class _Flag:
    """A flag in use."""

    __slots__ = ("_deadline", "_number")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._number = next(_numbers)

    def __enter__(self) -> NDArray[np.uint8]:
        deadline, stop = self._deadline, np.zeros(1, np.uint8)
        with _changed:
            _flags[self._number] = deadline, stop
            if deadline.at < math.inf:
                _watch()
        if deadline.passed:
            stop[0] = 1
        return stop

    def __exit__(self, *_: object) -> None:
        with _changed:
            del _flags[self._number]


def _watch() -> None:
    """Make sure that a thread raises the flags, and that it knows of the newest one."""
    global _watching
    if not _watching:
        _watching = True
        threading.Thread(target=_raise_flags, name="icgi deadlines", daemon=True).start()
    _changed.notify_all()


def _raise_flags() -> None:
    with _changed:
        while True:
            moment, later = _now(), math.inf
            for deadline, stop in _flags.values():
                if deadline.at <= moment:
                    stop[0] = 1
                else:
                    later = min(later, deadline.at)
            ahead = min(later - moment, OFTEN) if BY_PROCESSOR else later - moment
            _changed.wait(None if math.isinf(later) else ahead)
