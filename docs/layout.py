"""Write the list of files in docs/architecture.md, from the first lines of their docstrings.

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
    page = root / "docs" / "architecture.md"
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(before + section(root) + rest.partition(END)[2])
