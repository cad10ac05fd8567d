"""Picture of a terminal: what two real commands print, as docs/figures/terminal.svg.

python docs/figures/terminal.py

The commands run behind a pseudo-terminal, so that they print colours and fit its width; rich turns
what arrived into a picture.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 100
COMMANDS = (
    "icgi generate grid rows=4 columns=4 field=1 --seed 3 -o grid.uai",
    "icgi marginals grid.uai --observe 0=1 --top 10",
    "icgi generate ea2d L=60 --seed 1 -o wide.uai",
    "icgi marginals wide.uai",
)
SILENT = ("icgi generate",)  # shown without what they print


def printed(command: str, folder: str) -> str:
    """Everything that a command writes to a terminal of `COLUMNS` columns."""
    words = [sys.executable, "-m", "icgi", *command.split()[1:]]
    environment = {**os.environ, "COLUMNS": str(COLUMNS - 4), "TERM": "xterm-256color"}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        parts.append(part)
    process.wait()
    os.close(ours)
    return settled(b"".join(parts).decode())


def settled(text: str) -> str:
    """Text as it stands after all: without progress lines, cursor movements and their traces."""
    text = text.replace("\r\n", "\n")
    text = re.sub(r"\x1b\[\?25[lh]", "", text)  # cursor hidden and shown
    lines: list[str] = []
    for line in text.split("\n"):
        for _ in range(line.count("\x1b[1A")):  # one line up, to erase what progress drew there
            lines.pop()
        lines.append(re.split(r"\r|\x1b\[2K|\x1b\[1A", line)[-1])
    return "\n".join(lines)


def main() -> None:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            console.print(Text(f"$ {command}", style="bold green"))
            text = printed(command, folder)
            if not command.startswith(SILENT):
                console.print(Text.from_ansi(text.strip("\n")))
                console.print()
    path = Path(__file__).with_suffix(".svg")
    console.save_svg(str(path), title="icgi")
    # the picture needs no font from elsewhere: any monospaced one will do
    text = re.sub(r"@font-face \{.*?\}\s*", "", path.read_text(), flags=re.DOTALL)
    path.write_text(text.replace("Fira Code", "DejaVu Sans Mono"))


if __name__ == "__main__":
    main()
