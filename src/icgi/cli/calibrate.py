"""`icgi calibrate`: what an engine's answers are worth, measured where the truth is known."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output

if TYPE_CHECKING:
    from icgi.calibration.classifier import DomainClassifier
    from icgi.calibration.file import Calibration
    from icgi.calibration.measure import Line

EVERY = 10.0  # seconds between two lines of progress


def run(
    engine: Annotated[
        str,
        typer.Option("--engine", metavar="NAME[:OPTION=VALUE,…]", help="Engine to calibrate."),
    ],
    out: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Calibration file to write (.json)."),
    ],
    source: Annotated[
        str,
        typer.Option(
            "--set",
            metavar="SET",
            help="Models with known marginals: a built-in set (mixed; hard and wider: larger "
            "models, for engines that are exact on smaller ones; with the real models of "
            "ICGI_DATA), or the "
            "folder of a labelled set.",
        ),
    ] = "mixed",
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="S", help="Time of an answer.", show_default="no limit"),
    ] = None,
    most_seconds: Annotated[
        float | None,
        typer.Option(
            "--most-seconds",
            metavar="S",
            help="Give each answer a time of its own, from --seconds up to this: promises then "
            "hold by the work that an answer is, on a busy machine too.",
            show_default=False,
        ),
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(
            "--patience",
            metavar="S",
            min=0.01,
            help="Give up models that take longer than this, instead of a limit that the engine "
            "would plan by; nothing is promised then about answers of more work.",
            show_default="none is given up",
        ),
    ] = None,
    iterations: options.Iterations = None,
    real: Annotated[
        str | None,
        typer.Option(
            "--real",
            metavar="FAMILY,…",
            help="Families of real models to take where ICGI_DATA is set: some of "
            "objectdetection, promedus and sidechain.",
            show_default="all three",
        ),
    ] = None,
    toward: Annotated[
        str | None,
        typer.Option(
            "--toward",
            metavar="SET",
            help="Models without labels like those to be asked about (a folder of .uai files, a "
            "preset): where no group fits, calibration models are weighted to resemble them.",
            show_default=False,
        ),
    ] = None,
    share: Annotated[
        float,
        typer.Option(
            "--share", metavar="P", min=0.01, max=1.0, help="How much of the built-in set to take."
        ),
    ] = 1.0,
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Processes; one is this process, where an answer has the whole machine.",
        ),
    ] = 1,
    cluster: options.Cluster = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Calibrate the bands and sets of an engine on many models with known answers.

    The file goes with `icgi marginals --calibration FILE`; it holds for this engine, this version
    of icgi, these weights, and answers that are given at least this budget. Stop it at any time and
    run the same command again: every model measured so far is kept in FILE.lines.
    """
    from icgi.calibration import make
    from icgi.calibration.file import write
    from icgi.calibration.sets import cases
    from icgi.data.jobs.executors import executor
    from icgi.engines import parse_engine
    from icgi.inference import Budget

    budget = Budget(iterations, options.positive_seconds(seconds))
    if most_seconds is not None and not budget.seconds < most_seconds < math.inf:
        raise typer.BadParameter(
            "give a number of seconds above that of --seconds", param_hint="--most-seconds"
        )
    parse_engine(engine)  # before any model is drawn
    chosen = None if real is None else tuple(sorted(real.split(",")))
    making = make.Making(engine, source, budget, seed, most_seconds, patience, chosen)
    output.check_writable(out)
    kept = out.with_name(out.name + ".lines")
    todo = list(cases(source, ("tune", "calibrate"), share, chosen))
    have = len(make.known_lines(making, kept))
    output.note(f"{len(todo)} models of {source}, {have} measured before", quiet)
    watch = _Progress(len(todo) - have, quiet)
    place = executor("serial" if cluster is None and workers == 1 else cluster, workers)
    lines = make.measure_all(making, todo, kept, watch.advance, place)
    made = make.calibration(making, lines)
    if toward is not None:
        made = make.weighted_toward(made, toward)
    write(made, out)
    if not quiet:
        _summary(made, lines, out)


def _summary(made: "Calibration", lines: "Sequence[Line]", out: Path) -> None:
    exact = sum(line["status"] == "exact" for line in lines)
    refused = sum(line["status"] == "refused" for line in lines)
    counts = ", ".join(f"{name} {n}" for name, n in sorted(Counter(made.structures).items()))
    typer.echo(f"{out}: {len(made)} models ({counts})")
    typer.echo(f"left out: {exact} answered exactly, {refused} refused")
    typer.echo("median half-width of 90 % bands by scale:")
    for name, width in sorted(made.widths.items(), key=lambda pair: pair[1]):
        typer.echo(f"  {name:<14}{width:.3g}{'  (chosen)' if name == made.scale else ''}")
    if made.toward is not None:
        _weights(made.toward)


def _weights(toward: "DomainClassifier") -> None:
    from icgi.conformal.shift import support

    effective = support(toward.odds, 0.0).effective
    typer.echo(
        f"weights towards {toward.name}: AUC {toward.auc:.2f}, effective number of models "
        f"{effective:.0f}"
    )


class _Progress:
    """A line on stderr now and then, with the time that is left."""

    def __init__(self, total: int, quiet: bool) -> None:
        self.total, self.quiet, self.count = total, quiet, 0
        self.began = self.last = time.monotonic()

    def advance(self, line: "Line") -> None:
        """Count one model."""
        self.count += 1
        if self.quiet or time.monotonic() - self.last < EVERY:
            return
        from icgi.units import readable_seconds

        self.last = time.monotonic()
        left = (self.last - self.began) / self.count * (self.total - self.count)
        output.note(f"{self.count} of {self.total}, about {readable_seconds(left)} left")
