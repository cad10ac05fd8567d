"""Errors of the shipped networks and of other engines on the networks' test sets, on a CPU.

    python benchmarks/networks.py run [SET]    run what is missing (or one set), append JSON lines
    python benchmarks/networks.py              print the table of the stored lines

The models are the first of those that `icgi train` measures on (same seeds, never trained on).
References are exact where the largest table has up to 2^24 entries, else by tempering for
15 seconds; its mean standard error is in the table, and a gap below three of them is a tie.
"""

import json
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import icgi
from icgi.model.graph import FactorGraph
from icgi.model.ordering import find_order
from icgi.train.evaluate import SEED, TESTS
from icgi.train.kinds import Limits
from icgi.train.mixture import draw

LINES = Path(__file__).parent / "results" / "networks.jsonl"
COUNT = 5  # models of each set
MIX, MIX_COUNT = "validation mix N ≤ 32", 24
LARGE = "EA 2D L=50 β=1"
ENGINES = (
    "icgi:fast", "icgi:fast,core=20,orders=8", "icgi:paper", "lbp", "tap",
    "gbp", "ttve", "pt",
)  # fmt: skip
SECONDS = 5.0  # of an engine; tempering takes them all
REFERENCE_SECONDS = 15.0
SINGLE = 1e-6  # networks compute in single precision


def models(name: str) -> list[FactorGraph]:
    if name == MIX:  # the mixture and seed of the validation set, drawn one by one
        rng = np.random.default_rng(np.random.SeedSequence(10_000 + SEED).spawn(1)[0])
        return [draw(rng, "wide", Limits(10, 32, 2.5)) for _ in range(MIX_COUNT)]
    if name == LARGE:
        from icgi.data.families import FAMILIES

        return [FAMILIES["ea2d"].sample(np.random.default_rng([SEED, 50]), L=50, beta=1.0)]
    rng = np.random.default_rng([SEED, *name.encode()])
    return [TESTS[name](rng) for _ in range(COUNT)]


def reference(model: FactorGraph) -> tuple[np.ndarray, float, str]:
    order = find_order(model, np.random.default_rng(0), seconds=3.0)
    if order.log2_table <= 24:
        budget = icgi.Budget(table_bytes=8 * 2**30)
        return icgi.marginals(model, engine="jt", budget=budget).probs, 0.0, "jt"
    if model.n_variables > 1000:
        found = icgi.marginals(model, engine="ttve:rank=32,exact_entries=0")
        return found.probs, found.stats["spread"], "ttve, rank 32"
    budget = icgi.Budget(iterations=10**7, seconds=REFERENCE_SECONDS)
    found = icgi.marginals(model, engine="pt", budget=budget, seed=1)
    return found.probs, float(found.marginals.std_error.sum(1).mean()), "pt"


def run(only: str) -> None:
    done = {(x["set"], x["model"], x["engine"]) for x in stored()}
    LINES.parent.mkdir(exist_ok=True)
    for name in (MIX, *TESTS, LARGE):
        if only not in name:
            continue
        for k, model in enumerate(models(name)):
            todo = [e for e in ENGINES if (name, k, e) not in done]
            if not todo:
                continue
            exact, error, how = reference(model)
            for engine in todo:
                line = measure(model, engine, exact)
                line = {"set": name, "model": k, "engine": engine, **line,
                        "reference": how, "reference_error": error}  # fmt: skip
                print(name, k, engine, line.get("mae"), line["status"], flush=True)
                with LINES.open("a") as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")


def measure(model: FactorGraph, engine: str, exact: np.ndarray) -> dict:
    iterations = 10**7 if engine == "pt" else 1000
    budget = icgi.Budget(iterations=iterations, seconds=SECONDS)
    began = time.process_time()
    try:
        found = icgi.marginals(model, engine=engine, budget=budget, seed=0)
    except icgi.IcgiError as refusal:
        return {"status": "refused", "why": str(refusal)[:120]}
    gap = np.abs(found.probs - exact).sum(1)
    line = {
        "status": found.status.value, "mae": float(gap.mean()), "max": float(gap.max()),
        "cpu_seconds": round(time.process_time() - began, 3),
    }  # fmt: skip
    alpha = found.marginals.concentration
    if alpha is not None:  # two states: how far off is p, in deviations of the Dirichlet
        total = alpha.sum(1)
        stated = np.sqrt(alpha[:, 0] * alpha[:, 1] / (total + 1)) / total
        line["covered"] = float((gap / 2 <= 2 * stated + SINGLE).mean())
        line["rank"] = float(spearmanr(stated, gap).statistic)
    return line


def stored() -> list[dict]:
    return [json.loads(x) for x in LINES.read_text().splitlines()] if LINES.exists() else []


def table() -> str:
    cells: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for line in stored():
        cells[line["set"], line["engine"]].append(line)
    rows = [
        "| models | " + " | ".join(f"`{e}`" for e in ENGINES) + " | reference's error |",
        "|---" * (len(ENGINES) + 2) + "|",
    ]
    for name in (MIX, *TESTS, LARGE):
        known = [x for e in ENGINES for x in cells[name, e]]
        if not known:
            continue
        row = [f"{name} ({max(x['model'] for x in known) + 1})"]
        row += [cell(cells[name, e]) for e in ENGINES]
        error = np.mean([x["reference_error"] for x in known])
        rows.append("| " + " | ".join(row) + f" | {error:.4f} |")
    return "\n".join(rows)


def trust() -> str:
    """How well the stated deviations hold: share of errors within two, rank correlation."""
    cells: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for line in stored():
        cells[line["set"], line["engine"]].append(line)
    engines = [e for e in ENGINES if any("covered" in x for n in TESTS for x in cells[n, e])]
    rows = ["| models | " + " | ".join(f"`{e}`" for e in engines) + " |"]
    rows.append("|---" * (len(engines) + 1) + "|")
    for name in (MIX, *TESTS, LARGE):
        row = []
        for engine in engines:
            known = [x for x in cells[name, engine] if "covered" in x]
            means = [np.nanmean([x[key] for x in known]) for key in ("covered", "rank") if known]
            row.append(f"{means[0]:.2f}, {means[1]:.2f}" if known else "–")
        rows.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(rows)


def cell(lines: list[dict]) -> str:
    answered = [x for x in lines if "mae" in x]
    if not answered:
        return "refused" if lines else "–"
    good = sum(x["status"] in ("exact", "converged", "estimated") for x in answered)
    mark = "" if good == len(answered) else f" ({good}/{len(answered)})"
    return f"{np.mean([x['mae'] for x in answered]):.4f}{mark}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2] if len(sys.argv) > 2 else "")
    print(table(), trust(), sep="\n\n")
