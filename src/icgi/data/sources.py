"""Where the models of a set come from: a preset of the paper, a published collection, a folder."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from icgi.data.collection import instances
from icgi.data.families import FAMILIES, PRESETS
from icgi.data.splits import Draw, Role, draws, share, stratified
from icgi.data.store import SHIPPED, Identity
from icgi.errors import IcgiError
from icgi.model.formats import is_model, read
from icgi.model.formats.uai import read_evidence
from icgi.model.graph import FactorGraph

Scale = Literal["smoke", "small", "paper"]
Instances = Iterator[tuple[Identity, FactorGraph]]
MOST_VARIABLES = {"smoke": 100, "small": 400, "paper": 10**9}
RECIPE: tuple[tuple[str, dict[str, int | float]], ...] = (
    ("grid", {"rows": 5, "columns": 5}),
    ("tree", {"n": 20}),
    ("er", {"n": 20, "p": 0.2}),
    ("ba", {"n": 20, "m": 2}),
    ("ws", {"n": 20, "k": 4}),
    ("sk", {"n": 16}),
    ("sk", {"n": 40, "h": 0.5}),  # too many for exact: a sampled label
    ("ea2d", {"L": 6}),
    ("ea3d", {"L": 3}),
    ("potts", {"L": 4}),
    ("factor", {"n": 15}),
    ("csp", {"n": 15}),
)
"""Families of the set that comes with the package, ten draws each."""


def source(name: str, scale: Scale = "small") -> Instances:
    """Instances of a preset, or of a folder that holds `manifest.csv` or model files."""
    if name in PRESETS:
        return preset(name, scale)
    if name == SHIPPED.name and not Path(name).exists():
        return recipe()
    folder = Path(name)
    if (folder / "manifest.csv").is_file():
        return collection(folder)
    if folder.is_dir() and any(map(is_model, folder.iterdir())):
        return files(folder)
    raise IcgiError(
        f"{name!r} is neither a set, nor a preset ({', '.join(PRESETS)}, shipped), nor a folder "
        "with model files (.uai, .bif, …) or a manifest.csv"
    )


def preset(name: str, scale: Scale) -> Instances:
    """Draws of a preset: all of them (paper), or a few of its smaller configurations.

    `small` takes three realisations per configuration of up to 400 variables, one for training,
    one for validation and one for testing where the paper trains on it; `smoke` takes the first of
    every fifth configuration of up to 100 variables.
    """
    count = PRESETS[name].realisations
    chosen = {"smoke": {0}, "small": {0, round(0.75 * count), count - 1}}.get(scale)
    for k, draw in enumerate(d for d in draws(name) if chosen is None or d.realisation in chosen):
        if scale == "smoke" and k % 5:  # prime to how many values each parameter has but one
            continue
        if scale != "paper" and _variables(draw) > MOST_VARIABLES[scale]:
            continue
        yield _identity(draw), draw.sample()


def recipe(count: int = 10) -> Instances:
    """Models of the set that comes with the package; topologies kept for testing are there too."""
    for family, parameters in RECIPE:
        values = "-".join(f"{key}{value}" for key, value in parameters.items())
        for k in range(count):
            role = Role.OOD if family in ("ba", "ws") else share(k, count)
            name = f"shipped-{family}-{values}-{k}"
            seed = int(hashlib.sha256(name.encode()).hexdigest()[:16], 16)
            model = FAMILIES[family].sample(np.random.default_rng(seed), **parameters)
            yield Identity(name, family, role.value, parameters), model


def collection(folder: Path) -> Instances:
    """Published instances with their evidence; split 70/10/20 within each family."""
    everything = list(instances(folder))
    roles = stratified({i.name: i.family for i in everything})
    for instance in everything:
        identity = Identity(
            instance.name, instance.family, roles[instance.name].value, {}, instance.evidence()
        )
        yield identity, instance.model()


def files(folder: Path) -> Instances:
    """Every model file of a folder, with the `.evid` file beside it where there is one."""
    for path in sorted(filter(is_model, folder.iterdir())):
        model = read(path)
        evidence = path.with_name(path.name.removesuffix(".gz") + ".evid")
        observed = read_evidence(evidence, model) if evidence.is_file() else {}
        yield Identity(path.name, folder.name, evidence=observed), model


def _identity(draw: Draw) -> Identity:
    values = "-".join(f"{key}{value}" for key, value in draw.parameters)
    return Identity(
        f"{draw.preset}-{values}-{draw.realisation}",
        PRESETS[draw.preset].family,
        draw.role.value,
        dict(draw.parameters),
    )


def _variables(draw: Draw) -> int:
    """Number of variables, from the parameters alone: a model may be too large to draw."""
    family = PRESETS[draw.preset].family
    values = {**FAMILIES[family].parameters, **dict(draw.parameters)}
    if "L" in values:
        return int(values["L"]) ** (3 if family == "ea3d" else 2)
    if "rows" in values:
        return int(values["rows"]) * int(values["columns"])
    return int(values["n"])
