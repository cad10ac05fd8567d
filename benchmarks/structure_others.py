"""What copies merged and products split do to approximate engines, each change by itself.

    ICGI_DATA=… python benchmarks/structure_others.py [--models linkage_16,linkage_24,BN_31]
        [--engines lbp,ttve,pt] [--seconds 4] [--seeds 1]

Mean and largest difference to the reference over unobserved variables, on the model as it is, with
copies merged, with products split, and with both; exact inference gives the reference. One line per
seed: how far seeds are apart says which differences between forms mean something.
"""

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np

from icgi.approx.lbp import LoopyBP
from icgi.data.collection import data_folder, instances
from icgi.elimination.engine import TensorTrainElimination
from icgi.exact.forms import AlongBest, best_forecast
from icgi.inference import Budget, Engine, Marginals
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.structure.merge import Merged, merge_copies
from icgi.model.structure.split import split_products
from icgi.sampling.tempering import ParallelTempering

LINES = Path(__file__).parent / "results" / "structure_others.jsonl"
ENGINES: dict[str, Engine] = {
    "lbp": LoopyBP(),
    "ttve": TensorTrainElimination(),
    "pt": ParallelTempering(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="linkage_16,linkage_24,BN_31")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder of the instances")
    chosen = options.models.split(",")
    for each in instances(folder):
        if each.name not in chosen:
            continue
        model = condition(each.model(), dict(each.evidence())).model
        rng = np.random.default_rng(0)
        truth = AlongBest(best_forecast(model, Budget(), rng))(model, Budget(), rng).probs
        runs = product(options.engines.split(","), forms_of(model), range(options.seeds))
        for name, (form, part, merged), seed in runs:
            budget, rng = Budget(seconds=options.seconds), np.random.default_rng(seed)
            found = ENGINES[name](part, budget, rng)
            line = {"model": each.name, "engine": name, "form": form, "seed": seed}
            line |= {"seconds": options.seconds, **compared(found, part, merged, truth, model)}
            print(json.dumps(line), flush=True)
            with LINES.open("a") as file:
                file.write(json.dumps(line) + "\n")


def forms_of(model: FactorGraph) -> list[tuple[str, FactorGraph, Merged | None]]:
    merged = merge_copies(model)
    small = model if merged is None else merged.model
    return [
        ("as it is", model, None),
        ("split", split_products(model), None),
        ("merged", small, merged),
        ("both", split_products(small), merged),
    ]


def compared(
    found: Marginals, part: FactorGraph, merged: Merged | None, truth: FloatArray,
    model: FactorGraph,
) -> dict[str, object]:  # fmt: skip
    spread = found if merged is None else merged.spread(found)
    apart = np.abs(spread.probs - truth).sum(1)[model.cards > 1]
    return {
        "variables": int((part.cards > 1).sum()),
        "factors": sum(len(scope) > 1 for scope in part.scopes),
        "status": found.status.value,
        "mean L1": round(float(apart.mean()), 6),
        "most": round(float(apart.max()), 6),
    }


if __name__ == "__main__":
    main()
