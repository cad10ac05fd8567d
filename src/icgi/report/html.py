"""An answer as one HTML page that needs nothing but itself: no font, no other file.

Everything is there without a script; where scripts may run, the viewer's list replaces the rows,
to be searched and sorted.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape as _escape
from typing import Any

from icgi.answer import Answer
from icgi.calibration import check, sentences
from icgi.inference import Status
from icgi.report import plots
from icgi.report.reliability import coverage, gauge, reliability
from icgi.units import ten_digits
from icgi.web.component import bundle, styles
from icgi.web.payload import answer_facts
from icgi.wording import shown, some

MOST = 5000  # variables listed; a browser shows this many at once
_MOST_STATES = 8
_NAMED = 4  # states of a set that are named
_MARKS = {"exact": "✓", "good": "●", "doubtful": "?", "unknown": "○", "observed": "◆"}
_MARK_WORDS = {
    "exact": "exact up to rounding", "good": "small estimated error",
    "doubtful": "large error: do not trust it", "unknown": "its error is not known",
    "observed": "observed",
}  # fmt: skip
_STYLE = """
body { margin: 0; } main.icgi { max-width: 70em; margin: 0 auto; padding: 1em; }
.icgi h1 { font-size: 1.5em; } .icgi h2 { font-size: 1.15em; margin: 1.4em 0 .4em; }
.icgi dl { display: grid; grid-template-columns: max-content 1fr; gap: .2em 1em; margin: .6em 0; }
.icgi dt { color: var(--dim); } .icgi dd { margin: 0; }
.icgi code { font-size: 13px; background: var(--soft); padding: .1em .3em; }
.icgi figure { display: inline-block; vertical-align: top; margin: .8em 1.2em 1em 0; width: 21em;
  max-width: 100%; }
.icgi figure svg { width: 100%; } .icgi figure svg text { font-size: 12px; text-anchor: start; }
.icgi figure svg text.end { text-anchor: end; } .icgi .discarded { fill: var(--bar); }
.icgi .frame { fill: none; stroke: var(--line); } .icgi .points { fill: var(--bar); opacity: .5; }
.icgi figure .edge { stroke-width: 1; } .icgi .pair { display: grid; gap: 1.5em;
  grid-template-columns: repeat(2, minmax(0, 1fr)); } .icgi .scroll { overflow-x: auto; }
.icgi td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
@media (max-width: 52em) { .icgi .pair { grid-template-columns: 1fr; }
  .icgi dl { grid-template-columns: 1fr; } .icgi dd { margin-bottom: .4em; } }
@media print { main.icgi { padding: 0; } .icgi section { break-inside: auto; }
  .icgi h2 { break-after: avoid; } .icgi code { font-size: 10px; }
  .icgi dl { grid-template-columns: max-content 1fr; } .icgi dd { margin: 0; } }
"""


def escape(text: str) -> str:
    """Text as HTML; control characters are shown, not sent."""
    return _escape(shown(text))


def page(answer: Answer, title: str, level: float = 0.9) -> str:
    """Return the page: how the answer was obtained, how uncertain it is, and every marginal."""
    return page_of(answer_facts(answer, level), title, _promises(answer, level))


def page_of(found: Mapping[str, Any], title: str, promises: str = "") -> str:
    """Page of an answer in JSON form with its readings; `promises` are a part of their own."""
    listed = most_uncertain(found)
    rest = len(found["marginals"]) - len(listed["marginals"])
    more = f"<p class=dim>… and {rest:,} more, less uncertain.</p>" if rest else ""
    body = (
        f"<h1>{escape(title)}</h1>{summary(found)}{provenance(found)}"
        f"<h2>Uncertainty</h2>{_pictures(found)}{promises}"
        f"<h2>Marginals, the most uncertain first</h2>{_legend(found)}{rows(listed, 0)}{more}"
    )
    return document(title, body, [listed])


def _promises(answer: Answer, level: float) -> str:
    """What is promised about sets and bands, and how the engine did where the truth is known."""
    if answer.guarantee is None:
        return ""
    promised = list(answer.guarantee.sentences(level))
    if answer.bands(level) is None and answer.status is not Status.EXACT:
        own = answer.interval(level) is not None
        promised.append(sentences.OWN_BANDS if own else sentences.NO_BANDS)
    parts = [f"<p>{'<br>'.join(map(escape, promised))}</p>"]
    far = answer.guarantee.as_json(level)["unfamiliarity"]
    if far is not None:
        parts.append(f"<p class=dim>{escape(sentences.THREE)}</p>")
        refused = answer.bands(level) is None
        said = sentences.unfamiliarity(far, refused).capitalize()
        parts.append(
            "<h3>Is this model like the calibration models?</h3>\n"
            f"<figure>{gauge(far)}<figcaption class=dim>{escape(said)}.</figcaption></figure>"
        )
    made = getattr(answer.guarantee, "calibration", None)
    if made is not None:
        parts.append("<h3>Reliability on the calibration models</h3>")
        parts.append(f"<figure>{reliability(made.top)}</figure>")
    if made is not None and made.kept:
        parts.append("<h3>Promised and kept, on the half of them that set no threshold</h3>")
        parts.append(f"<figure>{coverage(check.LEVELS, *check.by_level(made.kept))}</figure>")
        parts.append(f"<p class=dim>{escape(check.in_words(made.kept))}</p>")
    return f"<h2>Error of the method: sets and bands</h2>\n{chr(10).join(parts)}\n"


def document(title: str, body: str, answers: Sequence[Mapping[str, Any]]) -> str:
    """Whole page around a body whose lists of rows are those of some answers."""
    script = bundle("report")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    data = json.dumps(answers, ensure_ascii=True).replace("<", "\\u003c")
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="content-security-policy" content="{policy}">'
        f"<title>{escape(title)}</title>\n<style>{styles()}{_STYLE}</style>\n"
        f"<main class=icgi>{body}</main>\n"
        f"<script type=application/json id=answer>{data}</script>\n"
        f"<script type=module>{script}</script></html>\n"
    )


def summary(found: Mapping[str, Any]) -> str:
    """Status, engine and guarantee in a sentence."""
    status = found.get("status") or "unknown status"
    words = [f"by {escape(found['engine_name'] or 'an unknown engine')} ({found['engine_words']})"]
    if found.get("seconds") is not None:
        words.append(f"in {found['seconds']:.2g} s")
    note = f" {escape(found['note'])}." if found.get("note") else ""
    advice = "" if status == "exact" else escape(found.get("advice") or "")
    return (
        f'<p class=status><b class="badge {status.replace(" ", "-")}">{escape(status)}</b> '
        f"{' '.join(words)}. {escape(found['guarantee'])} {advice}{note}</p>"
    )


def provenance(found: Mapping[str, Any]) -> str:
    """What was asked and how, to be repeated."""
    from icgi import __version__

    evidence = found.get("evidence") or {}
    model, budget = found.get("model") or {}, found.get("budget") or {}
    facts = {
        "variables": f"{len(found['marginals']):,}, {len(evidence):,} observed",
        "evidence": some(findings(found), 200) or "none",
        "log Z": _log_z(found.get("log_z")),
        "engine": found.get("engine"),
        "command": found.get("command"),
        "seed": found.get("seed"),
        "time allowed": _seconds(budget.get("seconds")) if budget else None,
        "icgi": found.get("version"),
        "model (SHA-256)": model.get("sha256"),
        "page made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC by icgi {__version__}",
    }
    pairs = "".join(
        f"<dt>{name}</dt><dd>{_value(name, value)}</dd>"
        for name, value in facts.items()
        if value is not None
    )
    stats = ", ".join(
        f"{escape(key.replace('_', ' '))} {value:.6g}"
        for key, value in (found.get("stats") or {}).items()
        if value is not None
    )
    return f"<dl>{pairs}</dl>" + (f"<p class=dim>{stats}</p>" if stats else "")


def findings(found: Mapping[str, Any]) -> list[str]:
    """Everything that is known about the variables: observed, likely, excluded."""
    likely = (
        f"{name} likely ({', '.join(f'{state}: {weight:g}' for state, weight in row.items())})"
        for name, row in (found.get("likelihood") or {}).items()
    )
    return [
        *(f"{name} = {state}" for name, state in (found.get("evidence") or {}).items()),
        *likely,
        *(
            f"{name} ≠ {', '.join(states)}"
            for name, states in (found.get("excluded") or {}).items()
        ),
    ]


def _value(name: str, value: object) -> str:
    text = escape(str(value))
    return f"<code>{text}</code>" if name in ("engine", "command") else text


def _seconds(value: float | None) -> str:
    return "no limit" if value is None else f"{value:g} s"


def _log_z(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{ten_digits(value)} (log10 Z = {ten_digits(value / math.log(10))})"


def _pictures(found: Mapping[str, Any]) -> str:
    """How uncertain the variables are, and how far their numbers are to be trusted."""
    free = [r for r in found["marginals"] if not r["observed"] and len(r["probabilities"]) > 1]
    if not free:
        return "<p class=dim>Every variable is observed or has one state.</p>"
    share = [r["entropy"] / math.log2(len(r["probabilities"])) for r in free]
    drawn = plots.histogram(
        share, "certain", "uniform", "Variables by entropy, as a share of the largest possible."
    )
    errors = [
        r["error"] for r in free if r["trust"] in ("good", "doubtful") and r["error"] is not None
    ]
    if errors:
        drawn += plots.histogram(
            plots.on_log_scale(errors), "10⁻⁶ or less", "1",
            "Variables by the largest estimated standard error of their probabilities.",
        )  # fmt: skip
    return drawn


def _legend(found: Mapping[str, Any]) -> str:
    used = {row["trust"] for row in found["marginals"]}
    marks = "".join(
        f'<span class=key><b class="mark {kind}">{_MARKS[kind]}</b> {words} </span>'
        for kind, words in _MARK_WORDS.items()
        if kind in used
    )
    level = f"{100 * found['level']:g}"
    whose = "calibrated band" if found.get("calibrated") else "band by the engine's own estimate"
    band = (
        f" Outlined strip: {level} % {whose}."
        if any("low" in row for row in found["marginals"])
        else ""
    )
    return f"<p class=legend>{marks} Bar: probability.{band}</p>"


def most_uncertain(found: Mapping[str, Any], most: int = MOST) -> dict[str, Any]:
    """Same answer with the most uncertain variables only, observed ones last."""
    ranked = sorted(found["marginals"], key=lambda row: (row["observed"], -row["entropy"]))
    return {**found, "marginals": ranked[:most]}


def rows(found: Mapping[str, Any], number: int) -> str:
    """Bars of all variables; `number` says which of the page's answers they are."""
    inside = "".join(_row(row, found["level"]) for row in found["marginals"])
    return f"<div data-answer={number}>{inside}</div>"


def _row(row: Mapping[str, Any], level: float) -> str:
    p = {state: x if x is not None else 0.0 for state, x in row["probabilities"].items()}
    best = sorted(p, key=lambda state: -p[state])[:_MOST_STATES]
    states = "".join(_state(row, state, p[state]) for state in p if state in best)
    rest = f"<p class=dim>+{len(p) - len(best)} states</p>" if len(p) > len(best) else ""
    kind = row["trust"]
    facts = "observed" if row["observed"] else f"{row['entropy']:.4f} bits"
    if row.get("set") and not row["observed"]:
        named = f"{len(row['set'])} of {len(p)} states"
        named = ", ".join(row["set"]) if len(row["set"]) <= _NAMED else named
        facts += f" · {100 * level:g} % set: {escape(named)}"
    return (
        f"<article class=variable><header><span class=name>{escape(row['variable'])}</span>"
        f'<span class="mark {kind}" title="{_MARK_WORDS[kind]}">{_MARKS[kind]}</span>'
        f"<span class=bits>{facts}</span></header>{states}{rest}</article>\n"
    )


def _state(row: Mapping[str, Any], state: str, p: float) -> str:
    band = ""
    if "low" in row:
        low, high = row["low"][state], row["high"][state]
        band = (
            f'<span class=band style="left:{100 * low:.2f}%;width:{100 * (high - low):.2f}%" '
            f'title="{low:.4f} to {high:.4f}"></span>'
        )
    return (
        f"<div class=state><div class=bar><span class=label>{escape(state)}</span>"
        f'<span class=track><span class=fill style="width:{100 * p:.2f}%"></span>{band}</span>'
        f"<span class=p>{p:.4f}</span></div></div>"
    )
