"""`icgi scan`: energy, specific heat, entropy and order parameters over inverse temperatures."""

import json as json_format
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output, question
from icgi.cli.failures import INTERRUPTED
from icgi.cli.startup import loading
from icgi.errors import IcgiError

if TYPE_CHECKING:
    from icgi.queries.scan import Scan

_MOST = 1000  # inverse temperatures


def run(
    model: options.Model,
    beta: Annotated[
        str,
        typer.Option(
            "--beta",
            metavar="FROM:TO:STEP",
            help="Inverse temperatures: a range, both ends included, or a list such as 0.5,1,2. "
            "The model as it is has β = 1.",
        ),
    ],
    pair: Annotated[
        list[str] | None,
        typer.Option(
            "--pair", metavar="A,B", help="Also the correlation of two variables; repeat for more."
        ),
    ] = None,
    evidence: options.EvidenceFile = None,
    observe: options.Observe = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="exact (junction tree), pfaffian (planar Ising without field), pt (tempering "
            "ladder), or auto: the first of them that fits.",
        ),
    ] = "auto",
    seconds: options.Seconds = None,
    iterations: options.Iterations = None,
    memory: options.Memory = "4G",
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.csv",
            readable=False,
            help="Write the table as CSV.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE.png",
            readable=False,
            help="Draw the table (.png, .svg or .pdf).",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = 0,
) -> None:
    """Thermodynamics of p(x) ∝ exp β Σ θ(x) at many β, with standard errors.

    Of the whole model: log Z; energy ⟨E⟩ with E = −Σ θ; specific heat β²(⟨E²⟩ − ⟨E⟩²); entropy in
    nats. Where every variable has two states: magnetisation ⟨m⟩ and ⟨|m|⟩, overlaps ⟨|q|⟩ and
    ⟨q²⟩ of two independent copies, spins being −1 in state 0 and +1 in state 1. A dash means not
    available from this engine. A number in brackets is the standard error of the last digits.
    """
    with loading():
        from icgi.errors import EvidenceError
        from icgi.inference import Budget
        from icgi.queries.scan import scan

    betas = _betas(beta)
    budget = Budget(iterations, options.positive_seconds(seconds), options.bytes_of(memory))
    if out is not None:
        output.check_ending(out, (".csv",))
    if plot is not None:
        output.check_ending(plot, (".png", ".svg", ".pdf"))
    pairs = [_pair(text) for text in pair or ()]
    with output.working(quiet) as say:
        say(f"reading {model.name}")
        asked = question.load(model, evidence, observe, budget)
        if asked.findings.likelihood or asked.findings.excluded:
            raise EvidenceError(
                f"{evidence}: a scan takes observations only, as it heats what is likely with the "
                "rest of the model; leave likelihoods and exclusions out, or make them factors"
            )
        say(f"scanning {len(betas)} temperatures")
        found, stopped = output.stoppable(
            lambda: scan(
                asked.model,
                betas,
                asked.evidence,
                pairs,
                engine,  # type: ignore[arg-type]
                budget,
                seed,
            )
        )
        for path, write in ((out, found.save), (plot, found.plot)):
            if path is not None:
                with output.whole_file(path) as draft:
                    write(draft)
    if json:
        typer.echo(json_format.dumps(found.to_dict()))
    else:
        _print(found)
    for path in (out, plot):
        output.note(f"written to {path}", quiet or path is None)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _betas(text: str) -> list[float]:
    """Read 0.2:2:0.1, both ends included, or 0.5,1,2."""
    try:
        if ":" not in text:
            betas = [float(word) for word in text.split(",")]
        else:
            first, last, step = (float(word) for word in text.split(":"))
            if not (step > 0 and last >= first and (last - first) / step < _MOST):
                raise ValueError
            count = math.floor((last - first) / step + 1e-9) + 1
            betas = [round(first + k * step, 12) for k in range(count)]
        if not all(0 <= b < math.inf for b in betas):
            raise ValueError
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no range; write FROM:TO:STEP such as 0.2:2:0.1, or a list such as 0.5,1",
            param_hint="--beta",
        ) from None
    return betas


def _pair(text: str) -> tuple[str, str]:
    words = options.listed([text])
    if len(words) != 2:
        raise IcgiError(f"--pair {text!r}: name two variables, such as --pair 3,7")
    return words[0], words[1]


def _print(found: "Scan") -> None:
    heads, *rows = found.rows()
    columns = [
        output.Column("beta", right=True, style="bold"),
        *(output.Column(head, right=True) for head in heads[1:]),
    ]
    output.table(columns, rows)
    typer.echo()
    typer.echo(f"{found.how}: {found.status.value}; {found.seconds:.3g} s. {found.status.advice}")
