"""`icgi:fast` against `lbp` on the published models with trustworthy references.

    ICGI_DATA=… python benchmarks/networks_real.py [--seconds 4] [--family dbn]
    python benchmarks/networks_real.py --render    print the table of the stored lines

One JSON line per (instance, engine) goes to benchmarks/results/networks_real.jsonl as soon as it is
known; a stopped run goes on where it was. The error is the mean L1 distance of the marginals of
unobserved variables. Of each family every other instance, the first of them included, was used to
choose between settings (`development`); the others are reported.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

import icgi
from icgi import clock
from icgi.data.collection import Instance, data_folder, instances
from icgi.model.graph import FloatArray

LINES = Path(__file__).parent / "results" / "networks_real.jsonl"
ENGINES = ("icgi:fast", "lbp")


def referenced() -> list[tuple[Instance, bool]]:
    """Instances with references, and whether each is for development."""
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder that holds manifest.csv")
    count: dict[str, int] = defaultdict(int)
    found = []
    for instance in instances(folder):
        if instance.has_reference:
            found.append((instance, count[instance.family] % 2 == 0))
            count[instance.family] += 1
    return found


def truth(instance: Instance) -> FloatArray:
    """Reference marginals, n k."""
    rows = instance.reference() or []
    exact = np.zeros((len(rows), max(map(len, rows), default=0)))
    for i, row in enumerate(rows):
        exact[i, : len(row)] = row
    return exact


def answer(instance: Instance, engine: str, seconds: float) -> dict:
    model, evidence = instance.model(), instance.evidence()
    hidden = np.setdiff1d(np.arange(model.n_variables), list(evidence))
    exact = truth(instance)
    began = clock.now()
    try:
        found = icgi.marginals(model, evidence, engine, icgi.Budget(seconds=seconds), seed=0)
    except icgi.IcgiError as refusal:
        return {"status": "refused", "why": str(refusal)[:160]}
    line = {"status": found.status.value, "seconds": round(clock.now() - began, 2)}
    line["error"] = float(np.abs(found.probs - exact)[hidden].sum(1).mean())
    line |= {k: round(found.stats[k], 4) for k in ("answered", "fallback") if k in found.stats}
    if (band := found.interval(0.9)) is not None:
        open_ = ((exact > 0) & (exact < 1))[hidden]
        inside = (band[0] - 1e-6 <= exact) & (exact <= band[1] + 1e-6)
        line["inside"] = float(inside[hidden][open_].mean())
    return line


def run(seconds: float, family: str) -> None:
    known = {(line["instance"], line["engine"]) for line in lines()}
    for instance, development in referenced():
        for engine in ENGINES:
            if family not in instance.family or (instance.name, engine) in known:
                continue
            line = {
                "instance": instance.name, "family": instance.family, "engine": engine,
                "development": development, "limit": seconds,
            } | answer(instance, engine, seconds)  # fmt: skip
            with LINES.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{instance.name:<22}{engine:<10} {line.get('error', np.nan):.4f}", flush=True)


def lines() -> list[dict]:
    return [json.loads(text) for text in LINES.read_text().splitlines()] if LINES.is_file() else []


def render() -> None:
    groups: dict[tuple[str, bool], dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for line in lines():
        for family in (line["family"], "all"):
            groups[family, line["development"]][line["engine"]].append(line)
    print("| family | split | models | `icgi:fast` | `lbp` | better or equal | answered | inside |")
    print("|" + "---|" * 8)
    for (family, development), found in sorted(groups.items(), key=lambda g: (g[0][0], g[0][1])):
        ours, lbp = found["icgi:fast"], {x["instance"]: x for x in found["lbp"]}
        pairs = [(x, lbp[x["instance"]]) for x in ours if x["instance"] in lbp and "error" in x]
        if not pairs:
            continue
        wins = sum(x["error"] <= y["error"] + 1e-4 for x, y in pairs)
        cells = [
            family, "development" if development else "report", str(len(ours)),
            *(f"{np.mean([p[e]['error'] for p in pairs]):.4f}" for e in (0, 1)),
            f"{wins} of {len(pairs)}",
            *(f"{np.mean([x[k] for x, _ in pairs]):.2f}" for k in ("answered", "inside")),
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--family", default="")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if options.render:
        render()
    else:
        run(options.seconds, options.family)


if __name__ == "__main__":
    main()
