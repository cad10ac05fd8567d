"""Where calibration models come from: built-in families, a labelled set, real collections.

A built-in set is a list of families with ranges of size and coupling; every model has an exact
reference by junction tree in a fraction of a second. Its three roles have random streams of their
own: models to choose scales with, models to calibrate with, and fresh ones to check the promise on.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from icgi.data.collection import Instance, data_folder, instances
from icgi.data.families import FAMILIES
from icgi.data.store import LabelledSet
from icgi.errors import IcgiError
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, infer
from icgi.model.condition import Evidence
from icgi.model.graph import FactorGraph, FloatArray

Role = Literal["tune", "calibrate", "report"]
ROLES: tuple[Role, ...] = ("tune", "calibrate", "report")
COUNTS: Mapping[Role, int] = {"tune": 10, "calibrate": 64, "report": 30}  # of each family
# Real families with enough instances for a group of their own, and the largest instances taken.
REAL = ("uai2014-objectdetection", "uai2008-sidechain", "uai2014-promedus")
MOST_REAL = 700


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One calibration model; the truth about it is found when it is asked for."""

    name: str
    family: str
    role: Role
    load: Callable[[], "Known"]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A model with its evidence and true marginals."""

    model: FactorGraph
    evidence: Evidence
    probs: FloatArray  # n k
    error: FloatArray | None = None  # n k  standard error of the reference; None where exact


def _beta(rng: Generator) -> float:
    return math.exp(rng.uniform(math.log(0.3), math.log(2.5)))


def _draw(rng: Generator) -> Mapping[str, Callable[[], dict[str, Any]]]:
    whole = rng.integers

    def common() -> dict[str, Any]:
        return {"beta": _beta(rng), "field": float(rng.uniform(0.1, 0.8))}

    return {
        "tree": lambda: common() | {"n": int(whole(10, 81)), "states": int(whole(2, 4))},
        "grid": lambda: common() | dict.fromkeys(("rows", "columns"), int(whole(4, 15))),
        "er": lambda: _sparse(common(), int(whole(14, 61)), rng.uniform(3.0, 5.0)),
        "sk": lambda: {"n": int(whole(8, 20)), "beta": _beta(rng), "h": float(rng.uniform(0, 0.5))},
        "ea3d": lambda: common() | {"L": int(whole(3, 5))},
        "potts": lambda: common() | {"L": int(whole(3, 9))},
        "factor": lambda: common() | {"n": int(whole(10, 51))},
        "csp": lambda: {
            "n": int(whole(10, 46)),
            "density": float(rng.uniform(1.0, 1.8)),
            "beta": float(rng.uniform(0.0, 1.0)),
        },
        # too wide for dense tables: of these `auto` without exact inference knows few exactly
        "large grid": lambda: common() | dict.fromkeys(("rows", "columns"), int(whole(17, 20))),
        "large er": lambda: _sparse(common(), int(whole(88, 106)), rng.uniform(3.8, 4.4)),
        "large sk": lambda: {
            "n": int(whole(19, 23)),
            "beta": _beta(rng),
            "h": float(rng.uniform(0, 0.5)),
        },
        "large ea3d": lambda: common() | {"L": 4},
        "large potts": lambda: common() | {"L": int(whole(11, 13))},
        "large factor": lambda: common() | {"n": int(whole(70, 87))},
        "large csp": lambda: {
            "n": int(whole(50, 59)),
            "density": 1.5,
            "beta": float(rng.uniform(0.0, 1.0)),
        },
        # so wide that a junction tree takes longer than an elimination by a network
        "wider sk": lambda: {
            "n": int(whole(23, 26)),
            "beta": _beta(rng),
            "h": float(rng.uniform(0, 0.5)),
        },
        "wider er": lambda: _sparse(common(), int(whole(106, 117)), rng.uniform(3.8, 4.4)),
        "wider ea3d": lambda: common() | {"L": 5},
        # families that are not calibrated, to see whether the answer says so
        "ba": lambda: common() | {"n": int(whole(20, 61)), "m": 2},
        "ws": lambda: common() | {"n": int(whole(20, 61)), "k": 4},
        "cold": lambda: common() | {"rows": 8, "columns": 8, "beta": float(rng.uniform(4.0, 8.0))},
        "tight": lambda: {"n": 28, "density": 2.4, "tightness": 0.4, "beta": 1.0},
        "wide": lambda: {"n": 24, "density": 1.0, "arity": 4, "states": 4, "beta": _beta(rng)},
        "larger": lambda: common() | {"L": 20},
        "denser": lambda: _sparse(common(), int(whole(20, 33)), rng.uniform(6.0, 10.0)),
        "cold er": lambda: _sparse(
            common() | {"beta": float(rng.uniform(4.0, 8.0))},
            int(whole(14, 61)),
            rng.uniform(3.0, 5.0),
        ),
    }


def _sparse(parameters: dict[str, Any], n: int, degree: float) -> dict[str, Any]:
    return parameters | {"n": n, "p": degree / (n - 1)}


REFERENCES = 2**33  # bytes of tables that an exact reference may take

FAMILIES_OF: Mapping[str, tuple[str, ...]] = {
    "mixed": ("tree", "grid", "er", "sk", "ea3d", "potts", "factor", "csp"),
    "hard": (
        "large grid", "large er", "large sk", "large ea3d", "large potts", "large factor",
        "large csp",
    ),
    "wider": ("wider sk", "wider er", "wider ea3d"),
}  # fmt: skip
"""Built-in sets and their families; `hard` is for engines that are exact on smaller models, `wider`
for `icgi:fast`, which is exact on those, too."""

OUTSIDE = ("ba", "ws", "cold", "tight", "wide", "larger", "denser", "cold er")
"""Families that no built-in set has."""

GENERATOR = {
    "cold": "grid", "tight": "csp", "wide": "factor", "larger": "ea2d", "denser": "er",
    "cold er": "er",
}  # fmt: skip


def cases(name: str, roles: tuple[Role, ...], scale: float = 1.0) -> Iterator[Case]:
    """Models of a set: a built-in one, or the folder of a labelled set.

    With a built-in one come real models, where ICGI_DATA names a folder of them. `scale` takes a
    share of the built-in families, for tests and first tries.
    """
    if name in FAMILIES_OF:
        for role in roles:
            for k in range(max(1, round(COUNTS[role] * scale))):
                for family in FAMILIES_OF[name]:
                    yield made(family, role, k)
            if scale >= 1.0:
                yield from _real(role)
        return
    if not (Path(name) / "manifest.json").is_file():
        raise IcgiError(
            f"{name!r} is neither a built-in calibration set ({', '.join(FAMILIES_OF)}) nor the "
            "folder of a labelled set; icgi label makes one"
        )
    yield from _labelled(LabelledSet(name), roles)


def made(family: str, role: Role, k: int) -> Case:
    """Random model number k of a family in a role."""
    name = f"{family.replace(' ', '-')}-{role}-{k}"
    return Case(name, family, role, partial(_solved, name, family))


def _solved(name: str, family: str) -> Known:
    model, rng = drawn_model(name, family)
    exact = infer(model, {}, JunctionTree(), Budget(table_bytes=REFERENCES), rng)
    return Known(model, {}, exact.probs)


def drawn_model(name: str, family: str) -> tuple[FactorGraph, Generator]:
    """Random model of a family by its name, and the stream that it was drawn from."""
    seed = int(hashlib.sha256(name.encode()).hexdigest()[:16], 16)
    rng = np.random.default_rng(seed)
    parameters = _draw(rng)[family]()
    generator = GENERATOR.get(family, family.removeprefix("large ").removeprefix("wider "))
    return FAMILIES[generator].sample(rng, **parameters), rng


def _labelled(stored: LabelledSet, roles: tuple[Role, ...]) -> Iterator[Case]:
    """Labelled instances, each with the role that its name draws: one in eight tunes."""
    for each in stored:
        digest = hashlib.sha256(each.identity.name.encode()).digest()
        role: Role = "tune" if digest[0] % 8 == 0 else "calibrate"
        if role in roles:
            known = Known(each.model, each.identity.evidence, each.label.probs,
                          each.label.std_error)  # fmt: skip
            yield Case(each.identity.name, each.identity.family, role, partial(_as_it_is, known))


def _real(role: Role) -> Iterator[Case]:
    """Published instances of moderate size with a reference.

    Families of many instances calibrate, the others are met when the promise is checked.
    """
    folder = data_folder()
    if folder is None or role == "tune":
        return
    for each in instances(folder):
        moderate = each.tractable and int(each.row["n_vars"]) <= MOST_REAL
        if moderate and each.has_reference and (each.family in REAL) == (role == "calibrate"):
            family = "real: " + each.family.partition("-")[2]
            yield Case(each.name, family, role, partial(_published, each))


def _as_it_is(known: Known) -> Known:
    return known


def _published(each: Instance) -> Known:
    model, rows = each.model(), each.reference()
    assert rows is not None
    probs = np.zeros((model.n_variables, model.max_states))
    for i, row in enumerate(rows):
        probs[i, : len(row)] = row
    return Known(model, each.evidence(), probs)
