"""`icgi batch`: many models × engines × seeds, into one table."""

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output
from icgi.cli.progress import Progress
from icgi.cli.startup import loading
from icgi.errors import IcgiError

if TYPE_CHECKING:
    from icgi.data.jobs.manifest import Line

_TEXTS = ("instance", "engine", "seed", "status", "mae", "seconds")


def run(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER|LIST",
            readable=False,
            help="Folder of models, a labelled set, a published collection, or a text file with "
            "one model file on each line.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Table to write: .csv or .parquet."),
    ],
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            metavar="NAME[:OPTION=VALUE,…]",
            help="Engine with its options; repeat for more.",
            show_default="auto",
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option("--seed", metavar="N", help="Random seed; repeat for more.", show_default="0"),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=0.001, help="Time for each answer.")
    ] = 20.0,
    memory: Annotated[
        str,
        typer.Option("--memory", metavar="SIZE", help="Memory for the tables of each answer."),
    ] = "2G",
    referenced: Annotated[
        bool,
        typer.Option("--referenced", help="Only models that come with reference marginals."),
    ] = False,
    workers: options.Workers = None,
    cluster: options.Cluster = None,
    again: Annotated[
        bool, typer.Option("--again", help="Try jobs once more that failed before.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Answer every model with every engine and seed; one row each, with errors and costs.

    Evidence (MODEL.evid) and reference marginals (MODEL.MAR) beside a model are used; errors are
    taken over the unobserved variables. A model that cannot be read, an engine that refuses and a
    worker that dies are rows with their message. Stop it at any time and run the same command
    again: finished answers are kept in FILE.jobs.jsonl and not computed twice.
    """
    from icgi.data.batches import ENDINGS, Plan, entries, run_batch, write_table

    if out.suffix not in ENDINGS:
        raise IcgiError(f"{out}: the table is written as {' or '.join(ENDINGS)}; give one of them")
    output.check_writable(out)
    engines = tuple(dict.fromkeys(engine or ["auto"]))
    with loading():
        from icgi.data.jobs.executors import executor
        from icgi.data.jobs.manifest import Manifest
        from icgi.engines import parse_engine
        from icgi.extras import require_extra

        for name in engines:
            parse_engine(name)
        if out.suffix == ".parquet":
            require_extra("pyarrow.parquet", "data", "writing .parquet")
    seeds = tuple(dict.fromkeys(seed or [0]))
    plan = Plan(engines, seeds, seconds, options.bytes_of(memory))
    found = [entry for entry in entries(source) if entry.referenced or not referenced]
    if not found:
        raise IcgiError(f"{source} has no model with reference marginals; leave --referenced out")
    manifest = Manifest(out.with_name(f"{out.name}.jobs.jsonl"))
    before = set(manifest.finished())
    total = len(found) * len(engines) * len(seeds)
    rows: list[Line] = []

    def done(line: "Line") -> None:
        rows.append(line)
        watch.known() if line["key"] in before else watch.done()

    with Progress(total, "answers", quiet) as watch:
        try:
            rows = run_batch(found, plan, manifest, executor(cluster, workers, total), done, again)
        except KeyboardInterrupt:
            write_table(rows, out)
            output.note(
                f"{out}: the {len(rows)} of {total} answers that are done; the same command goes "
                "on from here",
                quiet,
            )
            raise
    write_table(rows, out)
    if not quiet:
        _summary(rows, out, watch.fresh)


def _summary(rows: "list[Line]", out: Path, fresh: int) -> None:
    """Say how the answers of each engine ended, and how far off they are."""
    columns = [
        output.Column("engine"), output.Column("answers", right=True),
        output.Column("mean L1", right=True), output.Column("median seconds", right=True),
        output.Column("status", fold=True),
    ]  # fmt: skip
    cells = []
    for engine in dict.fromkeys(row["engine"] for row in rows):
        own = [row for row in rows if row["engine"] == engine]
        known = [row["mae"] for row in own if row.get("mae") is not None]
        times = sorted(row["seconds"] for row in own if row.get("seconds") is not None)
        ended = Counter(row["status"] for row in own)
        cells.append([
            engine,
            str(len(own)),
            f"{math.fsum(known) / len(known):.3g} ({len(known)})" if known else "–",
            f"{times[len(times) // 2]:.3g}" if times else "–",
            ", ".join(f"{count} {status}" for status, count in ended.most_common()),
        ])  # fmt: skip
    output.table(columns, cells)
    typer.echo(f"{out}: {len(rows)} answers, {fresh} computed now")
