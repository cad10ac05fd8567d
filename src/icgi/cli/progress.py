"""Progress of many jobs on stderr: a bar on a terminal, otherwise a line now and then."""

import sys
import time
from typing import Any

from icgi.cli import output
from icgi.units import readable_seconds

FEWEST = 3  # jobs before the time left is guessed
EVERY = 10.0  # seconds between lines where there is no terminal


class Progress:
    """Counts jobs; the pace so far is the guess for those to come."""

    def __init__(self, total: int, what: str, quiet: bool) -> None:
        self.total, self.what, self.quiet = total, what, quiet
        self.count = self.fresh = 0
        self.began = self.last = time.monotonic()
        self.bar: Any = None
        if sys.stderr.isatty() and not quiet and total:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn
            from rich.progress import Progress as Bar

            self.bar = Bar(
                "{task.description}", BarColumn(), MofNCompleteColumn(), "{task.fields[pace]}",
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self.task = self.bar.add_task(what, total=total, pace="")

    def __enter__(self) -> "Progress":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def known(self) -> None:
        """Count one job that was done before."""
        self.count += 1
        self._show()

    def done(self) -> None:
        """Count one job that was done now."""
        self.count += 1
        self.fresh += 1
        self._show()

    def pace(self) -> str:
        """Jobs per second and the time left, once there is something to judge by."""
        if self.fresh < FEWEST:
            return ""
        spent = max(time.monotonic() - self.began, 1e-9)
        left = spent / self.fresh * (self.total - self.count)
        rate = f", {self.fresh / spent:.3g} per second"
        return f"{rate}, about {readable_seconds(left)} left" if left else rate

    def _show(self) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=self.count, pace=self.pace())
        elif not self.quiet and time.monotonic() - self.last > EVERY:
            self.last = time.monotonic()
            output.note(f"{self.count} of {self.total} {self.what}{self.pace()}")
