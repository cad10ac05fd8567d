"""Ray: jobs on a cluster that runs already, or on one that is started on this machine."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from icgi.data.jobs.job import FAILED, Bundle, Parcel, Result
from icgi.errors import IcgiError
from icgi.extras import require_extra

LARGE = 2**18  # bytes of a question that is worth a place of its own in the cluster's memory
TRIES = 3  # of a job whose worker or node was lost


@dataclass(frozen=True, slots=True)
class Ray:
    """Bundles as Ray tasks; a large question is put into the cluster's memory once."""

    address: str | None = None  # ray://HOST:PORT; None: this machine
    workers: int = 0  # bundles in flight; 0: twice the processors of the cluster

    def results(self, bundles: Iterator[Bundle]) -> Iterator[list[Result]]:
        """Do all jobs; those of a lost worker or node are tried again, then they have failed."""
        ray = require_extra("ray", "cluster", "running jobs on Ray")
        ours = not ray.is_initialized()
        if ours:
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise IcgiError(
                    f"no Ray cluster answers at {self.address} ({error}); start one, or leave the "
                    "address out"
                ) from error
        try:
            yield from self._results(ray, bundles)
        finally:
            if ours:
                ray.shutdown()

    def _results(self, ray: Any, bundles: Iterator[Bundle]) -> Iterator[list[Result]]:
        remote = ray.remote(num_cpus=1, max_retries=0)(_work)
        most = self.workers or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        flying: dict[Any, Bundle] = {}
        stored: dict[str, Any] = {}  # large questions, in the memory of the cluster
        waiting: deque[Bundle] = deque()
        lost: dict[str, int] = {}
        while True:
            while len(flying) < most:
                bundle = waiting.popleft() if waiting else next(bundles, None)
                if bundle is None:
                    break
                parcel = bundle.packed()
                large = {d: q for d, q in parcel.questions.items() if len(q) > LARGE}
                for digest, question in large.items():
                    if digest not in stored:
                        stored[digest] = ray.put(question)
                small = {d: q for d, q in parcel.questions.items() if d not in large}
                rest = Parcel(parcel.jobs, small)
                flying[remote.remote(rest, list(large), *[stored[d] for d in large])] = bundle
            if not flying:
                return
            done, _ = ray.wait(list(flying), num_returns=1)
            for future in done:
                bundle = flying.pop(future)
                try:
                    found = ray.get(future)
                except ray.exceptions.RayError as error:
                    failed = _again(bundle, str(error), lost, waiting)
                    if failed:
                        yield failed
                else:
                    both = zip(bundle.jobs, found, strict=True)
                    yield [Result(job, record, value) for job, (record, value) in both]
            needed = {d for b in (*flying.values(), *waiting) for d in b.questions}
            stored = {digest: kept for digest, kept in stored.items() if digest in needed}


def _work(parcel: Parcel, digests: list[str], *large: bytes) -> list[Any]:
    every = {**parcel.questions, **dict(zip(digests, large, strict=True))}
    return [(result.record, result.value) for result in Parcel(parcel.jobs, every).results()]


def _again(bundle: Bundle, why: str, lost: dict[str, int], waiting: deque[Bundle]) -> list[Result]:
    """Put the jobs of a lost bundle in line again, each alone; give up on those lost too often."""
    failed = []
    for job in bundle.jobs:
        lost[job.key] = lost.get(job.key, 0) + 1
        if lost[job.key] < TRIES:
            waiting.append(bundle.only((job,)))
            continue
        first = why.strip().splitlines()[0][:200]
        message = f"its Ray worker or node was lost {TRIES} times: {first}"
        record = {"status": FAILED, "message": message, "seconds": 0.0, "memory": 0}
        failed.append(Result(job, record))
    return failed
