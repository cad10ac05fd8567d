"""A batch: models × engines × seeds, as jobs of the map and rows of a table."""

import csv
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from icgi.data.collection import Instance, instances
from icgi.data.jobs import answers
from icgi.data.jobs.job import REFUSED, Job, Question
from icgi.data.jobs.manifest import Line, Manifest, whole
from icgi.data.jobs.run import Executor, run_jobs
from icgi.data.store import Labelled, LabelledSet
from icgi.errors import IcgiError, ModelFormatError
from icgi.extras import require_extra
from icgi.model.formats import FORMATS, read
from icgi.model.formats.uai import read_evidence, read_marginals
from icgi.model.graph import FactorGraph, FloatArray
from icgi.wording import harmless

COLUMNS = (
    "instance", "family", "variables", "factors", "engine", "seed", "status", "mae", "max", "kl",
    "hellinger", "score", "excluded", "expected", "log_z", "seconds", "memory", "note", "message",
    "key",
)  # fmt: skip
ENDINGS = (".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Entry:
    """A question by name, read when its turn comes."""

    name: str
    load: Callable[[], Question]
    family: str = ""  # where the source has families
    referenced: bool = False  # whether reference marginals come with it


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of every entry."""

    engines: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    seconds: float = math.inf
    table_bytes: int = 2**31

    def jobs(self, question: Question) -> Iterator[tuple[Job, Line]]:
        """All jobs on one question, with the words of their lines."""
        model = question.model
        size = {"variables": model.n_variables, "factors": model.n_factors}
        for engine, seed in itertools.product(self.engines, self.seeds):
            words = {"instance": question.name, **size, "engine": engine, "seed": seed}
            yield answers.job(question, engine, seed, self.seconds, self.table_bytes), words


def entries(source: Path) -> list[Entry]:
    """Questions of a folder (models, a set, a collection), of a list of files, or of one file."""
    if (source / "manifest.json").is_file():
        return list(_labelled(source))
    if (source / "manifest.csv").is_file():
        return [
            Entry(each.name, partial(_published, each), each.family, each.has_reference)
            for each in instances(source)
        ]
    if source.is_dir():
        found = [p for p in sorted(source.iterdir()) if _is_model(p)]
        if not found:
            raise IcgiError(f"{source} holds no models; their names end in {', '.join(FORMATS)}")
        return [_of_file(path.name, path) for path in found]
    if not source.is_file():
        raise IcgiError(f"{source} does not exist; give a folder of models, or a list of files")
    if _is_model(source):
        return [_of_file(source.name, source)]
    return list(_listed(source))


def _of_file(name: str, path: Path) -> Entry:
    return Entry(name, partial(from_file, path), referenced=_beside(path, ".MAR").is_file())


def _beside(path: Path, ending: str) -> Path:
    """File that belongs to a model, packed or not."""
    return path.with_name(path.name.removesuffix(".gz") + ending)


def from_file(path: Path) -> Question:
    """Question of a model file, with the evidence (.evid) and reference (.MAR) beside it."""
    model = read(path)
    evidence, reference = _beside(path, ".evid"), _beside(path, ".MAR")
    return Question(
        path.name,
        model,
        read_evidence(evidence, model) if evidence.is_file() else {},
        padded(read_marginals(reference), model, reference.name) if reference.is_file() else None,
    )


def padded(rows: Sequence[FloatArray], model: FactorGraph, where: str) -> FloatArray:
    """Rows of a reference as one array, n k; refuses those of another model."""
    if [len(row) for row in rows] != model.cards.tolist():
        raise ModelFormatError(
            f"{where} does not answer this model: it has {len(rows)} variables, or other numbers "
            f"of states, where the model has {model.n_variables}; remove it or give the right one"
        )
    full = np.zeros((model.n_variables, model.max_states))
    for i, row in enumerate(rows):
        full[i, : len(row)] = row
    return full


def run_batch(
    found: Iterable[Entry],
    plan: Plan,
    manifest: Manifest,
    executor: Executor,
    done: Callable[[Line], None] = lambda line: None,
    again: bool = False,
) -> list[Line]:
    """Rows of all jobs, in the order of entries, engines and seeds; `done` sees each as it comes.

    An entry that cannot be read is a row for each engine and seed, with the reason. Where this is
    interrupted, the manifest has what was done, and the next run goes on from there.
    """
    rows: list[Line] = []
    place: dict[str, int] = {}  # of an entry

    def keep(line: Line) -> None:
        rows.append(line)
        done(line)

    def todo() -> Iterator[tuple[Job, Question, Line]]:
        for entry in found:
            place.setdefault(entry.name, len(place))
            try:
                question = entry.load()
            except (IcgiError, MemoryError) as reason:
                for engine, seed in itertools.product(plan.engines, plan.seeds):
                    line = {
                        "instance": entry.name, "family": entry.family,
                        "engine": engine, "seed": seed,
                    }  # fmt: skip
                    keep({**line, "status": REFUSED, "message": str(reason), "key": ""})
                continue
            for job, words in plan.jobs(question):
                yield job, question, {**words, "instance": entry.name, "family": entry.family}

    def position(line: Line) -> tuple[int, int, int]:
        engine, seed = plan.engines.index(line["engine"]), plan.seeds.index(line["seed"])
        return place[line["instance"]], engine, seed

    run_jobs(todo(), manifest, executor, keep, keep, again)
    return sorted(rows, key=position)


def write_table(rows: Sequence[Line], path: Path) -> None:
    """Write rows as .csv or .parquet; the file gets its name only when it is whole."""
    with whole(path) as draft:
        if path.suffix == ".parquet":
            pa = require_extra("pyarrow", "data", "writing .parquet")
            parquet = require_extra("pyarrow.parquet", "data", "writing .parquet")
            columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
            parquet.write_table(pa.table(columns, schema=_schema(pa)), draft)
            return
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows([harmless(row.get(name)) for name in COLUMNS] for row in rows)


def _schema(pa: Any) -> Any:
    text = ("instance", "family", "engine", "status", "note", "message", "key")
    whole_numbers = ("variables", "factors", "seed", "excluded", "memory")
    kinds = {name: pa.string() for name in text} | {name: pa.int64() for name in whole_numbers}
    return pa.schema([(name, kinds.get(name, pa.float64())) for name in COLUMNS])


def _is_model(path: Path) -> bool:
    return Path(path.name.removesuffix(".gz")).suffix in FORMATS and path.is_file()


def _listed(source: Path) -> Iterator[Entry]:
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise IcgiError(
            f"{source} is no list of files ({error}); write one path on each line"
        ) from error
    for line in lines:
        text = line.strip()
        if text and not text.startswith("#"):
            path = source.parent / text
            yield _of_file(text, path)


def _labelled(source: Path) -> Iterator[Entry]:
    for each in LabelledSet(source):
        identity = each.identity
        yield Entry(identity.name, partial(_question, each), identity.family, referenced=True)


def _question(each: Labelled) -> Question:
    return Question(each.identity.name, each.model, each.identity.evidence, each.label.probs)


def _published(each: Instance) -> Question:
    model, rows = each.model(), each.reference()
    reference = None if rows is None else padded(rows, model, each.name)
    return Question(each.name, model, each.evidence(), reference)
