"""`icgi demo`: a tour of the commands, each shown and then run, on generated models."""

import contextlib
import shlex
import shutil
import tempfile
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import output
from icgi.cli.failures import BUDGET_REFUSED

if TYPE_CHECKING:
    from icgi.model.graph import FactorGraph

NETWORK = """\
import icgi
from icgi.cli.demo import travel      # seven named variables, built with icgi.from_factors
icgi.marginals(travel()).top(7)
icgi.marginals(travel(), {"connection": "missed", "storm": "no"})["works"]"""


def run(
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="DIR",
            help="Keep the files of the tour here.",
            show_default="a temporary folder, removed at the end",
        ),
    ] = None,
) -> None:
    """Tour of icgi in a few seconds: shows each command, then runs it; needs no network."""
    began = time.perf_counter()
    place = folder or Path(tempfile.mkdtemp(prefix="icgi-demo-"))
    place.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.chdir(place):
            _tour()
    finally:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
    kept = f"The files are in {place}." if folder else "Give --folder DIR to keep the files."
    output.title(f"\nDone in {time.perf_counter() - began:.1f} s. {kept}")


def _tour() -> None:
    _step("1. A random spin glass on an 8 × 8 grid: 64 variables, each −1 or +1 (states 0 and 1).")
    _icgi("generate grid rows=8 columns=8 field=0.3 --seed 1 -o grid.uai")
    _step("2. Look before you compute: how wide is it, what would exact inference cost?")
    _icgi("info grid.uai")
    _step("3. All marginals, exactly, the most uncertain variables first.")
    _icgi("marginals grid.uai --top 6")
    _step("4. The same after two corners were observed: variable 0 in state 1, 63 in state 0.")
    typer.secho("$ echo '2  0 1  63 0' > corners.evid", fg="green")
    Path("corners.evid").write_text("2  0 1  63 0\n")
    _icgi("marginals grid.uai -e corners.evid --top 6 -o corners.MAR")
    _step("5. How far from the first answer is the second? Farthest next to the corners.")
    _icgi("check corners.MAR grid.uai.MAR -e corners.evid")
    _step("6. A Bayesian network with names: a missed connection, and what may have caused it.")
    _travel_network()
    _step("7. Too wide for exact inference: who insists on it is refused at once, with a reason.")
    _icgi("generate ea2d L=60 --seed 1 -o wide.uai")
    _icgi("marginals wide.uai --engine exact", expected=BUDGET_REFUSED)
    _step("8. Everybody else gets the best approximation that the time buys, and its error.")
    _icgi("marginals wide.uai --seconds 10 --top 5")


def travel() -> "FactorGraph":
    """Small Bayesian network with named variables and states, invented for the tour."""
    from icgi.api import from_factors

    return from_factors(
        [
            (["storm"], [0.9, 0.1]),
            (["works"], [0.7, 0.3]),
            (["storm", "signals"], [[0.97, 0.03], [0.6, 0.4]]),
            (
                ["signals", "works", "delay"],
                [
                    [[0.85, 0.12, 0.03], [0.5, 0.4, 0.1]],
                    [[0.2, 0.4, 0.4], [0.05, 0.3, 0.65]],
                ],
            ),
            (["delay", "connection"], [[0.98, 0.02], [0.7, 0.3], [0.1, 0.9]]),
            (["delay", "announcement"], [[0.95, 0.05], [0.4, 0.6], [0.1, 0.9]]),
            (["storm", "umbrellas"], [[0.85, 0.15], [0.1, 0.9]]),
        ],
        states={
            "storm": ["no", "yes"],
            "works": ["none", "on the line"],
            "signals": ["working", "broken"],
            "delay": ["none", "short", "long"],
            "connection": ["reached", "missed"],
            "announcement": ["silent", "heard"],
            "umbrellas": ["few", "many"],
        },
    )


def _travel_network() -> None:
    from icgi.api import marginals
    from icgi.cli import answer_table

    typer.secho(textwrap.indent(NETWORK, ">>> "), fg="green")
    model = travel()
    for text, seen in (
        ("before anything is known:", {}),
        ("the connection was missed, and there was no storm:", _SEEN),
    ):
        typer.echo(f"\n{text}\n")
        answer_table.show(marginals(model, seen), 0, 0.9)


_SEEN: dict[int | str, int | str] = {"connection": "missed", "storm": "no"}


def _step(text: str) -> None:
    output.title(f"\n{text}\n")


def _icgi(command: str, expected: int = 0) -> None:
    """Show a command and run it as it stands."""
    from icgi.cli import app

    typer.secho(f"$ icgi {command}", fg="green")
    code = app(shlex.split(command), prog_name="icgi", standalone_mode=False) or 0
    if code != expected:
        raise typer.Exit(code)
    if code:
        typer.echo(f"(exit code {code})", err=True)
