"""Answers read back from files, in the JSON form that pages are made of."""

import json
import re
from pathlib import Path
from typing import Any

from icgi.errors import IcgiError, ModelFormatError
from icgi.inference import Status
from icgi.model.formats.uai import read_marginals
from icgi.model.graph import FactorGraph, state_names, variable_name
from icgi.web.payload import with_readings
from icgi.wording import shown

_LARGEST = 2**29  # bytes of a file


def read_answer(path: Path, model: FactorGraph | None = None, level: float = 0.9) -> dict[str, Any]:
    """Answer of a `.json` file that icgi wrote, or of a `.MAR` file of any program.

    A `.MAR` file has no names; `model` gives them.
    """
    if path.suffix.lower() == ".mar":
        return with_readings(_of_mar(path, model), level)
    try:
        if path.stat().st_size > _LARGEST:
            raise ModelFormatError(f"{path} has more than {_LARGEST} bytes; is it an answer?")
        found = json.loads(path.read_text(encoding="utf-8"))
        found = _checked(found)
    except OSError as error:
        raise ModelFormatError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFormatError(
            f"{path} is no answer that icgi wrote as JSON ({error}); give a file made by "
            "`icgi marginals MODEL -o FILE.json`, or a .MAR file"
        ) from error
    return with_readings(found, level)


def _of_mar(path: Path, model: FactorGraph | None) -> dict[str, Any]:
    rows = read_marginals(path)
    if model is not None and [len(row) for row in rows] != model.cards.tolist():
        raise IcgiError(f"{path} does not have the variables and states of the model")
    return {
        "engine": "",
        "status": None,
        "log_z": None,
        "marginals": [
            {
                "variable": str(i) if model is None else variable_name(model, i),
                "probabilities": dict(
                    zip(
                        map(str, range(len(row))) if model is None else state_names(model, i),
                        (float(p) for p in row),
                        strict=True,
                    )
                ),
            }
            for i, row in enumerate(rows)
        ],
    }


def _checked(found: Any) -> dict[str, Any]:
    """Parts of the file that a page shows; raises one of the usual exceptions for wrong ones."""
    Status(found["status"])
    if not re.fullmatch(r"[\w.:=,()' +-]*", found["engine"]):
        raise ValueError("the engine is not one of ours")
    budget, model, stats = (found.get(key) or {} for key in ("budget", "model", "stats"))
    rows = [
        {
            "variable": shown(row["variable"]),
            **{
                key: {shown(state): _number(p) for state, p in row[key].items()}
                for key in ("probabilities", "std_errors")
                if key in row
            },
        }
        for row in found["marginals"]
    ]
    if not all(row["probabilities"] for row in rows):
        raise ValueError("a variable has no states")
    return {
        "engine": found["engine"],
        "status": found["status"],
        "advice": shown(found["advice"]),
        "evidence": {shown(name): shown(state) for name, state in found["evidence"].items()},
        "likelihood": {
            shown(name): {shown(state): _number(w) for state, w in row.items()}
            for name, row in (found.get("likelihood") or {}).items()
        },
        "excluded": {
            shown(name): [shown(state) for state in states]
            for name, states in (found.get("excluded") or {}).items()
        },
        "log_z": _number(found.get("log_z")),
        "seconds": _number(found.get("seconds")),
        "seed": _number(found.get("seed")),
        **{key: shown(str(found[key])) for key in ("version", "command") if found.get(key)},
        "budget": {"seconds": _number(budget.get("seconds"))} if budget else None,
        "model": {"sha256": shown(str(model["sha256"]))} if "sha256" in model else None,
        "stats": {shown(key): _number(value) for key, value in stats.items()},
        "marginals": rows,
    }


def _number(value: Any) -> float | int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"{value!r} is no number")
    return value
