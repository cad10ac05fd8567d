"""The paper's generated data sets (Datasets): a family, values of its parameters, realisations."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

Value: TypeAlias = int | float | str | bool
Parameters: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Preset:
    """All combinations of the listed values, each with `realisations` random draws."""

    family: str
    grid: Mapping[str, tuple[Value, ...]]
    realisations: int
    ours: tuple[str, ...] = ()  # what the paper leaves open and is chosen here

    def configurations(self) -> Iterator[dict[str, Value]]:
        """Every combination of parameter values, the last parameter fastest."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    def __len__(self) -> int:
        return self.realisations * sum(1 for _ in self.configurations())


_HOT = (0.5, 1.0, 1.5)
_EA_BETA = (*_HOT, 2.0, 3.0, 5.0)
_DISORDER = ("gaussian", "bimodal")
_TOPOLOGY = ("n", "beta", "field", "realisations")


def _edwards_anderson(family: str, lengths: tuple[int, ...], field: float) -> Preset:
    # Paper: no field. It makes every exact marginal ½, so `-paper` has a field of 0.1 and
    # `-zero-field` is the paper's to the letter, as a test of symmetry.
    grid: dict[str, tuple[Value, ...]] = {
        "L": lengths,
        "beta": _EA_BETA,
        "disorder": _DISORDER,
        "field": (field,),
    }
    return Preset(family, MappingProxyType(grid), 50, ours=("field", "boundary"))


PRESETS: dict[str, Preset] = {
    "sk-paper": Preset(
        "sk",
        MappingProxyType(
            {
                "n": (50, 100, 200, 500, 1000),
                "beta": (0.5, 1.0, 1.5, 2.0, 3.0),
                "h": (0.0, 0.1, 0.5),
            }
        ),
        100,
    ),
    "ea2d-paper": _edwards_anderson("ea2d", (10, 20, 30, 50, 100), 0.1),
    "ea3d-paper": _edwards_anderson("ea3d", (4, 6, 8, 10, 12), 0.1),
    "ea2d-zero-field": _edwards_anderson("ea2d", (10, 20, 30, 50, 100), 0.0),
    "ea3d-zero-field": _edwards_anderson("ea3d", (4, 6, 8, 10, 12), 0.0),
    "grid-paper": Preset(
        "grid",
        MappingProxyType({"rows": (10, 20, 30), "columns": (10, 20, 30), "beta": _HOT}),
        100,
        ours=("rows and columns below 30", "beta", "field", "realisations"),
    ),
    "tree-paper": Preset(
        "tree",
        MappingProxyType({"n": (50, 100, 200), "arity": (2, 3), "beta": _HOT}),
        100,
        ours=(*_TOPOLOGY, "arity"),
    ),
    "er-paper": Preset(
        "er",
        MappingProxyType({"n": (50, 100, 200), "p": (0.05, 0.1, 0.2), "beta": _HOT}),
        100,
        ours=_TOPOLOGY,
    ),
    "ba-paper": Preset(
        "ba",
        MappingProxyType({"n": (50, 100, 200), "m": (2, 3), "beta": (*_HOT, 2.0)}),
        100,
        ours=(*_TOPOLOGY, "m"),
    ),
    "ws-paper": Preset(
        "ws",
        MappingProxyType({"n": (50, 100, 200), "k": (4, 6), "p": (0.1, 0.3), "beta": (*_HOT, 2.0)}),
        100,
        ours=(*_TOPOLOGY, "k", "p"),
    ),
}
