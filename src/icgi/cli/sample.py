"""`icgi sample`: configurations drawn from a model, given evidence."""

import csv
import io
import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icgi.cli import options, output, question
from icgi.cli.failures import INTERRUPTED
from icgi.cli.startup import loading

if TYPE_CHECKING:
    from icgi.elimination.sampling import Samples
    from icgi.model.graph import FactorGraph


def run(
    model: options.Model,
    count: Annotated[
        int, typer.Option("-n", "--count", metavar="N", min=1, help="How many configurations.")
    ] = 10,
    evidence: options.EvidenceFile = None,
    observe: options.Observe = None,
    likely: options.Likely = None,
    exclude: options.Exclude = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="exact (junction tree), ttve (elimination, with weights), pt (tempering), or "
            "auto: exact where it fits, else ttve.",
        ),
    ] = "auto",
    rank: Annotated[
        int | None, typer.Option("--rank", metavar="R", min=1, help="Rank of ttve's trains.")
    ] = None,
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
            help="Write a CSV file instead of printing it.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = 0,
) -> None:
    """Configurations from p(x | evidence), one per row, states by name.

    Exact ones are independent and of equal weight. Those of ttve are independent and come with a
    column `weight`, which turns averages over them into averages over the model; those of pt are
    of equal weight, and neighbouring rows are correlated. The same seed draws the same rows.
    """
    with loading():
        from icgi.inference import Budget
        from icgi.model.findings import enter
        from icgi.queries.sample import sample

    budget = Budget(iterations, options.positive_seconds(seconds), options.bytes_of(memory))
    if out is not None:
        output.check_ending(out, (".csv",))
    with output.working(quiet) as say:
        say(f"reading {model.name}")
        asked = question.load(model, evidence, observe, budget, likely, exclude)
        entered = enter(asked.model, asked.findings)
        say(f"drawing {count} configurations")
        drawn, stopped = output.stoppable(
            lambda: sample(
                entered,
                count,
                asked.evidence,
                seed,
                rank,
                engine,  # type: ignore[arg-type]
                budget,
            )
        )
    output.note(_described(drawn), quiet)
    if json:
        typer.echo(json_format.dumps(_plain(asked.model, drawn)))
    elif out is None:
        buffer = io.StringIO()
        _write(buffer, asked.model, drawn)
        typer.echo(buffer.getvalue(), nl=False)
    if out is not None:
        with output.whole_file(out) as draft, draft.open("w", newline="") as file:
            _write(file, asked.model, drawn)
        output.note(f"{count} configurations written to {out}", quiet)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _described(drawn: "Samples") -> str:
    """What the rows are, for stderr."""
    if drawn.how == "exact":
        return "exact: independent draws of equal weight"
    if drawn.how == "pt":
        return "pt: snapshots of tempering, equal weights, neighbours correlated"
    share = drawn.share
    return f"ttve: independent draws, worth {share:.1%} of as many exact ones; use their weights"


def _write(file: Any, model: "FactorGraph", drawn: "Samples") -> None:
    from icgi.model.graph import state_names, variable_name
    from icgi.wording import harmless

    weighted = drawn.how == "ttve"
    states = [state_names(model, i) for i in range(model.n_variables)]
    writer = csv.writer(file, lineterminator="\n")
    names = [variable_name(model, i) for i in range(model.n_variables)]
    writer.writerow(map(harmless, [*names, *(["weight"] if weighted else [])]))
    for row, weight in zip(drawn.states.tolist(), drawn.weights.tolist(), strict=True):
        cells = [harmless(states[i][x]) for i, x in enumerate(row)]
        writer.writerow([*cells, *([weight] if weighted else [])])


def _plain(model: "FactorGraph", drawn: "Samples") -> dict[str, Any]:
    import math

    from icgi.model.graph import variable_name

    return {
        "engine": drawn.how,
        "variables": [variable_name(model, i) for i in range(model.n_variables)],
        "states": drawn.states.tolist(),
        "weights": drawn.weights.tolist(),
        "log_z": drawn.log_z if math.isfinite(drawn.log_z) else None,
    }
