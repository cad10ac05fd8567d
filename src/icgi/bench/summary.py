"""Contents of a printed table: one grid per row of the paper, then the statistical tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from icgi.bench.cells import Entry, best, entries, reference_error, text
from icgi.bench.references import of_cases
from icgi.bench.runner import Run
from icgi.bench.statistics import TIE, compare
from icgi.bench.table import Row, number
from icgi.data.jobs.manifest import Line

FEWEST = 3  # graphs of a paired test
EVERYTHING = "all rows"
ROUGH = 0.01  # standard error of a reference, from which it is none


@dataclass(frozen=True, slots=True)
class Point:
    """A number in a plot."""

    series: str
    x: float | str
    y: float
    claimed: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A heading, a remark, cells, and what a plot of them shows."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    points: tuple[Point, ...] = ()
    axes: tuple[str, str] = ("", "")
    level: int = 2  # of the heading
    records: tuple[dict[str, object], ...] = field(default=())  # the same for a .csv file


def grids(run: Run) -> list[Grid]:
    """All grids of a table: every row, sections, tests, references."""
    lines = run.lines()
    missing = [line for line in lines if "case" not in line]
    answers = [line for line in lines if "case" in line]
    made = [*_stale(run, answers), *_part(run, answers, missing, "")]
    if len(run.scale.rows) > 1:
        everything = Row(EVERYTHING, "All")
        made.append(_grid(run, everything, entries(run.table, [*answers, *missing]), ""))
    for section in run.table.sections:
        own = [line for line in answers if line.get(section.key) == section.value]
        if own:
            made += _part(run, own, missing, section.title)
    tests = _tests(run, answers)
    return [*made, *([tests] if tests.rows else []), *references(run)]


def _stale(run: Run, answers: Sequence[Line]) -> list[Grid]:
    """Rows with answers that were compared with references which have been replaced since."""
    if run.scale.references is None:
        return []
    now = {case: x["error"] for case, x in of_cases(run.references, run.scale.references).items()}
    rows = []
    for row in run.scale.rows:
        own = [x for x in answers if x["group"] == row.group and "reference_error" in x]
        old = [x for x in own if x["reference_error"] != now.get(x["case"], x["reference_error"])]
        if old:
            errors = {x["case"]: (x["reference_error"], now[x["case"]]) for x in old}
            then, since = (max(pair[k] for pair in errors.values()) for k in (0, 1))
            share = f"{len(old)} of {len(own)}"
            rows.append((row.group, share, f"{then:.1e}", f"{since:.1e}"))
    if not rows:
        return []
    return [
        Grid(
            "Compared with earlier references",
            ("row", "answers", "standard error then", "of the reference since"),
            tuple(rows),
            "These answers have not been asked again since their references were made anew.",
        )
    ]


def _part(run: Run, answers: Sequence[Line], missing: Sequence[Line], section: str) -> list[Grid]:
    made = []
    for row in run.scale.rows:
        own = [line for line in answers if line["group"] == row.group]
        if own:
            made.append(_grid(run, row, entries(run.table, [*own, *missing]), section))
    return made


def _grid(run: Run, row: Row, found: Sequence[Entry], section: str) -> Grid:
    table = run.table
    marked = {metric.key: best(found, metric) for metric in table.metrics}
    rows, points = [], []
    records: list[dict[str, object]] = []
    for entry in found:
        column = entry.column
        cells = []
        for metric in table.metrics:
            claim = None if section else table.claim(row, metric, column)
            shown = column.title in marked[metric.key]
            cells.append(text(claim, entry, metric, shown))
            numbers = entry.spread(metric.key)
            records.append({
                "table": table.name, "scale": run.scale_name, "section": section,
                "row": row.group, "method": column.title, "engine": entry.engine,
                "metric": metric.key, "claimed": claim, "mean": numbers.mean, "sd": numbers.sd,
                "sd_over_seeds": entry.seeds_sd(metric.key), "median": numbers.median,
                "graphs": numbers.count, "not_converged": entry.unsettled,
                "refused": entry.refused, "why_none": entry.reason,
            })  # fmt: skip
            if metric is table.metrics[0]:
                if isinstance(claim, float | int):
                    points.append(Point(column.title, column.title, float(claim), True))
                if numbers.count:
                    points.append(Point(column.title, column.title, numbers.mean))
        seconds = number(entry.spread("seconds").median, 2) if entry.lines else "–"
        name = f"{column.title} (`{entry.engine}`)"
        rows.append((name, *cells, seconds, _not_converged(entry), entry.ended))
    graphs = max((e.spread(table.metrics[0].key).count for e in found), default=0)
    header = ("method", *(m.title for m in table.metrics), "seconds", "not converged", "ended")
    return Grid(
        f"{section}: {row.group}" if section else row.group,
        header,
        tuple(rows),
        _note(row, graphs, reference_error(found)),
        tuple(points),
        ("", table.metrics[0].title),
        3 if section else 2,
        tuple(records),
    )


def _not_converged(entry: Entry) -> str:
    return f"{entry.unsettled} of {len(entry.lines)}" if entry.lines else "–"


def _note(row: Row, graphs: int, error: float) -> str:
    facts = [f"{graphs} graph{'s' if graphs != 1 else ''}"]
    if row.differs:
        facts.append(f"the paper's row is {row.differs}")
    facts.append(
        f"standard error of the references {error:.1e} in the mean L1"
        if error
        else "references exact"
    )
    if error > ROUGH:
        facts.append(
            "**no reference to be trusted**: its runs do not agree, differences below "
            f"{TIE * error:.2g} mean nothing"
        )
    return "; ".join(facts) + "."


def _tests(run: Run, answers: Sequence[Line]) -> Grid:
    """Wilcoxon signed-rank tests of the compared columns against all others."""
    key = run.table.metrics[0].key
    rows = []
    parts = [(row.group, [x for x in answers if x["group"] == row.group]) for row in run.scale.rows]
    if len(parts) > 1:
        parts.append((EVERYTHING, list(answers)))
    for group, own in parts:
        found = entries(run.table, own)
        have = {e.column.title: e for e in found if e.lines}
        pairs = [
            (a, b) for a in run.table.compared for b in have if a in have and a != b
        ]  # fmt: skip
        for a, b in pairs:
            first, second = have[a].values(key), have[b].values(key)
            common = [case for case in first if case in second]
            if len(common) < FEWEST:
                continue
            test = compare(
                [first[c] for c in common], [second[c] for c in common], len(pairs),
                reference_error([have[a], have[b]]),
            )  # fmt: skip
            p = f"{test.p:.2g}"
            cells = (number(test.difference, 4), p, test.verdict)
            rows.append((group, a, b, str(test.graphs), *cells))
    return Grid(
        "Tests",
        ("row", "method", "against", "graphs", "median difference", "p", "the method is"),
        tuple(rows),
        f"Wilcoxon signed-rank of {run.table.metrics[0].title}, paired over graphs, two-sided; p "
        "times the number of tests of the row (Bonferroni), level 0.05. With five graphs or fewer "
        "no p can be below 0.06. A tie: the mean difference is within three standard errors of "
        "the references.",
    )


def references(run: Run) -> list[Grid]:
    """How the references that were computed were obtained."""
    if run.scale.references is None:
        return []
    found = of_cases(run.references, run.scale.references)
    rows = [
        (
            case, line["method"], f"{line['error']:.1e}",
            f"{line['apart']:.1e}" if "apart" in line else "–",
            number(line.get("rhat"), 2),
            "; ".join(_other(name, own) for name, own in line.get("others", {}).items()) or "–",
        )
        for case, line in found.items()
    ]  # fmt: skip
    if not rows:
        return []
    return [
        Grid(
            "References",
            ("model", "method", "standard error", "two runs apart", "R-hat", "other methods"),
            tuple(rows),
            "Computed here where none is published: exact where that fits, else the mean of two "
            "runs of `pt` from different seeds, or what a method vouches for that states a tenth "
            "of their error and is within three times that of them. All distances are mean L1 over "
            "variables.",
        )
    ]


def _other(engine: str, own: Line) -> str:
    gap = "" if own["apart"] is None else f" {own['apart']:.1e} apart"
    return f"`{engine}` {own['status']}{gap}"
