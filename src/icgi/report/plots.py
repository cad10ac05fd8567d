"""Small pictures of answers as SVG, which need no script and no other file."""

import math
from collections.abc import Sequence

import numpy as np

from icgi.model.graph import FloatArray

_WIDE, _HIGH = 320, 120
_LEAST = 1e-6  # errors below are drawn at the left end


def histogram(values: Sequence[float], left: str, right: str, what: str) -> str:
    """How many of some numbers in [0, 1] fall into each of twenty bins."""
    counts = np.histogram(np.clip(values, 0, 1), bins=20, range=(0, 1))[0]
    heights = (_HIGH - 30) * counts / max(int(counts.max()), 1)
    bars = "".join(
        f'<rect class="discarded" x="{16 * k}" y="{_HIGH - 20 - h:.1f}" width="14" '
        f'height="{h:.1f}"><title>{c} variables</title></rect>'
        for k, (h, c) in enumerate(zip(heights.tolist(), counts.tolist(), strict=True))
    )
    words = (
        f'<text x="0" y="{_HIGH - 4}">{left}</text>'
        f'<text class="end" x="{_WIDE}" y="{_HIGH - 4}">{right}</text>'
    )
    return _figure(bars + words, what, _WIDE, _HIGH)


def on_log_scale(errors: Sequence[float]) -> list[float]:
    """Errors from 10⁻⁶ to 1 as numbers from 0 to 1."""
    return [1 + math.log10(min(max(e, _LEAST), 1.0)) / -math.log10(_LEAST) for e in errors]


def scatter(x: FloatArray, y: FloatArray, across: str, up: str, what: str) -> str:
    """Points of the unit square, and its diagonal; of many points an even choice."""
    side = 260
    step = max(1, len(x) // 2000)
    points = "".join(
        f'<circle cx="{side * a:.1f}" cy="{side * (1 - b):.1f}" r="2.5"/>'
        for a, b in zip(x[::step].tolist(), y[::step].tolist(), strict=True)
    )
    frame = (
        f'<rect class="frame" x="0" y="0" width="{side}" height="{side}"/>'
        f'<line class="edge" x1="0" y1="{side}" x2="{side}" y2="0"/>'
        f'<text class="end" x="{side}" y="{side + 16}">{across} →</text>'
        f'<text x="0" y="-6">{up} ↑</text>'
    )
    return _figure(frame + f"<g class=points>{points}</g>", what, side, side, top=20, bottom=22)


def _figure(inside: str, what: str, wide: int, high: int, top: int = 0, bottom: int = 0) -> str:
    return (
        f'<figure><svg viewBox="-4 {-top} {wide + 8} {high + top + bottom}" role="img" '
        f'aria-label="{what}" style="max-width:{wide + 8}px">{inside}</svg>'
        f"<figcaption class=dim>{what}</figcaption></figure>"
    )
