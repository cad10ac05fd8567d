"""Printing: results on stdout, notes and progress on stderr.

On a terminal tables are drawn by rich and fit its width; elsewhere they are plain aligned text, as
wide as they need to be, so that `grep` and `column` work on them.
"""

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

import typer

from icgi.errors import IcgiError

T = TypeVar("T")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Column:
    """Heading of a column, and how its cells are drawn."""

    title: str
    right: bool = False
    style: str | None = None  # on terminals
    fold: bool = False  # may be broken over several lines on terminals


def terminal_width() -> int:
    """Columns of the terminal, 100 where there is none."""
    return shutil.get_terminal_size((100, 40)).columns


def note(text: str, quiet: bool = False) -> None:
    """Print a remark on stderr."""
    if not quiet:
        _remark(text, dim=True)


def warn(text: str) -> None:
    """Print a remark on stderr that should not be missed."""
    _remark(text, fg="yellow")


def _remark(text: str, **style: Any) -> None:
    # `print`, not `typer.echo`, which would write past the spinner's hold on stderr
    print(typer.style(text, **style) if sys.stderr.isatty() else text, file=sys.stderr)


def paragraph(text: str, hang: int = 0, stream: TextIO | None = None) -> str:
    """Wrap a text to the terminal behind stderr (or `stream`), if any; later lines hang in."""
    if not (stream or sys.stderr).isatty():
        return text
    import textwrap

    return textwrap.fill(
        text,
        terminal_width(),
        subsequent_indent=" " * hang,
        break_on_hyphens=False,
        break_long_words=False,
    )


def title(text: str) -> None:
    """Print a heading on stdout."""
    typer.secho(text, bold=True)


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], indent: int = 0) -> None:
    """Print rows below their headings on stdout."""
    if sys.stdout.isatty():
        _drawn(columns, rows, indent)
    else:
        _plain(columns, rows, indent)


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values, the values aligned and wrapped to the terminal."""
    left = max((len(name) for name, _ in pairs), default=0) + 2
    for name, value in pairs:
        if not sys.stdout.isatty():
            typer.echo(f"{name:{left}}{value}")
            continue
        import textwrap

        lines = textwrap.wrap(value, max(terminal_width() - left, 20)) or [""]
        typer.secho(f"{name:{left}}", nl=False, fg="cyan")
        typer.echo(("\n" + " " * left).join(lines))


@contextmanager
def working(quiet: bool) -> Iterator[Say]:
    """Show a spinner with the time elapsed on stderr, if that is a terminal; yields its text."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting")
        yield lambda text: progress.update(task, description=text)


def interruptible(work: Callable[[], T]) -> T:
    """Run in a helper thread: compiled code does not hear Ctrl-C, a waiting main thread does."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as problem:
            outcome.set_exception(problem)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result()


def check_writable(path: Path) -> None:
    """Refuse a place that cannot be written, before any work is done for it."""
    folder = path.parent
    if not folder.is_dir():
        raise IcgiError(f"cannot write {path}: the folder {folder} does not exist")
    if path.is_dir():
        raise IcgiError(f"cannot write {path}: it is a folder; give a file name")
    if not os.access(folder, os.W_OK):
        raise IcgiError(f"cannot write {path}: no permission to write in {folder.absolute()}")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a name to write to; the file gets its own name only when it is complete."""
    check_writable(path)
    partial = path.with_name(f".partial-{path.name}")  # the ending may choose the format
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise IcgiError(f"cannot write {path}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def _plain(columns: Sequence[Column], rows: Sequence[Sequence[str]], indent: int) -> None:
    cells = [[column.title for column in columns], *rows]
    widths = [max(len(row[c]) for row in cells) for c in range(len(columns))]
    for row in cells:
        padded = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        typer.echo((" " * indent + "  ".join(padded)).rstrip())


def _drawn(columns: Sequence[Column], rows: Sequence[Sequence[str]], indent: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            style=column.style,
            no_wrap=not column.fold,
            overflow="fold" if column.fold else "ellipsis",
        )
    for row in rows:
        drawn.add_row(*map(Text, row))  # names may look like rich's markup
    Console(highlight=False).print(Padding(drawn, (0, 0, 0, indent)))
