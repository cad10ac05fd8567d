"""Instances and labels, and the rows of tables that they are stored as."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from icgi.errors import ModelFormatError
from icgi.extras import require_extra
from icgi.model.condition import Evidence
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.names import check_names
from icgi.model.wiring import Wiring, parts, wiring

OPTIONAL = {
    "models": {"names"},
    "answers": {"log_z"},
    "marginals": {"std_error", "ess"},
}
"""Columns in which a row may have nothing."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What an instance is, apart from its numbers; the split is part of it."""

    name: str
    family: str
    split: str = "none"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    evidence: Evidence = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_names((self.name, self.family, self.split), "instance, family or split")


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


class Shard(Sequence[tuple[Identity, FactorGraph]]):
    """Instances of one file, made one by one from its columns."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, k: Any) -> Any:
        row = {name: self._table[name][int(k)] for name in self._table.column_names}
        words = ("instance", "family", "split", "parameters", "evidence")
        return identity_of({name: row[name].as_py() for name in words}), _model(row)


def schema(kind: str) -> Any:
    """Columns of the tables of models, answers or marginals, as Arrow wants them."""
    pa = require_extra("pyarrow", "data", "a labelled set")
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


def model_row(identity: Identity, model: FactorGraph) -> dict[str, Any]:
    """Row of an instance in the table of models."""
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


def identity_of(row: Mapping[str, Any]) -> Identity:
    """Identity from the words of its row."""
    try:
        evidence = {int(i): int(x) for i, x in json.loads(row["evidence"]).items()}
        parameters = dict(json.loads(row["parameters"]).items())
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelFormatError(
            f"evidence or parameters of the instance {row['instance']!r} are no JSON objects "
            f"({error}); the set is damaged, restore it"
        ) from error
    return Identity(row["instance"], row["family"], row["split"], parameters, evidence)


def _model(row: Mapping[str, Any]) -> FactorGraph:
    """Model from the arrow values of its row; arrays are not taken apart into numbers."""

    def array(key: str) -> Any:
        return row[key].values.to_numpy(zero_copy_only=False)

    flat = Wiring(
        array("cards"), array("scope_start"), array("scope"), array("table_start"), array("values")
    )
    names = row["names"].as_py()
    try:
        if not (_cuts(flat.scope_start, flat.scope) and _cuts(flat.table_start, flat.values)):
            raise ValueError("offsets do not cut the arrays into scopes and tables")
        return FactorGraph(flat.cards, *parts(flat), None if names is None else tuple(names))
    except (ModelFormatError, ValueError, IndexError, OverflowError) as error:
        raise ModelFormatError(
            f"the model of the instance {row['instance'].as_py()!r} is damaged: {error}; restore "
            "the set"
        ) from error


def _cuts(start: IntArray, values: Any) -> bool:
    inside = len(start) > 0 and start[0] == 0 and start[-1] == len(values)
    return bool(inside and (start[1:] >= start[:-1]).all())


def answer_row(name: str, label: Label) -> dict[str, Any]:
    """Row of a label in the table of answers."""
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


def marginal_rows(name: str, label: Label) -> list[dict[str, Any]]:
    """Rows of a label in the table of marginals, one per variable."""
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


def label_of(answer: Mapping[str, Any], rows: list[dict[str, Any]]) -> Label:
    """Label from its row of answers and its rows of marginals, in any order."""
    rows = sorted(rows, key=lambda row: row["variable"])
    if [row["variable"] for row in rows] != list(range(len(rows))):
        raise ModelFormatError(
            f"the label of {answer['instance']!r} has {len(rows)} rows that are not one per "
            "variable; two runs may have written at once, see icgi data info"
        )
    exact = all(row["std_error"] is None for row in rows)
    try:
        return Label(
            np.array([row["probs"] for row in rows], dtype=np.float64),
            answer["method"],
            answer["log_z"],
            None if exact else np.array([row["std_error"] for row in rows], dtype=np.float64),
            None if exact else np.array([row["s_hat"] for row in rows], dtype=np.float64),
            answer["log_z_error"],
            answer["r_hat"],
            answer["seconds"],
            json.loads(answer["checks"]),
            None if exact else np.array([row["ess"] for row in rows], dtype=np.float64),
        )
    except (TypeError, ValueError) as error:
        raise ModelFormatError(
            f"the label of {answer['instance']!r} is damaged ({error}); see icgi data info"
        ) from error
