"""The map: run the jobs that the manifest lacks, and record each result when it arrives."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Protocol

from icgi.data.jobs.grouping import Grouping
from icgi.data.jobs.job import FAILED, Bundle, Job, Memory, Question, Result, perform
from icgi.data.jobs.manifest import Line, Manifest
from icgi.errors import IcgiError

GATHER = 0.1  # seconds in which results gather, so that they are written together


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
        """Do all jobs here; results of small ones are given together."""
        memory = Memory()
        for bundle in bundles:
            began, found = time.monotonic(), []
            for job in bundle.jobs:
                found.append(perform(job, bundle.questions[job.question], memory))
                if time.monotonic() - began > GATHER:
                    yield found
                    began, found = time.monotonic(), []
            if found:
                yield found


def arriving(todo: Iterable[tuple[Job, Question]], executor: Executor) -> Generator[list[Result]]:
    """Results of all jobs as they come, for those who keep them in a form of their own.

    Closing the iterator ends all work.
    """
    grouping = Grouping(todo)
    incoming = executor.results(grouping)
    try:
        for results in incoming:
            for result in results:
                grouping.learn(result)
            yield results
    finally:
        close = getattr(incoming, "close", None)
        if close is not None:
            close()


def run_jobs(
    todo: Iterable[tuple[Job, Question, Line]],
    manifest: Manifest,
    executor: Executor,
    done: Callable[[Line], None] = lambda line: None,
    known: Callable[[Line], None] = lambda line: None,
    again: bool = False,
) -> int:
    """Do what the manifest does not know; returns how many. Stopping loses what is in flight.

    Each job comes with words for its line (names, sizes), which are no part of its key; those of
    finished jobs are renewed. With `again`, jobs that failed before are tried once more. `done`
    sees every line that is added, `known` every one that was there, or that is the same job twice.
    """
    with manifest.writing():
        finished = manifest.finished()
        if again:
            finished = {k: line for k, line in finished.items() if line["status"] != FAILED}
        words: dict[str, list[Line]] = {}  # of jobs on their way, more than one where asked twice

        def fresh() -> Iterator[tuple[Job, Question]]:
            for job, question, about in todo:
                if (key := job.key) in finished:
                    known({**finished[key], **about})
                elif key in words:
                    words[key].append(about)
                else:
                    words[key] = [about]
                    yield job, question

        def take(result: Result) -> list[Line]:
            key = result.job.key
            line = finished[key] = {"key": key, **result.record}
            return [{**line, **about} for about in words.pop(key)]

        count = 0
        untold: deque[tuple[Callable[[Line], None], Line]] = deque()

        def tell() -> None:
            while untold:
                say, line = untold.popleft()
                say(line)

        with closing(arriving(fresh(), executor)) as incoming:
            try:
                for results in incoming:
                    lines = [take(result) for result in results]
                    for first, *twins in lines:
                        untold.append((done, first))
                        untold.extend((known, twin) for twin in twins)
                    try:
                        manifest.append(first for first, *_ in lines)
                    except IcgiError:
                        untold.clear()
                        raise
                    count += len(lines)
                    tell()
            finally:
                tell()  # an interrupt may come between writing a line and saying so
        return count
