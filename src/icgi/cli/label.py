"""`icgi label`: reference marginals for a whole set, with their reliability."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from icgi.cli import options, output
from icgi.cli.progress import Progress
from icgi.errors import IcgiError

if TYPE_CHECKING:
    from icgi.data.store import Identity, Label, LabelledSet


def run(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SET",
            help="A set to go on with; or a preset (sk-paper, ea2d-paper, …), a folder of .uai "
            "files or of a published collection, to make a new set from.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Folder of the new set.", show_default="SET"
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option("--scale", metavar="smoke|small|paper", help="How much of a preset to take."),
    ] = "small",
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=0.1, help="Time per sampled instance.")
    ] = 20.0,
    error: Annotated[
        float,
        typer.Option(
            "--error", metavar="E", min=1e-6, help="Standard error that sampling aims at."
        ),
    ] = 0.005,
    memory: options.Memory = "4G",
    workers: options.Workers = None,
    cluster: options.Cluster = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Compute reference marginals of a set of models: exact where that fits, sampled elsewhere.

    Stop it at any time and run the same command again: at most the instances in flight are lost.
    Nothing is left out because it is hard; its standard error is stored with it. Memory is shared
    out among the workers. A set has one writer at a time: a second run is refused.
    """
    from icgi.extras import require_extra

    if scale not in ("smoke", "small", "paper"):
        raise typer.BadParameter("give smoke, small or paper", param_hint="--scale")
    require_extra("pyarrow.parquet", "data", "a labelled set")
    from icgi.data.jobs.executors import executor
    from icgi.data.jobs.job import processors
    from icgi.data.labels import Labelling, label_set

    stored = _open(source, out, scale, quiet)  # type: ignore[arg-type]
    share = options.bytes_of(memory) // (workers or processors())
    settings = Labelling(table_bytes=share, seconds=seconds, std_error=error)
    failed: dict[str, str] = {}

    def done(identity: "Identity", found: "Label | str") -> None:
        watch.done()
        if isinstance(found, str):
            failed[identity.name] = found

    with stored.writing():
        for mended in stored.notes:
            output.warn(mended)
        left = len(stored) - len(stored.labelled())
        output.note(f"{stored.folder}: {len(stored)} instances, {left} without a label", quiet)
        with Progress(left, "instances", quiet) as watch:
            try:
                place = executor(cluster, workers, left)
                count = label_set(stored, settings, seed, place, done)
            except KeyboardInterrupt:
                kept = f"{watch.fresh - len(failed)} labels are kept"
                output.note(f"{kept}; the same command goes on from here", quiet)
                raise
    if not quiet:
        typer.echo(f"{stored.folder}: {count} labelled now, {len(stored.labelled())} in all")
    if failed:
        listed = "\n".join(f"  {name}: {reason}" for name, reason in failed.items())
        raise IcgiError(f"{len(failed)} instances have no label:\n{listed}")


def _open(
    source: str, out: Path | None, scale: Literal["smoke", "small", "paper"], quiet: bool
) -> "LabelledSet":
    from icgi.data.sources import source as find
    from icgi.data.store import LabelledSet

    folder = out or Path(source)
    if (folder / "manifest.json").is_file():
        return LabelledSet(folder)
    if out is None and Path(source).is_dir():
        raise IcgiError(
            f"{source} is not a labelled set; to make one from its models, say where: -o FOLDER"
        )
    output.note(f"making {folder} from {source}", quiet)
    return LabelledSet.create(
        folder, find(source, scale), f"{source} ({scale})", {"source": source, "scale": scale}
    )
