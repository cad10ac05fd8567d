"""Options that several verbs share, and the texts that people write for sizes.

`readable=False` leaves it to the readers to say what is wrong with a file, with exit code 1.
"""

import re
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40}
_SIZE = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([kmgt]?i?)b?\s*", re.IGNORECASE)

Model: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        readable=False,
        help="Model file, packed with gzip or not: .uai, .bif, .xmlbif, .json, .net, .dsl, .xdsl, "
        ".o3prm, .mtx or .gset.",
    ),
]
EvidenceFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--evidence",
        "-e",
        metavar="FILE",
        readable=False,
        help="Evidence file: .evid (numbers), .json or .csv (names); docs/formats.md.",
    ),
]
Observe: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--observe",
        metavar="X=STATE",
        help="Observe one more variable, both by name or number; repeat for more.",
    ),
]
Likely: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--likely",
        metavar="X=S:W,S:W,…",
        help="Soft evidence: multiply the model by a weight for every state of a variable, such as "
        "'HR=LOW:0.2,NORMAL:0.5,HIGH:0.3'; repeat for more variables.",
    ),
]
Exclude: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="X=STATE,…",
        help="States that are impossible, such as HR=LOW; repeat for more.",
    ),
]
EngineName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME[:OPTION=VALUE,…]",
        help="Engine and its options, such as lbp:damping=0.5; `icgi engines` lists them.",
    ),
]
Seconds: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="S",
        help="Time the answer may take, by the clock on the wall; compiling, once after an "
        "installation, is not counted.",
        show_default="no limit",
    ),
]
Iterations: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--iterations",
        metavar="N",
        min=1,
        help="Sweeps over all variables an engine may make.",
        show_default="1000, or no limit where --seconds is given",
    ),
]
Memory: TypeAlias = Annotated[
    str,
    typer.Option(
        "--memory", metavar="SIZE", help="Memory for tables: 500M, 4G (10⁹ bytes each), 4GiB (2³⁰)."
    ),
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=1, help="Processes.", show_default="processors"),
]
Cluster: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="PLACE",
        help="Where jobs are done: here, serial, ray://HOST:PORT, ray, slurm.",
        show_default="here",
    ),
]
Pieces: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--pieces",
        metavar="K",
        min=1,
        help="Pieces that the work is divided into; they decide the answer, workers do not.",
        show_default="as many as workers",
    ),
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of text.")
]
Quiet: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Results and errors only: no cost line, remarks or progress."
    ),
]
Verbose: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Print all statistics of the engine (docs/glossary.md), not four."
    ),
]
Show: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--show", metavar="VAR,VAR", help="Print these variables only, in this order; repeatable."
    ),
]
Seed: TypeAlias = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Seed of all randomness.")
]


def listed(texts: list[str] | None) -> list[str]:
    """Names of variables, several in a word separated by commas."""
    return [name for text in texts or () for word in text.split(",") if (name := word.strip())]


def bytes_of(text: str) -> int:
    """Read a size as people write it: 500M, 4G and 4GB are powers of ten, 4GiB of two."""
    found = _SIZE.fullmatch(text)
    size = float(found[1]) * {**_UNITS, **_BINARY}.get(found[2].lower(), 0.0) if found else 0.0
    if not 1 <= size < 2**62:
        raise typer.BadParameter(
            f"{text!r} is not a size; write a number and a unit, such as 500M, 4G or 4GiB",
            param_hint="--memory",
        )
    return int(size)


def positive_seconds(seconds: float | None) -> float:
    """Check a time limit; no limit is infinity."""
    if seconds is None:
        return float("inf")
    if not seconds > 0:
        raise typer.BadParameter(
            f"{seconds:g} is not a time; give more than 0", param_hint="--seconds"
        )
    return seconds
