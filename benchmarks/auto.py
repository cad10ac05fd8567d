"""`auto` on real and hard models: score, who is left without an answer, time against error.

    ICGI_DATA=… python benchmarks/auto.py score [--seconds 20] [--family dbn]
    ICGI_DATA=… python benchmarks/auto.py answers [--seconds 20] [--memory 8]
    ICGI_DATA=… python benchmarks/auto.py hard [--only sk-500] [--seconds 1,5,20]
    python benchmarks/auto.py --render          prints the tables and writes docs/hard.md

`score` meets every instance with a trustworthy reference, and where exact inference does not fit it
also runs the single engines, for the best in hindsight. `answers` meets every instance of the
collection. `hard` meets models that no exact method reaches, with each engine and several times;
the reference is a long run of `pt` (`--reference` makes it, twice, from different seeds), and where
its two runs are not close, only the agreement of independent routes is shown. One JSON line per
answer goes to benchmarks/results/auto.jsonl; a stopped run goes on where it was.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import icgi
from icgi import clock
from icgi.data.collection import Instance, data_folder, instances
from icgi.data.families import FAMILIES
from icgi.metrics import mean_absolute_error, uai_2022_score

ROOT = Path(__file__).parent
LINES = ROOT / "results" / "auto.jsonl"
PAGE = ROOT.parent / "docs" / "hard.md"
SINGLE = ("lbp", "ttve", "pt")
REFERENCE_SECONDS = 120.0


def _made(family: str, **settings: float) -> Callable[[], tuple[icgi.FactorGraph, dict]]:
    return lambda: (FAMILIES[family].sample(np.random.default_rng(2026), **settings), {})


def _published(name: str) -> Callable[[], tuple[icgi.FactorGraph, dict]]:
    def load() -> tuple[icgi.FactorGraph, dict]:
        found = next(each for each in collection() if each.name == name)
        return found.model(), dict(found.evidence())

    return load


HARD = {
    "grid20x20.f5.wrap": _published("grid20x20.f5.wrap"),
    "grid20x20.f10.wrap": _published("grid20x20.f10.wrap"),
    "grid40x40.f2.wrap": _published("grid40x40.f2.wrap"),
    "grid40x40.f10.wrap": _published("grid40x40.f10.wrap"),
    "grid80x80.f10": _published("grid80x80.f10"),
    "sk-500 β=2 h=0.5": _made("sk", n=500, beta=2.0, h=0.5),
    "sk-500 β=2 h=0.1": _made("sk", n=500, beta=2.0, h=0.1),
    "sk-1000 β=1 h=0.5": _made("sk", n=1000, beta=1.0, h=0.5),
    "ea3d L=8 β=1": _made("ea3d", L=8, beta=1.0),
    "ea3d L=12 β=1": _made("ea3d", L=12, beta=1.0),
    "ea3d L=12 β=3": _made("ea3d", L=12, beta=3.0),
    "pdb1b25": _published("pdb1b25"),
    "linkage_11": _published("linkage_11"),
    "BN_12": _published("BN_12"),
}


def collection() -> list[Instance]:
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder that holds manifest.csv")
    return list(instances(folder))


def lines() -> list[dict]:
    return [json.loads(text) for text in LINES.read_text().splitlines()] if LINES.is_file() else []


def keep(line: dict) -> None:
    with LINES.open("a") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
    shown = {k: v for k, v in line.items() if k not in ("task", "version")}
    print(json.dumps(shown, ensure_ascii=False), flush=True)


def answer(line: dict, model, evidence, engine: str, seconds: float, memory: float) -> dict:
    """One line: how an engine did; its marginals under `probs`."""
    budget = icgi.Budget(seconds=seconds, table_bytes=int(memory * 1e9))
    line = line | {"engine": engine, "asked": seconds, "version": icgi.__version__}
    began, cpu = clock.now(), time.process_time()
    try:
        found = icgi.marginals(model, evidence, engine, budget, seed=1)
    except icgi.IcgiError as refusal:
        return line | {"status": "refused", "why": str(refusal)[:160]}
    error = found.std_error
    free = np.setdiff1d(np.arange(model.n_variables), list(evidence))
    return line | {
        "status": found.status.value,
        "seconds": round(clock.now() - began, 2),
        "cpu": round(time.process_time() - cpu, 2),
        "expected": 0.0 if error is None else float(error[free].max(1).mean()),
        "note": found.marginals.note,
        "probs": found.probs[free],
    }


def padded(rows: list, model: icgi.FactorGraph) -> np.ndarray:
    full = np.zeros((model.n_variables, model.max_states))
    for i, row in enumerate(rows):
        full[i, : len(row)] = row
    return full


def score(options: argparse.Namespace) -> None:
    known = {(x["name"], x["engine"]) for x in lines() if x["task"] == "score"}
    for each in collection():
        if not each.has_reference or options.family not in each.family:
            continue
        model, evidence = each.model(), dict(each.evidence())
        free = np.setdiff1d(np.arange(model.n_variables), list(evidence))
        truth = padded(each.reference() or [], model)[free]
        exact = False
        for engine in ("auto", *SINGLE):
            if (each.name, engine) in known or (engine != "auto" and exact):
                continue
            head = {"task": "score", "name": each.name, "family": each.family}
            line = answer(head, model, evidence, engine, options.seconds, options.memory)
            probs = line.pop("probs", None)
            if probs is not None:
                cards = model.cards[free]
                line["score"] = float(uai_2022_score(probs, truth, cards))
                line["error"] = float(mean_absolute_error(probs, truth))
            exact = exact or (engine == "auto" and line["status"] == "exact")
            keep(line)


def answers(options: argparse.Namespace) -> None:
    known = {x["name"] for x in lines() if x["task"] == "answers"}
    for each in collection():
        if each.name in known or options.family not in each.family:
            continue
        head = {"task": "answers", "name": each.name, "family": each.family}
        line = answer(
            head, each.model(), dict(each.evidence()), "auto", options.seconds, options.memory
        )
        line.pop("probs", None)
        keep(line)


def reference(name: str, store: Path) -> tuple[np.ndarray, float]:
    """Mean of two long runs and how far they are apart (mean L1)."""
    target = store / f"{name.replace(' ', '_').replace('=', '')}.npz"
    if not target.is_file():
        model, evidence = HARD[name]()
        free = np.setdiff1d(np.arange(model.n_variables), list(evidence))
        runs = [
            icgi.marginals(
                model, evidence, "pt", icgi.Budget(seconds=REFERENCE_SECONDS), seed=seed
            ).probs[free]
            for seed in (101, 102)
        ]
        np.savez(target, *runs)
    first, second = np.load(target).values()
    return (first + second) / 2, float(mean_absolute_error(first, second))


def hard(options: argparse.Namespace) -> None:
    given = os.environ.get("ICGI_STUDY")
    if given is None:
        raise SystemExit("set ICGI_STUDY to a folder for the references")
    known = {(x["name"], x["engine"], x["asked"]) for x in lines() if x["task"] == "hard"}
    for name, load in HARD.items():
        if options.only not in name:
            continue
        model, evidence = load()
        truth, apart = reference(name, Path(given))
        for engine in ("auto", *SINGLE):
            for seconds in map(float, options.seconds_list.split(",")):
                if (name, engine, seconds) in known:
                    continue
                head = {"task": "hard", "name": name}
                line = answer(head, model, evidence, engine, seconds, options.memory)
                probs = line.pop("probs", None)
                if probs is not None:
                    line |= {"error": float(mean_absolute_error(probs, truth)), "apart": apart}
                keep(line)


def render() -> None:
    found = lines()
    text = [
        "# Hard models: time against error",
        "",
        *_hard([x for x in found if x["task"] == "hard"]),
    ]
    text += ["", "## UAI-2022 score", "", *_score([x for x in found if x["task"] == "score"])]
    text += ["", "## Instances without an answer", ""]
    every = [x for x in found if x["task"] == "answers"]
    none = [x["name"] for x in every if x["status"] == "refused"]
    limits = sorted({x["asked"] for x in every})
    text.append(
        f"{len(none)} of {len(every)} instances met so far"
        + (f", at {limits[0]:g} s" if len(limits) == 1 else "")
        + (f": {', '.join(none)}" if none else "")
        + " (`python benchmarks/auto.py answers`)."
    )
    PAGE.write_text("\n".join(text) + "\n")
    print(PAGE.read_text())


def _hard(found: list[dict]) -> list[str]:
    asked = sorted({x["asked"] for x in found})
    out = [
        "Mean L1 error of a marginal against the mean of two runs of `pt` from different seeds "
        f"(this command makes them in {REFERENCE_SECONDS:g} s each where none are kept; those of "
        "the table below were made by hand: 60 s for the grid, one of the two with Houdayer moves, "
        "300 s for SK, 120 and 400 s on one core for EA 3D). *apart*: mean L1 distance of the two "
        "runs, below which no error can be told. Then what the engine expects of itself (mean "
        "over variables of the largest standard error of a state) and its status. Two cores, "
        "shared with others. Made by `python benchmarks/auto.py hard`, written by `--render` "
        "from `benchmarks/results/auto.jsonl`.",
        "",
        "| model | apart | engine | " + " | ".join(f"{s:g} s" for s in asked) + " |",
        "|---" * (3 + len(asked)) + "|",
    ]
    for name in dict.fromkeys(x["name"] for x in found):
        for engine in ("auto", *SINGLE):
            row = {x["asked"]: x for x in found if x["name"] == name and x["engine"] == engine}
            if not row:
                continue
            apart = next((x["apart"] for x in row.values() if "apart" in x), float("nan"))
            cells = [_cell(row.get(s)) for s in asked]
            out.append(f"| {name} | {apart:.3f} | `{engine}` | " + " | ".join(cells) + " |")
    return out


def _cell(line: dict | None) -> str:
    if line is None:
        return "–"
    if "error" not in line:
        return line["status"]
    expected = f" ({line['expected']:.3f})" if line["expected"] else ""
    return f"{line['error']:.4f}{expected} {line['status']}"


def _score(found: list[dict]) -> list[str]:
    if not found:
        return ["Not run."]
    by = {(x["name"], x["engine"]): x for x in found}
    names = list(dict.fromkeys(x["name"] for x in found))
    ours = [by[n, "auto"].get("score", 0.0) for n in names if (n, "auto") in by]
    out = [
        f"`auto` at {max(x['asked'] for x in found):g} s on {len(ours)} instances with a "
        f"trustworthy reference: **{np.mean(ours):.2f}** (exact on "
        f"{sum(by[n, 'auto']['status'] == 'exact' for n in names if (n, 'auto') in by)}).",
    ]
    rest = [n for n in names if (n, "auto") in by and by[n, "auto"]["status"] != "exact"]
    if rest:
        out += ["", "| not exact | auto | " + " | ".join(SINGLE) + " | expected | error | status |"]
        out.append("|---" * (5 + len(SINGLE)) + "|")
    best = []
    for n in rest:
        auto = by[n, "auto"]
        single = [by.get((n, e), {}).get("score") for e in SINGLE]
        best.append(max([s for s in [auto.get("score", 0.0), *single] if s is not None]))
        cells = ["–" if s is None else f"{s:.2f}" for s in single]
        out.append(
            f"| {n} | {auto.get('score', 0.0):.2f} | " + " | ".join(cells)
            + f" | {auto.get('expected', 0):.4f} | {auto.get('error', 0):.4f} | {auto['status']} |"
        )  # fmt: skip
    if rest:
        exact = [100.0] * (len(ours) - len(rest))
        out += ["", f"Best choice in hindsight: {np.mean(exact + best):.2f}."]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", nargs="?", choices=("score", "answers", "hard"))
    parser.add_argument("--seconds", default="20")
    parser.add_argument("--memory", type=float, default=8.0, help="gigabytes")
    parser.add_argument("--family", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    options.seconds_list = options.seconds
    if options.task in ("score", "answers"):
        options.seconds = float(options.seconds)
    if options.task:
        {"score": score, "answers": answers, "hard": hard}[options.task](options)
    if options.render or not options.task:
        render()


if __name__ == "__main__":
    main()
