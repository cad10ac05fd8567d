"""Name → family: the one dictionary of random models."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from icgi.data.families.factor_graphs import csp, factor
from icgi.data.families.lattice import ea2d, ea3d, grid
from icgi.data.families.potts import potts
from icgi.data.families.presets import PRESETS, Preset
from icgi.data.families.random_graphs import ba, er, ws
from icgi.data.families.sherrington_kirkpatrick import sk
from icgi.data.families.trees import tree
from icgi.model.graph import FactorGraph

__all__ = ["FAMILIES", "PRESETS", "Family", "Preset"]


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
