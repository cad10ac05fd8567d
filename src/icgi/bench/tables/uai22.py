"""The competition of 2022: its score on the instances of its list that can be had."""

import csv
from functools import cache

from icgi.bench.cases import few, published, shipped
from icgi.bench.table import Case, Claim, References, Row, Scale, Table
from icgi.bench.tables.methods import (
    AUTO,
    BPNN,
    EXACT,
    FAST,
    GBP,
    GNN_BP,
    ICGI,
    LBP,
    MAE,
    PT,
    SCORE,
    TTVE,
)  # fmt: skip
from icgi.data.collection import Instance, data_folder
from icgi.errors import IcgiError

GROUPS = {
    "uai2022names-bn": "BN",
    "uai2022names-promedas": "Promedas",
    "uai2008-sidechain": "protein side-chain",
    "uai2012-proteinfolding": "protein side-chain",
}
_ROWS = tuple(Row(group) for group in dict.fromkeys(GROUPS.values()))


def _listed() -> list[Case]:
    def group(each: Instance) -> str | None:
        return GROUPS.get(each.family) if each.row["in_uai2022_mar_list"] == "yes" else None

    return published(group)


def _some() -> list[Case]:
    return few(_listed(), 4)


def _stand_ins() -> list[Case]:
    return shipped(lambda each: "Promedas" if each.identity.family == "factor" else None, 2)


@cache
def leaderboard() -> dict[tuple[str, str, str], Claim]:
    """Published mean scores at 20 s of each group: other instances, other references."""
    folder = data_folder()
    path = None if folder is None else folder / "uai2022-mar-leaderboard.csv"
    if path is None or not path.is_file():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise IcgiError(f"{path} cannot be read ({error}); restore it") from error
    return {
        (row["group"], "score", row["solver"]): float(row["score"])
        for row in rows
        if row["time_limit_s"] == "20" and row["scope"] == "derived group mean"
    }


TABLE = Table(
    name="uai22",
    title="The score of the UAI-2022 competition",
    source="no table",
    metrics=(SCORE, MAE),
    columns=(AUTO, LBP, GBP, TTVE, PT, FAST, ICGI, GNN_BP, BPNN, EXACT),
    scales={
        "smoke": Scale(_stand_ins, _ROWS, seconds=(0.1,), references=None),
        "small": Scale(
            _some, _ROWS, seconds=(20.0,),
            references=References(200_000, 60.0, (), log2_table=27.0),
        ),
        "paper": Scale(
            _listed, _ROWS, seconds=(20.0, 1200.0),
            references=References(200_000, 36000.0, log2_table=29.0), memory=8 * 10**9,
        ),
    },
    summary="icgi.bench.competition:grids",
    compared=("auto",),
    notes=(
        "Score: 100 (1 − H/H₀), H the mean Hellinger distance over unobserved variables, H₀ that "
        "of uniform marginals; 100 is exact.",
        "Published scores are printed for orientation and cannot be compared: the competition's "
        "references are not public, it does not say what its trivial solver returns, its evidence "
        "may be another, and 71 of its 88 instances could not be had. Its `lbp-mar` has a "
        "mean of 55.6 on its 24 Promedas models; what ours has against exact marginals is above.",
    ),
)  # fmt: skip
