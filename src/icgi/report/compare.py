"""Two answers to one question side by side: where they differ, and what their errors said of it."""

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from icgi.errors import IcgiError
from icgi.model.graph import FloatArray
from icgi.report import plots
from icgi.report.html import (
    document,
    escape,
    findings,
    most_uncertain,
    provenance,
    rows,
    summary,
)
from icgi.wording import some

_MOST = 500  # variables listed, those that differ most
_LEVELS = (0.5, 0.68, 0.9, 0.95, 0.99)
_BINS = 10


def comparison(first: Mapping[str, Any], second: Mapping[str, Any], names: tuple[str, str]) -> str:
    """Return the page; the second answer counts as the reference where one is needed."""
    pairs = _pairs(first, second)
    apart = [float(np.abs(a - b).sum()) for a, b in pairs]
    order = np.argsort(-np.array(apart), kind="stable")[:_MOST].tolist()
    title = f"{names[0]} and {names[1]}"
    chosen = [_only(answer, order) for answer in (first, second)]
    free = [
        (a, b) for (a, b), row in zip(pairs, first["marginals"], strict=True) if not row["observed"]
    ] or pairs
    p, q = (np.concatenate(side) for side in zip(*free, strict=True))
    body = (
        f"<h1>{escape(title)}</h1><div class=pair>"
        + "".join(
            f"<section><h2>{escape(name)}</h2>{summary(answer)}{provenance(answer)}</section>"
            for name, answer in zip(names, (first, second), strict=True)
        )
        + f"</div>{_warning(first, second)}<h2>How far apart</h2>{_table(free)}"
        + plots.scatter(p, q, "first", "second", "Every probability, in the one and in the other.")
        + _reliability(p, q)
        + _trust(first, pairs)
        + _coverage(first, pairs)
        + "<h2>Marginals, those that differ most first</h2><div class=pair>"
        + "".join(
            f"<section><h3>{escape(name)}</h3>{rows(answer, k)}</section>"
            for k, (name, answer) in enumerate(zip(names, chosen, strict=True))
        )
        + "</div>"
    )
    return document(title, body, chosen)


def _warning(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """What differs besides the answers, where that is known."""
    digests = [(answer.get("model") or {}).get("sha256") for answer in (first, second)]
    odd = []
    if all(digests) and digests[0] != digests[1]:
        odd.append("models of other numbers")
    if all("evidence" in answer for answer in (first, second)):
        a, b = set(findings(first)), set(findings(second))
        if a != b:
            only = [f"only in the first {some(sorted(a - b))}"] if a - b else []
            only += [f"only in the second {some(sorted(b - a))}"] if b - a else []
            odd.append(f"other evidence ({'; '.join(only)})")
    if not odd:
        return ""
    text = escape(f"These answers are about {' and '.join(odd)}: they need not agree.")
    return f"<p class=problem role=note><b>{text}</b></p>"


def _pairs(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[tuple[FloatArray, FloatArray]]:
    """Marginals of both, variable by variable; refuses answers about different models."""
    names = [[row["variable"] for row in answer["marginals"]] for answer in (first, second)]
    if names[0] != names[1]:
        odd = sorted(set(names[0]) ^ set(names[1]))
        raise IcgiError(
            f"the answers are about different variables ({some(odd) or 'in another order'}); "
            "compare answers to one model, or give the model as well, to name those of a .MAR file"
        )
    made = []
    for a, b in zip(first["marginals"], second["marginals"], strict=True):
        if list(a["probabilities"]) != list(b["probabilities"]):
            raise IcgiError(
                f"variable {a['variable']} has other states in the second answer; give the model "
                "to name those of a .MAR file"
            )
        made.append((_array(a), _array(b)))
    return made


def _array(row: Mapping[str, Any]) -> FloatArray:
    return np.array([0.0 if p is None else p for p in row["probabilities"].values()])


def _only(answer: Mapping[str, Any], order: Sequence[int]) -> dict[str, Any]:
    return {**most_uncertain(answer, 0), "marginals": [answer["marginals"][i] for i in order]}


def _table(pairs: Sequence[tuple[FloatArray, FloatArray]]) -> str:
    l1 = np.array([np.abs(a - b).sum() for a, b in pairs])
    largest = max(float(np.abs(a - b).max()) for a, b in pairs)
    hellinger = np.array([np.sqrt(max(0.0, 1 - float(np.sqrt(a * b).sum()))) for a, b in pairs])
    lines = {
        "mean over variables of the L1 distance": l1.mean(),
        "largest difference of a probability": largest,
        "mean Hellinger distance": hellinger.mean(),
        "variables whose likeliest state differs": sum(
            int(a.argmax() != b.argmax()) for a, b in pairs
        ),
    }
    cells = "".join(
        f"<tr><th scope=row>{words}</th><td class=number>{value:.3g}</td></tr>"
        for words, value in lines.items()
    )
    return f"<div class=scroll><table>{cells}</table></div>"


def _reliability(p: FloatArray, q: FloatArray) -> str:
    """Mean of the second answer where the first says about p: on the diagonal if it is reliable."""
    which = np.minimum((p * _BINS).astype(int), _BINS - 1)
    bins = [k for k in range(_BINS) if (which == k).any()]
    x = np.array([p[which == k].mean() for k in bins])
    y = np.array([q[which == k].mean() for k in bins])
    what = "Reliability: mean of the second answer where the first says about so much."
    return plots.scatter(x, np.clip(y, 0, 1), "first", "mean of second", what)


def _trust(first: Mapping[str, Any], pairs: Sequence[tuple[FloatArray, FloatArray]]) -> str:
    """Estimated errors of the first answer against its distance from the second."""
    stated, found = [], []
    for row, (a, b) in zip(first["marginals"], pairs, strict=True):
        if row["error"] and not row["observed"]:
            stated.append(row["error"])
            found.append(float(np.abs(a - b).max()))
    if not stated:
        return ""
    x, y = (np.array(plots.on_log_scale(values)) for values in (stated, found))
    what = (
        "Trust: stated standard error of the first answer and distance from the second, 10⁻⁶ to 1."
    )
    return plots.scatter(x, y, "stated", "distance", what)


def _coverage(first: Mapping[str, Any], pairs: Sequence[tuple[FloatArray, FloatArray]]) -> str:
    """Share of probabilities of the second answer inside the bands of the first."""
    away = []
    for row, (a, b) in zip(first["marginals"], pairs, strict=True):
        errors = row.get("std_errors")
        if errors and not row["observed"]:
            s = np.array([e or 0.0 for e in errors.values()])
            away += (np.abs(a - b)[s > 0] / s[s > 0]).tolist()
    if not away:
        return ""
    cells = "".join(
        f"<tr><th scope=row>{100 * level:g} %</th><td class=number>"
        f"{100 * np.mean(np.array(away) <= NormalDist().inv_cdf((1 + level) / 2)):.1f} %</td></tr>"
        for level in _LEVELS
    )
    return (
        "<div class=scroll><table><thead><tr><th scope=col>band of the first answer</th>"
        "<th scope=col>of the second answer's probabilities inside</th></tr></thead>"
        f"{cells}</table></div>"
    )
