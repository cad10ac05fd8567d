"""Name → family: the one dictionary of random models."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from icgi.data.families.factor_graphs import csp, factor
from icgi.data.families.lattice import ea2d, ea3d, grid
from icgi.data.families.potts import potts
from icgi.data.families.presets import PRESETS, Preset
from icgi.data.families.random_graphs import ba, er, ws
from icgi.data.families.sherrington_kirkpatrick import sk
from icgi.data.families.trees import tree
from icgi.errors import IcgiError
from icgi.model.graph import FactorGraph
from icgi.wording import did_you_mean

__all__ = ["FAMILIES", "PRESETS", "Family", "Preset", "family_of", "read_parameters"]


@dataclass(frozen=True, slots=True)
class Family:
    """A function `(rng, **parameters) -> FactorGraph`, and what its text says about it."""

    sample: Callable[..., FactorGraph]

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return (inspect.getdoc(self.sample) or "").partition("\n")[0]

    @property
    def parameters(self) -> Mapping[str, int | float | str | bool]:
        """Parameters and their defaults, in the order of the signature."""
        signature = inspect.signature(self.sample).parameters
        return {name: p.default for name, p in signature.items() if name != "rng"}


FAMILIES: dict[str, Family] = {
    "grid": Family(grid),
    "tree": Family(tree),
    "er": Family(er),
    "ba": Family(ba),
    "ws": Family(ws),
    "sk": Family(sk),
    "ea2d": Family(ea2d),
    "ea3d": Family(ea3d),
    "potts": Family(potts),
    "factor": Family(factor),
    "csp": Family(csp),
}


def family_of(name: str) -> Family:
    """Return a family by its name."""
    if name not in FAMILIES:
        near = did_you_mean(name, FAMILIES)
        raise IcgiError(f"unknown family {name!r}{near}; there are: {', '.join(FAMILIES)}")
    return FAMILIES[name]


def read_parameters(name: str, given: Iterable[str]) -> dict[str, object]:
    """Parameters of a family from texts such as `n=100`, as the types of their defaults."""
    known = family_of(name).parameters
    settings: dict[str, object] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or key not in known:
            choices = ", ".join(f"{key}={value}" for key, value in known.items())
            raise IcgiError(
                f"family {name!r} does not understand {text!r}{did_you_mean(key, known)}; its "
                f"parameters are: {choices}"
            )
        settings[key] = _read(key, value, known[key])
    return settings


def _read(key: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        if text.lower() in ("true", "yes", "1", "false", "no", "0"):
            return text.lower() in ("true", "yes", "1")
        raise IcgiError(f"{key}={text!r} should be true or false")
    for kind, wanted in ((int, "a whole number"), (float, "a number")):
        if isinstance(default, kind):
            try:
                return kind(text)
            except ValueError:
                raise IcgiError(f"{key}={text!r} should be {wanted}") from None
    return text
