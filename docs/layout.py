"""Write the layout section of the README: one line per file, from the first line of its docstring.

python docs/layout.py
"""

import ast
from pathlib import Path

BEGIN, END = "<!-- layout: made by docs/layout.py -->", "<!-- end of layout -->"


def section(root: Path) -> str:
    """Return the section between the markers."""
    lines = [BEGIN, "", "| file | idea |", "|---|---|"]
    for path in sorted((root / "src" / "icgi").rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        name = path.relative_to(root / "src" / "icgi").as_posix()
        lines.append(f"| `{name}` | {text.partition(chr(10))[0].rstrip('.')} |")
    return "\n".join([*lines, "", END])


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    readme = root / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    readme.write_text(before + section(root) + rest.partition(END)[2])
