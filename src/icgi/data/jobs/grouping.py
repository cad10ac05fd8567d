"""Small jobs in bundles of about a second, since handing one over takes a millisecond."""

from collections.abc import Iterable, Iterator

from icgi.data.jobs.job import Bundle, Job, Question, Result

TASK = 1.0  # seconds that a bundle should last
MOST = 512  # jobs of a bundle
TRUST = 0.6  # weight of the newest time of a group among those before it


class Grouping(Iterator[Bundle]):
    """Bundles of jobs in their order, by what those of their group have taken so far.

    Nothing is known of a new group, so its first job ends a bundle.
    """

    def __init__(self, todo: Iterable[tuple[Job, Question]], task: float = TASK) -> None:
        self._todo = iter(todo)
        self._task = task
        self._seconds: dict[str, float] = {}  # of a group's job, expected

    def __next__(self) -> Bundle:
        jobs: list[Job] = []
        questions: dict[str, Question] = {}
        expected = 0.0
        for job, question in self._todo:
            jobs.append(job)
            questions[job.question] = question
            expected += self._seconds.get(job.group, self._task)
            if expected >= self._task or len(jobs) >= MOST:
                break
        if not jobs:
            raise StopIteration
        return Bundle(tuple(jobs), questions)

    def learn(self, result: Result) -> None:
        """Take note of how long a job took."""
        group, seconds = result.job.group, float(result.record["seconds"])
        before = self._seconds.get(group, seconds)
        self._seconds[group] = TRUST * seconds + (1 - TRUST) * before
