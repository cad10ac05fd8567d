"""Text → executor: where the jobs of a command run."""

from pathlib import Path

from icgi.data.jobs.processes import Processes
from icgi.data.jobs.ray import Ray
from icgi.data.jobs.run import Executor, Serial
from icgi.data.jobs.slurm import Slurm
from icgi.errors import IcgiError

PLACES = (
    "here (processes on this machine), serial (in this process), ray (a cluster started on this "
    "machine), ray://HOST:PORT, slurm (an array, through the current folder)"
)


def executor(place: str | None = None, workers: int | None = None, jobs: int = 0) -> Executor:
    """Executor of a place, with as many workers as asked for, though not more than jobs."""
    count = workers or 0
    if jobs and count > jobs:
        count = jobs
    if place in (None, "here"):
        return Processes(count)
    if place == "serial":
        return Serial()
    if place == "slurm":
        return Slurm(Path.cwd(), count) if count else Slurm(Path.cwd())
    if place == "ray" or (place or "").startswith("ray://"):
        return Ray(None if place == "ray" else place, count)
    raise IcgiError(f"unknown place {place!r} for jobs; there are: {PLACES}")
