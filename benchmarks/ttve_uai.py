"""`ttve` and every other engine at 60 seconds each, on published models beyond dense tables.

Called by `python benchmarks/ttve_accuracy.py uai [run]`; needs ICGI_DATA. References are the
published, verified marginals; for proteins, which have none, tempering of 120 seconds.
"""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from icgi.data.collection import Instance, data_folder, instances
from icgi.engines import parse_engine
from icgi.errors import BudgetError, IcgiError
from icgi.inference import Budget, Marginals, Status, infer

LINES = Path(__file__).parent / "results" / "ttve_uai.jsonl"
NAMES = (
    "Grids_15", "Grids_16", "Grids_18", "linkage_16", "linkage_24", "linkage_26",
    "Promedus_11", "Promedus_17", "Promedus_19", "Promedus_27", "Promedus_28", "Promedus_34",
    "Promedus_37", "Promedus_38", "pdb1bxv", "pdb1g6x", "pdb1npl", "pdb1qt9", "pdb1rfs",
)  # fmt: skip
ENGINES = ("ttve", "lbp", "gbp", "ijgp", "trbp", "mf", "pt")
IBOUNDS = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18)
SECONDS = 60.0
SLICE = 10.0  # seconds of one bound in join-graph propagation, or one that does not rest has all


def run() -> None:
    """Run what is missing, one line per instance and engine."""
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder of the published models")
    done = {(x["instance"], x["engine"]) for x in stored()}
    found = {x.name: x for x in instances(folder) if x.name in NAMES}
    for name in NAMES:
        missing = [e for e in ENGINES if (name, e) not in done]
        if not missing:
            continue
        model, evidence = found[name].model(), found[name].evidence()
        reference, how, own = _reference(found[name], model, evidence)
        free = np.array([i for i in range(model.n_variables) if i not in evidence])
        for engine in missing:
            line = {"instance": name, "engine": engine, "reference": how, "reference_error": own}
            began = time.perf_counter()
            try:
                answer = (
                    _growing(model, evidence)
                    if engine == "ijgp"
                    else _within(model, evidence, engine, SECONDS)
                )
                line |= {
                    "error": float(np.abs(answer.probs - reference)[free].sum(1).mean()),
                    "status": answer.status.value,
                    "stats": {
                        k: answer.stats[k]
                        for k in (
                            "rank",
                            "spread",
                            "branches",
                            "unsound",
                            "frontier",
                            "steps",
                            "ibound",
                        )
                        if k in answer.stats
                    },
                }
            except (IcgiError, MemoryError) as refusal:
                line |= {"error": None, "status": f"refused: {refusal}"[:200]}
            line["seconds"] = round(time.perf_counter() - began, 1)
            print(line, flush=True)
            with LINES.open("a") as out:
                out.write(json.dumps(line) + "\n")


def _within(model, evidence, engine: str, seconds: float, seed: int = 1) -> Marginals:
    budget = Budget(iterations=10**9, seconds=seconds)
    return infer(model, evidence, parse_engine(engine), budget, np.random.default_rng(seed))


def _growing(model, evidence) -> Marginals:
    """Join-graph propagation with growing clusters until the time is up.

    The answer is that of the largest clusters that came to rest, else that of the largest.
    """
    end = time.perf_counter() + SECONDS
    best = None
    for ibound in IBOUNDS:
        try:
            left = min(SLICE, end - time.perf_counter())
            found = _within(model, evidence, f"gbp:regions=join-graph,ibound={ibound}", left)
        except BudgetError:
            if best is None:
                raise
            break
        rests = found.status in (Status.CONVERGED, Status.EXACT)
        if best is None or rests or best.status is Status.BUDGET_SPENT:
            best = replace(found, stats={**found.stats, "ibound": float(ibound)})
        if time.perf_counter() >= end or found.status is Status.EXACT:
            break
    return best


def _reference(instance: Instance, model, evidence):
    known = instance.reference()
    if known is not None:
        probs = np.zeros((model.n_variables, model.max_states))
        for i, row in enumerate(known):
            probs[i, : len(row)] = row
        return probs, "published", 1e-6
    long = _within(model, evidence, "pt", 2 * SECONDS, seed=2)
    own = float(long.std_error.sum(1).mean()) if long.std_error is not None else None
    return long.probs, "tempering, 120 s", own


def stored() -> list[dict]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def table() -> str:
    """Errors of all engines; in brackets what did not converge or was not called sound."""
    rows = [
        f"| instance | {' | '.join(ENGINES)} | reference |",
        "|---" * (len(ENGINES) + 2) + "|",
    ]
    lines = {(x["instance"], x["engine"]): x for x in stored()}
    for name in NAMES:
        cells = []
        for engine in ENGINES:
            x = lines.get((name, engine))
            if x is None or x["error"] is None:
                cells.append("–" if x is None else "refused")
                continue
            sound = x["status"] in ("converged", "exact")
            cells.append(f"{x['error']:.1e}" if sound else f"({x['error']:.1e})")
        how = [x["reference"] for x in lines.values() if x["instance"] == name]
        if how:
            rows.append(f"| {name} | {' | '.join(cells)} | {how[0]} |")
    return "\n".join(rows)
