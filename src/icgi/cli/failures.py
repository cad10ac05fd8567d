"""Exceptions as messages and exit codes: the one place where they end."""

import errno
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from icgi.cli.output import paragraph
from icgi.errors import BudgetError, IcgiError

WRONG_QUESTION = 1
NOT_CONVERGED = 3
BUDGET_REFUSED = 4
INTERRUPTED = 130

EXIT_CODES = (
    "Exit codes: 0 done; 1 the question was wrong (file, evidence, engine); 2 wrong usage; "
    "3 neither exact nor converged, under --strict; 4 refused, needs more memory or time than the "
    "budget; 130 interrupted (the best answer so far is printed and written)."
)


class Verb(TyperCommand):
    """One command; in its help a switch is named without the type of a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options, `--help` as well."""
        return _without_types(super().get_params(ctx))


class Verbs(TyperGroup):
    """All commands; turns the exceptions of the package into messages and exit codes."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Options of `icgi` itself."""
        return _without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; raise `typer.Exit` with a documented code where it fails."""
        try:
            return super().invoke(ctx)
        except BudgetError as refused:
            complain(str(refused))
            raise typer.Exit(BUDGET_REFUSED) from refused
        except IcgiError as wrong:
            complain(str(wrong))
            raise typer.Exit(WRONG_QUESTION) from wrong
        except MemoryError as full:
            complain(
                "the machine has not enough memory for this; ask for a smaller model, or lower "
                "--memory so that icgi refuses before it starts"
            )
            raise typer.Exit(BUDGET_REFUSED) from full
        except OSError as failed:
            if failed.errno == errno.EPIPE or failed.strerror is None:  # a reader that went away
                raise
            where = "" if failed.filename is None else f"{failed.filename}: "
            complain(f"{where}{failed.strerror}; what was complete before is kept")
            raise typer.Exit(WRONG_QUESTION) from failed
        except KeyboardInterrupt as stopped:
            complain("interrupted before there was an answer; no file was left half written")
            raise typer.Exit(INTERRUPTED) from stopped


def _without_types(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters


def complain(message: str) -> None:
    """Print one readable block on stderr; on a terminal it is wrapped and its first word is red."""
    name, text = "icgi:", paragraph(f"icgi: {message}", hang=6).removeprefix("icgi:")
    typer.secho(name, err=True, fg="red", bold=True, nl=False)
    typer.echo(text, err=True)
