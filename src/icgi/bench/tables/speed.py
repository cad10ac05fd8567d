"""Seconds as models grow, and against a program that pip installs, in the same run."""

from dataclasses import replace
from functools import partial

from icgi.bench.cases import drawn, of_family
from icgi.bench.table import Case, Column, Metric, Row, Scale, Table
from icgi.bench.tables.sizes import GROWING
from icgi.data.splits import Role

SECONDS = Metric("seconds", "seconds", digits=4)
SWEEPS = 50
"""Sweeps of the iterative engines: fixed, because how many are needed is another question."""

TIMED = "icgi.bench.timing:timed"
TREES, SK, WIDTH, STATES = GROWING


def _cases(sizes: dict[str, tuple[int, ...]]) -> list[Case]:
    test = Role.TEST
    found: list[Case] = []
    for n in sizes["n"]:
        found += drawn(TREES, "tree-paper", 1, test, n=n, arity=2, beta=1.0)
    for n in sizes["sk"]:
        found += drawn(SK, "sk-paper", 1, test, n=n, beta=1.0, h=0.1)
    for w in sizes["width"]:
        made = drawn(WIDTH, "grid-paper", 1, test, rows=w, columns=12, beta=1.0)
        found += [replace(case, about={**case.about, "width": w}) for case in made]
    return found + [of_family(STATES, "potts", L=4, q=q) for q in sizes["states"]]


def _column(title: str, engine: str, sweeps: int | None = None) -> Column:
    settings = {} if sweeps is None else {"iterations": sweeps}
    return Column(title, (engine,), work=TIMED, settings=settings)


def _ttve(rank: int) -> Column:
    once = "exact_entries=0,steps=0,escalate=false,halving=false,samples=0"
    options = f"rank={rank},max_rank={rank},{once}"
    return _column(f"ttve rank {rank}", f"ttve:{options}")


def _scale(seconds: float, **sizes: tuple[int, ...]) -> Scale:
    rows = tuple(map(Row, GROWING))
    return Scale(partial(_cases, sizes), rows, seconds=(seconds,), references=None)


TABLE = Table(
    name="speed",
    title="Seconds as models grow, and against pyAgrum",
    source="no table",
    metrics=(SECONDS,),
    columns=(
        _column("jt", "jt"),
        Column("pyAgrum", ("jt",), work="icgi.bench.timing:pyagrum"),
        _column("lbp", "lbp:restarts=0", SWEEPS),
        _column("trbp", "trbp", SWEEPS),
        _column("pt", "pt", SWEEPS),
        *map(_ttve, (4, 8, 16, 32)),
        _column("icgi:fast", "icgi:fast"),
        _column("icgi:paper", "icgi:paper"),
    ),
    scales={
        "smoke": _scale(20.0, n=(20, 40), sk=(8, 12), width=(2, 3), states=(2, 3)),
        "small": _scale(
            3.0,
            n=(100, 300, 1000),
            sk=(25, 50, 100),
            width=(6, 8, 10),
            states=(2, 3, 4),
        ),
        "paper": _scale(
            600.0,
            n=(100, 1000, 10000, 100000),
            sk=(50, 100, 200, 500, 1000),
            width=(8, 12, 16, 20),
            states=(2, 3, 4, 6, 8, 10),
        ),
    },
    summary="icgi.bench.curves:growth",
    notes=(
        f"`lbp`, `trbp` and `pt` make {SWEEPS} sweeps. Loading and compiling are not counted; of "
        "answers that take less than a second the quickest of three counts. One thread each.",
    ),
)
