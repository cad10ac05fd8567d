"""An answer as one HTML page that needs nothing but itself: no script, no font, no other file."""

import math
from html import escape as _escape

import numpy as np

from icgi.answer import Answer
from icgi.calibration import sentences
from icgi.inference import Status
from icgi.model.graph import state_names, variable_name
from icgi.report.plots import gauge, reliability
from icgi.wording import shown

MOST = 5000  # variables listed; a browser shows this many at once
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b79a20", "#e45756", "#72b7b2", "#9d755d", "#bab0ac")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em;
       color: #222; background: #fff }
h1 { font-size: 1.4em } h2 { font-size: 1.15em } .status { font-weight: bold } .dim { color: #666 }
table { border-collapse: collapse; width: 100% } td, th { padding: .2em .6em; text-align: left }
tr + tr { border-top: 1px solid #e5e5e5 } td.number { text-align: right; font-family: monospace;
  white-space: nowrap }
td.bar { width: 12em } td.bar div { display: flex; height: 1em; background: #eee }
td.bar i { display: block }
svg text { font: 11px system-ui, sans-serif; fill: #555 }
"""


def escape(text: str) -> str:
    """Text as HTML; control characters are shown, not sent."""
    return _escape(shown(text))


def page(answer: Answer, title: str, level: float = 0.9) -> str:
    """Return the page: how the answer was obtained, how uncertain it is, and every marginal."""
    entropy, shown = answer.entropy(), answer.by_uncertainty()[:MOST].tolist()
    sets, band = answer.sets(level), answer.bands(level)
    calibrated = band is not None and answer.status is not Status.EXACT
    if answer.status is Status.EXACT:
        sets = band = None
    elif band is None:
        band = answer.interval(level)
    head = "<th>variable</th><th>entropy (bits)</th><th></th><th>marginal</th>"
    head += f"<th>{100 * level:g} % set</th>" if sets is not None else ""
    head += f"<th>{100 * level:g} % band of the likeliest</th>" if band else ""
    rows = [_row(answer, i, float(entropy[i]), sets, band) for i in shown]
    rest = len(answer) - len(shown)
    more = f"<p class=dim>… and {rest:,} more, less uncertain.</p>" if rest else ""
    return (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
        f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n{_facts(answer)}\n"
        f"<h2>Uncertainty of the model: entropy of its marginals</h2>\n{_histogram(answer)}\n"
        f"{_promises(answer, level, calibrated, band is not None)}"
        f"<h2>Marginals, the most uncertain first</h2>\n<table><tr>{head}</tr>\n"
        + "\n".join(rows)
        + f"\n</table>\n{more}</html>\n"
    )


def _facts(answer: Answer) -> str:
    told = [f"{len(answer):,} variables, {len(answer.evidence):,} observed"]
    if answer.log_z is not None:
        told.append(f"log Z = {answer.log_z:.10g}, log10 Z = {answer.log_z / math.log(10):.10g}")
    told.append(f"{answer.seconds:.3g} s by <code>{escape(answer.engine)}</code>")
    if answer.marginals.note:
        told.append(escape(answer.marginals.note))
    stats = ", ".join(f"{escape(k.replace('_', ' '))} {v:.6g}" for k, v in answer.stats.items())
    return (
        f"<p><span class=status>{escape(answer.status.value)}.</span> "
        f"{escape(answer.status.advice)}</p>\n<p>{'<br>'.join(told)}</p>\n<p class=dim>{stats}</p>"
    )


def _histogram(answer: Answer) -> str:
    """How many unobserved variables have which entropy, as a share of the largest possible."""
    cards = answer.model.cards
    free = cards > 1
    free[list(answer.evidence)] = False
    if not free.any():
        return "<p class=dim>Every variable is observed or has one state.</p>"
    share = answer.entropy()[free] / np.log2(cards[free])
    counts = np.histogram(np.clip(share, 0, 1), bins=20, range=(0, 1))[0]
    height = 80 * counts / counts.max()
    bars = "".join(
        f'<rect x="{20 * b}" y="{90 - h:.1f}" width="18" height="{h:.1f}" fill="#4c78a8">'
        f"<title>{c} variables</title></rect>"
        for b, (h, c) in enumerate(zip(height, counts.tolist(), strict=True))
    )
    return (
        f'<svg width="420" height="110" role="img">{bars}<text x="0" y="104">certain</text>'
        f'<text x="400" y="104" text-anchor="end">uniform</text></svg>'
    )


def _promises(answer: Answer, level: float, calibrated: bool, banded: bool) -> str:
    """What is promised about sets and bands, and how the engine did where the truth is known."""
    if answer.guarantee is None:
        return ""
    told = list(answer.guarantee.sentences(level))
    if not calibrated and answer.status is not Status.EXACT:
        told.append(sentences.OWN_BANDS if banded else sentences.NO_BANDS)
    parts = [f"<p>{'<br>'.join(map(escape, told))}</p>"]
    far = answer.guarantee.as_json(level)["unfamiliarity"]
    if far is not None:
        parts.append(f"<p class=dim>{escape(sentences.THREE)}</p>")
        parts.append(f"<h3>Is this model like the calibration models?</h3>\n{gauge(far)}")
    made = getattr(answer.guarantee, "calibration", None)
    if made is not None:
        parts.append(f"<h3>Reliability on the calibration models</h3>\n{reliability(made.top)}")
    return f"<h2>Error of the method: sets and bands</h2>\n{chr(10).join(parts)}\n"


def _row(
    answer: Answer,
    i: int,
    bits: float,
    sets: np.ndarray | None,
    band: tuple[np.ndarray, np.ndarray] | None,
) -> str:
    names, row = state_names(answer.model, i), answer[i]
    bar = "".join(
        f'<i style="width:{100 * p:.2f}%;background:{_COLOURS[x % len(_COLOURS)]}" '
        f'title="{escape(names[x])}: {p:.6g}"></i>'
        for x, p in enumerate(row.tolist())
        if p > 0
    )
    best = np.argsort(-row, kind="stable")[:6].tolist()
    text = ", ".join(f"{escape(names[x])}: {row[x]:.4f}" for x in best)
    text += f", … +{len(row) - len(best)}" if len(row) > len(best) else ""
    cells = [
        f"<td>{escape(variable_name(answer.model, i))}</td>",
        f"<td class=number>{'observed' if i in answer.evidence else f'{bits:.4f}'}</td>",
        f"<td class=bar><div>{bar}</div></td><td>{text}</td>",
    ]
    if sets is not None:
        kept = [names[x] for x in best if sets[i, x]]
        rest = int(sets[i].sum()) - len(kept)
        cells.append(f"<td>{escape(', '.join(kept))}{f', … +{rest}' if rest else ''}</td>")
    if band:
        low, high = (float(side[i, best[0]]) for side in band)
        cells.append(f"<td class=number>{low:.4f} – {high:.4f}</td>")
    return f"<tr>{''.join(cells)}</tr>"
