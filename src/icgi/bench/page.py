"""A table as one HTML page with plots that needs nothing but itself: no script, no other file."""

import math
import re
from collections.abc import Sequence
from html import escape

from icgi.bench.render import LEGEND, facts, grids_of, is_curve, picture_name
from icgi.bench.runner import Run
from icgi.bench.summary import Grid, Point
from icgi.bench.table import number

_COLOURS = (
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#b79a20", "#72b7b2", "#9d755d", "#7f7f7f",
    "#b279a2", "#222222",
)  # fmt: skip
_WIDTH, _ROW, _LEFT = 640, 20, 170
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em;
       color: #222; background: #fff }
h1 { font-size: 1.4em } h2 { font-size: 1.15em } h3 { font-size: 1.05em } .dim { color: #666 }
table { border-collapse: collapse; display: block; overflow-x: auto } td, th { padding: .2em .7em;
  text-align: left; white-space: nowrap } tr + tr { border-top: 1px solid #e5e5e5 }
td:first-child, th:first-child { position: sticky; left: 0; background: #fff }
svg { max-width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: #444 }
"""


def page(run: Run) -> str:
    """Return the page of a table at a scale."""
    title = f"{run.table.title} ({run.scale_name})"
    notes = "".join(f"<li>{_marked(note)}</li>" for note in run.table.notes)
    return (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title>"
        f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n<p>{_marked(facts(run))}</p>"
        f"<p>{_marked(LEGEND)}</p><ul>{notes}</ul>\n"
        + "\n".join(map(_grid, grids_of(run)))
        + "\n</html>\n"
    )


def pictures(run: Run) -> dict[str, str]:
    """Curves of a table as files of their own, by the names that its Markdown page has for them."""
    return {
        picture_name(run, k): _alone(plot(grid.points, grid.axes))
        for k, grid in enumerate(grids_of(run))
        if is_curve(grid)
    }


def _alone(drawing: str) -> str:
    style = "<style>text { font: 12px system-ui, sans-serif; fill: #444 }</style>"
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    head, _, body = drawing.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg">{style}{paper}{body}\n'


def _grid(grid: Grid) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in grid.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_marked(cell)}</td>" for cell in row) + "</tr>\n"
        for row in grid.rows
    )
    level = grid.level
    return (
        f"<h{level}>{escape(grid.title)}</h{level}>\n<p class=dim>{_marked(grid.note)}</p>"
        f"{plot(grid.points, grid.axes)}<table><tr>{head}</tr>\n{rows}</table>"
    )


def _marked(text: str) -> str:
    """Markdown's bold, italics and code as HTML."""
    html = escape(text)
    html = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html)
    html = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<i>\1</i>", html)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", html)


def plot(points: Sequence[Point], axes: tuple[str, str]) -> str:
    """Dots beside the names of methods, or curves over numbers; both axes logarithmic."""
    drawn = [p for p in points if p.y > 0 and math.isfinite(p.y)]
    if not drawn:
        return ""
    if all(isinstance(p.x, str) for p in drawn):
        return _dots(drawn, axes[1])
    return _curves([p for p in drawn if not isinstance(p.x, str)], axes)


def _scale(values: Sequence[float], low: float, high: float) -> tuple[list[float], float, float]:
    """Decades that enclose the values, and a, b of position = a + b·log10(value)."""
    first = math.floor(math.log10(min(values)))
    last = max(math.ceil(math.log10(max(values))), first + 1)
    slope = (high - low) / (last - first)
    return [10.0**k for k in range(first, last + 1)], low - slope * first, slope


def _dots(points: Sequence[Point], title: str) -> str:
    names = list(dict.fromkeys(str(p.x) for p in points))
    decades, a, b = _scale([p.y for p in points], _LEFT, _WIDTH - 20)
    height = _ROW * len(names) + 40
    body = _ticks(decades, a, b, height - 34)
    for k, name in enumerate(names):
        body += f'<text x="{_LEFT - 8}" y="{_ROW * k + 19}" text-anchor="end">{escape(name)}</text>'
    for p in points:
        x, y = a + b * math.log10(p.y), _ROW * names.index(str(p.x)) + 15
        fill, what = ("none", "claimed") if p.claimed else (_COLOURS[0], "measured")
        body += (
            f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{fill}" stroke="{_COLOURS[0]}">'
            f"<title>{escape(str(p.x))}: {what} {number(p.y, 4)}</title></circle>"
        )
    caption = f"{title}: ○ claimed by the paper, ● measured here"
    body += f'<text x="{_LEFT}" y="{height - 4}">{escape(caption)}</text>'
    return _drawing(height, body)


def _curves(points: Sequence[Point], axes: tuple[str, str]) -> str:
    series = list(dict.fromkeys(p.series for p in points))
    down, ya, yb = _scale([p.y for p in points], 240, 12)
    across, xa, xb = _scale([float(p.x) for p in points], 70, _WIDTH - 170)
    body = _ticks(across, xa, xb, 240)
    for value in down:
        y = ya + yb * math.log10(value)
        body += f'<line x1="70" x2="{_WIDTH - 170}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        body += f'<text x="64" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    for k, name in enumerate(series):
        colour = _COLOURS[k % len(_COLOURS)]
        own = sorted((float(p.x), p.y) for p in points if p.series == name)
        at = [(xa + xb * math.log10(x), ya + yb * math.log10(y)) for x, y in own]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        body += f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        body += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in at)
        y = 24 + 18 * k
        body += f'<rect x="{_WIDTH - 155}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
        body += f'<text x="{_WIDTH - 140}" y="{y}">{escape(name)}</text>'
    caption = escape(f"{axes[1]} over {axes[0]}")
    return _drawing(290, f'{body}<text x="70" y="284">{caption}</text>')


def _drawing(height: int, body: str) -> str:
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    return f'<svg {size} role="img">{body}</svg>'


def _ticks(decades: Sequence[float], a: float, b: float, bottom: float) -> str:
    body = ""
    for value in decades:
        x = a + b * math.log10(value)
        body += f'<line x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{bottom}" stroke="#ddd"/>'
        body += f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{value:g}</text>'
    return body
