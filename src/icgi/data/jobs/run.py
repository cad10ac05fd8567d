"""The map: jobs that are not in the manifest yet are done, and written down as they come in."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from icgi.data.jobs.grouping import Grouping
from icgi.data.jobs.job import FAILED, Bundle, Job, Question, Result, perform
from icgi.data.jobs.manifest import Manifest


class Executor(Protocol):
    """Where jobs are done. Bundles are asked for when a worker is free, results given at once.

    Every job of every bundle has one result, in any order. Closing the iterator ends all work.
    """

    def results(self, bundles: Iterator[Bundle]) -> Iterator[list[Result]]:
        """Do all jobs of all bundles; results come in lists of those that arrived together."""
        ...


class Serial:
    """One job after the other, in this process."""

    def results(self, bundles: Iterator[Bundle]) -> Iterator[list[Result]]:
        """Do all jobs here."""
        for bundle in bundles:
            for job in bundle.jobs:
                yield [perform(job, bundle.questions[job.question])]


def run_jobs(
    todo: Iterable[tuple[Job, Question, dict[str, Any]]],
    manifest: Manifest,
    executor: Executor,
    done: Callable[[dict[str, Any]], None] = lambda line: None,
    again: bool = False,
) -> int:
    """Do what the manifest does not know; returns how many. Stopping loses what is in flight.

    Each job comes with words for its line (names, sizes), which are no part of its key. With
    `again`, jobs that failed before are tried once more; `done` sees every line that is added.
    """
    with manifest.writing():
        finished = manifest.finished()
        known = {k for k, line in finished.items() if not (again and line["status"] == FAILED)}
        words: dict[str, dict[str, Any]] = {}

        def fresh() -> Iterator[tuple[Job, Question]]:
            for job, question, about in todo:
                if job.key not in known:
                    known.add(job.key)
                    words[job.key] = about
                    yield job, question

        count = 0
        grouping = Grouping(fresh())
        incoming = executor.results(grouping)
        try:
            for results in incoming:
                lines = []
                for result in results:
                    grouping.learn(result)
                    key = result.job.key
                    lines.append({"key": key, **words.pop(key), **result.record})
                manifest.append(lines)
                count += len(lines)
                for line in lines:
                    done(line)
        finally:
            close = getattr(incoming, "close", None)
            if close is not None:
                close()
        return count
