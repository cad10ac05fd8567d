"""`icgi generate`: random instances of the model families, as `.uai` files."""

import json as json_format
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output
from icgi.errors import IcgiError

if TYPE_CHECKING:
    from icgi.data.families import Family


def run(
    family: Annotated[
        str | None, typer.Argument(metavar="FAMILY", help="Name of a family; see --list.")
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Parameters of the family, such as n=100."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            readable=False,
            help="Where to write (.uai or .uai.gz).",
            show_default="FAMILY-SEED.uai",
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--count", metavar="N", min=1, help="Instances; their files are numbered -0, -1, …"
        ),
    ] = 1,
    show: Annotated[
        bool, typer.Option("--list", help="List the families and their parameters.")
    ] = False,
    json: options.Json = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Generate random models of a family; the same seed gives the same files.

    Instance number k of a seed is the same whatever --count says.
    """
    from icgi.data.families import FAMILIES, family_of, read_parameters

    if show:
        _list(FAMILIES, json)
        return
    if family is None:
        raise typer.BadParameter("name a family, or give --list", param_hint="FAMILY")
    found = family_of(family)
    settings = read_parameters(family, parameters or ())
    paths = _paths(out or Path(f"{family}-{seed}.uai"), count)
    for path in paths:
        output.check_writable(path)
    written = output.interruptible(lambda: _write(found, settings, paths, seed))
    if json:
        typer.echo(json_format.dumps({"family": family, "parameters": settings, "files": written}))
    elif not quiet:
        for name, what in written.items():
            typer.echo(f"{name}: {what}")


def _write(
    family: "Family", settings: Mapping[str, object], paths: Sequence[Path], seed: int
) -> dict[str, str]:
    from icgi.api import save
    from icgi.cli.question import count, states
    from icgi.randomness import generator

    written = {}
    for path, rng in zip(paths, generator(seed).spawn(len(paths)), strict=True):
        try:
            model = family.sample(rng, **settings)
        except (ValueError, OverflowError) as error:
            raise IcgiError(f"no such model: {error}; choose other parameters") from error
        with output.whole_file(path) as draft:
            save(model, draft)
        written[str(path)] = (
            f"{count(model.n_variables, 'variable')}, {count(model.n_factors, 'factor')}, "
            f"{states(model)}"
        )
    return written


def _paths(path: Path, count: int) -> list[Path]:
    if count == 1:
        return [path]
    packed = ".gz" if path.suffix == ".gz" else ""
    plain = path.with_suffix("") if packed else path
    digits = len(str(count - 1))
    return [
        plain.with_name(f"{plain.stem}-{k:0{digits}}{plain.suffix}{packed}") for k in range(count)
    ]


def _list(families: "Mapping[str, Family]", json: bool) -> None:
    if json:
        listed = {
            name: {"summary": family.summary, "parameters": dict(family.parameters)}
            for name, family in families.items()
        }
        typer.echo(json_format.dumps(listed, indent=1))
        return
    columns = [
        output.Column("family", style="bold cyan"),
        output.Column("parameters and their defaults", fold=True),
        output.Column("what it is", fold=True),
    ]
    rows = [
        [name, " ".join(f"{k}={v}" for k, v in family.parameters.items()), family.summary]
        for name, family in families.items()
    ]
    output.table(columns, rows)
    typer.echo()
    typer.echo("For example: icgi generate grid rows=20 columns=20 beta=0.5 -o grid.uai --seed 1")
