"""`icgi report`: a saved answer as a page, or two of them side by side."""

from pathlib import Path
from typing import Annotated

import typer

from icgi.cli import options, output
from icgi.errors import IcgiError


def run(
    answer: Annotated[
        Path, typer.Argument(metavar="A", readable=False, help="Answer: .json of icgi, or .MAR.")
    ],
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="[B]",
            readable=False,
            help="A second answer to compare with; the better one, if one is.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            readable=False,
            help="Where to write the page.",
            show_default="A.html, or A-B.html",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", metavar="MODEL", readable=False, help="Model that names what is in a .MAR."
        ),
    ] = None,
    level: Annotated[float, typer.Option("--level", metavar="P", help="Level of the bands.")] = 0.9,
    quiet: options.Quiet = False,
) -> None:
    """A saved answer as one HTML page to look at, print or send; or two side by side.

    Save answers with `icgi marginals MODEL -o A.json`. The page needs no other file.
    """
    from icgi.api import load
    from icgi.report.compare import comparison
    from icgi.report.html import page_of
    from icgi.report.saved import read_answer

    if not 0 < level < 1:
        raise typer.BadParameter(f"{level:g} is not between 0 and 1", param_hint="--level")
    beside = f"-{other.stem}" if other is not None else ""
    target = out or answer.with_name(f"{answer.stem}{beside}.html")
    if target.suffix.lower() not in (".html", ".htm"):
        raise IcgiError(f"cannot write the report {target}: its ending should be .html")
    output.check_writable(target)
    named = load(model) if model is not None else None
    first = read_answer(answer, named, level)
    if other is None:
        made = page_of(first, answer.name)
    else:
        made = comparison(first, read_answer(other, named, level), (answer.name, other.name))
    with output.whole_file(target) as draft:
        draft.write_text(made, encoding="utf-8")
    output.note(f"report written to {target}", quiet)
