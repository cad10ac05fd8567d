"""Labelled sets on disk: a folder of Parquet shards that anything can read, and a manifest.

    manifest.json            what the set is, seeds, versions, a hash of every shard
    models-00000.parquet     one row per instance: identity and the model as flat arrays
    answers-00000.parquet    one row per labelled instance: how, how sure, log Z
    marginals-00000.parquet  one row per variable of it: probabilities, errors, ŝ, draws
    pending.jsonl            answers not yet in a shard; at most one line is lost when interrupted

A set is append-only: labelling adds shards, an interrupted run goes on where it stopped. It has one
writer at a time and any number of readers.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from icgi import __version__
from icgi.data import lock, pending
from icgi.data.damage import damaged, digest
from icgi.data.inside import all_inside, inside
from icgi.data.records import (
    OPTIONAL,
    Identity,
    Label,
    Labelled,
    Shard,
    identity_of,
    label_of,
    model_row,
    schema,
)
from icgi.errors import IcgiError, ModelFormatError
from icgi.extras import require_extra
from icgi.model.graph import FactorGraph

__all__ = ["SHARD", "SHIPPED", "Identity", "Label", "Labelled", "LabelledSet", "Shard"]

FORMAT = 1
SHIPPED = Path(__file__).parent / "shipped"
"""A small labelled set that comes with the package, for tests and demonstrations."""

SHARD = 256  # instances of a shard, at most
KEPT = 4  # shards of labels in memory while a set is streamed
NUMBERS = 2**24  # table entries after which a shard of models ends, however few they are
KINDS = ("models", "answers", "marginals")


class LabelledSet:
    """A labelled set in a folder; the one reader for training and benchmarks."""

    def __init__(self, folder: str | Path) -> None:
        require_extra("pyarrow.parquet", "data", "a labelled set")
        self.folder = Path(folder)
        self._version = _version(self.folder)
        self.manifest = _read_manifest(self.folder)
        self.notes: list[str] = []  # what was mended when writing began, in words
        self._writers = 0
        self._left = -1  # size of the pending file when this object last wrote to it

    @classmethod
    def create(
        cls,
        folder: str | Path,
        instances: Iterable[tuple[Identity, FactorGraph]],
        description: str,
        source: Mapping[str, Any] | None = None,
    ) -> "LabelledSet":
        """Write the models of a new set; labels come later. Nothing is left behind on failure."""
        require_extra("pyarrow.parquet", "data", "a labelled set")
        folder = Path(folder)
        made = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise IcgiError(
                f"{folder} cannot be made ({error.strerror}); choose another folder"
            ) from error
        try:
            with lock.writing(folder):
                if (folder / "manifest.json").exists():
                    raise IcgiError(
                        f"{folder} holds a set already; label it, or choose another folder"
                    )
                _write_models(folder, instances, description, dict(source or {}))
        except BaseException:
            if made:
                with suppress(OSError):
                    folder.rmdir()
            raise
        return cls(folder)

    def __len__(self) -> int:
        return int(self.manifest["instances"])

    def verify(self) -> list[str]:
        """Everything that is damaged, a line each, beginning with the name of the file.

        Missing files, hashes and numbers of rows that differ from the manifest, labels that are
        there twice or have not one row per variable, torn lines among the pending ones.
        """
        return damaged(self)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer, from here to the end of the block; others are refused at once.

        Whatever an interrupted writer left behind is mended first; `notes` say what was.
        """
        if self._writers:
            yield  # by this very object already
            return
        with lock.writing(self.folder):
            if _version(self.folder) != self._version:  # someone has written since
                self._version = _version(self.folder)
                self.manifest = _read_manifest(self.folder)
            if pending.size(self.folder) != self._left:
                self.notes += pending.mend(self.folder, self.variables())
            self._writers += 1
            try:
                yield
            finally:
                self._writers -= 1
                self._left = pending.size(self.folder)

    def models(self, split: str | None = None) -> Iterator[tuple[Identity, FactorGraph]]:
        """Every instance with its model, a shard at a time."""
        for shard in self.shards():
            yield from (item for item in shard if split in (None, item[0].split))

    def shards(self) -> Iterator[Sequence[tuple[Identity, FactorGraph]]]:
        """Instances of each shard; a model is made when it is asked for."""
        return (Shard(self.table("models", s["file"])) for s in self.manifest["models"])

    def identities(self) -> Iterator[Identity]:
        """What every instance is, without its model."""
        columns = ["instance", "family", "split", "parameters", "evidence"]
        yield from map(identity_of, self._rows("models", columns))

    def variables(self) -> dict[str, int]:
        """Number of variables of every instance."""
        rows = self._rows("models", ["instance", "variables"])
        return {row["instance"]: row["variables"] for row in rows}

    def note_labelling(self, settings: Mapping[str, Any]) -> None:
        """Write into the manifest how labels are made from here on, with seed and version."""
        entry = {"icgi": __version__, **settings}
        with self.writing():
            earlier = self.manifest["labelling"]
            if entry not in earlier:
                self._replace_manifest({**self.manifest, "labelling": [*earlier, entry]})

    def labelled(self) -> set[str]:
        """Names of the instances that have an answer, in a shard or pending."""
        return self._stored() | {answer["instance"] for answer, _ in self._pending()}

    def __iter__(self) -> Iterator[Labelled]:
        return self.stream()

    def stream(self, split: str | None = None) -> Iterator[Labelled]:
        """Labelled instances in the order of the models; unlabelled ones are left out.

        Labels are read a shard at a time, those last used are kept.
        """
        where = {
            name: number
            for number, shard in enumerate(self.manifest["answers"])
            for name in self.table("answers", shard["file"], ["instance"])["instance"].to_pylist()
        }
        waiting = {answer["instance"]: label_of(answer, rows) for answer, rows in self._pending()}
        read = lru_cache(KEPT)(self._labels)
        for identity, model in self.models(split):
            name = identity.name
            if name in where:
                yield Labelled(identity, model, _fitting(name, read(where[name])[name], model))
            elif name in waiting:
                yield Labelled(identity, model, _fitting(name, waiting[name], model))

    def append(self, name: str, label: Label) -> None:
        """Add one answer; it survives whatever happens after this call."""
        self.append_all({name: label})

    def append_all(self, labels: Mapping[str, Label]) -> None:
        """Add answers by the names of their instances, all at once."""
        with self.writing():
            pending.append(self.folder, labels)

    def compact(self, names: Sequence[str] | None = None) -> None:
        """Move pending answers into shards, those named in that order; on failure they stay."""
        with self.writing():
            waiting = {entry[0]["instance"]: entry for entry in self._pending()}
            order = list(waiting) if names is None else [n for n in names if n in waiting]
            for at in range(0, len(order), SHARD):
                self._add_shard([waiting[name] for name in order[at : at + SHARD]])
            if order:
                pending.remove(self.folder, set(order))

    def _add_shard(self, entries: Sequence[pending.Entry]) -> None:
        number = len(self.manifest["answers"])
        rows = {
            "answers": [answer for answer, _ in entries],
            "marginals": [row for _, own in entries for row in own],
        }
        manifest = dict(self.manifest)
        for kind, own in rows.items():
            manifest[kind] = [*manifest[kind], _write_shard(self.folder, kind, number, own)]
        self._replace_manifest(manifest)

    def _replace_manifest(self, manifest: dict[str, Any]) -> None:
        _write_manifest(self.folder, manifest)
        self.manifest, self._version = manifest, _version(self.folder)

    def answers(self) -> list[dict[str, Any]]:
        """One row per answer: instance, method, log Z, reliability."""
        return [*self._rows("answers"), *(answer for answer, _ in self._pending())]

    def table(self, kind: str, file: str, columns: Sequence[str] | None = None) -> Any:
        """Arrow table of one shard, its columns checked."""
        path = inside(self.folder, file, "manifest.json")
        parquet = require_extra("pyarrow.parquet", "data", "a labelled set")
        try:
            table = parquet.read_table(path, columns=list(columns) if columns else None)
        except (OSError, ValueError, NotImplementedError) as error:
            raise ModelFormatError(
                f"{path} cannot be read ({error}); restore it, or label the set again"
            ) from error
        for column in schema(kind):
            wanted = columns is None or column.name in columns
            if wanted and not _has_column(table, column, column.name in OPTIONAL[kind]):
                raise ModelFormatError(
                    f"{path} has no sound column {column.name!r} of {column.type}; restore the file"
                )
        return table

    def _stored(self) -> set[str]:
        return {row["instance"] for row in self._rows("answers", ["instance"])}

    def _pending(self) -> list[pending.Entry]:
        """Pending answers that are in no shard yet."""
        entries = pending.read(self.folder).entries
        stored = self._stored() if entries else set()
        return [entry for entry in entries if entry[0]["instance"] not in stored]

    def _labels(self, number: int) -> dict[str, Label]:
        """Labels of one shard."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self.table("marginals", self.manifest["marginals"][number]["file"]).to_pylist():
            rows.setdefault(row["instance"], []).append(row)
        answers = self.table("answers", self.manifest["answers"][number]["file"]).to_pylist()
        return {a["instance"]: label_of(a, rows.get(a["instance"], [])) for a in answers}

    def _rows(self, kind: str, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        for shard in self.manifest[kind]:
            yield from self.table(kind, shard["file"], columns).to_pylist()


def _has_column(table: Any, wanted: Any, optional: bool) -> bool:
    if wanted.name not in table.column_names:
        return False
    found = table[wanted.name]
    return bool(found.type == wanted.type and (optional or found.null_count == 0))


def _fitting(name: str, label: Label, model: FactorGraph) -> Label:
    if len(label.probs) != model.n_variables:
        raise ModelFormatError(
            f"the label of {name!r} has {len(label.probs)} rows for {model.n_variables} variables; "
            "the set is damaged, see icgi data info"
        )
    return label


def _write_models(
    folder: Path,
    instances: Iterable[tuple[Identity, FactorGraph]],
    description: str,
    source: dict[str, Any],
) -> None:
    shards: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    families: dict[str, int] = {}
    size = 0
    seen: set[str] = set()
    try:
        for identity, model in instances:
            if identity.name in seen:
                raise IcgiError(f"two instances are called {identity.name!r}; names identify them")
            seen.add(identity.name)
            rows.append(model_row(identity, model))
            size += len(rows[-1]["values"])
            families[identity.family] = families.get(identity.family, 0) + 1
            if len(rows) == SHARD or size > NUMBERS:
                shards.append(_write_shard(folder, "models", len(shards), rows))
                rows, size = [], 0
        if rows:
            shards.append(_write_shard(folder, "models", len(shards), rows))
        manifest = {
            "format": FORMAT,
            "description": description,
            "icgi": __version__,
            "source": source,
            "instances": len(seen),
            "families": families,
            "labelling": [],
            "models": shards,
            "answers": [],
            "marginals": [],
        }
        _write_manifest(folder, manifest)
    except BaseException:
        for shard in shards:
            with suppress(OSError):
                (folder / shard["file"]).unlink()
        raise


def _write_shard(
    folder: Path, kind: str, number: int, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    pa = require_extra("pyarrow", "data", "a labelled set")
    parquet = require_extra("pyarrow.parquet", "data", "a labelled set")
    path = folder / f"{kind}-{number:05}.parquet"
    table = pa.Table.from_pylist(rows, schema=schema(kind))
    with _draft(path) as draft:
        parquet.write_table(table, draft, compression="zstd")
    return {"file": path.name, "rows": len(rows), "sha256": digest(path)}


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    with _draft(folder / "manifest.json") as draft:
        draft.write_text(json.dumps(manifest, indent=1) + "\n")


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """Write to a draft that takes the name of the file when it is whole and on the disk."""
    draft = path.with_name(path.name + ".partial")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise IcgiError(
            f"{path} could not be written ({error.strerror or error}); what was there before is "
            "kept: make room and run again"
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if folder.is_file():
        raise ModelFormatError(f"{folder} is a file; a labelled set is a folder, see icgi label")
    if not path.is_file():
        raise ModelFormatError(
            f"{folder} is no labelled set: it has no manifest.json; see icgi label"
        )
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path} is not JSON: {error}") from error
    except OSError as error:
        raise ModelFormatError(f"{path} cannot be read ({error.strerror})") from error
    if not isinstance(manifest, dict):
        raise ModelFormatError(f"{path} is no manifest of a labelled set; restore it")
    if manifest.get("format") != FORMAT:
        raise ModelFormatError(
            f"{path} has format {manifest.get('format')!r}, this version reads {FORMAT}"
        )
    manifest.setdefault("labelling", [])
    mistake = _manifest_mistake(manifest)
    if mistake:
        raise ModelFormatError(f"{path} is damaged: {mistake}; restore it")
    all_inside(folder, (shard["file"] for kind in KINDS for shard in manifest[kind]), path.name)
    return manifest


def _version(folder: Path) -> tuple[int, ...]:
    """Which manifest lies in a folder: another one is another file."""
    try:
        found = (folder / "manifest.json").stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _manifest_mistake(manifest: Mapping[str, Any]) -> str:
    """What is wrong with the types of a manifest, or nothing."""
    kinds: dict[str, type] = {"description": str, "instances": int, "labelling": list}
    for key, kind in {**kinds, **dict.fromkeys(KINDS, list)}.items():
        if type(manifest.get(key)) is not kind:
            return f"{key!r} is missing or not of the type {kind.__name__}"
    wanted = {"file": str, "rows": int, "sha256": str}
    for shard in (shard for name in KINDS for shard in manifest[name]):
        if type(shard) is not dict or {k: type(shard.get(k)) for k in wanted} != wanted:
            return "an entry for a file does not have its name, its rows and its sha256"
    if len(manifest["answers"]) != len(manifest["marginals"]):
        return "not as many files of marginals as of answers"
    return "a negative number of instances" if manifest["instances"] < 0 else ""
