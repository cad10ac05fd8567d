"""`icgi engines`: what each engine does and takes, read from its source without importing it."""

import ast
import json as json_format
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from icgi.cli import options, output
from icgi.errors import IcgiError
from icgi.wording import did_you_mean


@dataclass(frozen=True, slots=True)
class Option:
    """One setting of an engine."""

    name: str
    type: str
    default: str
    help: str


@dataclass(frozen=True, slots=True)
class Description:
    """What the source of an engine says about it."""

    name: str
    summary: str
    details: str
    options: tuple[Option, ...]
    exact: bool


def run(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One engine.", show_default="all")
    ] = None,
    json: options.Json = False,
) -> None:
    """List the engines and their options, as --engine takes them."""
    from icgi.engines import ENGINES

    if name is not None and name not in ENGINES:
        near = did_you_mean(name, ENGINES)
        raise IcgiError(f"unknown engine {name!r}{near}; there are: {', '.join(ENGINES)}")
    found = [each for each in map(describe, [name] if name else ENGINES) if each]
    if name and not found:
        raise IcgiError(f"engine {name!r} is listed, but its source is missing; reinstall icgi")
    if json:
        typer.echo(json_format.dumps([asdict(each) for each in found], indent=1))
    elif name:
        _show(found[0])
    else:
        _list(found)


def describe(name: str) -> Description | None:
    """Read an engine's docstring and settings; None where its source is not there."""
    from icgi.engines import ENGINES

    module, _, class_name = ENGINES[name].partition(":")
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return None
    text = Path(spec.origin).read_text()
    tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            docstring = ast.get_docstring(node) or ""
            alone = sum(place.partition(":")[0] == module for place in ENGINES.values()) == 1
            if alone:  # a module says in words what its one class says in symbols
                summary, details = _first_line(ast.get_docstring(tree) or "", name), docstring
            else:
                summary, _, details = docstring.partition("\n")
            settings = _settings(node, tree, text)
            if any(option.name == "network" for option in settings):
                details = f"{summary}\n\n{details}"
                summary = _first_line(_network_docstring(Path(spec.origin).parent, name), name)
                settings = tuple(option for option in settings if option.name != "network")
            return Description(name, summary, details.strip(), settings, _is_exact(module))
    return None


def _network_docstring(folder: Path, name: str) -> str:
    """What the module of a network says, for engines that differ by their network only."""
    path = folder / "networks" / f"{name.replace('-', '_')}.py"
    return ast.get_docstring(ast.parse(path.read_text())) or "" if path.is_file() else name


def _first_line(docstring: str, name: str) -> str:
    line = docstring.partition("\n")[0].removeprefix(f"`{name}`: ")
    return line[:1].upper() + line[1:]


def approximate() -> list[str]:
    """Names of the engines for models that are too large for exact inference."""
    from icgi.engines import ENGINES

    return [n for n, place in ENGINES.items() if n != "auto" and not _is_exact(place)]


def _is_exact(place: str) -> bool:
    return place.startswith(("icgi.exact", "icgi.portfolio.exact"))


def _settings(node: ast.ClassDef, tree: ast.Module, text: str) -> tuple[Option, ...]:
    lines = text.splitlines()
    fields = [
        field
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    ]
    aliases = _aliases(tree) | _imported_aliases(tree, {ast.unparse(f.annotation) for f in fields})
    found = []
    for field in fields:
        kind = ast.unparse(field.annotation)
        default = "" if field.value is None else _value(field.value)
        comment = lines[(field.end_lineno or field.lineno) - 1].partition("  # ")[2]
        found.append(
            Option(
                ast.unparse(field.target),
                _readable(aliases.get(kind, kind)),
                default.strip("'"),
                comment,
            )
        )
    return tuple(found)


def _value(node: ast.expr) -> str:
    """Text of a default; powers such as 2 ** 18 as the number that they are."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return str(ast.literal_eval(node.left) ** ast.literal_eval(node.right))
    return ast.unparse(node)


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Names that a module gives to other expressions, such as `Schedule = Literal[…]`."""
    return {
        target.id: ast.unparse(statement.value)
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
        if isinstance(target, ast.Name)
    }


def _imported_aliases(tree: ast.Module, wanted: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for statement in tree.body:
        if not isinstance(statement, ast.ImportFrom):
            continue
        names = {alias.name for alias in statement.names} & wanted
        spec = find_spec(statement.module or "") if names else None
        if spec is not None and spec.origin is not None:
            there = _aliases(ast.parse(Path(spec.origin).read_text()))
            found |= {name: text for name, text in there.items() if name in names}
    return found


def _readable(kind: str) -> str:
    if kind.startswith("Literal["):
        return " | ".join(kind[len("Literal[") : -1].replace("'", "").split(", "))
    return kind


def _list(found: list[Description]) -> None:
    columns = [
        output.Column("engine", style="bold cyan"),
        output.Column("what it does", fold=True),
        output.Column("options", style="dim", fold=True),
    ]
    rows = [
        [each.name, each.summary, ", ".join(f"{o.name}={o.default}" for o in each.options)]
        for each in found
    ]
    output.table(columns, rows)
    typer.echo()
    typer.echo(
        "`icgi engines NAME` explains the options; give them as --engine NAME:OPTION=VALUE,…"
    )


def _show(engine: Description) -> None:
    output.title(engine.name)
    typer.echo(engine.summary)
    if engine.details:
        typer.echo(f"\n{engine.details}")
    typer.echo()
    if not engine.options:
        typer.echo("It has no options.")
        return
    columns = [
        output.Column("option", style="bold cyan"),
        output.Column("type", fold=True),
        output.Column("default", fold=True),
        output.Column("meaning", fold=True),
    ]
    output.table(columns, [[o.name, o.type, o.default, o.help] for o in engine.options])
    first = engine.options[0]
    typer.echo(f"\nFor example: --engine {engine.name}:{first.name}={first.default}")
