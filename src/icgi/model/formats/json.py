"""The JSON form of a model: names, states and any factors, zeros included (docs/formats.md)."""

import json
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from icgi.errors import ModelFormatError
from icgi.model.formats.network import LONGEST_SCOPE
from icgi.model.graph import FactorGraph, FloatArray, check_size
from icgi.wording import did_you_mean, shown

VERSION = 1
_MOST_STATES = 2**28


class _Problem(Exception):
    """What is wrong, without the name of the file."""


def parse_json(data: bytes, path: str) -> FactorGraph:
    """Model of its JSON form; every mistake is named."""
    try:
        raw = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_finite)
        return _model(raw)
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"{path}: no UTF-8 ({error}); save it in that encoding") from error
    except json.JSONDecodeError as error:
        raise ModelFormatError(
            f"{path}, line {error.lineno}: no JSON ({error.msg}); was the file cut off?"
        ) from error
    except RecursionError as error:
        raise ModelFormatError(f"{path}: nested too deeply for a model") from error
    except (_Problem, ModelFormatError) as error:
        raise ModelFormatError(f"{path}: {shown(str(error))}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Problem(f"an object has the key {shown(twice)!r} twice; keep one")
    return found


def _finite(word: str) -> NoReturn:
    raise _Problem(f"{word} is no number of JSON; write null for the logarithm of zero")


def _keys(found: Any, what: str, needed: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    if not isinstance(found, dict):
        raise _Problem(f"{what} should be an object {{…}} with {', '.join(needed)}")
    for key in needed:
        if key not in found:
            raise _Problem(f"{what} has no {key!r}; give one (docs/formats.md)")
    for key in found:
        if key not in needed + allowed:
            meant = did_you_mean(key, needed + allowed)
            raise _Problem(f"{what} has the unknown key {shown(key)!r}{meant}; remove it")


def _model(raw: Any) -> FactorGraph:
    _keys(raw, "the file", ("icgi", "variables", "factors"), ("about",))
    if raw["icgi"] != VERSION:
        raise _Problem(f"version {raw['icgi']!r}, this program reads version {VERSION}")
    variables, factors = _list(raw["variables"], "variables"), _list(raw["factors"], "factors")
    names, states = _described(variables)
    cards = np.array([found if isinstance(found, int) else len(found) for found in states])
    check_size(len(cards), int(cards.max(initial=0)))
    number = {name: i for i, name in enumerate(names)} if names else {}
    pairs = [_factor(f, factor, cards, number) for f, factor in enumerate(factors)]
    named = any(not isinstance(found, int) for found in states)
    return FactorGraph(
        cards.astype(np.int64),
        tuple([scope for scope, _ in pairs]),
        tuple([table for _, table in pairs]),
        names=names,
        states=tuple([_numbers_or(found) for found in states]) if named else None,
    )


def _numbers_or(found: Any) -> tuple[str, ...]:
    return tuple(map(str, range(found))) if isinstance(found, int) else tuple(found)


def _list(found: Any, what: str) -> list[Any]:
    if not isinstance(found, list):
        raise _Problem(f"{what!r} should be a list […]")
    return found


def _described(variables: list[Any]) -> tuple[tuple[str, ...] | None, list[Any]]:
    """Names of all variables, or none, and the states of each: their names, or how many."""
    states = []
    for i, each in enumerate(variables):
        _keys(each, f"variable {i}", ("states",), ("name",))
        found = each["states"]
        counted = type(found) is int and 1 <= found <= _MOST_STATES
        listed = isinstance(found, list) and found and all(isinstance(s, str) for s in found)
        if not counted and not listed:
            raise _Problem(f"the 'states' of variable {i} should be their names or how many")
        states.append(found)
    names = [each["name"] for each in variables if "name" in each]
    if names and (len(names) < len(variables) or not all(isinstance(n, str) for n in names)):
        raise _Problem("some variables have a name (a text) and others have none; name all or none")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _Problem(f"two variables are called {twice!r}; names identify them")
    return tuple(names) or None, states


def _factor(
    f: int, factor: Any, cards: np.ndarray, number: dict[str, int]
) -> tuple[tuple[int, ...], FloatArray]:
    _keys(factor, f"factor {f}", ("scope",), ("values", "log_values"))
    if ("values" in factor) == ("log_values" in factor):
        raise _Problem(f"factor {f} should have either 'values' or 'log_values'")
    scope = []
    for each in _list(factor["scope"], "scope"):
        i = number.get(each, -1) if isinstance(each, str) else each
        if type(i) is not int or not 0 <= i < len(cards):
            meant = did_you_mean(each, number) if isinstance(each, str) else ""
            raise _Problem(f"factor {f} names the unknown variable {each!r}{meant}")
        scope.append(i)
    if len(scope) > LONGEST_SCOPE:
        raise _Problem(f"factor {f} has {len(scope)} variables; at most {LONGEST_SCOPE}")
    shape = [int(cards[i]) for i in scope]
    return tuple(scope), _table(f, factor, shape)


def _table(f: int, factor: dict[str, Any], shape: list[int]) -> FloatArray:
    logs = "log_values" in factor
    values = _list(factor["log_values" if logs else "values"], "values")
    size = float(np.prod([float(c) for c in shape]))
    if len(values) != size:
        raise _Problem(
            f"factor {f} has {len(values)} values, but its scope needs {size:g}, the last variable "
            "changing fastest"
        )
    if not all(type(v) in (int, float) or (logs and v is None) for v in values):
        bad = next(v for v in values if type(v) not in (int, float) and not (logs and v is None))
        raise _Problem(f"factor {f} holds {str(bad)[:40]!r}, which is no number")
    try:
        array = np.array([-np.inf if v is None else v for v in values], np.float64).reshape(shape)
    except OverflowError:
        raise _Problem(f"factor {f} holds a number beyond double precision") from None
    if logs:
        return array
    if array.size and not (array.min() >= 0 and array.max() < np.inf):
        raise _Problem(
            f"factor {f} holds a negative or infinite value; give potentials in 'values' and "
            "their logarithms in 'log_values'"
        )
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(array))


def format_json(model: FactorGraph) -> Iterator[str]:
    """Pieces of the JSON form; reading it gives the same numbers to the last bit."""
    yield f'{{"icgi": {VERSION},\n "variables": ['
    for i, card in enumerate(model.cards.tolist()):
        described: dict[str, Any] = {} if model.names is None else {"name": model.names[i]}
        described["states"] = card if model.states is None else list(model.states[i])
        yield ("," if i else "") + "\n  " + json.dumps(described, ensure_ascii=False)
    yield '],\n "factors": ['
    for f, (scope, table) in enumerate(zip(model.scopes, model.log_tables, strict=True)):
        called: list[Any] = list(scope) if model.names is None else [model.names[i] for i in scope]
        factor = {"scope": called, **_written(table.ravel())}
        yield ("," if f else "") + "\n  " + json.dumps(factor, ensure_ascii=False)
    yield "]}\n"


def _written(theta: FloatArray) -> dict[str, list[float | None]]:
    """Potentials where they say the same to the last bit, else their logarithms."""
    with np.errstate(divide="ignore", over="ignore"):
        values = np.exp(theta)
        for digits in (12, 15, 17):
            short = np.array([float(f"{v:.{digits}g}") for v in values.tolist()])
            if np.array_equal(np.log(short), theta):
                return {"values": short.tolist()}
    return {"log_values": [None if v == -np.inf else v for v in theta.tolist()]}
