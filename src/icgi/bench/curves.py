"""Grids of `anytime` and `speed`: numbers over seconds, and seconds over sizes with exponents."""

import math
from collections import defaultdict
from collections.abc import Sequence

from icgi.bench.cells import SETTLED, entries
from icgi.bench.runner import Run
from icgi.bench.statistics import exponent, spread
from icgi.bench.summary import Grid, Point, references
from icgi.bench.table import number
from icgi.bench.tables.sizes import GROWING
from icgi.data.jobs.manifest import Line


def over_time(run: Run) -> list[Grid]:
    """A grid for each row: methods below each other, seconds across."""
    metric, times = run.table.metrics[0], run.scale.seconds
    lines = run.lines()
    missing = [line for line in lines if "case" not in line]
    made = []
    for row in run.scale.rows:
        own = [line for line in lines if line.get("group") == row.group]
        rows, points = [], []
        records: list[dict[str, object]] = []
        for column in run.table.columns if own else ():
            cells = []
            for seconds in times:
                part = [line for line in own if line["asked"] == seconds]
                found = entries(run.table, [*part, *missing])
                entry = next(e for e in found if e.column is column)
                value = entry.spread(metric.key)
                cells.append(_ended(entry.reason, value.mean, entry.lines, metric.digits))
                if value.count:
                    points.append(Point(column.title, seconds, value.mean))
                records.append({
                    "table": run.table.name, "scale": run.scale_name, "row": row.group,
                    "method": column.title, "engine": entry.engine, "metric": metric.key,
                    "asked": seconds, "mean": value.mean, "why_none": entry.reason,
                })  # fmt: skip
            rows.append((column.title, *cells))
        if rows:
            made.append(Grid(
                row.group, ("method", *(f"{s:g} s" for s in times)), tuple(rows),
                f"{metric.title}; in brackets: the engine says that it did not converge.",
                tuple(points), ("seconds", metric.title), records=tuple(records),
            ))  # fmt: skip
    return [*made, *references(run)]


def _ended(reason: str, mean: float, lines: Sequence[Line], digits: int) -> str:
    if not lines:
        return reason or "–"
    text = number(mean, digits)
    return text if all(line["status"] in SETTLED for line in lines) else f"({text})"


def growth(run: Run) -> list[Grid]:
    """A grid for each row: seconds at each size, and the fitted exponent."""
    lines = run.lines()
    reasons = {line["column"]: line["message"] for line in lines if "case" not in line}
    made = []
    for row in run.scale.rows:
        own = [line for line in lines if line.get("group") == row.group]
        key = GROWING[row.group]
        sizes = sorted({line[key] for line in own if key in line})
        rows, points = [], []
        records: list[dict[str, object]] = []
        for column in run.table.columns if own else ():
            by: dict[float, list[float]] = defaultdict(list)
            for line in own:
                if line["column"] == column.title and key in line:
                    by[line[key]].append(line["seconds"])
            seconds = {size: spread(values).median for size, values in by.items()}
            cells = [number(seconds.get(size, math.nan), 4) for size in sizes]
            fitted = exponent(list(seconds), list(seconds.values())) if seconds else None
            slope = "–" if fitted is None else f"{fitted.value:.2f}"
            if fitted is not None and math.isfinite(fitted.error):
                slope += f" ± {fitted.error:.2f}"
            rest = _why(column.title, own, reasons)
            ratio = _ratio(column.title, own, key, seconds)
            rows.append((column.title, *cells, slope, ratio, rest))
            points += [Point(column.title, size, value) for size, value in seconds.items()]
            records.append({
                "table": run.table.name, "scale": run.scale_name, "row": row.group,
                "method": column.title, "metric": "exponent",
                "mean": None if fitted is None else fitted.value, "why_none": rest,
            })  # fmt: skip
        if rows:
            across = tuple(f"{size:g}" for size in sizes)
            made.append(Grid(
                f"Seconds over {row.group}", ("method", *across, "exponent", "pyAgrum / it", ""),
                tuple(rows),
                "The exponent is fitted to logarithms of both, with its standard error.",
                tuple(points), (row.group, "seconds"), records=tuple(records),
            ))  # fmt: skip
    return made


def _ratio(title: str, own: Sequence[Line], key: str, seconds: dict[float, float]) -> str:
    """Peer's seconds over this method's, geometric mean over the sizes that both answered."""
    peer = {
        line[key]: line["seconds"] for line in own if line["column"] == "pyAgrum" and key in line
    }
    common = [size for size in seconds if size in peer and title != "pyAgrum"]
    if not common:
        return "–"
    logs = [math.log(peer[size] / seconds[size]) for size in common]
    return f"{math.exp(math.fsum(logs) / len(logs)):.3g}"


def _why(title: str, own: Sequence[Line], reasons: dict[str, str]) -> str:
    refused = [line for line in own if line["column"] == title and line.get("message")]
    if title in reasons and not any(line["column"] == title for line in own):
        return f"not available: {reasons[title][:100]}"
    return f"{len(refused)} refused: {refused[0]['message'][:100]}" if refused else ""
