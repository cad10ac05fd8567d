"""Seconds asked and seconds used: every engine on large models of seven kinds.

    ICGI_DATA=… python benchmarks/deadlines.py [--engines lbp,pt] [--models sk-500] [--seconds 1,5]
                                               [--workers N] [--late]
    python benchmarks/deadlines.py --render         writes docs/deadlines.md from the stored lines

Each answer is made in a fresh process, as `icgi marginals` is; reading or building the model and
compiling are not counted, loading compiled code is. One JSON line per (engine, model, seconds) goes
to benchmarks/results/deadlines.jsonl; a stopped run goes on where it was, and `--late` runs again
what was late: the new line takes the place of the old one. An engine keeps its
deadline if it uses at most max(0.5 s, 10 %) more than it was given, by the clock on the wall.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path

import numpy as np

import icgi
import icgi.engines
from icgi import clock
from icgi.data.collection import data_folder, instances
from icgi.data.families import FAMILIES
from icgi.model.graph import FactorGraph

ROOT = Path(__file__).parent
LINES = ROOT / "results" / "deadlines.jsonl"
PAGE = ROOT.parent / "docs" / "deadlines.md"
ENGINES = (
    "auto", "exact", "jt", "pfaffian", "mf", "lbp", "trbp", "gbp", "tap", "ttve", "pt", "pa",
    "icgi", "icgi:paper", "gnn-bp", "bpnn", "direct-gnn", "ensemble",
)  # fmt: skip
PROTEIN = "pdb1b25"


def _grid(side: int) -> FactorGraph:
    return FAMILIES["ea2d"].sample(np.random.default_rng(1), L=side)


def _dense(n: int) -> FactorGraph:
    return FAMILIES["sk"].sample(np.random.default_rng(1), n=n)


def _chain() -> FactorGraph:
    rng, n = np.random.default_rng(1), 100_000
    return icgi.from_factors([((i, i + 1), rng.random((2, 2)) + 0.1) for i in range(n - 1)])


def _large_factor() -> FactorGraph:
    table = np.random.default_rng(1).random((2,) * 24) + 0.01
    return icgi.from_factors([(tuple(range(24)), table)])


def _protein() -> FactorGraph:
    folder = data_folder()
    if folder is None:
        raise SystemExit(f"set ICGI_DATA to the folder that holds {PROTEIN}")
    return next(each for each in instances(folder) if each.name == PROTEIN).model()


MODELS: dict[str, Callable[[], FactorGraph]] = {
    "grid-100x100": lambda: _grid(100),
    "grid-300x300": lambda: _grid(300),
    "sk-500": lambda: _dense(500),
    "sk-2000": lambda: _dense(2000),
    "chain-100000": _chain,
    "factor-2^24": _large_factor,
    PROTEIN: _protein,
}


def measure(engine: str, name: str, seconds: float) -> dict:
    """One answer in this process."""
    model = MODELS[name]()
    # what is loaded before a person's clock starts: settings, and torch where a network is asked
    chosen = icgi.engines.parse_engine(engine)
    began, paused, cpu = time.perf_counter(), clock.now(), time.process_time()
    line: dict = {"engine": engine, "model": name, "asked": seconds}
    try:
        found = icgi.marginals(model, engine=chosen, budget=icgi.Budget(seconds=seconds), seed=1)
        rows = np.isfinite(found.probs).all() and np.allclose(found.probs.sum(1), 1.0, atol=1e-6)
        line |= {"status": found.status.value, "sound": bool(rows)}
    except icgi.IcgiError as refusal:
        line |= {"status": "refused", "why": str(refusal)[:200]}
    except Exception as error:  # a crash is what this run looks for
        line |= {"status": "crashed", "why": repr(error)[:200]}
    line |= {
        "used": round(clock.now() - paused, 3),
        "wall": round(time.perf_counter() - began, 3),
        "cpu": round(time.process_time() - cpu, 3),
        "load": round(os.getloadavg()[0], 1),
    }
    return line


def run(options: argparse.Namespace) -> None:
    known = {question(x) for x in lines() if not (options.late and not kept(x))}
    if options.late:
        asked = {question(x) for x in lines()}
        known |= set(product(ENGINES, MODELS, budgets_of(options))) - asked
    open_ = [
        (engine, name, seconds)
        for name, engine, seconds in product(
            options.models.split(","), options.engines.split(","), budgets_of(options)
        )
        if (engine, name, seconds) not in known
    ]
    with ThreadPoolExecutor(options.workers) as pool:  # each waits for a process of its own
        waiting = [pool.submit(in_a_process, *each) for each in open_]
        for done in as_completed(waiting):
            line = done.result()
            keep(line)
            name, engine, seconds = line["model"], line["engine"], line["asked"]
            print(f"{name:<14}{engine:<12}{seconds:5g} s  {cell(line)}", flush=True)


def budgets_of(options: argparse.Namespace) -> list[float]:
    return [float(s) for s in options.seconds.split(",")]


def question(line: dict) -> tuple[str, str, float]:
    return line["engine"], line["model"], line["asked"]


def keep(line: dict) -> None:
    """Append a line, or put it in the place of the one of the same question."""
    before = lines()
    rest = [x for x in before if question(x) != question(line)]
    if len(rest) < len(before):
        LINES.write_text("".join(json.dumps(x) + "\n" for x in rest))
    with LINES.open("a") as file:
        file.write(json.dumps(line) + "\n")


def in_a_process(engine: str, name: str, seconds: float) -> dict:
    words = [sys.executable, __file__, "--one", engine, name, str(seconds)]
    line: dict = {"engine": engine, "model": name, "asked": seconds}
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=4 * seconds + 240, check=False
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return line | {"status": "endless"}
    except (IndexError, json.JSONDecodeError):
        return line | {"status": "killed", "why": done.stderr[-200:]}


def lines() -> list[dict]:
    return [json.loads(text) for text in LINES.read_text().splitlines()] if LINES.is_file() else []


def kept(line: dict) -> bool:
    return line.get("used", np.inf) <= line["asked"] + max(0.5, 0.1 * line["asked"])


def cell(line: dict) -> str:
    late = "" if kept(line) else f" **late** ({line.get('cpu', np.nan):.1f} s of a processor)"
    return f"{line.get('used', np.nan):.2f} {line['status']}{late}"


def load(found: Iterable[dict], asked: float) -> str:
    """Median and largest load of the machine during the runs of so many seconds."""
    loads = sorted(x["load"] for x in found if x["asked"] == asked and "load" in x)
    if not loads:
        return "not kept"
    return f"{loads[len(loads) // 2]:g} ({loads[-1]:g}), {len(loads)} runs"


def render() -> None:
    found = {(x["engine"], x["model"], x["asked"]): x for x in lines()}
    asked = sorted({seconds for *_, seconds in found})
    engines = [e for e in ENGINES if any(key[0] == e for key in found)]
    late = [x for x in found.values() if not kept(x)]
    text = [
        "# Deadlines: seconds asked and used",
        "",
        "Seconds used by the clock on the wall and how the answer ended, in a fresh process, by "
        "`python benchmarks/deadlines.py`; the tables are written by `--render` from "
        "`benchmarks/results/deadlines.jsonl`. Compiling (once after an installation) and building "
        "the model are not counted. *refused* is a message before or within that time that says "
        "why. An engine keeps its deadline if it uses at most max(0.5 s, 10 %) more than asked: "
        f"{len(found) - len(late)} of {len(found)} did; **late** marks the others, with the "
        "processor time that they got: less than was asked means that other programs had the rest. "
        "Rows of 1 and 5 s that never were late, and those of 20 s of the engines `mf` to `pt` on "
        "grids and SK models, are of an earlier version; a dash was not run. The loads of the two "
        "cores, median (most):",
        "",
        *(f"* {s:g} s: {load(found.values(), s)}" for s in asked),
    ]
    for name in MODELS:
        rows = [e for e in engines if any((e, name, s) in found for s in asked)]
        if not rows:
            continue
        text += ["", f"## {name}", "", "| engine | " + " | ".join(f"{s:g} s" for s in asked) + " |"]
        text.append("|---" * (len(asked) + 1) + "|")
        for engine in rows:
            cells = [found.get((engine, name, s)) for s in asked]
            text.append(
                f"| `{engine}` | " + " | ".join("–" if c is None else cell(c) for c in cells) + " |"
            )
    PAGE.write_text("\n".join(text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seconds", default="1,5,20")
    parser.add_argument("--workers", type=int, default=1, metavar="N")
    parser.add_argument("--late", action="store_true", help="again what was late, nothing else")
    parser.add_argument("--one", nargs=3, metavar=("ENGINE", "MODEL", "SECONDS"))
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], options.one[1], float(options.one[2]))))
    elif options.render:
        render()
    else:
        run(options)


if __name__ == "__main__":
    main()
