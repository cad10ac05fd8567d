"""Error over time on fixed hard models, for every engine that can use time."""

from functools import partial

from icgi.bench.cases import drawn, published
from icgi.bench.table import Case, Column, Device, References, Row, Scale, Table
from icgi.bench.tables.methods import AUTO, FAST, GBP, ICGI, LBP, MAE, MAX, PT, TTVE
from icgi.data.collection import data_folder
from icgi.data.families.presets import Value
from icgi.data.splits import Role

PUBLISHED = ("grid20x20.f5.wrap", "grid40x40.f2.wrap", "BN_12", "pdb1b25")
PA = Column("pa", ("pa",), random=True)


def small_glasses() -> list[Case]:
    """Models of the small scale that need no published instance."""
    return _glasses(*_SMALL)


def _cases(sk: int, sk_large: int, length: int, with_published: bool) -> list[Case]:
    found = _glasses(sk, sk_large, length)
    if with_published and data_folder() is not None:
        found += published(lambda each: each.name if each.name in PUBLISHED else None)
    return found


def _glasses(sk: int, sk_large: int, length: int) -> list[Case]:
    ea: dict[str, Value] = {"disorder": "gaussian", "field": 0.1}
    return [
        *drawn(f"SK N={sk} β=2 h=0.5", "sk-paper", 1, Role.OOD, n=sk, beta=2.0, h=0.5),
        *drawn(f"SK N={sk_large} β=2 h=0.1", "sk-paper", 1, Role.OOD, n=sk_large, beta=2.0, h=0.1),
        *drawn(f"EA 3D L={length} β=1", "ea3d-paper", 1, Role.TEST, L=length, beta=1.0, **ea),
    ]


def _rows(sk: int, sk_large: int, length: int) -> tuple[Row, ...]:
    made = (f"SK N={sk} β=2 h=0.5", f"SK N={sk_large} β=2 h=0.1", f"EA 3D L={length} β=1")
    return tuple(Row(name) for name in (*made, *PUBLISHED))


_SMALL = (100, 200, 6)

TABLE = Table(
    name="anytime",
    title="Error over time",
    source="no table",
    metrics=(MAE, MAX),
    columns=(AUTO, LBP, GBP, TTVE, PT, PA, FAST, ICGI),
    scales={
        "smoke": Scale(
            partial(_cases, 10, 12, 2, False), _rows(10, 12, 2), seconds=(0.05, 0.1),
            references=References(sweeps=500),
        ),
        "small": Scale(
            partial(_cases, *_SMALL, True), _rows(*_SMALL), seconds=(0.3, 1.0, 3.0),
            references=References(100_000, 100.0, (), device=Device(10**8, 3.0)),
        ),
        "paper": Scale(
            partial(_cases, 500, 1000, 12, True), _rows(500, 1000, 12),
            seconds=(1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
            references=References(sweeps=1_000_000, seconds=36000.0),
        ),
    },
    summary="icgi.bench.curves:over_time",
    notes=(
        "Each time is a run of its own with that many seconds; an engine that is done earlier uses "
        "less.",
    ),
)  # fmt: skip
