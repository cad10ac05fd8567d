"""Explain a refusal: why a model is too large for exact inference, and commands that would work."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import typer

from icgi.cli.engines import approximate, describe
from icgi.cli.failures import complain
from icgi.cli.output import paragraph
from icgi.cli.question import Refused
from icgi.cli.structure import planar, spin_flip
from icgi.units import readable_bytes, readable_seconds

_SHOWN = 3  # commands with other engines
_FIRST = ("ttve", "pt", "gbp", "lbp", "icgi")  # those that take large models first
_LONGEST = 86400.0  # seconds of exact inference worth suggesting


def explain(refused: Refused, asked: Sequence[str], out: Path | None) -> None:
    """Print on stderr what was refused, why, and full command lines to try instead.

    `asked` are the words of the command line that say model and evidence.
    """
    words = ["icgi", "marginals", *asked, *(["-o", str(out)] if out else [])]
    complain(f"refused before anything was computed: {refused}")
    if refused.engine not in ("auto", "exact", "jt"):
        return
    _say(f"Why: {_why(refused)}")
    symmetric = spin_flip(refused.question.conditioned.model)
    if symmetric:
        _say(
            "Note: the model has no field, so flipping all spins changes nothing: every marginal "
            "is exactly ½ by symmetry, and only log Z and pairs are left to compute."
        )
    flat = _planar(refused, words) if symmetric else []
    auto = (shlex.join(words), "exact where it fits, else the best of several approximations")
    lines = [*_larger_budget(refused, words), *flat, auto, *_others(words)]
    _say("What to do instead:")
    for command, remark in lines:
        typer.secho(f"  {command}", err=True, bold=True)
        typer.echo(paragraph(f"      {remark}", hang=6), err=True)
    _say(
        "Every observed variable leaves the tables, so more evidence (-e, --observe) makes exact "
        f"inference cheaper. `{shlex.join(['icgi', 'info', *asked])}` searches longer for a "
        "narrow order."
    )


def _say(text: str) -> None:
    typer.echo("\n" + paragraph(text), err=True)


def _why(refused: Refused) -> str:
    order = refused.ahead.order
    return (
        f"the best elimination order found joins {order.width + 1} variables in one table of "
        f"2^{order.log2_table:.0f} numbers; exact memory and time grow with the size of that table."
    )


def _larger_budget(refused: Refused, words: Sequence[str]) -> list[tuple[str, str]]:
    """Suggest exact inference with more memory or time, where this machine can give it."""
    ahead, budget = refused.ahead, refused.budget
    machine = _machine_bytes()
    needed = ahead.table_bytes
    if needed > 0.8 * machine or ahead.seconds > _LONGEST:
        return []
    more = ["--memory", f"{-(-needed // 1e9):.0f}G"] if needed > budget.table_bytes else []
    more += ["--seconds", f"{4 * ahead.seconds + 1:.0f}"] if ahead.seconds > budget.seconds else []
    time, memory = readable_seconds(ahead.seconds), readable_bytes(machine)
    chosen = ["--engine", refused.engine, *more]
    return [(shlex.join([*words, *chosen]), f"exact, about {time}; this machine has {memory}")]


def _machine_bytes() -> int:
    if not hasattr(os, "sysconf"):  # Windows: nothing is suggested
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _planar(refused: Refused, words: Sequence[str]) -> list[tuple[str, str]]:
    if not planar(refused.question.conditioned.model):
        return []
    return [(shlex.join([*words, "--engine", "pfaffian"]), "exact: planar Ising without field")]


def _others(words: Sequence[str]) -> list[tuple[str, str]]:
    """Suggest a few approximate engines; a model may be outside the reach of the special ones."""
    rank = {name: place for place, name in enumerate(_FIRST)}
    names = sorted(approximate(), key=lambda name: rank.get(name, len(rank)))
    return [
        (shlex.join([*words, "--engine", each.name]), f"approximate: {each.summary}")
        for each in map(describe, names[:_SHOWN])
        if each
    ]
