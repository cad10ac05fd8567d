"""Error, status and time of engines on the published instances: a page from `icgi batch`.

    ICGI_DATA=… python benchmarks/accuracy.py commands     prints the two commands that it rests on
    python benchmarks/accuracy.py accuracy.csv accuracy_all.csv     keeps their tables
    python benchmarks/accuracy.py                     writes docs/accuracy.md from what is kept

The first table has the instances with a trustworthy reference, the second all of them: what counts
there is how the answers ended. What the page needs of them is kept in benchmarks/results/.
"""

import argparse
import csv
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from icgi import __version__
from icgi.data.jobs.answers import hardware

ROOT = Path(__file__).parent
COMPARED = ROOT / "results" / "accuracy.jsonl"
ALL = ROOT / "results" / "accuracy_all.jsonl"
PAGE = ROOT.parent / "docs" / "accuracy.md"
ENGINES = ("mf", "lbp", "lbp:damping=0.5", "trbp", "gbp", "tap", "ttve", "pt")
WORDS = ("instance", "family", "engine", "status")
NUMBERS = ("mae", "max", "expected", "seconds")
DIGITS = 4
Line = dict[str, object]


def keep(rows_of: Path, path: Path) -> None:
    """Lines of a batch, with a few digits, behind one that says where they were made."""
    with rows_of.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines: list[Line] = [{"version": __version__, "hardware": hardware()}]
    for row in rows:
        numbers = {x: float(f"{float(row[x]):.{DIGITS}g}") for x in NUMBERS if row[x]}
        lines.append({x: row[x] for x in WORDS} | numbers)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def kept(path: Path) -> tuple[Line, list[Line]]:
    head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    return head, lines


def command(seconds: float, engines: Iterable[str], options: str, out: str) -> str:
    asked = " ".join(f"--engine {engine}" for engine in engines)
    return f"icgi batch $ICGI_DATA {options}--seconds {seconds:g} {asked} -o {out}"


FIRST = command(5, ENGINES, "--referenced ", "accuracy.csv")
SECOND = command(2, ENGINES[:6], "", "accuracy_all.csv")
PREAMBLE = """\
# How accurate the approximations are

Every instance of the collection with a trustworthy reference: verified, or recomputed exactly
(`relational_*` and the proteins, whose published marginals are wrong or missing). Errors are L1
distances of the marginals of unobserved variables, so 2 is the largest possible. Default options,
seed 0, one thread for each answer, two answers side by side; `lbp:damping=0.5` is a setting of the
paper. Made by

    {first}
    {second}
    python benchmarks/accuracy.py accuracy.csv accuracy_all.csv

(icgi {version}, {hardware}, which others used, too: loads of 3 to 6; the first took
{spent:.0f} seconds for {answers} answers). What the page needs is kept in
`benchmarks/results/accuracy.jsonl` and `accuracy_all.jsonl`. The first answer of a worker includes
loading the engine.

## All instances together

*best*: instances where no other engine has a smaller error; *expected*: the mean of what the engine
says its own error is.

"""
FAMILIES = """
## By family

Mean error / largest error of a variable / answers at rest, converged or exact / median seconds.

"""
CENSUS = """
## How answers end on every instance

Also those without a reference, by the second command. That rows are distributions and statuses true
is checked elsewhere ([every instance](every_instance.md)).

"""
SINGLE = """
## By instance

Mean error / largest error of a variable / seconds; \\* the budget was spent.

"""


def render() -> str:
    head, found = kept(COMPARED)
    _, every = kept(ALL)
    found.sort(key=lambda line: (line["family"], natural(str(line["instance"]))))
    words = {"version": head["version"], "hardware": head["hardware"]}
    words |= {"first": FIRST, "second": SECOND}
    seconds = sum(number(line, "seconds") for line in found if "seconds" in line)
    return "".join([
        PREAMBLE.format(**words, answers=len(found), spent=seconds),
        together(found),
        FAMILIES,
        table("family", found, lambda line: str(line["family"]), summary),
        CENSUS,
        census(every),
        SINGLE,
        table("instance", found, lambda line: str(line["instance"]), single),
    ])  # fmt: skip


def number(line: Line, name: str) -> float:
    value = line[name]
    assert isinstance(value, float | int)
    return float(value)


def natural(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def together(found: Iterable[Line]) -> str:
    """One row for each engine."""
    errors: dict[str, dict[str, float]] = defaultdict(dict)
    expected: dict[str, list[float]] = defaultdict(list)
    for line in found:
        if "mae" in line:
            errors[str(line["instance"])][str(line["engine"])] = number(line, "mae")
        if "expected" in line:
            expected[str(line["engine"])].append(number(line, "expected"))
    out = ["| engine | answered | mean error | median | best | expected |", "|---" * 6 + "|"]
    for engine in ENGINES:
        own = [row[engine] for row in errors.values() if engine in row]
        best = sum(row.get(engine, np.inf) <= min(row.values()) + 5e-7 for row in errors.values())
        said = f"{np.mean(expected[engine]):.4f}" if expected[engine] else "–"
        out.append(
            f"| `{engine}` | {len(own)} | {np.mean(own):.4f} | {np.median(own):.4f} | "
            f"{best / len(errors):.0%} | {said} |"
        )
    return "\n".join(out) + "\n"


def table(
    what: str, found: list[Line], key: Callable[[Line], str], cell: Callable[[list[Line]], str]
) -> str:
    groups: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in found:
        groups[key(line), str(line["engine"])].append(line)
    rows = dict.fromkeys(key(line) for line in found)
    out = [f"| {what} | " + " | ".join(f"`{e}`" for e in ENGINES) + " |"]
    out.append("|---" * (len(ENGINES) + 1) + "|")
    for row in rows:
        count = max(len(groups.get((row, e), [])) for e in ENGINES)
        name = f"{row} ({count})" if count > 1 else row
        cells = [cell(groups[row, e]) if (row, e) in groups else "–" for e in ENGINES]
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def summary(group: list[Line]) -> str:
    answered = [line for line in group if "mae" in line]
    if not answered:
        return str(group[0]["status"])
    mae = np.mean([number(line, "mae") for line in answered])
    worst = max(number(line, "max") for line in answered)
    ended = sum(not spent(line) for line in answered)
    seconds = np.median([number(line, "seconds") for line in answered])
    refused = len(group) - len(answered)
    note = f" / {refused} refused" if refused else ""
    return f"{mae:.4f} / {worst:.2f} / {ended} of {len(answered)}{note} / {seconds:.2f} s"


def single(group: list[Line]) -> str:
    line = group[-1]
    if "mae" not in line:
        return str(line["status"])
    mark = ", exact" if line["status"] == "exact" else " \\*" if spent(line) else ""
    mae, most, seconds = (number(line, name) for name in ("mae", "max", "seconds"))
    return f"{mae:.4f} / {most:.3f} / {seconds:.2f} s{mark}"


def spent(line: Line) -> bool:
    return line["status"] in ("budget spent", "diverged")


def census(found: Iterable[Line]) -> str:
    """How the runs of each engine ended."""
    count: dict[str, Counter[str]] = defaultdict(Counter)
    for line in found:
        count[str(line["engine"])][str(line["status"])] += 1
    kinds = ("exact", "converged", "at rest", "budget spent", "diverged", "refused", "failed")
    out = ["| engine | instances | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 2) + "|"]
    for engine, row in count.items():
        ended = " | ".join(str(row[kind]) for kind in kinds)
        out.append(f"| `{engine}` | {row.total()} | {ended} |")
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="accuracy.csv accuracy_all.csv")
    given = parser.parse_args().tables
    if given == ["commands"]:
        print(FIRST, SECOND, sep="\n")
        return
    for table, path in zip(given, (COMPARED, ALL), strict=False):
        keep(Path(table), path)
    PAGE.write_text(render())


if __name__ == "__main__":
    main()
