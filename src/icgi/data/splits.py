"""The paper's train, validation, test and out-of-distribution splits as data.

The role is part of a draw's identity: its random numbers come from its preset, parameters,
realisation and role, so nothing drawn for one role is ever drawn for another.
"""

import enum
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from icgi.data.families import FAMILIES
from icgi.data.families.presets import PRESETS, Parameters, Value
from icgi.errors import IcgiError
from icgi.model.graph import FactorGraph


class Role(enum.Enum):
    """What a model is for."""

    TRAIN = "train"
    VALIDATION = "validation"
    IN_DISTRIBUTION = "in-distribution test"  # configurations of training, draws never seen
    TEST = "test"  # larger systems at temperatures of training
    OOD = "out-of-distribution test"  # colder than training, or another topology


@dataclass(frozen=True, slots=True)
class Rule:
    """The role of configurations in which every listed parameter has one of the listed values."""

    role: Role
    where: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def fits(self, parameters: Parameters) -> bool:
        """Whether the rule speaks of this configuration."""
        return all(parameters[name] in values for name, values in self.where.items())


_COLD = Rule(Role.OOD, {"beta": (2.0, 3.0, 5.0)})
_TRAIN = Rule(Role.TRAIN)
_EA2D = (_COLD, Rule(Role.TEST, {"L": (50, 100)}), _TRAIN)
_EA3D = (_COLD, Rule(Role.TEST, {"L": (10, 12)}), _TRAIN)

SPLITS: dict[str, tuple[Rule, ...]] = {
    "sk-paper": (_COLD, Rule(Role.OOD, {"n": (500, 1000)}), _TRAIN),
    "ea2d-paper": _EA2D,
    "ea3d-paper": _EA3D,
    "ea2d-zero-field": _EA2D,
    "ea3d-zero-field": _EA3D,
    "grid-paper": (_TRAIN,),
    "tree-paper": (_TRAIN,),
    "er-paper": (_TRAIN,),
    "ba-paper": (Rule(Role.OOD),),
    "ws-paper": (Rule(Role.OOD),),
}
"""Rules of each preset, the first that fits counts."""

SHARES = {Role.TRAIN: 0.7, Role.VALIDATION: 0.1, Role.IN_DISTRIBUTION: 0.2}
"""Paper: 70/10/20 of the UAI instances; here also of a training configuration's realisations."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One generated model of a data set, by name; `sample` makes it."""

    preset: str
    parameters: tuple[tuple[str, Value], ...]
    realisation: int
    role: Role

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal characters that identify the draw."""
        values = " ".join(f"{name}={value}" for name, value in self.parameters)
        text = f"{self.preset} {values} #{self.realisation} {self.role.value}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def rng(self) -> Generator:
        """Return the generator that belongs to this draw and no other."""
        return np.random.default_rng(int(self.digest, 16))

    def sample(self) -> FactorGraph:
        """Draw the model; the same one every time."""
        family = FAMILIES[PRESETS[self.preset].family]
        return family.sample(self.rng(), **dict(self.parameters))


def draws(preset: str, role: Role | None = None) -> Iterator[Draw]:
    """Draws of a preset, all of them or those of one role."""
    if preset not in PRESETS:
        raise IcgiError(f"unknown preset {preset!r}; there are: {', '.join(PRESETS)}")
    count = PRESETS[preset].realisations
    for parameters in PRESETS[preset].configurations():
        shared = configuration_role(preset, parameters)
        for realisation in range(count):
            own = share(realisation, count) if shared is Role.TRAIN else shared
            if role is None or own is role:
                yield Draw(preset, tuple(parameters.items()), realisation, own)


def configuration_role(preset: str, parameters: Parameters) -> Role:
    """Role of a configuration; one for training is divided further by realisation."""
    return next(rule.role for rule in SPLITS[preset] if rule.fits(parameters))


def stratified(families: Mapping[str, str], only_test: Iterable[str] = ()) -> dict[str, Role]:
    """Roles of named files, 70/10/20 within each family, in an order fixed by their names.

    Paper (UAI-22): vision models of more than 10,000 variables are kept for testing: `only_test`.
    """
    roles = dict.fromkeys(only_test, Role.TEST)
    for family in sorted(set(families.values())):
        names = [name for name in families if families[name] == family and name not in roles]
        names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
        roles.update({name: share(k, len(names)) for k, name in enumerate(names)})
    return roles


def leave_one_out(names: Iterable[str]) -> Iterator[tuple[list[str], str]]:
    """Names to train on and the one to test on, each in turn (paper: the 21 proteins)."""
    everyone = list(names)
    for k, name in enumerate(everyone):
        yield everyone[:k] + everyone[k + 1 :], name


def share(k: int, count: int) -> Role:
    """Role of the k-th of `count` items: the shares in order."""
    end = 0.0
    for role, share in SHARES.items():
        end += share
        if k < round(end * count):
            return role
    return Role.IN_DISTRIBUTION
