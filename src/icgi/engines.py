"""Name → engine: the one dictionary. Everything that lists or accepts engines reads it."""

import dataclasses
import functools
import importlib
import math
import types
import typing
from collections.abc import Callable, Iterable

from icgi.errors import IcgiError
from icgi.inference import Engine
from icgi.wording import did_you_mean

ENGINES: dict[str, str] = {
    "auto": "icgi.portfolio.auto:Auto",
    "exact": "icgi.portfolio.exact:Exact",
    "enumerate": "icgi.exact.enumeration:Enumerate",
    "jt": "icgi.exact.junction_tree:JunctionTree",
    "pfaffian": "icgi.exact.pfaffian:Pfaffian",
    "mf": "icgi.approx.mean_field:MeanField",
    "lbp": "icgi.approx.lbp:LoopyBP",
    "trbp": "icgi.approx.trbp:TreeReweightedBP",
    "gbp": "icgi.approx.gbp:GeneralisedBP",
    "ibia": "icgi.approx.ibia:IncrementalForests",
    "tap": "icgi.approx.tap:ThoulessAndersonPalmer",
    "ttve": "icgi.elimination.engine:TensorTrainElimination",
    "pt": "icgi.sampling.tempering:ParallelTempering",
    "pa": "icgi.sampling.annealing:PopulationAnnealing",
    "pt-gpu": "icgi.sampling.gpu:GpuTempering",
    "icgi": "icgi.neural.engine:IcgiNetwork",
    "gnn-bp": "icgi.neural.engine:TrainedNetwork",
    "bpnn": "icgi.neural.engine:TrainedNetwork",
    "direct-gnn": "icgi.neural.engine:TrainedNetwork",
    "ensemble": "icgi.neural.engine:Ensemble",
}
"""Where each engine lives; imported only when asked for, so that listing stays cheap."""


def engine_class(name: str) -> Callable[..., Engine]:
    """Return the settings class of an engine."""
    if name not in ENGINES:
        near = did_you_mean(name, ENGINES)
        raise IcgiError(f"unknown engine {name!r}{near}; there are: {', '.join(ENGINES)}")
    module, _, attribute = ENGINES[name].partition(":")
    found: Callable[..., Engine] = getattr(importlib.import_module(module), attribute)
    return found


def parse_engine(text: str) -> Engine:
    """Engine from its text form, `lbp:damping=0.5,schedule=residual` or `icgi:fast`."""
    name, _, rest = text.partition(":")
    make = engine_class(name)
    return make(**_settings(name, make, rest))


@functools.lru_cache(maxsize=64)  # reading them takes as long as a small answer
def _settings(name: str, make: Callable[..., Engine], rest: str) -> dict[str, object]:
    """What an engine is made with; making it again looks again at what it needs."""
    known = {f.name: f for f in dataclasses.fields(make)}  # type: ignore[arg-type]
    hints = _hints(make)
    settings = _network(name, make)
    known = {key: field for key, field in known.items() if key not in settings}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            key, value = "variant", key
        if key not in known:
            raise IcgiError(_unknown_option(name, key if equals else item, known))
        settings[key] = _convert(name, key, value, hints[key])
    return settings


def engine_of(given: str | Engine) -> Engine:
    """Engine that a person chose, by its text form or as settings."""
    if isinstance(given, str):
        return parse_engine(given)
    if not callable(given):
        raise IcgiError(
            f"engine={given!r} is no engine; give a name such as 'auto' or 'lbp:damping=0.5', or "
            "the settings of one"
        )
    return given


_LARGEST: dict[object, float] = {int: 2**31 - 1, float: math.inf}  # beyond it kernels overflow


@functools.cache
def _hints(make: Callable[..., Engine]) -> dict[str, object]:
    """Types of an engine's settings; reading them costs as much as a small answer."""
    return typing.get_type_hints(make)


def _network(name: str, make: Callable[..., Engine]) -> dict[str, object]:
    """Setting of engines that differ by a network only: their name says which, no option does."""
    fields = dataclasses.fields(make)  # type: ignore[arg-type]
    return {"network": name} if any(field.name == "network" for field in fields) else {}


def _unknown_option(engine: str, key: str, known: Iterable[str]) -> str:
    near = did_you_mean(key, known)
    options = ", ".join(known) or "none"
    return f"engine {engine!r} has no option {key!r}{near}; its options are: {options}"


def _convert(engine: str, key: str, text: str, hint: object) -> object:
    """Read an option's text as the type its field declares; the first that fits of a union."""
    near = ""
    for kind in _kinds(hint):
        if typing.get_origin(kind) is typing.Literal:
            if text in (words := _words(kind)):
                return text
            near = did_you_mean(text, words)
        elif kind is bool:
            if text.lower() in ("true", "yes", "1", "false", "no", "0"):
                return text.lower() in ("true", "yes", "1")
        elif kind is type(None):
            if text.lower() == "none":
                return None
        elif kind in (int, float, str):
            try:
                value = kind(text)
            except ValueError:
                continue
            if isinstance(value, str) or abs(value) <= _LARGEST[kind]:  # NaN is not
                return value
    wanted = " or ".join(_describe(kind) for kind in _kinds(hint))
    raise IcgiError(f"engine {engine!r}: option {key}={text!r} should be {wanted}{near}")


def _kinds(hint: object) -> tuple[object, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _words(kind: object) -> list[str]:
    """Words that an option takes; None among them is its default, and no word."""
    return [str(word) for word in typing.get_args(kind) if word is not None]


def _describe(kind: object) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(_words(kind))
    words: dict[object, str] = {
        int: "a whole number", float: "a number", bool: "true or false", type(None): "none"
    }  # fmt: skip
    return words.get(kind, "text")
