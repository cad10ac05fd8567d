"""Table 4, tab:uq-full: calibration error, coverage and size of sets, at home and under shift."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from icgi.bench.cases import FAMILIES_OF_THE_PAPER, PROTEINS, drawn, few, published, shipped
from icgi.bench.table import SEEDS, Case, Column, Device, Metric, References, Row, Scale, Table
from icgi.bench.tables import claims
from icgi.bench.tables.regimes import CALIBRATION, REGIMES, TEST
from icgi.data.collection import data_folder
from icgi.data.families.presets import Value
from icgi.data.splits import Role

WORK = "icgi.bench.uncertainty:answer"
UAI, SK, EA, CHAINS = dict.fromkeys(regime.data for regime in REGIMES.values())
ECE = Metric("mae", "MAE")  # the others are computed over all graphs of a row


def _marked(cases: Iterable[Case], part: str) -> list[Case]:
    return [replace(case, about={**case.about, "part": part}) for case in cases]


def _glasses(n: int, length: int, calibration: int, test: int) -> list[Case]:
    """Calibrated on draws of the training distribution, tested on colder or larger ones."""
    home, away = Role.IN_DISTRIBUTION, Role.OOD
    each = max(1, calibration // 2)
    ea: dict[str, Value] = {"disorder": "gaussian", "field": 0.1}
    known = [
        *drawn(SK, "sk-paper", each, home, n=n, beta=1.0, h=0.5),
        *drawn(SK, "sk-paper", each, home, n=n, beta=1.5, h=0.5),
        *drawn(EA, "ea3d-paper", each, home, L=length, beta=0.5, **ea),
        *drawn(EA, "ea3d-paper", each, home, L=length, beta=1.0, **ea),
    ]
    new = [
        *drawn(SK, "sk-paper", test, away, n=n, beta=2.0, h=0.5),
        *drawn(EA, "ea3d-paper", test, away, L=length, beta=2.0, **ea),
    ]
    return _marked(known, CALIBRATION) + _marked(new, TEST)


def small_glasses() -> list[Case]:
    """Models of the small scale that need no published instance."""
    return _glasses(40, 4, 20, 8)


def _real(most: int | None) -> list[Case]:
    """Published instances: every second of a family calibrates; proteins are only tested."""
    if data_folder() is None:
        return _stand_ins()
    uai = published(
        lambda i: UAI if i.family in FAMILIES_OF_THE_PAPER and i.has_reference else None
    )
    chains = published(lambda i: CHAINS if i.family in PROTEINS and i.has_reference else None)
    if most is not None:
        families = [replace(c, group=FAMILIES_OF_THE_PAPER[c.about["family"]]) for c in uai]
        kept = {case.name for case in few(families, most)}
        uai = [case for case in uai if case.name in kept]
        chains = few(chains, most // 2)
    halves = _marked(uai[::2], CALIBRATION) + _marked(uai[1::2], TEST)
    return halves + _marked(chains, TEST)


def _stand_ins() -> list[Case]:
    uai = shipped(lambda each: UAI if each.identity.family in ("factor", "csp") else None, 8)
    chains = shipped(lambda each: CHAINS if each.identity.family == "potts" else None, 2)
    halves = _marked(uai[::2], CALIBRATION) + _marked(uai[1::2], TEST)
    return halves + _marked(chains, TEST)


def _all(
    n: int, length: int, calibration: int, test: int, most: int | None = None,
    stand_ins: bool = False,
) -> list[Case]:  # fmt: skip
    real = _stand_ins() if stand_ins else _real(most)
    return real + _glasses(n, length, calibration, test)


def _column(
    title: str, engine: str, claimed_as: str = "", random: bool = False, trained: bool = False
) -> Column:  # fmt: skip
    return Column(title, (engine,), random, trained, claimed_as, work=WORK)


_ROWS = tuple(Row(name, name) for name in REGIMES)

TABLE = Table(
    name="table4",
    title="Table 4: calibration, coverage and sets",
    source="tab:uq-full",
    metrics=(ECE,),
    columns=(
        _column("LBP", "lbp:damping=0.5", "LBP"),
        _column("Deep ensemble", "ensemble", "Deep ensemble"),
        _column("ICG-I", "icgi:paper", "ICG-I", trained=True),
        _column("icgi:fast", "icgi:fast"),
        _column("ttve", "ttve"),
        _column("auto", "auto", random=True),
    ),
    scales={
        "smoke": Scale(
            partial(_all, 8, 2, 4, 2, stand_ins=True), _ROWS, (0.1,), references=References(500)
        ),
        "small": Scale(
            partial(_all, 40, 4, 20, 8, most=12), _ROWS, (1.0,), SEEDS,
            references=References(20_000, 20.0, (), log2_table=22.0, device=Device(20_000, 3.0)),
        ),
        "paper": Scale(
            partial(_all, 200, 8, 100, 50), _ROWS, (60.0,), references=References(200_000, 3600.0)
        ),
    },
    summary="icgi.bench.uncertainty:grids",
    claims=claims.UNCERTAINTY,
    notes=(
        "A set of states of a spin has at most two: the paper's sizes of 2.05 to 2.88 for SK and "
        "EA are impossible for binary variables.",
        "Coverage is that of a state drawn from the reference marginal of a variable, which is "
        "counted with its probability. Calibration graphs count once each, because the variables "
        "of one graph are not exchangeable with those of another.",
        "Weights come from a logistic regression on five features of a graph (size, density, "
        "strength and its spread, states); n_eff is (Σw)²/Σw² over calibration graphs, so it "
        "cannot exceed their number. `icgi calibrate` has groups and bands beside.",
    ),
)  # fmt: skip
