"""`icgi marginals`: every marginal of a model, what it cost, and how far to trust it."""

import json as json_format
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output, question
from icgi.cli.failures import BUDGET_REFUSED, INTERRUPTED, NOT_CONVERGED
from icgi.cli.known import Given
from icgi.cli.startup import loading
from icgi.errors import BudgetError, IcgiError

if TYPE_CHECKING:
    from icgi.answer import Answer
    from icgi.inference import Budget, Engine
    from icgi.joint import Joint

_ENDINGS = (".mar", ".json", ".csv", ".parquet")


def run(
    model: options.Model,
    evidence: options.EvidenceFile = None,
    observe: options.Observe = None,
    likely: options.Likely = None,
    exclude: options.Exclude = None,
    engine: options.EngineName = "auto",
    seconds: options.Seconds = None,
    iterations: options.Iterations = None,
    memory: options.Memory = "4G",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Divide the work on this model among so many processes (docs/scale.md).",
            show_default="not divided",
        ),
    ] = None,
    cluster: options.Cluster = None,
    pieces: options.Pieces = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            readable=False,
            help="Where to write: .MAR, .json, .csv or .parquet.",
            show_default="MODEL.MAR",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE",
            readable=False,
            help="Also write the answer as one HTML page to look at or send.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int,
        typer.Option("--top", metavar="N", min=0, help="Rows of the printed table; 0 for all."),
    ] = 20,
    show: options.Show = None,
    joint: Annotated[
        list[str] | None,
        typer.Option(
            "--joint",
            metavar="VAR,VAR",
            help="Also print the joint distribution of these variables; repeat for more.",
        ),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            "--level",
            metavar="P",
            help="Level of sets and bands: calibrated ones, with a sentence on what is promised, "
            "or else the engine's own estimate of its error, where it has one.",
            show_default="0.9",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="FILE",
            readable=False,
            help="Calibration of this engine, by icgi calibrate.",
            show_default="the one that comes with icgi",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with 3, and write no file, unless exact or converged; an iteration that "
            "only came to rest is neither.",
        ),
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    seed: options.Seed = 0,
) -> None:
    """Every single-variable marginal of a model, given evidence.

    The first line, on stderr, says what the answer will cost. The table on stdout has the most
    uncertain variables first. All marginals go to MODEL.MAR next to the model, or to --output;
    with --json to stdout only. A different file found as MODEL.MAR is kept as MODEL.MAR.old. The
    first Ctrl-C ends the run with the best answer so far (exit code 130), the second aborts it.
    """
    with loading():
        from icgi.inference import Budget
        from icgi.lookup import chosen_variables

    asked, level = level is not None, 0.9 if level is None else level
    if not 0 < level < 1:
        raise typer.BadParameter(f"{level:g} is not between 0 and 1", param_hint="--level")
    seconds_left = options.positive_seconds(seconds)
    budget = Budget(iterations, seconds_left, options.bytes_of(memory))
    given = Given(evidence, observe or (), likely or (), exclude or ())
    _check_output(out)
    _check_report(report)
    wanted = [options.listed([text]) for text in joint or ()]
    named = [*wanted, *([options.listed(show)] if show else [])]
    known = None if calibration is None else _calibration(calibration, engine)
    among = workers, pieces, cluster
    try:
        with output.working(quiet) as say:
            draft = None if json or strict else out  # what is asked for by name grows on the way
            answer, stopped = output.stoppable(
                lambda: _ask(model, given, engine, among, budget, seed, quiet, say, draft, named)
            )
            rows = chosen_variables(answer.model, options.listed(show)) if show else None
            if wanted:
                say("asking for joint distributions")
            answer = replace(answer, budget=budget, seed=seed, command=_command())
            joints: list[Joint] = []
            if wanted and not stopped:
                joints = output.interruptible(lambda: answer.joints(wanted))
    except question.Refused as refused:
        from icgi.cli.refusal import explain

        explain(refused, [str(model), *given.words()], out)
        raise typer.Exit(BUDGET_REFUSED) from refused
    if known is not None:
        answer = known(answer)
    failed = strict and not answer.status.trusted
    # The file first: whoever reads the table may close the pipe early.
    remark, problem = "", None
    try:
        remark = _write(answer, model, out, failed, level) if out or not json else ""
        if report is not None and not failed:
            remark = "; ".join(filter(None, [remark, _report(answer, model, report, level)]))
    except IcgiError as error:
        problem = error
    if json:
        typer.echo(_json(answer, joints, level))
    else:
        from icgi.cli import answer_table, joint_table

        answer_table.show(answer, top, level, engine, verbose, rows, asked)
        joint_table.show(joints)
    output.note(remark, quiet or not remark)
    if problem is not None:
        raise problem
    if failed:
        output.warn(f"neither exact nor converged ({answer.status.value}), and --strict was given")
    if stopped:
        raise typer.Exit(INTERRUPTED)
    if failed:
        raise typer.Exit(NOT_CONVERGED)


def _json(answer: "Answer", joints: "Sequence[Joint]", level: float) -> str:
    """One JSON object: the answer, and the joint distributions that were asked for."""
    if not joints:
        return answer.to_json(level)
    whole = json_format.loads(answer.to_json(level))
    return json_format.dumps({**whole, "joints": [each.to_dict() for each in joints]})


def _command() -> str:
    """Return what was typed, to be repeated."""
    return shlex.join(["icgi", *sys.argv[1:]])


def _ask(
    path: Path,
    given: Given,
    engine_text: str,
    among: tuple[int | None, int | None, str | None],
    budget: "Budget",
    seed: int,
    quiet: bool,
    say: output.Say,
    out: Path | None,
    named: Sequence[Sequence[str]] = (),
) -> "Answer":
    """Answer as asked; variables that are `named` for the output are looked up before."""
    with loading():
        from icgi.engines import parse_engine
        from icgi.lookup import chosen_variables

        engine: Engine = parse_engine(engine_text)
        if any(each is not None for each in among):
            from icgi.workers import Shared

            engine = Shared(engine, *among)
        deadline = budget.deadline()  # whoever asks for seconds waits for the reading too
        say(f"reading {path.name}")
        asked = question.load(path, given.file, given.observe, budget, given.likely, given.exclude)
        for variables in named:
            chosen_variables(asked.model, variables)
        beside = question.unused_evidence(path, given.file)
        if beside is not None:
            output.note(f"there is {beside.name}, not used; give -e {beside} to enter it", quiet)
        say("searching an elimination order")
        ahead = question.cost_of(asked, engine, budget.until(deadline), seed)
    name = engine_text.partition(":")[0]
    output.note(question.cost_line(asked, ahead, engine, name, budget), quiet)
    ends = question.end_of(engine, ahead, budget, deadline)

    def show(doing: str) -> None:
        say(lambda: doing if math.isinf(ends.at) else f"{doing}; {ends.left:.0f} s left")

    show(f"running {engine_text}")

    def on_answer(so_far: "Answer") -> None:
        error = so_far.stats.get("expected_error")
        better = "" if error is None else f", expected error {error:.2g}"
        show(f"best so far: {so_far.marginals.note or so_far.status.value}{better}")
        if out is not None:
            so_far.save(out)  # a complete answer, should this process be ended

    try:
        return question.answer(asked, engine, ahead, budget.until(deadline), seed, on_answer)
    except BudgetError as error:
        raise question.Refused(str(error), asked, ahead, name, budget) from error


def _check_output(out: Path | None) -> None:
    if out is None:
        return
    if out.is_dir():
        raise IcgiError(
            f"cannot write {out}: it is a folder; give a file name, such as {out / 'answer.MAR'}"
        )
    if out.suffix.lower() not in _ENDINGS:
        raise IcgiError(
            f"cannot write {out}: its ending should be one of .MAR, .json, .csv, .parquet"
        )
    output.check_writable(out)
    if out.suffix.lower() == ".parquet":
        from icgi.extras import require_extra

        require_extra("pyarrow.parquet", "data", "writing .parquet")


def _check_report(report: Path | None) -> None:
    if report is None:
        return
    if report.suffix.lower() not in (".html", ".htm"):
        raise IcgiError(f"cannot write the report {report}: its ending should be .html")
    output.check_writable(report)


def _calibration(path: Path, engine: str) -> "Callable[[Answer], Answer]":
    """Read a calibration file and refuse one of another engine before anything is computed."""
    with loading():
        from functools import partial

        from icgi.calibration.apply import calibrated
        from icgi.calibration.file import read, require_for
        from icgi.engines import parse_engine

        made = read(path)
        require_for(made, repr(parse_engine(engine)), str(path))
    return partial(calibrated, calibration=made)


def _report(answer: "Answer", model: Path, report: Path, level: float) -> str:
    from icgi.report.html import page

    with output.whole_file(report) as draft:
        draft.write_text(page(answer, model.name, level), encoding="utf-8")
    return f"report written to {report}"


def _write(answer: "Answer", model: Path, out: Path | None, failed: bool, level: float) -> str:
    """Write all marginals; returns what to say about it."""
    target = out or question.answer_file(model)
    if failed:
        return f"{target} not written"
    if out is None and not os.access(target.absolute().parent, os.W_OK):
        return f"{target} not written: no permission in that folder; give -o FILE"
    kept = ""
    if out is None:
        kept = _replace(answer, target)
    else:
        answer.save(out, level)
    return f"all marginals written to {target}{kept}"


def _replace(answer: "Answer", target: Path) -> str:
    """Write under the default name; what lies there may be a published reference, so keep it."""
    old = target.with_name(f"{target.name}.old")
    with output.whole_file(target) as draft:
        answer.save(draft)
        differs = target.is_file() and target.read_bytes() != draft.read_bytes()
        if not differs or old.exists():
            return ""
        target.rename(old)
    return f" (the file that was there is kept as {old.name})"
