"""Every engine on every published instance: no crash, no NaN, no overrun, no impossible mass.

    ICGI_DATA=… python benchmarks/every_instance.py [--engines lbp,pt] [--family dbn] [--seconds S]
                                        [--instances K] [--minutes M] [--workers N] [--late]
    python benchmarks/every_instance.py --render    writes docs/every_instance.md from the lines

One JSON line per (instance, engine) goes to benchmarks/results/every_instance.jsonl as soon as it
is known; a stopped run goes on where it was. Every engine meets the first instance of each family
before any meets the second, so that a run that is not finished has seen all kinds; `--instances`
says how many of each family, `--minutes` when to begin nothing more. `--late` runs again what was
late; the new line takes the place of the old one. With several workers each
answer has one process and one thread, and `load` says how busy the machine was. An answer is
unsound if a row is not a distribution, if a state that the evidence and the zeros rule out has
mass, or if log Z or a standard error is not a finite number. It is late if it took more than
max(0.5 s, 10 %) longer than asked, by the clock on the wall, or with `ICGI_CLOCK=processor` by the
processor time of the process (on a machine that others use); each line says which.
"""

import argparse
import faulthandler
import json
import math
import multiprocessing
import os
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import zip_longest
from pathlib import Path

import numpy as np

import icgi
from icgi import clock
from icgi.data.collection import Instance, data_folder, instances
from icgi.engines import parse_engine
from icgi.metrics import mean_absolute_error
from icgi.model.condition import condition

ROOT = Path(__file__).parent
LINES = ROOT / "results" / "every_instance.jsonl"
PAGE = ROOT.parent / "docs" / "every_instance.md"
ENGINES = (
    "auto", "exact", "enumerate", "jt", "pfaffian", "pt", "ttve", "pa", "gbp", "trbp", "mf", "lbp",
    "tap", "icgi", "icgi:paper", "gnn-bp", "bpnn", "direct-gnn", "ensemble",
)  # fmt: skip
KINDS = (
    "exact", "converged", "at rest", "estimated", "budget spent", "diverged", "refused",
    "crashed", "unsound", "late",
)  # fmt: skip


def run(options: argparse.Namespace) -> None:
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder that holds manifest.csv")
    known = {(line["instance"], line["engine"]) for line in lines()}
    families: dict[str, list[Instance]] = defaultdict(list)
    for instance in instances(folder):
        if options.family in instance.family:
            families[instance.family].append(instance)
    rounds = zip_longest(*(family[: options.instances] for family in families.values()))
    open_ = [
        (instance, engine)
        for one_each in rounds
        for engine in options.engines.split(",")
        for instance in filter(None, one_each)
        if (instance.name, engine) not in known
    ]
    if options.late:
        again = {(line["instance"], line["engine"]) for line in lines() if late(line)}
        by_name = {instance.name: instance for family in families.values() for instance in family}
        open_ = [(by_name[name], engine) for name, engine in sorted(again) if name in by_name]
    until = time.monotonic() + 60 * options.minutes
    if options.workers == 1:
        for instance, engine in open_:
            if time.monotonic() > until:
                return
            keep(answer(instance, engine, options.seconds))
        return
    fresh = multiprocessing.get_context("spawn")  # no threads are shared with the parent
    with ProcessPoolExecutor(options.workers, mp_context=fresh) as pool:
        waiting = [pool.submit(answer, *pair, options.seconds) for pair in open_]
        for done in as_completed(waiting):
            keep(done.result())
            if time.monotonic() > until:
                pool.shutdown(cancel_futures=True)
                return


def keep(line: dict) -> None:
    """Append a line, or put it in the place of the one of the same instance and engine."""
    pair = line["instance"], line["engine"]
    before = lines()
    rest = [x for x in before if (x["instance"], x["engine"]) != pair]
    if len(rest) < len(before):
        LINES.write_text("".join(json.dumps(x) + "\n" for x in rest))
    with LINES.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(f"{line['instance']:<24}{line['engine']:<12}{words(line)}", flush=True)


def answer(instance: Instance, engine: str, seconds: float) -> dict:
    model, evidence = instance.model(), instance.evidence()
    # what is loaded before a person's clock starts: settings, and torch where a network is asked
    chosen = parse_engine(engine)
    line: dict = {"instance": instance.name, "family": instance.family, "engine": engine}
    faulthandler.dump_traceback_later(10 * seconds + 60)  # says where a run hangs
    began = clock.now()
    try:
        found = icgi.marginals(model, evidence, chosen, icgi.Budget(seconds=seconds), seed=0)
    except icgi.IcgiError as refusal:
        found, line = None, line | {"status": "refused", "why": str(refusal)[:160]}
    except Exception as error:  # a crash is what this run looks for
        found, line = None, line | {"status": "crashed", "why": repr(error)[:160]}
    faulthandler.cancel_dump_traceback_later()
    line |= {"seconds": round(clock.now() - began, 3), "limit": seconds}
    line["load"] = round(os.getloadavg()[0], 1)
    line["clock"] = "processor" if clock.BY_PROCESSOR else "wall"
    if found is None:
        return line
    wrong = broken(found)
    line |= {"status": found.status.value, "sound": not wrong}
    if wrong:
        line["broken"] = wrong
    reference = instance.reference() if instance.has_reference else None
    if reference is not None:
        hidden = np.setdiff1d(np.arange(model.n_variables), list(evidence))
        p, q = padded(reference, model.max_states)[hidden], found.probs[hidden]
        line["mae"] = float(mean_absolute_error(q, p))
    return line


def broken(found: icgi.Answer) -> list[str]:
    """Which conditions of a sound answer it breaks."""
    probs, errors = found.probs, found.marginals.std_error
    alive = condition(found.model, found.evidence).alive
    holds = {
        "probabilities are finite": np.isfinite(probs).all(),
        "none is negative": (probs >= 0).all(),
        "rows sum to one": np.allclose(probs.sum(1), 1.0, atol=1e-9),
        "excluded states have no mass": not probs[~alive].any(),
        "log Z is finite": np.isfinite(found.log_z or 0.0),
        "standard errors are finite": errors is None or np.isfinite(errors).all(),
    }
    return [name for name, true in holds.items() if not true]


def padded(rows: list, width: int) -> np.ndarray:
    full = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        full[i, : len(row)] = row
    return full


def lines() -> list[dict]:
    return [json.loads(text) for text in LINES.read_text().splitlines()] if LINES.is_file() else []


def late(line: dict) -> bool:
    return line["seconds"] > line["limit"] + max(0.5, 0.1 * line["limit"])


def words(line: dict) -> str:
    error = f"  mean error {line['mae']:.4f}" if "mae" in line else ""
    marks = "".join([" LATE" * late(line), " UNSOUND" * (not line.get("sound", True))])
    why = f": {line['why']}" if "why" in line else ""
    return f"{line['seconds']:7.2f} s  {line['status']}{error}{marks}{why}"


def _incomplete(found: list[dict]) -> list[str]:
    """Which engines have not met all instances, and how late answers came about."""
    per_engine = Counter(line["engine"] for line in found)
    most = max(per_engine.values(), default=0)
    families = {e: len({x["family"] for x in found if x["engine"] == e}) for e in per_engine}
    fewest = min((per_engine[e], families[e]) for e in per_engine) if per_engine else (0, 0)
    by_processor = sum(line.get("clock") == "processor" for line in found)
    text = [
        f"{by_processor:,} of the {len(found):,} answers had their seconds counted in processor "
        "time, since others used the machine; the seconds of the rest are those of the clock on "
        "the wall.",
        "",
    ]
    if fewest[0] < most:
        total = most * len(ENGINES)
        text += [
            f"**Not complete:** {total - len(found):,} of {total:,} answers are missing (column "
            "*not asked*); the command above asks for these and no others. Engines meet one "
            "instance of every family before the second of any. The engine with the fewest has "
            f"met {fewest[0]}, of {fewest[1]} families.",
            "",
        ]
    slow = [line for line in found if late(line)]
    loads = sorted(line["load"] for line in slow if "load" in line)
    if loads:
        text += [
            f"The {len(slow)} late answers were made while two cores had a load of {loads[0]:g} to "
            f"{loads[-1]:g} (*p*: by processor time): "
            + ", ".join(
                f"`{x['engine']}` {x['instance']} {x['seconds']:.1f} s"
                + " *p*" * (x.get("clock") == "processor")
                for x in sorted(slow, key=lambda x: -x["seconds"])
            )
            + ".",
            "",
        ]
    return text


def render() -> None:
    found = lines()
    count: dict[str, Counter[str]] = defaultdict(Counter)
    for line in found:
        row = count[line["engine"]]
        row["instances"] += 1
        row[line["status"]] += 1
        row["unsound"] += not line.get("sound", True)
        row["late"] += late(line)
    limit = max((line["limit"] for line in found), default=0)
    text = [
        "# Every engine on every published instance",
        "",
        f"{limit:g} seconds and the default memory for each answer; made by "
        "`python benchmarks/every_instance.py`, written by `--render` from "
        "`benchmarks/results/every_instance.jsonl`. *unsound*: a row is not a distribution, "
        "impossible states have mass, or a number is not finite. *late*: more than max(0.5 s, "
        "10 %) over the time. `pt-gpu` needs a device and was left out.",
        "",
        *_incomplete(found),
        "| engine | instances | not asked | " + " | ".join(KINDS) + " |",
        "|---" * (len(KINDS) + 3) + "|",
    ]
    most = max((row["instances"] for row in count.values()), default=0)
    for engine in [e for e in ENGINES if e in count]:
        row = count[engine]
        cells = [str(row["instances"]), str(most - row["instances"])]
        cells += [str(row[kind]) for kind in KINDS]
        text.append(f"| `{engine}` | " + " | ".join(cells) + " |")
    PAGE.write_text("\n".join(text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--family", default="")
    parser.add_argument("--instances", type=int, metavar="K", help="of each family")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="M")
    parser.add_argument("--workers", type=int, default=1, metavar="N")
    parser.add_argument("--late", action="store_true", help="again what was late")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if options.render:
        render()
    else:
        run(options)


if __name__ == "__main__":
    main()
