"""`icgi uai`: the calling convention of the UAI competitions."""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output
from icgi.cli.failures import INTERRUPTED
from icgi.cli.startup import loading
from icgi.errors import BudgetError, IcgiError

if TYPE_CHECKING:
    from icgi.answer import Answer
    from icgi.inference import Budget
    from icgi.model.condition import Evidence
    from icgi.model.graph import FactorGraph

# Where `auto` may find no estimate of log Z: engines that soon have one, the better one last, and
# their share of the time each.
_ROUGH, _SHARE, _MOST = ("mf", "lbp"), 0.03, 2.0
_WRITING = 0.1  # seconds kept for the end of the program, and as much again per 10^6 states


def run(
    model: options.Model,
    evidence: Annotated[
        Path, typer.Argument(metavar="EVID", readable=False, help="Evidence file.")
    ],
    query: Annotated[
        Path,
        typer.Argument(
            metavar="QUERY", readable=False, help="Query file; not read, these tasks have none."
        ),
    ],
    task: Annotated[str, typer.Argument(metavar="TASK", help="MAR, PR or MPE.")],
    engine: options.EngineName = "auto",
    seed: options.Seed = 0,
) -> None:
    """Competition form: writes MODEL.MAR, MODEL.PR or MODEL.MPE into the current folder.

    The environment variables INF_TIME (seconds) and INF_MEMORY (gigabytes) are the budget. The
    time counts from the start of the program, and 0.1 s of it (more for large answers) are kept
    for writing. The memory is that of the tables, as with --memory; the program itself and the
    model come to it (about 0.2 GB, and twice the size of the tables in the file).
    """
    began = time.perf_counter() - _since_start()
    if task not in ("MAR", "PR", "MPE"):
        raise IcgiError(f"task {task!r} is not supported; icgi computes MAR, PR and MPE")
    budget = _budget()
    target = Path(f"{model.name.removesuffix('.gz')}.{task}")
    output.check_writable(target)
    asked = _Asked(model, evidence, engine, budget, seed, began)
    if task == "MPE":
        _explain(asked, target)
        return
    written = False

    def keep(answer: "Answer") -> None:
        """Write a complete answer; the last one that is complete counts."""
        nonlocal written
        if task == "PR" and answer.log_z is None:
            return
        with output.whole_file(target) as draft:
            _write(answer, draft, task)
        written = True

    rough = _ROUGH if task == "PR" and engine == "auto" else ()
    answer, stopped = output.stoppable(lambda: _ask(asked, keep, rough))
    keep(answer)
    if not written:
        raise IcgiError(f"engine {answer.engine} has no estimate of the partition function")
    missing = task == "PR" and answer.log_z is None
    status = "a rough estimate, by mean field or messages" if missing else answer.status.value
    output.note(f"{target}: {status}, {answer.seconds:.3g} s. {answer.status.advice}")
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _budget() -> "Budget":
    from icgi.inference import Budget

    seconds = _number("INF_TIME", "seconds")
    memory = _number("INF_MEMORY", "gigabytes")
    default = Budget()
    return Budget(
        seconds=math.inf if seconds is None else seconds,
        table_bytes=default.table_bytes if memory is None else int(memory * 1e9),
    )


def _since_start() -> float:
    """Seconds since this process began, where the system says so (Linux)."""
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime", encoding="ascii") as file:
            uptime = float(file.read().split()[0])
        return max(uptime - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, ValueError, IndexError):
        return 0.0


def _number(name: str, unit: str) -> float | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise IcgiError(f"{name}={text!r} should be a number of {unit}, more than 0")
    return value


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the competition's interface gives."""

    path: Path
    evidence: Path
    engine: str
    budget: "Budget"
    seed: int
    began: float  # by `perf_counter`, when the process began


def _ask(asked: _Asked, keep: "Callable[[Answer], None]", rough: "Sequence[str]" = ()) -> "Answer":
    """Last answer of the engine; `rough` ones are asked first, and briefly."""
    budget, seed = asked.budget, asked.seed
    with loading():
        from icgi.api import marginals

        loaded, seen, left = _read(asked)
    for brief in rough:
        part = replace(budget, seconds=min(_SHARE * left(), _MOST))
        with suppress(IcgiError):  # the others come yet
            keep(marginals(loaded, seen, brief, part, seed))
    part = replace(budget, seconds=left())
    return marginals(loaded, seen, asked.engine, part, seed, on_answer=keep)


def _explain(asked: _Asked, target: Path) -> None:
    """Write what a brief search finds, then the better one that the whole time buys."""
    budget, seed = asked.budget, asked.seed
    with loading():
        from icgi.queries.mpe import mpe

        loaded, seen, left = _read(asked)
    best = None
    if asked.engine == "auto" and left() < math.inf:
        part = replace(budget, seconds=min(_SHARE * left(), _MOST))
        with suppress(IcgiError):  # the whole time comes yet
            best = mpe(loaded, seen, "pt", part, seed)
            with output.whole_file(target) as draft:
                best.save(draft)
    part = replace(budget, seconds=left())
    try:
        found, stopped = output.stoppable(partial(mpe, loaded, seen, asked.engine, part, seed))  # type: ignore[arg-type]
    except BudgetError:
        if best is None:
            raise
        found, stopped = best, False
    if best is None or found.exact or found.log_weight > best.log_weight:
        best = found
        with output.whole_file(target) as draft:
            best.save(draft)
    output.note(f"{target}: {best.label}, log weight {best.log_weight:.10g}")
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _read(asked: _Asked) -> "tuple[FactorGraph, Evidence, Callable[[], float]]":
    """Model, what is observed, and how many seconds are left before the answer is written."""
    from icgi.api import load, load_evidence

    end = asked.began + asked.budget.seconds
    loaded = load(asked.path)
    seen = load_evidence(asked.evidence, loaded)
    kept = _WRITING * (1.0 + 1e-6 * float(loaded.cards.sum()))
    return loaded, seen, lambda: max(end - kept - time.perf_counter(), 0.0)


def _write(answer: "Answer", draft: Path, task: str) -> None:
    from icgi.model.formats.uai import write_marginals, write_pr

    if task == "MAR":
        write_marginals(draft, answer.probs, answer.model.cards)
        return
    assert answer.log_z is not None  # `keep` leaves such answers out
    write_pr(draft, answer.log_z / math.log(10))
