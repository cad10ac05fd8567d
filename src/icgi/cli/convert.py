"""`icgi convert`: a model in another file format."""

from pathlib import Path
from typing import Annotated

import typer

from icgi.cli import options, output
from icgi.cli.startup import loading
from icgi.errors import IcgiError


def run(
    model: options.Model,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            readable=False,
            help="Where to write; the ending chooses the format, and .gz packs it.",
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a model in another format, named by the ending of TARGET (docs/formats.md).

    What the format cannot hold (names, digits) is listed on stderr; a model whose meaning it cannot
    hold, such as spins in a format of Bayesian networks, is refused, and nothing is written.
    """
    with loading():
        from icgi.model.formats import read, write
    if target.exists() and not force:
        raise IcgiError(f"{target} exists; give another name, or --force to replace it")
    output.check_writable(target)
    for remark in write(read(model), target):
        output.note(f"{target.name}: {remark}", quiet)
