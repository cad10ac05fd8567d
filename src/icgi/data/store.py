"""Labelled sets on disk: a folder of Parquet shards that anything can read, and a manifest.

    manifest.json            what the set is, seeds, versions, a hash of every shard
    models-00000.parquet     one row per instance: identity and the model as flat arrays
    answers-00000.parquet    one row per labelled instance: how, how sure, log Z
    marginals-00000.parquet  one row per variable of it: probabilities, errors, ŝ, draws
    pending.jsonl            answers not yet in a shard; at most one line is lost when interrupted

A set is append-only: labelling adds shards, an interrupted run goes on where it stopped.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from icgi import __version__
from icgi.errors import IcgiError, ModelFormatError
from icgi.model.condition import Evidence
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.wiring import Wiring, unwire, wiring

FORMAT = 1
SHIPPED = Path(__file__).parent / "shipped"
"""A small labelled set that comes with the package, for tests and demonstrations."""

SHARD = 256  # instances of a shard, at most
KEPT = 4  # shards of labels in memory while a set is streamed
NUMBERS = 2**24  # table entries after which a shard of models ends, however few they are


@dataclass(frozen=True, slots=True)
class Identity:
    """What an instance is, apart from its numbers; the split is part of it."""

    name: str
    family: str
    split: str = "none"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    evidence: Evidence = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """Reference answer of one instance, and how far it can be trusted."""

    probs: FloatArray  # n k
    method: str
    log_z: float | None = None
    std_error: FloatArray | None = None  # n k  None where exact
    s_hat: FloatArray | None = None  # n  deviation between independent ensembles
    log_z_error: float = 0.0
    r_hat: float = 1.0
    seconds: float = 0.0
    checks: Mapping[str, float] = field(default_factory=dict)  # differences from other methods
    ess: FloatArray | None = None  # n  effective number of independent draws; None where exact


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """One instance of a set."""

    identity: Identity
    model: FactorGraph
    label: Label


class LabelledSet:
    """A labelled set in a folder; the one reader for training and benchmarks."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        path = self.folder / "manifest.json"
        if not path.is_file():
            raise ModelFormatError(
                f"{self.folder} is no labelled set: it has no manifest.json; see icgi label"
            )
        try:
            self.manifest: dict[str, Any] = json.loads(path.read_text())
        except ValueError as error:
            raise ModelFormatError(f"{path} is not JSON: {error}") from error
        if self.manifest.get("format") != FORMAT:
            raise ModelFormatError(
                f"{path} has format {self.manifest.get('format')}, this version reads {FORMAT}"
            )

    @classmethod
    def create(
        cls,
        folder: str | Path,
        instances: Iterable[tuple[Identity, FactorGraph]],
        description: str,
        source: Mapping[str, Any] | None = None,
    ) -> "LabelledSet":
        """Write the models of a new set; labels come later. Nothing is left behind on failure."""
        folder = Path(folder)
        if (folder / "manifest.json").exists():
            raise IcgiError(f"{folder} holds a set already; label it, or choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        shards: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        families: dict[str, int] = {}
        count = size = 0
        seen: set[str] = set()
        for identity, model in instances:
            if identity.name in seen:
                raise IcgiError(f"two instances are called {identity.name!r}; names identify them")
            seen.add(identity.name)
            rows.append(_model_row(identity, model))
            size += len(rows[-1]["values"])
            families[identity.family] = families.get(identity.family, 0) + 1
            count += 1
            if len(rows) == SHARD or size > NUMBERS:
                shards.append(_write_shard(folder, "models", len(shards), rows))
                rows, size = [], 0
        if rows:
            shards.append(_write_shard(folder, "models", len(shards), rows))
        _write_manifest(
            folder,
            {
                "format": FORMAT,
                "description": description,
                "icgi": __version__,
                "source": dict(source or {}),
                "instances": count,
                "families": families,
                "labelling": [],
                "models": shards,
                "answers": [],
                "marginals": [],
            },
        )
        return cls(folder)

    def __len__(self) -> int:
        return int(self.manifest["instances"])

    def verify(self) -> list[str]:
        """Shards that are missing or whose hash differs from the manifest's."""
        bad = []
        for kind in ("models", "answers", "marginals"):
            for shard in self.manifest[kind]:
                path = self.folder / shard["file"]
                if not path.is_file() or _digest(path) != shard["sha256"]:
                    bad.append(shard["file"])
        return bad

    def models(self, split: str | None = None) -> Iterator[tuple[Identity, FactorGraph]]:
        """Every instance with its model, a shard at a time."""
        for shard in self.shards():
            yield from (item for item in shard if split in (None, item[0].split))

    def shards(self) -> Iterator[Sequence[tuple[Identity, FactorGraph]]]:
        """Instances of each shard; a model is made when it is asked for."""
        return (Shard(self._table(shard["file"])) for shard in self.manifest["models"])

    def identities(self) -> Iterator[Identity]:
        """What every instance is, without its model."""
        columns = ["instance", "family", "split", "parameters", "evidence"]
        for shard in self.manifest["models"]:
            yield from map(_identity, self._rows(shard["file"], columns))

    def note_labelling(self, settings: Mapping[str, Any]) -> None:
        """Write into the manifest how labels are made from here on, with seed and version."""
        entry = {"icgi": __version__, **settings}
        if entry not in self.manifest.setdefault("labelling", []):
            self.manifest["labelling"].append(entry)
            _write_manifest(self.folder, self.manifest)

    def labelled(self) -> set[str]:
        """Names of the instances that have an answer, in a shard or pending."""
        done = {
            row["instance"]
            for shard in self.manifest["answers"]
            for row in self._rows(shard["file"], ["instance"])
        }
        return done | {answer["instance"] for answer, _ in self._pending()}

    def __iter__(self) -> Iterator[Labelled]:
        return self.stream()

    def stream(self, split: str | None = None) -> Iterator[Labelled]:
        """Labelled instances in the order of the models; unlabelled ones are left out.

        Labels are read a shard at a time, those last used are kept.
        """
        where = {
            row["instance"]: number
            for number, shard in enumerate(self.manifest["answers"])
            for row in self._rows(shard["file"], ["instance"])
        }
        pending = {a["instance"]: _label(a, rows) for a, rows in self._pending()}
        read = lru_cache(KEPT)(self._labels)
        for identity, model in self.models(split):
            name = identity.name
            if name in where:
                yield Labelled(identity, model, read(where[name])[name])
            elif name in pending:
                yield Labelled(identity, model, pending[name])

    def append(self, name: str, label: Label) -> None:
        """Add one answer; it survives whatever happens after this call."""
        rows = json.dumps([_answer_row(name, label), _marginal_rows(name, label)])
        with (self.folder / "pending.jsonl").open("a") as file:
            file.write(rows + "\n")
            file.flush()
            os.fsync(file.fileno())

    def compact(self) -> None:
        """Move pending answers into shards."""
        pending = list(self._pending())
        if not pending:
            return
        number = len(self.manifest["answers"])
        answers = [answer for answer, _ in pending]
        marginals = [row for _, rows in pending for row in rows]
        manifest = dict(self.manifest)
        manifest["answers"] = [
            *manifest["answers"], _write_shard(self.folder, "answers", number, answers)
        ]  # fmt: skip
        manifest["marginals"] = [
            *manifest["marginals"], _write_shard(self.folder, "marginals", number, marginals)
        ]  # fmt: skip
        _write_manifest(self.folder, manifest)
        (self.folder / "pending.jsonl").unlink()
        self.manifest = manifest

    def answers(self) -> list[dict[str, Any]]:
        """One row per answer: instance, method, log Z, reliability."""
        stored = [row for s in self.manifest["answers"] for row in self._rows(s["file"])]
        return stored + [answer for answer, _ in self._pending()]

    def _pending(self) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        path = self.folder / "pending.jsonl"
        if not path.is_file():
            return
        stored = {
            row["instance"]
            for shard in self.manifest["answers"]
            for row in self._rows(shard["file"], ["instance"])
        }
        for line in path.read_text().splitlines():
            try:
                answer, rows = json.loads(line)
            except ValueError:
                continue  # the line that was being written when the run was stopped
            if answer["instance"] not in stored:
                yield answer, rows

    def _labels(self, number: int) -> dict[str, Label]:
        """Labels of one shard."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self._rows(self.manifest["marginals"][number]["file"]):
            rows.setdefault(row["instance"], []).append(row)
        answers = self._rows(self.manifest["answers"][number]["file"])
        return {a["instance"]: _label(a, rows.get(a["instance"], [])) for a in answers}

    def _rows(self, file: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._table(file, columns).to_pylist()
        return rows

    def _table(self, file: str, columns: Sequence[str] | None = None) -> Any:
        path = self.folder / file
        try:
            return _parquet().read_table(path, columns=list(columns) if columns else None)
        except (OSError, ValueError) as error:
            raise ModelFormatError(
                f"{path} cannot be read ({error}); restore it, or label the set again"
            ) from error


class Shard(Sequence[tuple[Identity, FactorGraph]]):
    """Instances of one file, made one by one from its columns."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, k: Any) -> Any:
        row = {name: self._table[name][int(k)] for name in self._table.column_names}
        words = {name: row[name].as_py() for name in ("instance", "family", "split")}
        texts = {name: row[name].as_py() for name in ("parameters", "evidence")}
        return _identity({**words, **texts}), _model(row)


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as missing:
        raise IcgiError("labelled sets need pyarrow: pip install 'icgi[data]'") from missing
    return pyarrow.parquet


def _model_row(identity: Identity, model: FactorGraph) -> dict[str, Any]:
    w = wiring(model)
    flat = {
        "cards": w.cards, "scope_start": w.scope_start, "scope": w.scope,
        "table_start": w.table_start, "values": w.values,
    }  # fmt: skip
    digest = hashlib.sha256(b"".join(a.tobytes() for a in flat.values())).hexdigest()
    return {
        "instance": identity.name,
        "family": identity.family,
        "split": identity.split,
        "parameters": json.dumps(dict(identity.parameters), sort_keys=True),
        "evidence": json.dumps({str(i): int(x) for i, x in identity.evidence.items()}),
        "variables": model.n_variables,
        "sha256": digest,
        "names": list(model.names) if model.names is not None else None,
        **{key: array.tolist() for key, array in flat.items()},
    }


def _identity(row: Mapping[str, Any]) -> Identity:
    evidence = {int(i): x for i, x in json.loads(row["evidence"]).items()}
    return Identity(
        row["instance"], row["family"], row["split"], json.loads(row["parameters"]), evidence
    )


def _model(row: Mapping[str, Any]) -> FactorGraph:
    """Model from the arrow values of its row; arrays are not taken apart into numbers."""

    def array(key: str) -> Any:
        return row[key].values.to_numpy(zero_copy_only=False)

    flat = Wiring(
        array("cards"), array("scope_start"), array("scope"), array("table_start"), array("values")
    )
    names = row["names"].as_py()
    return unwire(flat, FactorGraph(flat.cards, (), (), None if names is None else tuple(names)))


def _answer_row(name: str, label: Label) -> dict[str, Any]:
    worst = 0.0 if label.std_error is None else float(np.max(label.std_error, initial=0.0))
    s_hat = 0.0 if label.s_hat is None else float(np.max(label.s_hat, initial=0.0))
    return {
        "instance": name,
        "method": label.method,
        "log_z": label.log_z,
        "log_z_error": label.log_z_error,
        "r_hat": label.r_hat,
        "max_std_error": worst,
        "max_s_hat": s_hat,
        "seconds": label.seconds,
        "checks": json.dumps(dict(label.checks), sort_keys=True),
    }


def _marginal_rows(name: str, label: Label) -> list[dict[str, Any]]:
    return [
        {
            "instance": name,
            "variable": i,
            "probs": row.tolist(),
            "std_error": None if label.std_error is None else label.std_error[i].tolist(),
            "s_hat": 0.0 if label.s_hat is None else float(label.s_hat[i]),
            "ess": None if label.ess is None else float(label.ess[i]),
            "method": label.method,
        }
        for i, row in enumerate(label.probs)
    ]


def _label(answer: Mapping[str, Any], rows: list[dict[str, Any]]) -> Label:
    rows = sorted(rows, key=lambda row: row["variable"])
    exact = all(row["std_error"] is None for row in rows)
    return Label(
        np.array([row["probs"] for row in rows]),
        answer["method"],
        answer["log_z"],
        None if exact else np.array([row["std_error"] for row in rows]),
        None if exact else np.array([row["s_hat"] for row in rows]),
        answer["log_z_error"],
        answer["r_hat"],
        answer["seconds"],
        json.loads(answer["checks"]),
        None if exact else np.array([row["ess"] for row in rows], dtype=np.float64),
    )


def _write_shard(
    folder: Path, kind: str, number: int, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    import pyarrow as pa

    path = folder / f"{kind}-{number:05}.parquet"
    draft = path.with_suffix(".partial")
    table = pa.Table.from_pylist(rows, schema=_schema(kind))
    _parquet().write_table(table, draft, compression="zstd")
    draft.replace(path)
    return {"file": path.name, "rows": len(rows), "sha256": _digest(path)}


def _schema(kind: str) -> Any:
    import pyarrow as pa

    text, real, whole = pa.string(), pa.float64(), pa.int64()
    columns: dict[str, dict[str, Any]] = {
        "models": {
            "instance": text, "family": text, "split": text, "parameters": text,
            "evidence": text, "variables": whole, "sha256": text, "names": pa.list_(text),
            "cards": pa.list_(whole), "scope_start": pa.list_(whole), "scope": pa.list_(whole),
            "table_start": pa.list_(whole), "values": pa.list_(real),
        },
        "answers": {
            "instance": text, "method": text, "log_z": real, "log_z_error": real, "r_hat": real,
            "max_std_error": real, "max_s_hat": real, "seconds": real, "checks": text,
        },
        "marginals": {
            "instance": text, "variable": whole, "probs": pa.list_(real),
            "std_error": pa.list_(real), "s_hat": real, "ess": real, "method": text,
        },
    }  # fmt: skip
    return pa.schema(list(columns[kind].items()))


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    draft = folder / "manifest.json.partial"
    draft.write_text(json.dumps(manifest, indent=1) + "\n")
    draft.replace(folder / "manifest.json")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
