"""Table → lines: references first, then every column on every case, through the resumable map."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from icgi import __version__
from icgi.bench.available import identity, trouble
from icgi.bench.references import make_references, with_references
from icgi.bench.table import Case, Column, Scale, ScaleName, Table
from icgi.data.jobs import answers
from icgi.data.jobs.job import Job, Question
from icgi.data.jobs.manifest import Line, Manifest
from icgi.data.jobs.run import Executor, run_jobs
from icgi.errors import IcgiError

UNAVAILABLE = "not available"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a complete run asks for; its seconds are those of one core, and at most that many."""

    models: int
    answers: int
    answer_seconds: float
    references: int  # models that come without
    reference_seconds: float  # without those of references that turn out to be exact


@dataclass(frozen=True, slots=True)
class Run:
    """A table at a scale, and where its lines are."""

    table: Table
    scale_name: ScaleName
    folder: Path
    most_seeds: int | None = None  # of the scale's, the first so many

    @property
    def scale(self) -> Scale:
        """How much is run."""
        return self.table.scales[self.scale_name]

    @property
    def manifest(self) -> Manifest:
        """Lines of answers."""
        return Manifest(self.folder / f"{self.table.name}-{self.scale_name}.jsonl")

    @property
    def references(self) -> Manifest:
        """Lines of references; each table has its own, so that tables can run side by side."""
        return Manifest(self.folder / f"references-{self.table.name}-{self.scale_name}.jsonl")

    def cases(self, rows: tuple[str, ...] = ()) -> list[Case]:
        """Models of all rows, or of those whose name has one of the words."""
        found = self.scale.cases()
        chosen = [c for c in found if not rows or any(word in c.group for word in rows)]
        if not chosen:
            named = ", ".join(row.group for row in self.scale.rows)
            raise IcgiError(f"no row has {' or '.join(map(repr, rows))} in its name: {named}")
        return chosen

    def lines(self) -> list[Line]:
        """Answers, and for each engine that was not available the reason.

        Of an answer that was asked anew (other weights, another reference) the last one counts.
        """
        last: dict[tuple[object, ...], Line] = {}
        for line in self.manifest.finished().values():
            words = ("case", "column", "engine", "seed", "asked")
            last[tuple(line.get(word) for word in words)] = line
        return list(last.values())

    def expected(self, cases: int, only: tuple[str, ...] = ()) -> int:
        """Number of answers of a complete run, engines that are not available left out."""
        columns = [c for c in self.table.columns if not only or c.title in only]
        ready = [c for c in columns for e in c.engines if trouble(e) is None]
        return cases * sum(map(len, map(self.seeds, ready))) * len(self.scale.seconds)

    def seeds(self, column: Column) -> tuple[int, ...]:
        """Seeds that a column is asked with: one where nothing is random."""
        most = self.most_seeds if column.random or column.trained else 1
        return self.scale.seeds[:most]

    def todo(
        self, columns: list[Column], asked: Iterable[tuple[Case, Question, str]]
    ) -> Iterator[tuple[Job, Question, Line]]:
        """Jobs of the answers to questions with references, and the words of their lines."""
        for case, question, reference in asked:
            for column in columns:
                for engine in column.engines:
                    if trouble(engine) is None:
                        for seed in self.seeds(column):
                            yield from self._jobs(case, question, reference, column, engine, seed)

    def _jobs(
        self, case: Case, question: Question, reference: str, column: Column, engine: str, seed: int
    ) -> Iterator[tuple[Job, Question, Line]]:
        for seconds in self.scale.seconds:
            settings = {
                "engine": asked_of(column, engine, seed),
                "seed": seed,
                "seconds": seconds if math.isfinite(seconds) else None,
                "table_bytes": self.scale.memory,
                "identity": f"{identity(engine)} {reference}",
                **column.settings,
            }
            job = Job(column.work, question.digest, settings, f"{engine} {case.group}")
            words = {"engine": engine, "seed": seed, "asked": settings["seconds"]}
            yield job, question, _about(self, case, column, question) | words

    def cost(self, only: tuple[str, ...] = (), rows: tuple[str, ...] = ()) -> Cost:
        """Jobs and core-seconds of a complete run, before anything is run."""
        cases, known = self.cases(rows), self.scale.references
        bare = 0 if known is None else sum(case.load().reference is None for case in cases)
        each = 0.0
        if known is not None:
            each = 2 * known.seconds + len(known.others) * known.other_seconds  # without a device
        answers = self.expected(len(cases), only)
        spent = answers * math.fsum(self.scale.seconds) / len(self.scale.seconds)
        return Cost(len(cases), answers, spent, bare, bare * each)


def run_table(
    run: Run,
    executor: Executor,
    done: Callable[[Line], None] = lambda line: None,
    known: Callable[[Line], None] = lambda line: None,
    say: Callable[[str], None] = lambda text: None,
    only: tuple[str, ...] = (),
    rows: tuple[str, ...] = (),
    again: bool = False,
) -> int:
    """Add the lines that are missing; returns how many.

    `only` names the columns to ask, `rows` words that a row's name has to have one of.
    """
    columns = [c for c in run.table.columns if not only or c.title in only]
    unknown = set(only) - {c.title for c in columns}
    if unknown:
        titles = ", ".join(c.title for c in run.table.columns)
        raise IcgiError(f"no column {', '.join(sorted(unknown))}; there are: {titles}")
    cases = run.cases(rows)
    _note_missing(run, columns)
    say(f"{run.table.name}: references of {len(cases)} models")
    known_by = run.scale.references, run.references
    make_references(cases, *known_by, executor, lambda line: _say(line, say))
    say(f"{run.table.name}: answers")
    asked = sorted(with_references(cases, *known_by), key=_cells, reverse=True)
    return run_jobs(run.todo(columns, asked), run.manifest, executor, done, known, again)


def _cells(asked: tuple[Case, Question, str]) -> int:
    """Entries of all tables: large models first, so that no worker ends long after the others."""
    return sum(table.size for table in asked[1].model.log_tables)


def _say(line: Line, say: Callable[[str], None]) -> None:
    say(f"reference of {line['case']}: {line['part']} {line['status']}, {line['seconds']:.1f} s")


def _note_missing(run: Run, columns: list[Column]) -> None:
    """Write down which engines cannot be asked, and which of them can be now."""
    before = run.manifest.finished()
    lines = []
    for column in columns:
        for engine in column.engines:
            key, reason = f"engine {engine}", trouble(engine)
            line = {"key": key, "column": column.title, "engine": engine}
            line |= {"status": UNAVAILABLE if reason else "available", "message": reason or ""}
            if (reason or key in before) and before.get(key) != line:
                lines.append(line)
    if lines:
        with run.manifest.writing():
            run.manifest.append(lines)


def asked_of(column: Column, engine: str, seed: int) -> str:
    """Engine of a column as a job names it: with the weights of the seed where there are such."""
    return f"{engine}{',' if ':' in engine else ':'}seed={seed}" if column.trained else engine


def _about(run: Run, case: Case, column: Column, question: Question) -> Line:
    model = question.model
    return {
        "table": run.table.name,
        "scale": run.scale_name,
        "case": case.name,
        "digest": question.digest,
        "group": case.group,
        "column": column.title,
        "variables": model.n_variables,
        **case.about,
        "version": __version__,
        "hardware": answers.hardware(),
    }
