"""Grids as Markdown and as rows for a spreadsheet."""

import csv
import importlib
import io
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from icgi import __version__
from icgi.bench.runner import UNAVAILABLE, Run
from icgi.bench.summary import Grid
from icgi.bench.verdicts import claims, counted, markdown_of, short
from icgi.data.jobs.job import FAILED, REFUSED

LEGEND = (
    "A cell is `[claim of the paper] measurement`: mean over graphs (seeds averaged first) ± "
    "standard deviation over graphs, with the median where the mean is skewed. **Bold**: the best "
    "of a row and what no reference can tell from it. *Not converged* counts answers whose engine "
    "says so. *Seconds* is the median of an answer. A method that cannot be asked says why."
)


def grids_of(run: Run) -> list[Grid]:
    """What the table of a run shows."""
    module, _, name = run.table.summary.partition(":")
    made: list[Grid] = getattr(importlib.import_module(module), name)(run)
    return made


def markdown(run: Run) -> str:
    """Page of one table at one scale."""
    table = run.table
    out = [f"# {table.title}", ""]
    out += [f"{facts(run)}", "", LEGEND, ""]
    out += [f"* {note}" for note in table.notes]
    for k, grid in enumerate(grids_of(run)):
        out += ["", f"{'#' * grid.level} {grid.title}", ""]
        if grid.note:
            out += [grid.note, ""]
        if is_curve(grid):
            out += [f"![{grid.axes[1]} over {grid.axes[0]}]({picture_name(run, k)})", ""]
        out.append("| " + " | ".join(grid.header) + " |")
        out.append("|---" * len(grid.header) + "|")
        out += ["| " + " | ".join(map(_escaped, row)) + " |" for row in grid.rows]
    return "\n".join(out) + "\n"


def is_curve(grid: Grid) -> bool:
    """Whether a page shows a grid as curves, beside its numbers."""
    return len({point.x for point in grid.points if not isinstance(point.x, str)}) > 1


def picture_name(run: Run, place: int) -> str:
    """File name of the curves of the grid at this place of a page."""
    return f"{run.table.name}-{run.scale_name}-{place + 1}.svg"


def index(runs: Sequence[Run]) -> str:
    """Page that lists the pages of all runs, with how many answers and how many did not end."""
    out = ["# Tables of the paper, as measured here", ""]
    out += [
        "| table | scale | answers | no answer | engines not available |",
        "|---|---|---|---|---|",
    ]
    for run in runs:
        lines = run.lines()
        answers = [line for line in lines if "case" in line]
        none = sum(line["status"] in (REFUSED, FAILED) for line in answers)
        missing = [f"`{x['engine']}`" for x in lines if x["status"] == UNAVAILABLE]
        name = f"{run.table.name}-{run.scale_name}.md"
        cells = (f"{len(answers)}", f"{none}", ", ".join(dict.fromkeys(missing)) or "–")
        out.append(
            f"| [{run.table.title}]({name}) | {run.scale_name} | " + " | ".join(cells) + " |"
        )
    out += ["", "Written by `icgi bench render`; see [bench.md](../bench.md).", ""]
    parts = sections(runs)
    return "\n".join([*out, parts["short"], parts["claims"]])


def sections(runs: Sequence[Run]) -> dict[str, str]:
    """Parts of other pages: claims one by one, errors in short, and those for the first page."""
    chosen = {run.table.name: run for run in runs if run.scale_name != "smoke"}
    one_by_one, errors = claims(chosen), short(chosen)
    count = f"{len(one_by_one.rows)} claims: {counted(one_by_one)}."
    tight = "\n".join("|" + "|".join(row) + "|" for row in (
        errors.header, ("---",) * len(errors.header), *errors.rows
    ))  # fmt: skip
    return {
        "short": markdown_of(errors),
        "claims": f"{count}\n\n{markdown_of(one_by_one)}",
        "first page": f"{tight}\n\n{count}\n",
    }


def refreshed(text: str, parts: Mapping[str, str]) -> str:
    """Text of a page with these parts between its marks; a page without a mark stays as it is."""
    for name, part in parts.items():
        begin, end = f"<!-- bench {name} -->", f"<!-- end of bench {name} -->"
        before, found, rest = text.partition(begin)
        if found and end in rest:
            text = f"{before}{begin}\n\n{part}\n{end}{rest.partition(end)[2]}"
    return text


def facts(run: Run) -> str:
    """Command, paper's label, number of answers, version and machine, in a sentence."""
    answers = [line for line in run.lines() if "case" in line]
    hardware = Counter(line["hardware"] for line in answers)
    limits = ", ".join(f"{s:g} s" for s in run.scale.seconds)
    machines = "; ".join(name for name, _ in hardware.most_common()) or "no machine yet"
    versions = ", ".join(sorted({line["version"] for line in answers})) or __version__
    share = [x["cpu"] / x["seconds"] for x in answers if x.get("cpu") and x["seconds"] > 0.5]
    busy = ""
    if share:
        busy = f" Longer answers had {min(1.0, statistics.median(share)):.0%} of a processor."
    return (
        f"`icgi bench {run.table.name} --scale {run.scale_name}` ({run.table.source} of the "
        f"paper), {len(answers)} answers of at most {limits} each; icgi {versions}; {machines}."
        f"{busy} Lines: `{run.manifest.path.name}`."
    )


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def spreadsheet(run: Run) -> str:
    """Numbers of all grids as .csv, one row for each method and metric."""
    records = [record for grid in grids_of(run) for record in grid.records]
    names = list(dict.fromkeys(name for record in records for name in record))
    file = io.StringIO()
    writer = csv.DictWriter(file, names)
    writer.writeheader()
    writer.writerows(records)
    return file.getvalue()
