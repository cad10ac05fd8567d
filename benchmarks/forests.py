"""`ibia` beside other single engines at equal processor time, where exact inference is wide.

    ICGI_CLOCK=processor ICGI_DATA=… python benchmarks/forests.py run [--only or_chain] [--half dev]
    python benchmarks/forests.py                                      prints the table

Mean L1 error of a marginal against published or exact marginals (`--engine exact` finds the
structure of these models; no engine here looks for it). Even rows of the collection's manifest
were for development, odd ones for the report, the first of each family that are wide. One JSON line
per answer goes to benchmarks/results/forests.jsonl; what is there is not run again.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import icgi
from icgi.data.collection import Instance, data_folder, instances
from icgi.metrics import mean_absolute_error

LINES = Path(__file__).parent / "results" / "forests.jsonl"
ENGINES = ("ibia", "lbp", "gbp", "ttve", "pt")
SECONDS = 5.0
CHAINS = {"dev": (107, 140, 90), "report": (195, 202, 208, 22, 108, 113, 150, 119, 135, 151, 166)}
HALVES = {
    half: [*(f"or_chain_{k}.fg" for k in CHAINS[half]), *others]
    for half, others in {
        "dev": ("Promedus_17", "CSP_11", "CSP_13"),
        "report": ("Promedus_16", "Promedus_19", "Promedus_28", "CSP_12"),
    }.items()
}


def lines() -> list[dict]:
    return [json.loads(text) for text in LINES.read_text().splitlines()] if LINES.is_file() else []


def truth(each: Instance, model: icgi.FactorGraph) -> np.ndarray:
    found = each.reference() if each.has_reference else None
    if found is None:
        return icgi.marginals(model, dict(each.evidence()), "exact").probs
    full = np.zeros((model.n_variables, model.max_states))
    for i, row in enumerate(found):
        full[i, : len(row)] = row
    return full


def run(options: argparse.Namespace) -> None:
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder that holds manifest.csv")
    every = {each.name: each for each in instances(folder)}
    known = {(x["name"], x["engine"]) for x in lines()}
    for half, names in HALVES.items():
        for name in names:
            asked = [e for e in ENGINES if (name, e) not in known]
            if options.only not in name or options.half not in half or not asked:
                continue
            model, evidence = every[name].model(), dict(every[name].evidence())
            reference = truth(every[name], model)
            free = np.setdiff1d(np.arange(model.n_variables), list(evidence))
            for engine in asked:
                began = time.process_time()
                budget = icgi.Budget(seconds=SECONDS, table_bytes=4 * 10**9)
                found = icgi.marginals(model, evidence, engine, budget, seed=1)
                line = {
                    "name": name,
                    "half": half,
                    "engine": engine,
                    "status": found.status.value,
                    "l1": float(mean_absolute_error(found.probs[free], reference[free])),
                    "cpu": round(time.process_time() - began, 2),
                }
                with LINES.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(line, flush=True)


def table() -> None:
    """Print one row per model, and the means over the chains of each half."""
    found = {(x["name"], x["engine"]): x for x in lines()}
    print("| half | model |", " | ".join(ENGINES), "|")
    print("|---|---|" + "---|" * len(ENGINES))
    for half, names in HALVES.items():
        for name in names:
            cells = [_cell(found.get((name, engine))) for engine in ENGINES]
            print(f"| {half} | {name} |", " | ".join(cells), "|")
        chains = [name for name in names if name.startswith("or_chain")]
        means = []
        for engine in ENGINES:
            errors = [found[n, engine]["l1"] for n in chains if (n, engine) in found]
            means.append(f"{np.mean(errors):.4f} ({len(errors)})" if errors else "–")
        print(f"| {half} | mean of chains (how many) |", " | ".join(means), "|")


def _cell(line: dict | None) -> str:
    if line is None:
        return "–"
    return f"{line['l1']:.4f}" + (" exact" if line["status"] == "exact" else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("run",))
    parser.add_argument("--only", default="")
    parser.add_argument("--half", default="")
    options = parser.parse_args()
    run(options) if options.what == "run" else table()


if __name__ == "__main__":
    main()
