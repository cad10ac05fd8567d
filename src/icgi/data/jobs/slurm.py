"""SLURM arrays: tasks are files in a folder that all machines see, results are files beside them.

The script that is submitted runs this module once for each task of the array. Every result is
written under its own name as soon as it is there, so a task that is killed loses one job.
"""

import pickle
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from icgi.data.jobs.job import FAILED, Bundle, Parcel, Result
from icgi.data.jobs.manifest import whole
from icgi.errors import IcgiError

SCRIPT = """\
#!/bin/sh
#SBATCH --job-name=icgi
#SBATCH --array=0-{last}%{workers}
#SBATCH --output={folder}/task-%a.log
{options}
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
exec {python} -m icgi.data.jobs.slurm {folder} "$SLURM_ARRAY_TASK_ID"
"""
TASKS = 4  # of the array for every worker, so that a slow one does not keep all waiting


@dataclass(frozen=True, slots=True)
class Slurm:
    """Jobs as one array; the folder must be seen by all machines under the same name."""

    folder: Path
    workers: int = 64  # tasks at the same time
    options: tuple[str, ...] = ()  # of sbatch, such as --time=1:00:00
    poll: float = 2.0  # seconds between looks

    def results(self, bundles: Iterator[Bundle]) -> Iterator[list[Result]]:
        """Submit all jobs at once, and give results as their files appear."""
        tasks = _tasks(list(bundles), TASKS * self.workers)
        if not tasks:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        # files of pickled objects are only safe where nobody else can write
        place = Path(tempfile.mkdtemp(prefix="slurm-", dir=self.folder.absolute()))
        number = ""
        try:
            for k, task in enumerate(tasks):
                with whole(place / f"task-{k}.pickle") as draft:
                    draft.write_bytes(pickle.dumps(task.packed()))
            number = self._submit(place, len(tasks))
            yield from self._collect(place, tasks, number)
        finally:
            if number:
                with suppress(OSError, subprocess.SubprocessError):
                    subprocess.run(["scancel", number], check=False, capture_output=True)
            shutil.rmtree(place, ignore_errors=True)

    def _submit(self, place: Path, count: int) -> str:
        script = place / "array.sh"
        script.write_text(
            SCRIPT.format(
                last=count - 1,
                workers=self.workers,
                folder=shlex.quote(str(place)),
                python=shlex.quote(sys.executable),
                options="\n".join(f"#SBATCH {option}" for option in self.options),
            )
        )
        try:
            process = subprocess.run(
                ["sbatch", "--parsable", str(script)], check=True, capture_output=True, text=True
            )
        except FileNotFoundError as error:
            raise IcgiError("there is no sbatch on this machine; run where SLURM is") from error
        except subprocess.CalledProcessError as error:
            raise IcgiError(f"sbatch refused the array: {error.stderr.strip()}") from error
        return process.stdout.strip().partition(";")[0]

    def _collect(self, place: Path, tasks: list[Bundle], number: str) -> Iterator[list[Result]]:
        open_jobs = {(k, j) for k, task in enumerate(tasks) for j in range(len(task.jobs))}
        while open_jobs:
            running = _running(number)  # asked first: what ended before is then in the folder
            arrived = []
            for k, j in sorted(open_jobs):
                path = place / f"result-{k}-{j}.pickle"
                if path.is_file():
                    record, value = pickle.loads(path.read_bytes())
                    arrived.append(Result(tasks[k].jobs[j], record, value))
                    open_jobs.discard((k, j))
                    path.unlink()
            if arrived:
                yield arrived
            elif running:
                time.sleep(self.poll)
            else:
                yield [Result(tasks[k].jobs[j], _lost(place, k)) for k, j in sorted(open_jobs)]
                return


def _tasks(bundles: list[Bundle], most: int) -> list[Bundle]:
    """Bundles joined to at most so many tasks; each question is in few of them."""
    jobs = [job for bundle in bundles for job in bundle.jobs]
    questions = {d: q for bundle in bundles for d, q in bundle.questions.items()}
    whole_set = Bundle(tuple(jobs), questions)
    size = max(1, -(-len(jobs) // most))
    return [whole_set.only(tuple(jobs[a : a + size])) for a in range(0, len(jobs), size)]


def _running(number: str) -> bool:
    """Whether the array has tasks that run or wait; yes where SLURM does not say."""
    try:
        process = subprocess.run(
            ["squeue", "-h", "-j", number], check=False, capture_output=True, text=True
        )
    except OSError:
        return True
    return bool(process.stdout.strip())


def _lost(place: Path, task: int) -> dict[str, object]:
    log = place / f"task-{task}.log"
    last = log.read_text(errors="replace").strip().splitlines()[-1:] if log.is_file() else []
    last_line = f": {last[0][:200]}" if last else ""
    message = f"the SLURM task ended without this result{last_line}"
    return {"status": FAILED, "message": message, "seconds": 0.0, "memory": 0}


def work(place: Path, task: int) -> None:
    """Do a task of the array."""
    parcel: Parcel = pickle.loads((place / f"task-{task}.pickle").read_bytes())
    for j, result in enumerate(parcel.results()):
        with whole(place / f"result-{task}-{j}.pickle") as draft:
            draft.write_bytes(pickle.dumps((result.record, result.value)))


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]))
