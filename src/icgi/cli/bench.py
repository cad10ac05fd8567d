"""`icgi bench`: the paper's tables, claim and measurement side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output
from icgi.cli.progress import Progress
from icgi.cli.startup import loading
from icgi.errors import IcgiError
from icgi.wording import did_you_mean

if TYPE_CHECKING:
    from icgi.bench.runner import Run

RENDER = "render"
FOLDER = Path("benchmarks") / "results" / "bench"


def run(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE|render",
            help="table1, table2, table3, table4, anytime, speed or uai22; `render` writes a page "
            "of every table that has lines.",
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(
            "--scale",
            metavar="smoke|small|paper",
            help="How much to run: seconds, hours on two cores, the paper's sizes.",
        ),
    ] = "smoke",
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Where lines are kept.")
    ] = FOLDER,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="Run this column only; repeat for more.",
            show_default="all",
        ),
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(
            "--row",
            metavar="TEXT",
            help="Run only rows with this in their name; repeat for more.",
            show_default="all",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Also write the table: .md, .csv, or .html with plots. With `render` a folder.",
        ),
    ] = None,
    workers: options.Workers = None,
    cluster: options.Cluster = None,
    again: Annotated[
        bool, typer.Option("--again", help="Try jobs once more that failed before.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="COUNT",
            min=1,
            help="Ask what is random, and networks, with the first COUNT seeds only.",
            show_default="all",
        ),
    ] = None,
    count: Annotated[
        bool,
        typer.Option(
            "--count",
            help="Run nothing; say how many answers there are to be, and "
            "how many seconds of one core they take at most.",
        ),
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; show what there is.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a table of the paper: its claims and our measurements side by side.

    Lines go to DIR/TABLE-SCALE.jsonl as they come; the same command goes on where it was stopped.
    Engines that cannot be asked here are rows with the reason. docs/bench.md says what is run.
    """  # fmt: skip
    with loading():
        from icgi.bench.runner import Run
        from icgi.bench.table import SCALES
        from icgi.bench.tables import TABLES
    if table == RENDER:
        _render_all(folder, out or Path("docs") / "bench", quiet)
        return
    if table not in TABLES:
        near = did_you_mean(table, TABLES)
        raise IcgiError(f"unknown table {table!r}{near}; there are: {', '.join(TABLES)}, {RENDER}")
    if scale not in SCALES:
        raise typer.BadParameter(f"give {', '.join(SCALES)}", param_hint="--scale")
    if out is not None:
        _writer(out)
        output.check_writable(out)
    wanted = Run(TABLES[table], scale, folder, seeds)
    if count:
        _count(wanted, tuple(method or ()), tuple(row or ()))
        return
    if not show:
        _run(wanted, tuple(method or ()), tuple(row or ()), workers, cluster, again, quiet)
    if out is not None:
        _write(wanted, out)
    if not quiet:
        _show(wanted)


def _run(
    wanted: "Run",
    only: tuple[str, ...],
    rows: tuple[str, ...],
    workers: int | None,
    cluster: str | None,
    again: bool,
    quiet: bool,
) -> None:
    from icgi.bench.runner import run_table
    from icgi.data.jobs.executors import executor

    total = wanted.expected(len(wanted.cases(rows)), only)
    with Progress(total, "answers", quiet) as watch:
        try:
            run_table(
                wanted,
                executor(cluster, workers),
                lambda line: watch.done(),
                lambda line: watch.known(),
                lambda text: output.note(text, quiet),
                only,
                rows,
                again,
            )
        except KeyboardInterrupt:
            output.note(
                f"{watch.count} answers are kept; the same command goes on from here", quiet
            )
            raise


def _count(wanted: "Run", only: tuple[str, ...], rows: tuple[str, ...]) -> None:
    cost = wanted.cost(only, rows)
    typer.echo(
        f"{wanted.table.name} ({wanted.scale_name}): {cost.models} models, {cost.answers} answers "
        f"of at most {cost.answer_seconds:,.0f} core-seconds; {cost.references} references of at "
        f"most {cost.reference_seconds:,.0f}, less where they are exact"
    )


def _show(wanted: "Run") -> None:
    from icgi.bench.render import LEGEND, grids_of

    output.title(f"{wanted.table.title} ({wanted.scale_name})")
    typer.echo(output.paragraph(LEGEND.replace("*", "").replace("`", "")))
    for grid in grids_of(wanted):
        typer.echo()
        output.title(grid.title)
        if grid.note:
            typer.echo(grid.note.replace("`", ""))
        columns = [output.Column(title, fold=True) for title in grid.header]
        rows = [[cell.replace("**", "").replace("`", "") for cell in row] for row in grid.rows]
        output.table(columns, rows)


def _writer(out: Path) -> str:
    endings = (".md", ".csv", ".html")
    if out.suffix not in endings:
        raise IcgiError(f"{out}: a table is written as {', '.join(endings)}; give one of them")
    return out.suffix


def _write(wanted: "Run", out: Path) -> None:
    from icgi.bench.page import page, pictures
    from icgi.bench.render import markdown, spreadsheet

    made = {".md": markdown, ".csv": spreadsheet, ".html": page}[_writer(out)](wanted)
    files = {out: made}
    if out.suffix == ".md":
        files |= {out.with_name(name): text for name, text in pictures(wanted).items()}
    for path, text in files.items():
        with output.whole_file(path) as draft:
            draft.write_text(text, encoding="utf-8")


def _render_all(folder: Path, pages: Path, quiet: bool) -> None:
    """Write a page of every table and scale that has lines, an index, and parts of other pages."""
    from icgi.bench.render import index, refreshed, sections
    from icgi.bench.runner import Run
    from icgi.bench.table import SCALES
    from icgi.bench.tables import TABLES

    found = [
        Run(table, scale, folder)
        for table in TABLES.values()
        for scale in SCALES
        if (folder / f"{table.name}-{scale}.jsonl").is_file()
    ]
    if not found:
        raise IcgiError(f"{folder} holds no lines of a table; run one first, or give --folder")
    pages.mkdir(parents=True, exist_ok=True)
    for each in found:
        target = pages / f"{each.table.name}-{each.scale_name}.md"
        _write(each, target)
        output.note(f"{target}", quiet)
    with output.whole_file(pages / "index.md") as draft:
        draft.write_text(index(found), encoding="utf-8")
    parts = sections(found)
    for page in (pages.parent / "results.md", pages.parent.parent / "README.md"):
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        if (new := refreshed(text, parts)) != text:
            with output.whole_file(page) as draft:
                draft.write_text(new, encoding="utf-8")
            output.note(f"{page}", quiet)
