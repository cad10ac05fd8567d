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

from icgi.cli.startup import loading
from icgi.errors import BudgetError, IcgiError
from icgi.wording import shown

T = TypeVar("T")
Say = Callable[["str | Callable[[], str]"], None]  # a text, or what makes it while it is shown


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
    text = printable(text)
    print(typer.style(text, **style) if sys.stderr.isatty() else text, file=sys.stderr)


def printable(text: str) -> str:
    """Text whose lines hold nothing that a terminal would obey."""
    return "\n".join(map(shown, text.split("\n")))


def paragraph(text: str, hang: int = 0, stream: TextIO | None = None) -> str:
    """Wrap a text to the terminal behind stderr (or `stream`), if any; later lines hang in."""
    text = printable(text)
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
    rows = [list(map(shown, row)) for row in rows]
    if sys.stdout.isatty():
        _drawn(columns, rows, indent)
    else:
        _plain(columns, rows, indent)


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values, the values aligned and wrapped to the terminal."""
    left = max((len(name) for name, _ in pairs), default=0) + 2
    for name, value in ((name, printable(value)) for name, value in pairs):
        if not sys.stdout.isatty():
            typer.echo(f"{name:{left}}{value}")
            continue
        import textwrap

        lines = textwrap.wrap(value, max(terminal_width() - left, 20)) or [""]
        typer.secho(f"{name:{left}}", nl=False, fg="cyan")
        typer.echo(("\n" + " " * left).join(lines))


@contextmanager
def working(quiet: bool) -> Iterator[Say]:
    """Show a spinner with the time elapsed on stderr, if that is a terminal; yields its text.

    Says once when kernels are compiled, and on a terminal how many so far.
    """
    if quiet:
        yield lambda text: None
        return
    compiled = _Compiled()
    with compiled.watched(), _spinner(compiled) as say:
        yield say


class _Compiled:
    """Kernels that have been compiled since the command began."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        with loading():
            from icgi.kernels import when_compiling

        when_compiling(self.one_more)
        try:
            yield
        finally:
            when_compiling(None)

    def one_more(self) -> None:
        self.count += 1
        if self.count == 1:
            note("compiling, once")

    def or_else(self, text: str) -> str:
        """What to show now: compiling goes before whatever waits for it."""
        from icgi import clock

        return f"compiling ({self.count} kernels)…" if self.count and clock.paused() else text


@contextmanager
def _spinner(compiled: _Compiled) -> Iterator[Say]:
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
    from rich.text import Text

    def doing() -> str:
        return "starting"

    def say(text: str | Callable[[], str]) -> None:
        nonlocal doing
        doing = text if callable(text) else lambda: text

    class Doing(TextColumn):
        def render(self, task: Task) -> Text:
            return Text(compiled.or_else(shown(doing())))

    columns = SpinnerColumn(), Doing(""), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task("")
        yield say


def interruptible(work: Callable[[], T]) -> T:
    """Run in another thread: Ctrl-C reaches a waiting main thread, but not compiled code."""
    outcome: Future[T] = Future()
    _start(work, outcome)
    return outcome.result()


def stoppable(work: Callable[[], T]) -> tuple[T, bool]:
    """Run so that the first Ctrl-C ends every deadline; returns whether there was one.

    Engines then return the best answer so far. The second Ctrl-C is an ordinary one, and so is the
    first where it leaves an engine without an answer.
    """
    from icgi import clock

    with clock.stoppable():
        outcome: Future[T] = Future()
        try:
            _start(work, outcome)
            return outcome.result(), False
        except KeyboardInterrupt:
            if outcome.done():  # nobody is at work any more, or the work itself was interrupted
                raise
        clock.request_stop()
        warn("stopping: the best answer so far; Ctrl-C again to abort")
        try:
            return outcome.result(), True
        except BudgetError as unanswered:
            raise KeyboardInterrupt from unanswered


def _start(work: Callable[[], T], outcome: "Future[T]") -> None:
    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as problem:
            outcome.set_exception(problem)

    threading.Thread(target=run, daemon=True).start()


def check_ending(path: Path, endings: Sequence[str]) -> None:
    """Refuse a file of another ending, or a place that cannot be written, before any work."""
    if path.suffix.lower() not in endings:
        raise IcgiError(f"cannot write {path}: its ending should be {' or '.join(endings)}")
    check_writable(path)


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
    except IcgiError as error:
        if isinstance(error.__cause__, OSError):  # it would name the temporary file
            raise IcgiError(f"cannot write {path}: {error.__cause__.strerror}") from error
        raise
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
