"""Recording of a terminal as an animated picture, docs/figures/recording.svg.

python docs/figures/recording.py

Real commands run behind a pseudo-terminal; a small screen understands what they write (colours,
lines that progress draws again), and every state of it becomes a frame. Pauses are shortened. The
frames lie one below the other in one SVG, past which a style rule moves the window.
"""

import html
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

COLUMNS, ROWS = 96, 30
TYPING = 0.035  # seconds per character
LONGEST = 0.7  # seconds that a pause of a command is shown
READING = 3.2  # seconds after a command
CLOSE = 0.08  # seconds within which changes are one frame
CHAR, LINE, SIZE, EDGE = 8.4, 18.0, 14, 12.0  # of the picture, in pixels

GARDEN = """network garden { }
variable Season { type discrete [ 2 ] { dry, rainy }; }
variable Rain { type discrete [ 2 ] { yes, no }; }
variable Sprinkler { type discrete [ 2 ] { on, off }; }
variable Grass { type discrete [ 3 ] { dry, damp, soaked }; }
probability ( Season ) { table 0.6, 0.4; }
probability ( Rain | Season ) { (dry) 0.1, 0.9; (rainy) 0.7, 0.3; }
probability ( Sprinkler | Season ) { (dry) 0.6, 0.4; (rainy) 0.1, 0.9; }
probability ( Grass | Rain, Sprinkler ) {
  (yes, on) 0.0, 0.2, 0.8; (yes, off) 0.0, 0.4, 0.6;
  (no, on) 0.1, 0.6, 0.3; (no, off) 1.0, 0.0, 0.0;
}
"""
COMMANDS = (
    ("# The grass is damp. Did it rain?", ""),
    ("icgi marginals garden.bif --observe Grass=damp", ""),
    ("icgi marginals garden.bif --observe Grass=damp --joint Rain,Sprinkler --show Rain", ""),
    ("icgi mpe garden.bif --observe Grass=damp", ""),
    ("icgi marginals garden.bif --observe Season=dry --observe Grass=dry --observe Rain=yes", ""),
    ("# A spin glass of 3,600 spins, beyond exact inference", "clear"),
    ("icgi generate ea2d L=60 --seed 1 -o glass.uai", ""),
    ("icgi marginals glass.uai --engine exact", ""),
    ("icgi marginals glass.uai --seconds 8 --top 6", "clear"),
)

_ESCAPE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b\][^\x07]*\x07")
_COLOURS = {
    30: "#5c6370", 31: "#e06c75", 32: "#98c379", 33: "#e5c07b", 34: "#61afef", 35: "#c678dd",
    36: "#56b6c2", 37: "#d7dae0", 90: "#7f848e", 91: "#e06c75", 92: "#98c379", 93: "#e5c07b",
    94: "#61afef", 95: "#c678dd", 96: "#56b6c2", 97: "#ffffff",
}  # fmt: skip
_PLAIN = "#d7dae0"

Style = tuple[str, bool, bool]  # colour, bold, dim


@dataclass
class Screen:
    """What a terminal shows: rows of styled characters, the last `ROWS` of them in sight."""

    lines: list[list[tuple[str, Style]]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    style: Style = (_PLAIN, False, False)

    def write(self, text: str) -> None:
        """Take what a program wrote."""
        at = 0
        while at < len(text):
            found = _ESCAPE.match(text, at)
            if found:
                self._command(found[1] or "", found[2] or "")
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def _put(self, character: str) -> None:
        if character == "\n":
            self.row += 1
        elif character == "\r":
            self.column = 0
        elif character >= " ":
            if self.column >= COLUMNS:
                self.row, self.column = self.row + 1, 0
            self._reach()
            line = self.lines[self.row]
            line += [(" ", (_PLAIN, False, False))] * (self.column + 1 - len(line))
            line[self.column] = (character, self.style)
            self.column += 1
        self._reach()

    def _reach(self) -> None:
        while len(self.lines) <= self.row:
            self.lines.append([])

    def _command(self, numbers: str, kind: str) -> None:
        first = int(numbers) if numbers.isdigit() else 1
        if kind == "m":
            self._styled([int(n) for n in numbers.split(";") if n] or [0])
        elif kind == "A":
            self.row = max(self.row - first, 0)
        elif kind == "K":
            self.lines[self.row] = [] if numbers == "2" else self.lines[self.row][: self.column]
        elif kind == "J" and numbers == "2":
            self.clear()

    def _styled(self, numbers: list[int]) -> None:
        colour, bold, dim = self.style
        while numbers:
            n = numbers.pop(0)
            if n == 0:
                colour, bold, dim = _PLAIN, False, False
            elif n == 1:
                bold = True
            elif n == 2:
                dim = True
            elif n == 22:
                bold = dim = False
            elif n in _COLOURS:
                colour = _COLOURS[n]
            elif n == 39:
                colour = _PLAIN
            elif n == 38 and numbers[:1] == [5]:
                colour = _extended(numbers[1])
                del numbers[:2]
            elif n == 38 and numbers[:1] == [2]:
                colour = "#{:02x}{:02x}{:02x}".format(*numbers[1:4])
                del numbers[:4]
        self.style = (colour, bold, dim)

    def clear(self) -> None:
        """Begin again at the top."""
        self.lines, self.row, self.column = [[]], 0, 0

    def seen(self) -> tuple[str, ...]:
        """Rows in sight as pieces of SVG."""
        last = max(len(self.lines) - ROWS, 0)
        return tuple(_drawn(line) for line in self.lines[last : last + ROWS])


def _extended(n: int) -> str:
    """One of the 256 colours."""
    if n < 16:
        return _COLOURS[30 + n if n < 8 else 82 + n]
    if n >= 232:
        return "#" + f"{8 + 10 * (n - 232):02x}" * 3
    levels = (0, 95, 135, 175, 215, 255)
    n -= 16
    return f"#{levels[n // 36]:02x}{levels[n // 6 % 6]:02x}{levels[n % 6]:02x}"


def _drawn(line: list[tuple[str, Style]]) -> str:
    """Pieces of equal style, each at its column."""
    parts, begin = [], 0
    while begin < len(line):
        end = begin
        while end < len(line) and line[end][1] == line[begin][1]:
            end += 1
        text = "".join(character for character, _ in line[begin:end])
        left = begin + len(text) - len(text.lstrip(" "))
        if text.strip(" "):
            colour, bold, dim = line[begin][1]
            look = f' fill="{colour}"' if colour != _PLAIN else ""
            look += ' font-weight="bold"' if bold else ""
            look += ' opacity=".6"' if dim else ""
            look += ' lengthAdjust="spacingAndGlyphs"' if "█" in text else ""  # bars without seams
            words = html.escape(text.strip(" "), quote=False)
            width = len(text.strip(" ")) * CHAR
            parts.append(f'<text x="{left * CHAR:g}" textLength="{width:g}"{look}>{words}</text>')
        begin = end
    return "".join(parts)


class Recording:
    """Frames and how long each is shown."""

    def __init__(self) -> None:
        self.screen = Screen()
        self.frames: list[tuple[tuple[str, ...], float]] = []

    def hold(self, seconds: float) -> None:
        """Show the screen as it is now."""
        seen = self.screen.seen()
        if self.frames and self.frames[-1][0] == seen:
            self.frames[-1] = (seen, self.frames[-1][1] + seconds)
        else:
            self.frames.append((seen, seconds))

    def type(self, text: str) -> None:
        """A person types; a few characters a frame."""
        self.screen.write("\x1b[1;32m$\x1b[0m ")
        self.hold(0.4)
        for begin in range(0, len(text), 3):
            part = text[begin : begin + 3]
            comment = text.startswith("#")
            self.screen.write(f"\x1b[2m{part}\x1b[0m" if comment else f"\x1b[1m{part}\x1b[0m")
            self.hold(TYPING * len(part))
        self.screen.write("\r\n")
        self.hold(0.2)

    def run(self, command: str, folder: str) -> None:
        """What a command writes, when it writes it."""
        words = [sys.executable, "-m", "icgi", *command.split()[1:]]
        environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        began, rest = time.monotonic(), b""
        while True:
            ready, _, _ = select.select([ours], [], [], 60)
            waited = time.monotonic() - began
            try:
                part = os.read(ours, 65536) if ready else b""
            except OSError:  # the other side is closed
                part = b""
            if not part:
                break
            if waited > CLOSE:
                self.hold(min(waited, LONGEST))
                began = time.monotonic()
            rest += part
            text, rest = _whole(rest)
            self.screen.write(text)
        process.wait()
        os.close(ours)
        self.hold(READING)
        self.screen.write("\r\n")


def _whole(data: bytes) -> tuple[str, bytes]:
    """Text up to the last whole character and command, and the bytes that have to wait."""
    for cut in range(4):
        end = len(data) - cut
        try:
            text = data[:end].decode()
        except UnicodeDecodeError:
            continue
        start = text.rfind("\x1b")
        if start >= 0 and not _ESCAPE.match(text, start):
            return text[:start], text[start:].encode() + data[end:]
        return text, data[end:]
    return data.decode(errors="replace"), b""


def picture(frames: list[tuple[tuple[str, ...], float]]) -> str:
    """Animated SVG: each row of text is kept once, frames refer to it."""
    width, height = COLUMNS * CHAR + 2 * EDGE, ROWS * LINE + 2 * EDGE
    rows: dict[str, int] = {}
    drawn = []
    for k, (seen, _) in enumerate(frames):
        uses = "".join(
            f'<use href="#r{rows.setdefault(row, len(rows))}" y="{(y + 1) * LINE - 4:g}"/>'
            for y, row in enumerate(seen)
            if row
        )
        drawn.append(f'<g transform="translate({EDGE:g} {k * height + EDGE:g})">{uses}</g>')
    total = sum(seconds for _, seconds in frames)
    steps, at = [], 0.0
    for k, (_, seconds) in enumerate(frames):
        steps.append(f"{100 * at / total:.3f}%{{transform:translateY({-k * height:g}px)}}")
        at += seconds
    kept = "".join(f'<g id="r{number}">{row}</g>' for row, number in rows.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" '
        'aria-label="Recording of a terminal in which icgi answers questions">\n'
        f"<style>text{{white-space:pre}}#all{{animation:run {total:.1f}s step-end infinite}}"
        f"@keyframes run{{{''.join(steps)}}}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#21252b"/>\n<defs>{kept}</defs>\n'
        f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}" '
        f'fill="{_PLAIN}"><g id="all">\n' + "\n".join(drawn) + "\n</g></g>\n</svg>\n"
    )


def main() -> None:
    recording = Recording()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "garden.bif").write_text(GARDEN)
        for command, before in COMMANDS:
            if before == "clear":
                recording.screen.clear()
            recording.type(command)
            if not command.startswith("#"):
                recording.run(command, folder)
    text = picture(recording.frames)
    Path(__file__).with_suffix(".svg").write_text(text)
    seconds = sum(seconds for _, seconds in recording.frames)
    print(f"{len(recording.frames)} frames, {seconds:.0f} s, {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
