"""`icgi mpe`: the most probable configuration of a model, given evidence."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output, question
from icgi.cli.failures import INTERRUPTED
from icgi.cli.startup import loading

if TYPE_CHECKING:
    from icgi.queries.mpe import Explanation

_SHOWN = 20


def run(
    model: options.Model,
    evidence: options.EvidenceFile = None,
    observe: options.Observe = None,
    likely: options.Likely = None,
    exclude: options.Exclude = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="exact (max-product on a junction tree), pt (search by tempering), or auto: exact "
            "where it fits the budget.",
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
            metavar="FILE",
            readable=False,
            help="Write the configuration: .MPE (the UAI result form) or .json.",
            show_default=False,
        ),
    ] = None,
    show: options.Show = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = 0,
) -> None:
    """Most probable configuration of all variables, given evidence.

    The last line says whether it is exact, or the best found, which proves nothing. log weight is
    the sum of all log tables (of a Bayesian network log p of the configuration and the evidence),
    log probability is that given the evidence. Variables that are not shown by --show are in the
    file and in --json.
    """
    with loading():
        from icgi.inference import Budget
        from icgi.lookup import chosen_variables
        from icgi.model.findings import enter
        from icgi.queries.mpe import mpe

    budget = Budget(iterations, options.positive_seconds(seconds), options.bytes_of(memory))
    if out is not None:
        output.check_ending(out, (".mpe", ".json"))
    with output.working(quiet) as say:
        say(f"reading {model.name}")
        asked = question.load(model, evidence, observe, budget, likely, exclude)
        rows = chosen_variables(asked.model, options.listed(show)) if show else None
        entered = enter(asked.model, asked.findings)
        say("searching the most probable configuration")
        found, stopped = output.stoppable(
            lambda: mpe(entered, asked.evidence, engine, budget, seed)  # type: ignore[arg-type]
        )
    if out is not None:
        with output.whole_file(out) as draft:
            if out.suffix.lower() == ".json":
                draft.write_text(json_format.dumps(found.to_dict()) + "\n", encoding="utf-8")
            else:
                found.save(draft)
    if json:
        typer.echo(json_format.dumps(found.to_dict()))
    else:
        _print(found, rows)
    output.note(f"configuration written to {out}", quiet or out is None)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _print(found: "Explanation", rows: tuple[int, ...] | None) -> None:
    from icgi.model.graph import variable_name

    n = found.model.n_variables
    shown = range(min(n, _SHOWN)) if rows is None else rows
    columns = [output.Column("variable", style="bold"), output.Column("state")]
    mark = {i: " (observed)" for i in found.evidence}
    output.table(
        columns, [[variable_name(found.model, i), found[i] + mark.get(i, "")] for i in shown]
    )
    if rows is None and n > _SHOWN:
        typer.echo(f"… and {n - _SHOWN:,} more variables; -o FILE writes all")
    typer.echo()
    known = found.log_probability
    probability = "" if known is None else f", log probability = {known:.10g}"
    typer.echo(
        f"{found.label}; log weight = {found.log_weight:.10g}{probability}, {found.seconds:.3g} s"
    )
