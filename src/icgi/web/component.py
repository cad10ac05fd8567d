"""The viewer's JavaScript and styles as one text, for homes that cannot load several files."""

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
_STAR = re.compile(r'^import \* as (\w+) from "\./(\w+)\.js";$', re.M)
_NAMES = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.M)


@cache
def bundle(entry: str) -> str:
    """One module that behaves like `static/ENTRY.js` with everything it imports.

    Each file becomes a function that returns what it exports; a default export stays one.
    """
    parts: dict[str, str] = {}
    _gather(entry, parts)
    return "\n".join(parts.values())


@cache
def styles() -> str:
    """The style sheet."""
    return (STATIC / "viewer.css").read_text(encoding="utf-8")


def _gather(name: str, parts: dict[str, str]) -> None:
    """Add a file after all those that it imports."""
    if name in parts:
        return
    text = (STATIC / f"{name}.js").read_text(encoding="utf-8")
    for _, other in [*_STAR.findall(text), *_NAMES.findall(text)]:
        _gather(other, parts)
    text = _STAR.sub(r"const \1 = from_\2;", text)
    text = _NAMES.sub(r"const \1 = from_\2;", text)
    text, default, rest = text.partition("export default ")
    exported = _EXPORT.findall(text)
    text = _EXPORT.sub("", text)
    body = f"const from_{name} = (() => {{\n{text}\nreturn {{ {', '.join(exported)} }};\n}})();"
    if default:
        body += f"\nconst {{ {', '.join(exported)} }} = from_{name};\nexport default {rest}"
    parts[name] = body
