"""Error, status and time of the classical approximations on the published instances.

    ICGI_DATA=… python benchmarks/accuracy.py [--engines lbp,trbp] [--seconds 5] [--family grids]
    ICGI_DATA=… python benchmarks/accuracy.py --all [--seconds 2]
    python benchmarks/accuracy.py --render          writes docs/accuracy.md from the stored lines

Without `--all`, the instances with a trustworthy reference are answered and compared. With it every
engine also meets every other instance, and what counts is that nothing crashes, that all numbers
are distributions, and that the status agrees with the residual. One JSON line per (instance,
engine) goes to benchmarks/results/ as soon as it is known; a stopped run goes on where it was.
"""

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import icgi
from icgi.data.collection import Instance, data_folder, instances
from icgi.data.families import FAMILIES
from icgi.metrics import max_error, mean_absolute_error, mean_hellinger

ROOT = Path(__file__).parent
COMPARED = ROOT / "results" / "accuracy.jsonl"
OTHERS = ROOT / "results" / "accuracy_all.jsonl"
PAGE = ROOT.parent / "docs" / "accuracy.md"
ENGINES = ("mf", "lbp", "lbp:damping=0.5", "trbp", "gbp", "tap")
TOLERANCE = 1e-6  # that of every engine by default


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def run(options: argparse.Namespace) -> None:
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder that holds manifest.csv")
    wanted = options.engines.split(",")
    warm_up(wanted)
    known = {(line["instance"], line["engine"]) for p in (COMPARED, OTHERS) for line in lines(p)}
    for instance in instances(folder):
        if options.family not in instance.family or not (options.all or instance.has_reference):
            continue
        todo = [e for e in wanted if (instance.name, e) not in known]
        if not todo:
            continue
        model, evidence = instance.model(), instance.evidence()
        for engine in todo:
            line = answer(instance, model, evidence, engine, options.seconds)
            with (COMPARED if instance.has_reference else OTHERS).open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{instance.name:<22}{engine:<18}", brief(line), flush=True)


def warm_up(engines: list[str]) -> None:
    """Load the compiled code of every engine, so that no instance pays for it."""
    rng = np.random.default_rng(0)
    for family, size in (("ea2d", {"L": 4}), ("tree", {"n": 20})):
        model = FAMILIES[family].sample(rng, **size)
        for engine in engines:
            try:
                icgi.marginals(model, engine=engine)
            except icgi.IcgiError:
                continue


def answer(instance: Instance, model, evidence, engine: str, seconds: float) -> dict:
    line = {"instance": instance.name, "family": instance.family, "engine": engine}
    began = time.perf_counter()
    try:
        found = icgi.marginals(model, evidence, engine, icgi.Budget(seconds=seconds), seed=0)
    except icgi.IcgiError as refusal:
        return line | {"status": "refused", "why": str(refusal)[:160]}
    except Exception as error:  # a crash is what this run looks for
        return line | {"status": "crashed", "why": repr(error)[:160]}
    line |= {
        "status": found.status.value,
        "sound": sound(found),
        "sweeps": found.stats.get("sweeps"),
        "seconds": round(time.perf_counter() - began, 3),
        "limit": seconds,
    }
    if not instance.has_reference:
        return line
    hidden = np.setdiff1d(np.arange(model.n_variables), list(evidence))
    p, q = padded(instance.reference() or [], model.max_states)[hidden], found.probs[hidden]
    return line | {
        "mae": float(mean_absolute_error(q, p)),
        "max": float(max_error(q, p)),
        "hellinger": float(mean_hellinger(q, p)),
    }


def sound(found: icgi.Answer) -> bool:
    """Rows are distributions, and converged means a residual within the tolerance."""
    rows = np.isfinite(found.probs).all() and (found.probs >= 0).all()
    rows = rows and np.allclose(found.probs.sum(1), 1.0, atol=1e-9)
    rest = found.stats["residual"] <= TOLERANCE
    return bool(rows and rest == (found.status.value in ("converged", "exact")))


def padded(rows: list, width: int) -> np.ndarray:
    full = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        full[i, : len(row)] = row
    return full


def brief(line: dict) -> str:
    if line["status"] in ("refused", "crashed"):
        return f"{line['status']}: {line['why']}"
    error = f"MAE {line['mae']:.4f}  max {line['max']:.4f}  " if "mae" in line else ""
    return f"{error}{line['status']}  {line['seconds']:.2f} s" + (
        "" if line["sound"] else "  UNSOUND"
    )


PREAMBLE = """\
# How accurate the classical approximations are

Every instance of the collection with a trustworthy reference: verified, or recomputed exactly
(`relational_*` and the proteins, whose published marginals are wrong or missing). Errors are L1
distances of the marginals of unobserved variables, so 2 is the largest possible. {limit:g} seconds
and 1,000 sweeps for each answer, default options, seed 0, two cores; `lbp:damping=0.5` is a setting
of the paper. Made by `python benchmarks/accuracy.py --render` from the lines in
`benchmarks/results/accuracy.jsonl` and `accuracy_all.jsonl`.

## By family

Mean error / largest error of a variable / converged or exact / median seconds.
"""
CENSUS = """
## Every engine on every instance

Also those without a reference, at {limit:g} seconds. An answer is unsound if a row is not
a distribution or if the status does not agree with the residual.
"""
SINGLE = """
## By instance

Mean error / largest error of a variable / seconds; \\* the budget was spent before convergence.
"""


def render() -> str:
    found, others = lines(COMPARED), lines(OTHERS)
    found.sort(key=lambda line: (line["family"], natural(line["instance"])))
    parts = [
        PREAMBLE.format(limit=limits(found)),
        table("family", found, lambda line: line["family"], summary),
        CENSUS.format(limit=limits(others)),
        census(found + others),
        SINGLE,
        table("instance", found, lambda line: line["instance"], single),
    ]
    return "\n".join(parts) + "\n"


def natural(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def limits(found: list[dict]) -> float:
    return max((line.get("limit", 0.0) for line in found), default=0.0)


def table(what: str, found: list[dict], key, cell) -> str:
    groups: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for line in found:
        groups[key(line), line["engine"]].append(line)
    rows = dict.fromkeys(key(line) for line in found)
    out = [f"| {what} | " + " | ".join(f"`{e}`" for e in ENGINES) + " |"]
    out.append("|---" * (len(ENGINES) + 1) + "|")
    for row in rows:
        count = max(len(groups.get((row, e), [])) for e in ENGINES)
        name = f"{row} ({count})" if count > 1 else row
        cells = [cell(groups[row, e]) if (row, e) in groups else "–" for e in ENGINES]
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def summary(group: list[dict]) -> str:
    answered = [line for line in group if "mae" in line]
    if not answered:
        return group[0]["status"]
    mae = np.mean([line["mae"] for line in answered])
    worst = max(line["max"] for line in answered)
    rest = sum(at_rest(line) for line in answered)
    seconds = np.median([line["seconds"] for line in answered])
    refused = len(group) - len(answered)
    note = f" / {refused} refused" if refused else ""
    return f"{mae:.4f} / {worst:.2f} / {rest} of {len(answered)}{note} / {seconds:.2f} s"


def single(group: list[dict]) -> str:
    line = group[-1]
    if "mae" not in line:
        return line["status"]
    mark = {"exact": ", exact", "converged": ""}.get(line["status"], " \\*")
    return f"{line['mae']:.4f} / {line['max']:.3f} / {line['seconds']:.2f} s{mark}"


def at_rest(line: dict) -> bool:
    return line["status"] in ("converged", "exact")


def census(found: Iterable[dict]) -> str:
    """How the runs of each engine ended."""
    count: dict[str, Counter[str]] = defaultdict(Counter)
    for line in found:
        count[line["engine"]][line["status"]] += 1
        count[line["engine"]]["unsound"] += not line.get("sound", True)
    kinds = ("exact", "converged", "budget spent", "diverged", "refused", "crashed", "unsound")
    out = ["| engine | instances | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 2) + "|"]
    for engine in ENGINES:
        row = count[engine]
        total = sum(row[k] for k in kinds[:-1])
        out.append(f"| `{engine}` | {total} | " + " | ".join(str(row[k]) for k in kinds) + " |")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--family", default="")
    parser.add_argument("--all", action="store_true", help="also instances without a reference")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if not options.render:
        run(options)
        return
    page = render()
    PAGE.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
