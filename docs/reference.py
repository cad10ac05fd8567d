"""Write docs/reference/: commands and engine options from their own help, Python from docstrings.

python docs/reference.py
"""

import ast
import html
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer.main

import icgi
from icgi import cli
from icgi.cli.engines import describe
from icgi.engines import ENGINES

MADE = "<!-- made by docs/reference.py -->"
RESULTS = {  # what public functions return beside `Answer`, and the one function of icgi.torch
    "Joint": "icgi.answer",
    "Explained": "icgi.queries.explain",
    "Explanation": "icgi.queries.mpe",
    "Samples": "icgi.elimination.sampling",
    "Scan": "icgi.queries.scan",
    "log_z": "icgi.torch",
}
SECTIONS = {
    "Models": (
        "load", "save", "load_evidence", "from_factors", "from_ising", "from_potts",
        "from_pgmpy", "from_pyagrum", "from_dimod", "from_networkx", "from_gset",
        "from_matrix_market", "to_networkx", "to_pyagrum", "FactorGraph",
    ),
    "Questions": ("marginals", "mpe", "sample", "explain", "scan", "view", "log_z"),
    "Answers": ("Answer", "Joint", "Explanation", "Samples", "Explained", "Scan", "calibrated"),
    "Many models at once": (
        "marginals_batch", "ising_batch", "potts_batch", "PairwiseBatch", "ManyMarginals",
    ),
    "Engines": (
        "Engine", "Budget", "Marginals", "Status", "infer", "condition", "lift", "Evidence",
    ),
    "Errors": (
        "IcgiError", "ModelFormatError", "EvidenceError", "UnsupportedModelError", "BudgetError",
        "CheckpointError",
    ),
}  # fmt: skip


def pages() -> dict[str, str]:
    """Text of every page of the reference by file name."""
    return {"commands.md": commands(), "engines.md": engines(), "python.md": python()}


def commands() -> str:
    """Every command with its arguments and options, as `--help` prints them."""
    group: Any = typer.main.get_command(cli.app)
    names = list(group.commands)
    links = " · ".join(f"[`{name}`](#{_anchor(f'icgi {name}')})" for name in names)
    parts = [f"{MADE}\n\n# Commands\n\n`icgi COMMAND --help` prints the same.\n\n{links}\n\n"]
    parts.append(f"{group.commands['marginals'].epilog}\n")
    parts += [_command(f"icgi {name}", group.commands[name]) for name in names]
    return "\n".join(parts)


def _command(name: str, command: Any) -> str:
    context = command.context_class(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    words = "\n\n".join(
        textwrap.fill(part, 100, break_long_words=False, break_on_hyphens=False)
        for part in (command.help or "").split("\n\n")
    )
    text = [f"## {name}\n", f"    {usage}\n", f"{_prose(words)}\n"]
    records = [
        record for param in command.params if (record := param.get_help_record(context)) is not None
    ]
    rows = [(f"`{words}`", _escaped(meaning)) for words, meaning in records]
    return "\n".join([*text, _table(("argument or option", "meaning"), rows)])


def engines() -> str:
    """Every engine with its options, as `icgi engines` prints them."""
    parts = [
        f"{MADE}\n\n# Engine options\n\nWritten `--engine NAME:OPTION=VALUE,…`, and in "
        'Python `engine="NAME:OPTION=VALUE"`. `icgi engines NAME` prints the same.\n'
    ]
    for name in ENGINES:
        found = describe(name)
        assert found is not None, name
        page = f"[More about `{name}`](../engines/{name}.md)."
        parts.append(f"## {name}\n\n{_escaped(found.summary)} {page}\n")
        rows = [
            (f"`{o.name}`", f"`{o.type}`", f"`{o.default or chr(34) * 2}`", _escaped(o.help))
            for o in found.options
        ]
        heads = ("option", "type", "default", "meaning")
        parts.append(_table(heads, rows) if rows else "No options.\n")
    return "\n".join(parts)


def python() -> str:
    """Every public name: signature, docstring, and the fields and methods of classes."""
    listed = [name for names in SECTIONS.values() for name in names]
    missing = set(icgi.__all__) - set(listed)
    assert not missing, f"docs/reference.py: put {sorted(missing)} into a section"
    parts = [
        f"{MADE}\n\n# Python\n\n`import icgi` loads nothing else; each name is imported when it is "
        "first used. `ArrayLike` is anything that `numpy.asarray` takes.\n"
    ]
    for section, names in SECTIONS.items():
        parts.append(f"## {section}\n")
        parts += [_name(name) for name in names]
    return "\n".join(parts)


def _name(name: str) -> str:
    home = RESULTS.get(name) or icgi._HOME[name]
    title = name if home != "icgi.torch" else f"torch.{name}"
    value = getattr(importlib.import_module(home), name)
    if not (inspect.isfunction(value) or inspect.isclass(value)):  # an alias of a type
        return f"### {title}\n\nA type: `{value}`.\n"
    node, lines = _source(value)
    doc = f"{_prose(ast.get_docstring(node) or '')}\n"
    if isinstance(node, ast.FunctionDef):
        call = f"icgi.{title.removesuffix(name)}{_signature(node)}"
        return f"### {title}\n\n```python\n{call}\n```\n\n{doc}"
    tables = _fields(node, lines), _methods(node)
    return "\n".join([f"### {title}\n", doc, *(table for table in tables if table)])


def _source(value: Any) -> tuple[ast.FunctionDef | ast.ClassDef, list[str]]:
    """Definition of a function or class, and the lines of its file."""
    text = Path(inspect.getfile(value)).read_text()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == value.__name__:
            return node, text.splitlines()
    raise LookupError(value)


def _signature(node: ast.FunctionDef, bound: bool = False) -> str:
    """Signature on one line, or with one parameter a line where that is long."""
    arguments = ast.unparse(node.args).replace("'", "")
    if bound:
        arguments = arguments.partition("self")[2].removeprefix(", ")
    result = f" -> {ast.unparse(node.returns)}".replace("'", "") if node.returns else ""
    line = f"{node.name}({arguments}){result}"
    if bound or len(line) <= 66:
        return line
    return f"{node.name}(\n{textwrap.indent(_one_a_line(node.args), '    ')}\n){result}"


def _one_a_line(found: ast.arguments) -> str:
    positional = [*found.posonlyargs, *found.args]
    defaults = [None] * (len(positional) - len(found.defaults)) + list(found.defaults)
    lines = [_parameter(*each) for each in zip(positional, defaults, strict=True)]
    if found.kwonlyargs:
        lines.append("*,")
    pairs = zip(found.kwonlyargs, found.kw_defaults, strict=True)
    return "\n".join([*lines, *(_parameter(*each) for each in pairs)])


def _parameter(name: ast.arg, default: ast.expr | None) -> str:
    value = "" if default is None else f" = {ast.unparse(default)}"
    return f"{ast.unparse(name)}{value},".replace("'Answer'", "Answer")


def _fields(node: ast.ClassDef, lines: Sequence[str]) -> str:
    """Fields of a dataclass with the comments behind them, or the members of an enumeration."""
    rows = []
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            name, text = item.target.id, ast.unparse(item.annotation).strip("'")
            text += f" = {ast.unparse(item.value)}" if item.value is not None else ""
        elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            name, text = item.targets[0].id, ast.unparse(item.value)
        else:
            continue
        comment = lines[(item.end_lineno or 1) - 1].partition("  # ")[2]
        if not name.startswith("_"):
            rows.append((f"`{name}`", f"`{text}`", _escaped(comment)))
    return _table(("field", "type and default", "meaning"), rows) if rows else ""


def _methods(node: ast.ClassDef) -> str:
    rows = []
    for item in node.body:
        if not isinstance(item, ast.FunctionDef):
            continue
        doc = ast.get_docstring(item)
        if doc and (not item.name.startswith("_") or item.name in ("__getitem__", "__call__")):
            marks = {ast.unparse(each) for each in item.decorator_list}
            seen = item.name if marks & {"property", "cached_property"} else _signature(item, True)
            rows.append((f"`{seen}`", _escaped(" ".join(doc.partition("\n\n")[0].split()))))
    return _table(("method or property", "what it gives"), rows) if rows else ""


def _prose(text: str) -> str:
    """Docstring as Markdown: sections in bold, parameters as a list."""
    text = re.sub(r"^(\w+)\n-{3,}$", r"**\1**\n", _escaped(text), flags=re.M)
    head, bold, parameters = text.partition("**Parameters**")
    if bold:
        items = re.sub(r"^(\w[\w, ]*)\n    ", r"* `\1`: ", parameters, flags=re.M)
        text = f"{head}{bold}\n{items}"
    return text


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = [_cell(" ".join(cell.split())) for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    """Text for a cell of a table; code with a bar is HTML, for sites disagree about escapes."""
    parts = re.split(r"`([^`]*)`", text)
    for k, part in enumerate(parts):
        if k % 2:
            marked = (
                f"<code>{html.escape(part, quote=False)}</code>" if "|" in part else f"`{part}`"
            )
            parts[k] = marked.replace("|", "&#124;")
        else:
            parts[k] = part.replace("|", "\\|")
    return "".join(parts)


def _escaped(text: str) -> str:
    """Text without what Markdown would read as markup outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    text = "".join(p if k % 2 else re.sub(r"([*_<\[])", r"\\\1", p) for k, p in enumerate(parts))
    return re.sub(r"\bdocs/(\w+)\.md", r"[\1](../\1.md)", text)


def _anchor(heading: str) -> str:
    """Anchor that the site gives a heading."""
    return re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")


if __name__ == "__main__":
    folder = Path(__file__).parent / "reference"
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)
