"""Text → executor: where the jobs of a command are done."""

from icgi.data.jobs.processes import Processes
from icgi.data.jobs.run import Executor, Serial
from icgi.errors import IcgiError

PLACES = "here (processes on this machine), serial (in this process)"


def executor(place: str | None = None, workers: int | None = None, jobs: int = 0) -> Executor:
    """Executor of a place, with as many workers as asked for, though not more than jobs."""
    count = workers or 0
    if jobs and count > jobs:
        count = jobs
    if place in (None, "here"):
        return Processes(count)
    if place == "serial":
        return Serial()
    raise IcgiError(f"unknown place {place!r} for jobs; there are: {PLACES}")
