"""The clock that budgets are measured on, and how a deadline reaches compiled code.

It is the wall clock, except that it stands still while kernels are compiled (once after an
installation, and nobody's fault), and that a request to stop ends every deadline at once.
"""

import itertools
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

_changed = threading.Condition()  # guards everything below
_paused = 0.0  # seconds that have been taken out so far
_pause_began = math.nan
_depth = 0  # pauses may be nested: compiling one kernel compiles those it calls
_stop = threading.Event()
_flags: dict[int, tuple[float, NDArray[np.uint8]]] = {}  # moment and flag of those in use
_numbers = itertools.count()
_watching = False  # whether the thread that raises flags has been started


def now() -> float:
    """Seconds on this clock; only differences mean anything."""
    with _changed:
        return _now()


def _now() -> float:
    return (_pause_began if _depth else perf_counter()) - _paused


def pause() -> None:
    """Stop counting, until `resume` has been called as often."""
    global _depth, _pause_began
    with _changed:
        if _depth == 0:
            _pause_began = perf_counter()
        _depth += 1


def resume() -> None:
    """Count again."""
    global _depth, _paused
    with _changed:
        _depth -= 1
        if _depth == 0:
            _paused += perf_counter() - _pause_began


def paused() -> bool:
    """Whether the clock stands still now."""
    return _depth > 0


def request_stop() -> None:
    """Let every deadline pass now: engines return the best answer so far."""
    _stop.set()
    with _changed:
        for _, raised in _flags.values():
            raised[0] = 1


def stop_requested() -> bool:
    """Whether somebody asked to stop and the run that heard it has not ended."""
    return _stop.is_set()


@contextmanager
def stoppable() -> Iterator[None]:
    """Run within which a request to stop counts; it is forgotten at the end."""
    _stop.clear()
    try:
        yield
    finally:
        _stop.clear()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on this clock by which an engine has to be done."""

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Deadline so many seconds from now; infinitely many never pass, but for a stop."""
        return cls(now() + seconds)

    @property
    def passed(self) -> bool:
        """Whether the time is over, or a stop was requested."""
        return _stop.is_set() or now() >= self.at

    @property
    def left(self) -> float:
        """Seconds until then; 0 once passed."""
        return 0.0 if _stop.is_set() else max(self.at - now(), 0.0)

    def within(self, seconds: float) -> "Deadline":
        """The earlier of this deadline and the moment so many seconds from now."""
        return Deadline(min(self.at, now() + seconds))

    def share(self, part: float) -> "Deadline":
        """Deadline after this part of the time that is left."""
        return self if math.isinf(self.at) else Deadline(now() + part * self.left)

    @contextmanager
    def flag(self) -> Iterator[NDArray[np.uint8]]:
        """Array of one number that becomes 1 once the deadline has passed.

        Compiled code cannot ask the clock; it reads `stop[0]` in its outer loops instead. Another
        thread writes it, which works because kernels do not hold the interpreter's lock.
        """
        stop = np.zeros(1, np.uint8)
        number = next(_numbers)
        with _changed:
            _flags[number] = self.at, stop
            if math.isfinite(self.at):
                _watch()
        try:
            if self.passed:
                stop[0] = 1
            yield stop
        finally:
            with _changed:
                del _flags[number]


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
            moment, waiting = _now(), [at for at, stop in _flags.values() if not stop[0]]
            for at, stop in _flags.values():
                if at <= moment:
                    stop[0] = 1
            later = min((at for at in waiting if at > moment), default=math.inf)
            _changed.wait(None if math.isinf(later) else later - moment)
