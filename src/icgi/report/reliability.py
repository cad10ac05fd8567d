"""Small drawings of uncertainty as SVG text, for figures; no other program has to show them."""

import math
from collections.abc import Sequence

import numpy as np

_SIZE, _EDGE = 220.0, 30.0  # of a square plot and its margin


def reliability(bins: np.ndarray) -> str:
    """Mean true probability against the stated one, in bins × (count, Σ p̂, Σ p).

    Circles on the diagonal are right; their area is the share of the variables.
    """
    filled = bins[bins[:, 0] > 0]
    share = filled[:, 0] / filled[:, 0].sum() if len(filled) else np.zeros(0)
    marks = "".join(
        f'<circle cx="{_across(stated)}" cy="{_up(true)}" r="{2 + 14 * part**0.5:.1f}" '
        f'fill="#4c78a8" fill-opacity="0.6"><title>stated {stated:.3f}, true {true:.3f}, '
        f"{part:.1%} of the variables</title></circle>"
        for part, stated, true in zip(
            share.tolist(),
            (filled[:, 1] / filled[:, 0]).tolist(),
            (filled[:, 2] / filled[:, 0]).tolist(),
            strict=True,
        )
    )
    return _square(
        marks,
        "stated probability of the likeliest state",
        "true probability, mean",
        "Circles on the line are right; the larger, the more variables.",
    )


def coverage(levels: Sequence[float], bands: Sequence[float], sets: Sequence[float]) -> str:
    """Share of the models whose bands held, and of true mass within sets, against the level."""
    low = math.floor(10 * min([x for x in (*levels, *bands, *sets) if x >= 0], default=0.5)) / 10

    def line(found: Sequence[float], colour: str, name: str, size: float) -> str:
        at = [(_across(a, low), _up(b, low)) for a, b in zip(levels, found, strict=True) if b >= 0]
        points = " ".join(f"{x},{y}" for x, y in at)
        dots = "".join(f'<circle cx="{x}" cy="{y}" r="{size}" fill="{colour}"/>' for x, y in at)
        said = ", ".join(f"{b:.1%} at {a:.0%}" for a, b in zip(levels, found, strict=True))
        return (
            f'<g><title>{name}: {said}</title><polyline points="{points}" fill="none" '
            f'stroke="{colour}" stroke-width="{size / 2}"/>{dots}</g>'
        )

    marks = line(bands, "#4c78a8", "bands", 5) + line(sets, "#e45756", "sets", 3)
    legend = "On or above the line the promise is kept; blue: bands, red: sets."
    return _square(marks, "level", "kept", legend, low)


def gauge(unfamiliar: float) -> str:
    """Unfamiliarity on a scale from 0 to 2, nothing being promised beyond 1."""
    at = 20 + 100 * min(max(unfamiliar, 0.0), 2.0)
    return (
        '<svg width="320" height="46" role="img">'
        '<rect x="20" y="12" width="100" height="10" fill="#54a24b" fill-opacity="0.5"/>'
        '<rect x="120" y="12" width="100" height="10" fill="#e45756" fill-opacity="0.5"/>'
        f'<path d="M{at:.1f} 8 v18" stroke="#222" stroke-width="3"/>'
        '<text x="20" y="40">0: among them</text><text x="120" y="40">1: unlike them</text>'
        f'<text x="232" y="22">here {unfamiliar:.2f}</text></svg>'
    )


def _across(x: float, low: float = 0.0) -> str:
    return f"{_EDGE + (x - low) / (1 - low) * _SIZE:.1f}"


def _up(y: float, low: float = 0.0) -> str:
    return f"{10 + (1 - y) / (1 - low) * _SIZE:.1f}"


def _square(marks: str, across: str, up: str, legend: str, low: float = 0.0) -> str:
    """Plot of numbers from `low` to 1 on both axes, with its diagonal."""
    side, middle = 10 + _SIZE, _EDGE + _SIZE / 2
    return (
        f'<svg width="{_SIZE + 2 * _EDGE:.0f}" height="{_SIZE + 46:.0f}" role="img">'
        f'<rect x="{_EDGE}" y="10" width="{_SIZE}" height="{_SIZE}" fill="none" stroke="#bbb"/>'
        f'<line x1="{_EDGE}" y1="{side}" x2="{_EDGE + _SIZE}" y2="10" stroke="#999" '
        f'stroke-dasharray="4 3"/>{marks}'
        f'<text x="{_EDGE}" y="{side + 14}">{low:g}</text>'
        f'<text x="{_EDGE + _SIZE}" y="{side + 14}" style="text-anchor: end">1</text>'
        f'<text x="{middle}" y="{side + 28}" style="text-anchor: middle">{across}</text>'
        f'<text x="12" y="{10 + _SIZE / 2}" style="text-anchor: middle" '
        f'transform="rotate(-90 12 {10 + _SIZE / 2})">{up}</text></svg>'
        f"<figcaption class=dim>{legend}</figcaption>"
    )
