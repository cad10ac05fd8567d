"""Error, status and time of the approximate engines on every instance with a trustworthy reference.

    ICGI_DATA=… python benchmarks/accuracy.py [--engines lbp,trbp] [--seconds 5] [--family grids]
    python benchmarks/accuracy.py --render          prints the table from the stored lines

One JSON line per (instance, engine) goes to benchmarks/results/accuracy.jsonl when it is known; a
stopped run goes on where it was. Refusals are lines too, and a crash stops the run.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

import icgi
from icgi.data.collection import data_folder, instances
from icgi.metrics import max_error, mean_absolute_error, mean_hellinger

RESULTS = Path(__file__).parent / "results" / "accuracy.jsonl"
ENGINES = ("mf", "lbp", "lbp:damping=0.5", "trbp", "gbp", "tap")


def lines() -> list[dict]:
    if not RESULTS.is_file():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def run(options: argparse.Namespace) -> None:
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder that holds manifest.csv")
    done = {(line["instance"], line["engine"]) for line in lines()}
    for instance in instances(folder):
        if not instance.has_reference or options.family not in instance.family:
            continue
        todo = [e for e in options.engines.split(",") if (instance.name, e) not in done]
        if not todo:
            continue
        model, evidence = instance.model(), instance.evidence()
        reference = padded(instance.reference(), model.max_states)
        hidden = np.setdiff1d(np.arange(model.n_variables), list(evidence))
        for engine in todo:
            line = measure(instance, model, evidence, reference, hidden, engine, options.seconds)
            with RESULTS.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{instance.name:<22}{engine:<18}", cell(line), flush=True)


def measure(instance, model, evidence, reference, hidden, engine: str, seconds: float) -> dict:
    line = {"instance": instance.name, "family": instance.family, "engine": engine}
    began = time.perf_counter()
    try:
        answer = icgi.marginals(model, evidence, engine, icgi.Budget(seconds=seconds), seed=0)
    except icgi.IcgiError as refusal:
        return line | {"status": "refused", "why": str(refusal)[:160]}
    p, q = reference[hidden], answer.probs[hidden]
    return line | {
        "status": answer.status.value,
        "mae": float(mean_absolute_error(q, p)),
        "max": float(max_error(q, p)),
        "hellinger": float(mean_hellinger(q, p)),
        "finite": bool(np.isfinite(answer.probs).all()),
        "sweeps": answer.stats.get("sweeps"),
        "seconds": round(time.perf_counter() - began, 3),
    }


def padded(rows: list, width: int) -> np.ndarray:
    full = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        full[i, : len(row)] = row
    return full


def cell(line: dict) -> str:
    if line["status"] == "refused":
        return "refused: " + line["why"]
    return (
        f"MAE {line['mae']:.4f}  max {line['max']:.4f}  {line['status']}  {line['seconds']:.2f} s"
    )


def render() -> str:
    groups: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for line in lines():
        groups[line["family"], line["engine"]].append(line)
    engines = [e for e in ENGINES if any(e == engine for _, engine in groups)]
    out = ["| family | instances | " + " | ".join(f"`{e}`" for e in engines) + " |"]
    out.append("|---" * (len(engines) + 2) + "|")
    for family in sorted({family for family, _ in groups}):
        cells = []
        count = 0
        for engine in engines:
            found = groups.get((family, engine), [])
            count = max(count, len(found))
            answered = [line for line in found if "mae" in line]
            if not answered:
                cells.append("refused" if found else "–")
                continue
            mae = np.mean([line["mae"] for line in answered])
            worst = max(line["max"] for line in answered)
            rest = sum(line["status"] == "converged" for line in answered)
            seconds = np.median([line["seconds"] for line in answered])
            cells.append(f"{mae:.3f} / {worst:.2f} / {rest} of {len(found)} / {seconds:.2f} s")
        out.append(f"| {family} | {count} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--family", default="")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if not options.render:
        run(options)
    print("\nmean MAE / largest error / converged / median time")
    print(render())


if __name__ == "__main__":
    main()
