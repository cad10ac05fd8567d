"""Table 3, tab:ablation: what each part of the network is for, and what it costs."""

from functools import partial

from icgi.bench.cases import drawn
from icgi.bench.table import SEEDS, Case, Column, Device, Metric, References, Row, Scale, Table
from icgi.bench.tables import claims
from icgi.bench.tables.methods import LBP, MAE, MAX, TTVE
from icgi.data.splits import Role

WORK = "icgi.bench.ablation:measured"
GROUP = "Out of distribution"
THROUGHPUT = Metric("throughput", "instances/s", larger_is_better=True, digits=1)
GFLOPS = Metric("gflops", "GFLOPs", digits=3)


def _cases(n: int, graphs: int) -> list[Case]:
    found = drawn(GROUP, "ba-paper", graphs, Role.OOD, n=n, m=2, beta=1.0)
    found += drawn(GROUP, "ws-paper", graphs, Role.OOD, n=n, k=4, p=0.1, beta=1.0)
    return found + drawn(GROUP, "sk-paper", graphs, Role.OOD, n=n, beta=2.0, h=0.5)


def _column(
    title: str, *engines: str, claimed_as: str = "", trained: bool = False
) -> Column:  # fmt: skip
    return Column(title, engines, trained=trained, claimed_as=claimed_as or title, work=WORK)


_ROWS = (Row(GROUP, GROUP, "unspecified OOD instances; these are BA, WS and SK β=2"),)

TABLE = Table(
    name="table3",
    title="Table 3: ablations and cost",
    source="tab:ablation",
    metrics=(MAE, MAX, THROUGHPUT, GFLOPS),
    columns=(
        _column("Full", "icgi:paper", trained=True),
        _column("Short", "icgi:paper-short"),
        _column("No TT", "icgi:paper-star"),
        _column("Static SPD", "icgi:paper-static"),
        _column("No calibration loss", "icgi:paper-short,orders=1"),
        _column("Random order", "icgi:paper-random-order"),
        _column("No distribute", "icgi:paper-no-distribute"),
        _column("Factor from scratch", "icgi:paper-free"),
        _column("Direct GNN", "direct-gnn", trained=True),
        _column("BPNN", "bpnn", trained=True),
        _column("LBP", *LBP.engines),
        _column("icgi:fast", "icgi:fast"),
        _column("ttve", *TTVE.engines),
    ),
    scales={
        "smoke": Scale(partial(_cases, 10, 1), _ROWS, (0.2,), references=References(500)),
        "small": Scale(
            partial(_cases, 50, 5), _ROWS, (2.0,), SEEDS,
            references=References(20_000, 30.0, (), log2_table=22.0, device=Device(20_000, 3.0)),
        ),
        "paper": Scale(
            partial(_cases, 200, 20), _ROWS, (60.0,), SEEDS, References(200_000, 3600.0)
        ),
    },
    claims=claims.ABLATION,
    compared=("Full",),
    notes=(
        "Instances per second: a batch of 32 copies of the model on one core where the engine "
        "answers batches, else one after the other; the paper's are of an A100. Costs are "
        "those of the first seed.",
        "*Full*, *Direct GNN* and *BPNN* are answered by the weights of five seeds, whose errors "
        "are averaged first; the ablations have weights of one.",
        "GFLOPs of one answer by torch's profiler, which knows matrix products and convolutions "
        "but few elementwise operations; engines without torch have none.",
        "*Short* is the full network at the 700 steps of the ablations (*Factor from scratch* has "
        "all 1,563, as *Full*). *No TT* is the exact star alone, without predicted bond states. "
        "*No calibration loss* is the network of *Short*: labels are exact, so λ = 1 either way.",
    ),
)  # fmt: skip
