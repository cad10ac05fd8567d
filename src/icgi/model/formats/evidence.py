"""Files of evidence: `.evid` of UAI by number, `.json` and `.csv` by name (docs/formats.md)."""

import csv
import json
from typing import Any

from icgi.errors import EvidenceError
from icgi.model.findings import Findings, resolve
from icgi.model.formats import ending_of
from icgi.model.formats.files import AnyPath, read_bytes
from icgi.model.formats.uai import parse_evidence
from icgi.model.graph import FactorGraph, state_names
from icgi.wording import did_you_mean

_PARTS = ("observe", "likely", "exclude")


def read_findings(path: AnyPath, model: FactorGraph) -> Findings:
    """Everything that a file says about the variables of a model."""
    data, where, ending = read_bytes(path, EvidenceError), str(path), ending_of(path)
    if ending not in (".json", ".csv"):
        return Findings(parse_evidence(data, where, model))
    try:
        text = data.decode("utf-8-sig")
        if ending == ".csv":
            return resolve(model, _one_case(text, model) or _rows(text))
        parts = _parts(json.loads(text, object_pairs_hook=_once))
        return resolve(model, *(parts[name] for name in _PARTS))
    except UnicodeDecodeError as error:
        raise EvidenceError(f"{where}: no UTF-8 ({error}); save it in that encoding") from error
    except json.JSONDecodeError as error:
        raise EvidenceError(f"{where}, line {error.lineno}: no JSON ({error.msg})") from error
    except RecursionError as error:
        raise EvidenceError(f"{where}: nested too deeply for evidence") from error
    except csv.Error as error:
        raise EvidenceError(f"{where}: no CSV ({error})") from error
    except EvidenceError as error:
        raise EvidenceError(f"{where}: {error}") from error


def _one_case(text: str, model: FactorGraph) -> dict[str, str] | None:
    """A line of names and a line of their states, as tables of cases have them; None: no such."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if any(row)]
    if len(rows) < 2 or len(rows[0]) < 2 or not set(rows[0]) <= set(model.names or ()):
        return None
    names, *cases = rows
    if names[1] in state_names(model, (model.names or ()).index(names[0])):
        return None  # a variable is called as a state of another
    if len(cases) > 1:
        raise EvidenceError(
            f"holds {len(cases)} cases under a line of names; give a file with one of them, or all "
            "to icgi.marginals_batch"
        )
    if len(cases[0]) != len(names):
        raise EvidenceError(f"{len(cases[0])} states under {len(names)} names; give one for each")
    return {name: state for name, state in zip(names, cases[0], strict=True) if state}


def _rows(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (not found and [c.lower() for c in cells] == ["variable", "state"]):
            continue
        if len(cells) != 2 or not all(cells):
            raise EvidenceError(
                f"line {number} is no pair of variable and state; write `variable,state`"
            )
        if found.setdefault(cells[0], cells[1]) != cells[1]:
            raise EvidenceError(
                f"line {number} observes {cells[0]!r} once more, in another state; keep one"
            )
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise EvidenceError(f"{twice!r} is given twice; keep one")
    return dict(pairs)


def _parts(found: Any) -> dict[str, dict[str, Any]]:
    """Observations, likelihoods and exclusions; a plain object holds observations only."""
    if not isinstance(found, dict):
        raise EvidenceError('evidence is an object, such as {"HR": "HIGH", "CVP": 0}')
    nested = [key for key, value in found.items() if isinstance(value, dict)]
    divided = bool(found) and len(nested) == len(found)
    if divided and any(key in _PARTS for key in nested):
        odd = next((key for key in nested if key not in _PARTS), None)
        if odd is not None:
            near = did_you_mean(odd, _PARTS)
            raise EvidenceError(f"unknown part {odd!r}{near}; there are: {', '.join(_PARTS)}")
    else:
        divided = False
    parts = {name: found.get(name, {}) for name in _PARTS} if divided else {"observe": found}
    for i, x in parts["observe"].items():
        if type(x) not in (int, str):
            raise EvidenceError(
                f"variable {i!r} has the state {str(x)[:40]}; give a name or a number"
            )
    for i, states in parts.get("exclude", {}).items():
        listed = states if isinstance(states, list) else [states]
        if not all(type(x) in (int, str) for x in listed):
            raise EvidenceError(f"the excluded states of {i!r} should be names or numbers")
    return {name: parts.get(name, {}) for name in _PARTS}
