"""Where calibration models come from: built-in families, a labelled set, real collections.

A built-in set is a list of families with ranges of size and coupling; every model has an exact
reference by junction tree in a fraction of a second. Its three roles have random streams of their
own: models to choose scales with, models to calibrate with, and fresh ones to check the promise on.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from icgi.model.condition import Evidence, condition
from icgi.model.graph import FactorGraph, FloatArray
from icgi.sampling.snapshots import tempered_states
from icgi.sampling.tempering import ParallelTempering

Role = Literal["tune", "calibrate", "report"]
ROLES: tuple[Role, ...] = ("tune", "calibrate", "report")
COUNTS: Mapping[Role, int] = {"tune": 10, "calibrate": 64, "report": 30}  # of each family
# Times as many where most are answered exactly by the engine that the family is for.
MORE: Mapping[tuple[str, Role], int] = {("wider er", "calibrate"): 3, ("wider er", "report"): 2}
# Real families with enough instances for a group of their own, and the largest instances taken.
REAL = ("uai2014-objectdetection", "uai2008-sidechain", "uai2014-promedus")
MOST_REAL = 700
FEWEST_REAL = 60  # of a family to calibrate, with the observed ones
OBSERVED = (0.05, 0.3)  # share of the variables of a real model that are observed
_OBSERVED = "-observed-"


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
TEMPERED = 300  # sweeps before the configuration that observed states are taken from

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


def cases(
    name: str, roles: tuple[Role, ...], scale: float = 1.0, real: Sequence[str] | None = None
) -> Iterator[Case]:
    """Models of a set: a built-in one, or the folder of a labelled set.

    With a built-in one come real models, where ICGI_DATA names a folder of them; `real` are
    families of them to calibrate on, all of `REAL` if absent. `scale` takes a share of the built-in
    families, for tests and first tries.
    """
    known = [_short(family) for family in REAL]
    if unknown := set(real or ()) - set(known):
        raise IcgiError(
            f"there are no real models {sorted(unknown)[0]!r} to calibrate on; there are "
            f"{', '.join(known)}"
        )
    if name in FAMILIES_OF:
        for role in roles:
            for k in range(max(1, round(most_of(name, role) * scale))):
                for family in FAMILIES_OF[name]:
                    if k < max(1, round(count_of(family, role) * scale)):
                        yield made(family, role, k)
            if scale >= 1.0:
                yield from _real(role, known if real is None else real)
        return
    if not (Path(name) / "manifest.json").is_file():
        raise IcgiError(
            f"{name!r} is neither a built-in calibration set ({', '.join(FAMILIES_OF)}) nor the "
            "folder of a labelled set; icgi label makes one"
        )
    yield from _labelled(LabelledSet(name), roles)


def count_of(family: str, role: Role) -> int:
    """Models of a built-in family in a role."""
    return COUNTS[role] * MORE.get((family, role), 1)


def most_of(name: str, role: Role) -> int:
    """Models of the largest family of a built-in set in a role."""
    return max(count_of(family, role) for family in FAMILIES_OF[name])


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
    rng = _stream(name)
    parameters = _draw(rng)[family]()
    generator = GENERATOR.get(family, family.removeprefix("large ").removeprefix("wider "))
    return FAMILIES[generator].sample(rng, **parameters), rng


def _stream(name: str) -> Generator:
    """Random stream of a case."""
    return np.random.default_rng(int(hashlib.sha256(name.encode()).hexdigest()[:16], 16))


def _labelled(stored: LabelledSet, roles: tuple[Role, ...]) -> Iterator[Case]:
    """Labelled instances, each with the role that its name draws: one in eight tunes."""
    for each in stored:
        digest = hashlib.sha256(each.identity.name.encode()).digest()
        role: Role = "tune" if digest[0] % 8 == 0 else "calibrate"
        if role in roles:
            known = Known(each.model, each.identity.evidence, each.label.probs,
                          each.label.std_error)  # fmt: skip
            yield Case(each.identity.name, each.identity.family, role, partial(_as_it_is, known))


def _real(role: Role, wanted: Sequence[str]) -> Iterator[Case]:
    """Published instances of moderate size with a reference, and the same newly observed.

    Those of families of many instances calibrate, as published and observed so often that there are
    enough of a family. Observed once more they are met when the promise is checked, and so are
    those of other families.
    """
    folder = data_folder()
    if folder is None or role == "tune":
        return
    moderate = [
        each
        for each in instances(folder)
        if each.tractable and int(each.row["n_vars"]) <= MOST_REAL and each.has_reference
    ]
    for family in dict.fromkeys(each.family for each in moderate):
        own = [each for each in moderate if each.family == family]
        named = f"real: {_short(family)}"
        if family in REAL and _short(family) not in wanted:
            continue
        if (family in REAL) == (role == "calibrate"):
            for each in own:
                yield Case(each.name, named, role, partial(_published, each))
        if family in REAL:
            for k in range(1 if role == "report" else math.ceil(FEWEST_REAL / len(own)) - 1):
                for each in own:
                    name = f"{each.name}{_OBSERVED}{role}-{k}"
                    yield Case(name, named, role, partial(_observed, each, name))


def _short(family: str) -> str:
    """Family without the year of its collection."""
    return family.partition("-")[2]


def published_name(name: str) -> str:
    """Name of the published instance behind a case; that of the case where there is none."""
    return name.partition(_OBSERVED)[0]


def _observed(each: Instance, name: str) -> Known:
    """The instance with some variables observed, in states of one configuration of tempering."""
    rng = _stream(name)
    model, given = each.model(), each.evidence()
    asked = condition(model, given)
    budget = Budget(iterations=TEMPERED)
    _, x, _ = tempered_states(asked.model, ParallelTempering(), budget, rng, most=2)
    states = x.reshape(-1, model.n_variables)[-1]
    alive = np.argsort(~asked.alive, axis=1, kind="stable")  # n k  possible states come first
    free = np.flatnonzero(asked.model.cards > 1)
    count = max(1, round(float(rng.uniform(*OBSERVED)) * len(free)))
    seen = np.sort(rng.choice(free, count, replace=False)).tolist()
    evidence = {**given, **{i: int(alive[i, states[i]]) for i in seen}}
    exact = infer(model, evidence, JunctionTree(), Budget(table_bytes=REFERENCES), rng)
    return Known(model, evidence, exact.probs)


def _as_it_is(known: Known) -> Known:
    return known


def _published(each: Instance) -> Known:
    model, rows = each.model(), each.reference()
    assert rows is not None
    probs = np.zeros((model.n_variables, model.max_states))
    for i, row in enumerate(rows):
        probs[i, : len(row)] = row
    return Known(model, each.evidence(), probs)
