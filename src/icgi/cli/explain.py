"""`icgi explain`: what each observation does to the marginal of one variable."""

import json as json_format
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output, question
from icgi.cli.failures import INTERRUPTED
from icgi.cli.startup import loading

if TYPE_CHECKING:
    from icgi.queries.explain import Explained


def run(
    model: options.Model,
    target: Annotated[
        str,
        typer.Option("--target", metavar="VAR", help="Variable whose marginal is explained."),
    ],
    evidence: options.EvidenceFile = None,
    observe: options.Observe = None,
    likely: options.Likely = None,
    exclude: options.Exclude = None,
    engine: options.EngineName = "auto",
    seconds: options.Seconds = None,
    iterations: options.Iterations = None,
    memory: options.Memory = "4G",
    json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = 0,
) -> None:
    """How the marginal of --target changes when each observation is removed.

    One question for every observation, likelihood and exclusion, all in one batch. Rows are sorted
    by how much probability moves (the total variation, ½ Σ |p − p'|); the first two rows are the
    marginal with all evidence and with none. --seconds are those of one answer.
    """
    with loading():
        from icgi.inference import Budget
        from icgi.queries.explain import explain

    budget = Budget(iterations, options.positive_seconds(seconds), options.bytes_of(memory))
    with output.working(quiet) as say:
        say(f"reading {model.name}")
        asked = question.load(model, evidence, observe, budget, likely, exclude)
        known = asked.findings
        say("asking without each observation")
        found, stopped = output.stoppable(
            lambda: explain(
                asked.model, known.observed, target, engine, budget, seed,
                likelihood=known.likelihood, exclude=known.excluded,
            )
        )  # fmt: skip
    if json:
        typer.echo(json_format.dumps(found.to_dict()))
    else:
        _print(found, engine)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _print(found: "Explained", engine: str) -> None:
    heads, *rows = found.rows()
    columns = [
        output.Column("removed", style="bold"),
        output.Column("probability moved", right=True, style="cyan"),
        *(output.Column(head, right=True) for head in heads[2:]),
    ]
    output.table(columns, rows)
    typer.echo()
    error = "" if not found.std_error else f"; largest standard error {found.std_error:.2g}"
    typer.echo(f"{engine}: {found.status.value}{error}. {found.status.advice}")
