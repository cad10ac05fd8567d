"""`icgi label`: reference marginals for a whole set, with their reliability."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from icgi.cli import options, output
from icgi.errors import IcgiError

if TYPE_CHECKING:
    from icgi.data.store import Identity, Label, LabelledSet

FEWEST = 5  # instances before the time left is guessed


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
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Processes.", show_default="processors"),
    ] = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Label what has no label yet: exact where the tables fit, tempering elsewhere.

    Stop it at any time and run the same command again: at most the instances in flight are lost.
    Nothing is left out because it is hard; its standard error is stored with it. Memory is shared
    out among the workers. A set has one writer at a time: a second run is refused.
    """
    import os

    from icgi.extras import require_extra

    if scale not in ("smoke", "small", "paper"):
        raise typer.BadParameter("give smoke, small or paper", param_hint="--scale")
    require_extra("pyarrow.parquet", "data", "a labelled set")
    from icgi.data.labels import Labelling, label_set

    stored = _open(source, out, scale, quiet)  # type: ignore[arg-type]
    workers = workers or os.cpu_count() or 1
    share = options.bytes_of(memory) // workers
    settings = Labelling(table_bytes=share, seconds=seconds, std_error=error)
    with stored.writing():
        for mended in stored.notes:
            output.warn(mended)
        left = len(stored) - len(stored.labelled())
        output.note(f"{stored.folder}: {len(stored)} instances, {left} without a label", quiet)
        with _Progress(left, quiet) as watch:
            try:
                count = label_set(stored, settings, seed, min(workers, max(left, 1)), watch.done)
            except KeyboardInterrupt:
                kept = f"{watch.count} labels are kept; the same command goes on from here"
                output.note(kept, quiet)
                raise
    if not quiet:
        typer.echo(f"{stored.folder}: {count} labelled now, {len(stored.labelled())} in all")
    if watch.failed:
        listed = "\n".join(f"  {name}: {reason}" for name, reason in watch.failed.items())
        raise IcgiError(f"{len(watch.failed)} instances have no label:\n{listed}")


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


class _Progress:
    """A bar on a terminal, otherwise a line now and then.

    Instances come in random order, so the mean pace so far is a fair guess at that to come.
    """

    def __init__(self, total: int, quiet: bool) -> None:
        self.total, self.count, self.quiet = total, 0, quiet
        self.failed: dict[str, str] = {}
        self.began = self.last = time.monotonic()
        self.bar: Any = None
        if sys.stderr.isatty() and not quiet and total:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress

            self.bar = Progress(
                "{task.description}", BarColumn(), MofNCompleteColumn(), "{task.fields[left]}",
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self.task = self.bar.add_task("labelling", total=total, left="")

    def __enter__(self) -> "_Progress":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def done(self, identity: "Identity", found: "Label | str") -> None:
        """Count one instance; `found` is its label or why there is none."""
        if isinstance(found, str):
            self.failed[identity.name] = found
        self.count += 1
        if self.bar is not None:
            method = "no label" if isinstance(found, str) else found.method
            text = f"{identity.name} ({method})"
            self.bar.update(self.task, advance=1, description=text[:50], left=self.left())
        elif not self.quiet and time.monotonic() - self.last > 10:
            self.last = time.monotonic()
            output.note(f"{self.count} of {self.total}{self.left()}")

    def left(self) -> str:
        """Say how long the rest will take, once there is something to judge by."""
        from icgi.units import readable_seconds

        if self.count < min(FEWEST, self.total):
            return ""
        pace = (time.monotonic() - self.began) / self.count
        return f", about {readable_seconds(pace * (self.total - self.count))} left"
