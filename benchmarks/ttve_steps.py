"""What `ttve` gains by eliminating cheap variables exactly: error and CPU seconds of one attempt.

python benchmarks/ttve_steps.py run    run what is missing (published models need ICGI_DATA)
python benchmarks/ttve_steps.py        print the table from the stored lines
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from icgi.data.collection import data_folder, instances
from icgi.data.families import FAMILIES
from icgi.elimination import pre_elimination
from icgi.elimination.engine import TensorTrainElimination
from icgi.exact.junction_tree import solve
from icgi.inference import Budget, infer
from icgi.model.ordering import find_order

LINES = Path(__file__).parent / "results" / "ttve_steps.jsonl"
WAYS = {"none": 0, "two neighbours": 2, "three neighbours": 3}
EXACT_TABLE = 24  # log₂ entries up to which the junction tree gives the reference
LAYOUTS = 2  # seeds of the layout, for every instance
FAMILY_SETS = [  # name, family, parameters, rank, instances
    ("BA n=80 m=2", "ba", {"n": 80, "m": 2}, 16, 10),
    ("ER n=80 p=0.05", "er", {"n": 80, "p": 0.05}, 16, 10),
    ("ER n=70 p=0.065 β=3", "er", {"n": 70, "p": 0.065, "beta": 3.0}, 8, 20),
]
PUBLISHED = {
    "Promedus": lambda x: x.name.startswith("Promedus"),
    "linkage": lambda x: x.name in ("linkage_16", "linkage_24", "linkage_26"),
    "small proteins": lambda x: x.name in ("pdb1rh4", "pdb1piq", "pdb1ajj", "pdb2erl"),
}


def models() -> Iterator[tuple]:
    """Name of the set, of the instance, model, evidence, reference, rank."""
    for name, family, parameters, rank, count in FAMILY_SETS:
        for seed in range(7300, 7300 + count):
            model = FAMILIES[family].sample(np.random.default_rng(seed), **parameters)
            order = find_order(model, np.random.default_rng(0), seconds=1.0)
            if order.log2_table <= EXACT_TABLE:
                probs = solve(model, order, Budget()).probs
                yield name, str(seed), model, {}, probs, rank
    folder = data_folder()
    for instance in instances(folder) if folder else ():
        names = [name for name, belongs in PUBLISHED.items() if belongs(instance)]
        known = instance.reference() if names else None
        if known is None:
            continue
        model = instance.model()
        probs = np.zeros((model.n_variables, model.max_states))
        for i, row in enumerate(known):
            probs[i, : len(row)] = row
        yield names[0], instance.name, model, instance.evidence(), probs, 16


def run() -> None:
    done = {(x["set"], x["instance"]) for x in stored()}
    for name, instance, model, evidence, reference, rank in models():
        if (name, instance) in done:
            continue
        free = [i for i in range(model.n_variables) if i not in evidence]
        for way, neighbours in WAYS.items():
            pre_elimination._NEIGHBOURS = neighbours
            engine = TensorTrainElimination(
                rank, exact_entries=0, escalate=False, halving=False, samples=0,
                steps=None if neighbours else 0,
            )  # fmt: skip
            for seed in range(LAYOUTS):
                began = time.process_time()
                found = infer(model, evidence, engine, Budget(), np.random.default_rng(seed))
                line = {
                    "set": name, "instance": instance, "way": way, "seed": seed, "rank": rank,
                    "error": float(np.abs(found.probs - reference)[free].sum(1).mean()),
                    "seconds": round(time.process_time() - began, 3),
                    "steps": found.stats.get("steps"), "status": found.status.value,
                }  # fmt: skip
                with LINES.open("a") as out:
                    out.write(json.dumps(line) + "\n")
        print(name, instance, flush=True)


def stored() -> list[dict]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def table() -> str:
    """Geometric mean of the errors, mean CPU seconds."""
    lines = stored()
    rows = [f"| instances, runs | {' | '.join(WAYS)} |", "|---" * (len(WAYS) + 1) + "|"]
    for name in dict.fromkeys(x["set"] for x in lines):
        cells = []
        for way in WAYS:
            some = [x for x in lines if x["set"] == name and x["way"] == way]
            error = np.exp(np.mean(np.log([max(x["error"], 1e-12) for x in some])))
            cells.append(f"{error:.1e}, {np.mean([x['seconds'] for x in some]):.2f} s")
        count = len({x["instance"] for x in lines if x["set"] == name})
        rows.append(f"| {name} ({count}), {len(some)} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        run()
    print(table())
