"""Definition of a table as data: questions, engines, the paper's claims, scales of a run."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from icgi.data.jobs.answers import WORK
from icgi.data.jobs.job import Question

ScaleName = Literal["smoke", "small", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "small", "paper")
SEEDS = (42, 123, 456, 789, 1024)
"""The paper's seeds."""

DID_NOT_CONVERGE, OUT_OF_MEMORY = "DNC", "OOM"
Claim = float | str
"""A number that the paper prints, or the word in its place."""


@dataclass(frozen=True, slots=True)
class Case:
    """One model of a table; it is made or read when its turn comes.

    Where `load` brings no reference one is computed first, if the table needs any.
    """

    name: str
    group: str  # row of the table
    load: Callable[[], Question]
    about: Mapping[str, Any] = field(default_factory=dict)  # more words for its lines


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a line: its key there, its name in the table, and which way is better."""

    key: str
    title: str
    larger_is_better: bool = False
    digits: int = 3


@dataclass(frozen=True, slots=True)
class Column:
    """A method: engines by their text form; of several, a row shows the best by the mean."""

    title: str
    engines: tuple[str, ...]
    random: bool = False  # asked with every seed
    trained: bool = False  # has weights of every seed, which are asked in turn
    claimed_as: str = ""  # the paper's column, where it has one
    work: str = WORK
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A group of cases, and the paper's row that it stands beside."""

    group: str
    claimed_as: str = ""
    differs: str = ""  # from the paper's row, in words


@dataclass(frozen=True, slots=True)
class Device:
    """How far two runs of `pt-gpu` go, all models of a row at once, where there is a device."""

    sweeps: int
    seconds: float  # of each run
    ensembles: int = 16
    patient: Mapping[str, float] = field(default_factory=dict)  # rows with so many times those
    hottest: Mapping[str, float] = field(default_factory=dict)  # rows with a shorter ladder


@dataclass(frozen=True, slots=True)
class References:
    """How far references go: exact where tables fit, else two runs of tempering."""

    sweeps: int = 20_000  # of each run
    seconds: float = 3600.0  # after which a run is cut short, busy machine or not
    others: tuple[str, ...] = ("ttve",)  # engines that are asked as well where it is sampled
    other_seconds: float = 30.0
    log2_table: float = 26.0
    device: Device | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of a table is run."""

    cases: Callable[[], list[Case]]
    rows: tuple[Row, ...]
    seconds: tuple[float, ...] = (5.0,)  # of every answer; each in turn
    seeds: tuple[int, ...] = SEEDS[:1]
    references: References | None = References()
    memory: int = 2**31  # bytes of tables, for every answer


@dataclass(frozen=True, slots=True)
class Section:
    """Part of the cases: those whose lines have this word under this key."""

    title: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table: rows are groups of cases, columns are methods."""

    name: str
    title: str
    source: str  # the paper's label
    metrics: tuple[Metric, ...]
    columns: tuple[Column, ...]
    scales: Mapping[ScaleName, Scale]
    claims: Mapping[tuple[str, str, str], Claim] = field(default_factory=dict)
    compared: tuple[str, ...] = ()  # columns that are tested against all others
    notes: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()  # the same again for a part of the cases
    summary: str = "icgi.bench.summary:grids"  # function of a run that makes what is shown

    def claim(self, row: Row, metric: Metric, column: Column) -> Claim | None:
        """What the paper prints in this cell."""
        return self.claims.get((row.claimed_as, metric.key, column.claimed_as))


def number(value: float | None, digits: int = 3) -> str:
    """Write a number as tables do: as many digits as matter, small ones with an exponent."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if value != 0 and abs(value) < 10.0**-digits:
        return f"{value:.1e}"
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.4g}"
