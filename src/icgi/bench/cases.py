"""Where the models of tables come from: draws that nobody trains on, and published instances."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np

from icgi.bench.table import Case
from icgi.data.batches import padded
from icgi.data.collection import Instance, data_folder, instances
from icgi.data.families import FAMILIES
from icgi.data.families.presets import Value
from icgi.data.jobs.job import Question
from icgi.data.splits import Draw, Role, stratified
from icgi.data.store import SHIPPED, Labelled, LabelledSet
from icgi.errors import IcgiError

SMALL, MEDIUM = 100, 1000  # variables: the paper's sizes end there
PROTEINS = ("uai2008-sidechain", "uai2012-proteinfolding")
FAMILIES_OF_THE_PAPER: dict[str, str] = {
    "uai2014-grids": "Grid MRFs",
    "uai2014-segmentation": "Grid MRFs",
    "uai2014-objectdetection": "Grid MRFs",
    "uai2012-grids": "Grid MRFs",
    "uai2014-dbn": "Bayes nets",
    "uai2014-pedigree": "Bayes nets",
    "uai2014-linkage": "Bayes nets",
    "uai2022names-bn": "Bayes nets",
    "uai2014-promedus": "Promedas",
    "uai2012-promedas": "Promedas",
    "uai2022names-promedas": "Promedas",
    "uai2014-csp": "Random FGs",
    "uai2014-alchemy": "Random FGs",
    "uai2014-relational": "Random FGs",
    "uai2012-proteinprotein": "Random FGs",
}
"""Family of the collection → the paper's family (docs/bench.md says why)."""


def drawn(
    group: str, preset: str, count: int, role: Role = Role.OOD, **parameters: Value
) -> list[Case]:
    """Draws of a role that nothing is trained on, also of sizes that the preset does not list."""
    if role in (Role.TRAIN, Role.VALIDATION):
        raise IcgiError(f"{role.value} draws are no part of a table")
    made = []
    for k in range(count):
        draw = Draw(preset, tuple(parameters.items()), k, role)
        values = " ".join(f"{name}={value}" for name, value in parameters.items())
        name = f"{preset} {values} #{k}"
        made.append(Case(name, group, partial(_sampled, name, draw), {"draw": draw.digest}))
    return made


def _sampled(name: str, draw: Draw) -> Question:
    return Question(name, draw.sample())


def of_family(group: str, family: str, **parameters: Value) -> Case:
    """One model of a family that has no preset."""
    values = " ".join(f"{name}={value}" for name, value in parameters.items())
    name = f"{family} {values}"
    return Case(name, group, partial(_of_family, name, family, parameters))


def _of_family(name: str, family: str, parameters: dict[str, Value]) -> Question:
    seed = int(hashlib.sha256(f"bench {name}".encode()).hexdigest()[:16], 16)
    return Question(name, FAMILIES[family].sample(np.random.default_rng(seed), **parameters))


def size_of(variables: int) -> str:
    """The paper's sizes of UAI models."""
    return "small" if variables <= SMALL else "medium" if variables <= MEDIUM else "large"


def published(
    group: Callable[[Instance], str | None], among: Callable[[Instance], bool] = lambda each: True
) -> list[Case]:
    """Instances of the collection of ICGI_DATA to which `group` gives a row."""
    found = collection()
    roles = stratified({each.name: each.family for each in found})
    made = []
    for each in found:
        row = group(each)
        if row is not None and among(each):
            about = {
                "family": each.family,
                "size": size_of(int(each.row["n_vars"])),
                "split": roles[each.name].value,
            }
            made.append(Case(each.name, row, partial(question_of, each), about))
    return made


def few(cases: Iterable[Case], most: int) -> list[Case]:
    """At most so many cases of each row, in turn from each family and size.

    Within those in the order of a hash of their names: by nothing that has to do with results.
    """
    kept: list[Case] = []
    rows: dict[str, dict[tuple[str, str], list[Case]]] = {}
    for case in sorted(cases, key=lambda c: hashlib.sha256(c.name.encode()).hexdigest()):
        kind = str(case.about.get("family", "")), str(case.about.get("size", ""))
        rows.setdefault(case.group, {}).setdefault(kind, []).append(case)
    for kinds in rows.values():
        turns = [[kinds[k][turn] for k in sorted(kinds) if turn < len(kinds[k])]
                 for turn in range(max(map(len, kinds.values())))]  # fmt: skip
        kept += [case for turn in turns for case in turn][:most]
    return kept


def question_of(each: Instance) -> Question:
    """Model, evidence and trustworthy reference of a published instance."""
    model, rows = each.model(), each.reference()
    reference = None if rows is None else padded(rows, model, each.name)
    return Question(each.name, model, each.evidence(), reference)


@cache
def collection() -> tuple[Instance, ...]:
    """Every published instance; refuses where there is no collection."""
    folder = data_folder()
    if folder is None:
        raise IcgiError(
            "this table is about published instances; set ICGI_DATA to the folder that holds "
            "their manifest.csv (docs/data.md)"
        )
    return tuple(instances(folder))


def shipped(group: Callable[[Labelled], str | None], most: int) -> list[Case]:
    """Labelled instances that come with the package, at most so many of each row."""
    count: dict[str, int] = {}
    made = []
    for each in _shipped():
        row = group(each)
        if row is None or count.get(row, 0) >= most:
            continue
        count[row] = count.get(row, 0) + 1
        about = {"family": each.identity.family, "split": each.identity.split}
        made.append(Case(each.identity.name, row, partial(_labelled, each), about))
    return made


def _labelled(each: Labelled) -> Question:
    error = 0.0 if each.label.std_error is None else float(each.label.std_error.sum(1).mean())
    return Question(each.identity.name, each.model, each.identity.evidence, each.label.probs, error)


@cache
def _shipped() -> tuple[Labelled, ...]:
    return tuple(_read(SHIPPED))


def _read(folder: Path) -> Iterator[Labelled]:
    yield from LabelledSet(folder)
