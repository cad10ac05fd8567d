"""`icgi label`: reference marginals for a whole set, with their reliability."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from icgi.cli import options, output
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
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, help="Processes.", show_default="cores")
    ] = 0,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Label what has no label yet: exact where the tables fit, tempering elsewhere.

    Stop it at any time and run the same command again: at most the instances in flight are lost.
    Nothing is left out because it is hard; its standard error is stored with it.
    """
    import os

    from icgi.data.labels import Labelling, label_set

    if scale not in ("smoke", "small", "paper"):
        raise typer.BadParameter("give smoke, small or paper", param_hint="--scale")
    stored = _open(source, out, scale, quiet)  # type: ignore[arg-type]
    settings = Labelling(table_bytes=options.bytes_of(memory), seconds=seconds, std_error=error)
    left = len(stored) - len(stored.labelled())
    output.note(f"{stored.folder}: {len(stored)} instances, {left} without a label", quiet)
    watch = _Progress(left, quiet)
    count = label_set(stored, settings, seed, workers or os.cpu_count() or 1, watch.done)
    watch.close()
    if not quiet:
        typer.echo(f"{stored.folder}: {count} labelled now, {len(stored.labelled())} in all")


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
    """A bar on a terminal, otherwise a line now and then; the estimate is from measured times."""

    def __init__(self, total: int, quiet: bool) -> None:
        import sys

        self.total, self.count, self.began, self.last = total, 0, time.monotonic(), 0.0
        self.quiet = quiet
        self.bar = None
        if sys.stderr.isatty() and not quiet and total:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            self.bar = Progress(
                "{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self.task = self.bar.add_task("labelling", total=total)
            self.bar.start()

    def done(self, identity: "Identity", label: "Label") -> None:
        self.count += 1
        if self.bar is not None:
            text = f"{identity.name} ({label.method})"
            self.bar.update(self.task, advance=1, description=text[:50])
        elif not self.quiet and time.monotonic() - self.last > 10:
            self.last = time.monotonic()
            pace = (self.last - self.began) / self.count
            left = pace * (self.total - self.count)
            output.note(f"{self.count} of {self.total}, about {left:.0f} s left")

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
