"""The `icgi` command: one file per verb; anything slow to import waits until a verb runs."""

import contextlib
import os
import sys
from inspect import cleandoc

import typer

from icgi.cli import (
    batch,
    bench,
    calibrate,
    check,
    convert,
    data,
    demo,
    engines,
    explain,
    generate,
    info,
    label,
    marginals,
    mpe,
    report,
    sample,
    scan,
    serve,
    train,
    uai,
    warm,
)
from icgi.cli.failures import EXIT_CODES, INTERRUPTED, Verb, Verbs

__all__ = ["app", "main"]

app = typer.Typer(
    name="icgi",
    cls=Verbs,
    help="Marginals of discrete graphical models, and which of the numbers to trust.",
    epilog=EXIT_CODES,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    if version:
        from icgi import __version__

        typer.echo(f"icgi {__version__}")
        raise typer.Exit


VERBS = (
    marginals, batch, bench, mpe, sample, explain, scan, info, check, convert, engines, generate,
    label, calibrate, data, train, report, serve, demo, uai, warm,
)  # fmt: skip


def _flowing(text: str) -> str:
    """Paragraphs as one line each, for the width of the terminal to break."""
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text).split("\n\n"))


for verb in VERBS:
    name, words = verb.__name__.rpartition(".")[2], _flowing(verb.run.__doc__ or "")
    app.command(name, cls=Verb, help=words, epilog=EXIT_CODES)(verb.run)


def main() -> None:
    """Run the command line; the process ends with one of the documented exit codes."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # not every replacement of a stream has it
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        app(prog_name="icgi")
    except SystemExit as done:
        if done.code == INTERRUPTED:
            # A worker thread may still be inside compiled code; a normal end would wait for it.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise
