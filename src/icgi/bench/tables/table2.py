"""Table 2, tab:exp_thermodynamic_gen: spin glasses across temperatures and sizes, and proteins."""

from functools import partial

from icgi.bench.cases import drawn, published, shipped
from icgi.bench.table import SEEDS, Case, Device, References, Row, Scale, Table
from icgi.bench.tables import claims
from icgi.bench.tables.methods import (
    AUTO,
    BPNN,
    DIRECT,
    EXACT,
    FAST,
    GNN_BP,
    ICGI,
    KL,
    LBP,
    MAE,
    MAX,
    PT,
    TRBP,
    TTVE,
)  # fmt: skip
from icgi.data.collection import data_folder
from icgi.data.families.presets import Value
from icgi.data.splits import Role

FIELDS = (0.1, 0.5)  # SK; without a field every marginal is ½ by symmetry
EA_FIELD = 0.1  # paper: none, for which the same holds
SK_CLAIMS = ("SK N=100 β=1", "SK N=200 β=1.5", "SK N=500 β=2", "SK N=1000 β=3")
_BETAS = (1.0, 1.5, 2.0, 3.0)


LARGE = 500
"""Spins from which on a table may have fewer graphs: their references take longest."""


def _cases(
    sk: tuple[int, ...], ea2d: int, ea3d: int, graphs: int, proteins: int,
    few_large: int | None = None,
) -> list[Case]:  # fmt: skip
    return glasses(sk, ea2d, ea3d, graphs, few_large) + _proteins(proteins)


def glasses(
    sk: tuple[int, ...], ea2d: int, ea3d: int, graphs: int, few_large: int | None = None
) -> list[Case]:
    """Models of all rows but the proteins."""

    def count(spins: int) -> int:
        return graphs if few_large is None or spins < LARGE else few_large

    found: list[Case] = []
    for n, beta in zip(sk, _BETAS, strict=True):
        role = Role.OOD if beta >= 2 else Role.IN_DISTRIBUTION
        for h in FIELDS:
            found += drawn(_sk(n, beta, h), "sk-paper", count(n), role, n=n, beta=beta, h=h)
    ea: dict[str, Value] = {"disorder": "gaussian", "field": EA_FIELD}
    found += drawn(_ea(2, ea2d, 1), "ea2d-paper", count(ea2d**2), Role.TEST, L=ea2d, beta=1.0, **ea)
    found += drawn(_ea(3, ea3d, 3), "ea3d-paper", count(ea3d**3), Role.OOD, L=ea3d, beta=3.0, **ea)
    return found


def _sk(n: int, beta: float, h: float) -> str:
    return f"SK N={n} β={beta:g} h={h:g}"


def _ea(dimensions: int, length: int, beta: int) -> str:
    return f"EA {dimensions}D L={length} β={beta}"


def _proteins(most: int) -> list[Case]:
    """Side chains with exact references, and those of OpenGM that the collection has."""
    if data_folder() is None or not most:
        return shipped(lambda each: "Proteins" if each.identity.family == "potts" else None, 1)
    exact = published(
        lambda each: "Proteins" if each.family == "uai2008-sidechain" else None,
        lambda each: each.has_reference,
    )
    opengm = published(
        lambda i: "Proteins of OpenGM" if i.family == "uai2012-proteinfolding" else None
    )
    return exact[:: max(1, len(exact) // most)][:most] + (opengm if most > 20 else [])


def _rows(sk: tuple[int, ...], ea2d: int, ea3d: int, proteins: str) -> tuple[Row, ...]:
    rows = []
    for n, beta, claim in zip(sk, _BETAS, SK_CLAIMS, strict=True):
        for h in FIELDS:
            same = claim == f"SK N={n} β={beta:g}"
            differs = "without a stated field" if same else f"{claim}, without a stated field"
            rows.append(Row(_sk(n, beta, h), claim, differs))
    for group, claim in ((_ea(2, ea2d, 1), "EA 2D L=50 β=1"), (_ea(3, ea3d, 3), "EA 3D L=12 β=3")):
        differs = "without a field" if group == claim else f"{claim}, without a field"
        rows.append(Row(group, claim, differs))
    rows.append(Row("Proteins", "Proteins", proteins))
    return (*rows, Row("Proteins of OpenGM", "Proteins", "21 models; the collection has 9 of them"))


_SMOKE = ((8, 9, 10, 12), 4, 2)
_PAPER = ((100, 200, 500, 1000), 50, 12)
_PATIENCE = {
    **{_sk(1000, 3.0, h): 3.0 for h in FIELDS},
    **{_sk(500, 2.0, h): 2.0 for h in FIELDS},
    **{_sk(100, 1.0, h): 0.25 for h in FIELDS},
    **{_sk(200, 1.5, h): 0.5 for h in FIELDS},
    _ea(3, 12, 3): 12.0,
}  # fmt: skip
"""Seconds of references relative to each other: cold and large models take longest."""
_HOTTEST = {_ea(3, 12, 3): 0.2, **{_sk(1000, 3.0, h): 0.25 for h in FIELDS}}
"""Cold rows: a ladder from a little above the transition, so that levels are dense below it."""


def small_glasses() -> list[Case]:
    """Models of the small scale that need no published instance."""
    return glasses(*_PAPER, graphs=5, few_large=2)


def _small() -> list[Case]:
    return small_glasses() + _proteins(8)


_CHAINS = "21 models of OpenGM; these are other side chains, with exact references"

TABLE = Table(
    name="table2",
    title="Table 2: spin glasses and proteins",
    source="tab:exp_thermodynamic_gen",
    metrics=(MAE, KL, MAX),
    columns=(
        LBP, TRBP, GNN_BP, BPNN, DIRECT, ICGI, FAST, TTVE, PT, AUTO, EXACT,
    ),
    scales={
        "smoke": Scale(
            partial(_cases, *_SMOKE, 1, 0),
            _rows(*_SMOKE, "21 models of OpenGM; this is a Potts model"),
            seconds=(0.1,),
            references=References(sweeps=500),
        ),
        "small": Scale(
            _small,
            _rows(*_PAPER, _CHAINS),
            seconds=(5.0,),
            seeds=SEEDS,
            references=References(
                20_000, 180.0, ("ttve", "pa"), 10.0,
                device=Device(10**9, 10.0, 64, _PATIENCE, _HOTTEST),
            ),
            memory=2**33,
        ),
        "paper": Scale(
            partial(_cases, *_PAPER, 5, 28),
            _rows(*_PAPER, _CHAINS),
            seconds=(60.0,),
            seeds=SEEDS,
            references=References(sweeps=1_000_000, seconds=36000.0),
        ),
    },
    claims=claims.THERMODYNAMIC,
    compared=("ICG-I", "icgi:fast", "auto"),
    notes=(
        "SK with h = 0.1 and h = 0.5: at h = 0 every marginal is ½ by symmetry, and answering ½ is "
        "exact. EA has no field in the paper, so the same holds there; here it has Gaussian fields "
        "of standard deviation 0.1.",
        "Draws of roles that nothing is trained on. `ttve` is elimination without learning, `pt` "
        "sampling at equal time: the columns that the paper lacks.",
        "The paper's leave-one-out training over 21 proteins is not repeated: no network here is "
        "trained on proteins.",
    ),
)  # fmt: skip
