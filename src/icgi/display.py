"""An answer in a notebook: a table with bars and bands as HTML, and a plot."""

import math
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from icgi.engines import ENGINES, parse_engine
from icgi.errors import IcgiError
from icgi.extras import require_extra
from icgi.inference import Status
from icgi.model.graph import state_names, variable_name
from icgi.wording import shown

if TYPE_CHECKING:
    from icgi.answer import Answer
    from icgi.model.graph import BoolArray

MOST = 20  # variables in the table
_MOST_STATES = 6
_LEVEL = 0.9  # of the bands
_DOUBTFUL = {Status.DIVERGED: "#c0392b", Status.EXACT: "#2e7d32", Status.CONVERGED: "#2e7d32"}
_STYLE = (
    "<style scoped>.icgi td,.icgi th{text-align:left!important;padding:2px 10px}"
    ".icgi .track{position:relative;width:150px;height:12px;background:rgba(128,128,128,.2)}"
    ".icgi .track i{position:absolute;top:0;bottom:0;background:#4c78a8}"
    ".icgi .track b{position:absolute;top:3px;bottom:3px;background:#f58518;opacity:.85}"
    ".icgi .dim{opacity:.65}</style>"
)


def plain_engine(settings: str) -> str:
    """Engine as a person would ask for it, from the `repr` of its settings: `lbp:damping=0.5`."""
    found = re.fullmatch(r"(\w+)\((.*)\)", settings, re.S)
    if found is None:
        return settings
    names = [name for name, home in ENGINES.items() if home.endswith(f":{found[1]}")]
    if not names:
        return settings
    try:
        usual = _parts(repr(parse_engine(names[0])).partition("(")[2][:-1])
    except IcgiError:  # an extra that is not installed here
        return names[0]
    changed = [part for part in _parts(found[2]) if part not in usual]
    for part in changed:  # engines that differ by their network are called by it
        if part.startswith("network="):
            changed.remove(part)
            names = [part.partition("=")[2].strip("'\"")]
            break
    return names[0] + (":" + ",".join(changed) if changed else "")


def _parts(arguments: str) -> list[str]:
    return re.split(r", (?=\w+=)", arguments) if arguments else []


def html(answer: "Answer") -> str:
    """Table of the most uncertain variables, with bars, bands, and how the answer was obtained."""
    first = answer.by_uncertainty()[:MOST].tolist()
    sets, band, promises = _known_errors(answer, _LEVEL)
    entropy = answer.entropy()
    heads = ["variable", "likeliest", "", "probabilities", "entropy/bits"]
    heads += [f"{100 * _LEVEL:g} % set"] if sets is not None else []
    own = answer.status is not Status.EXACT and sets is None
    heads += [f"{'own ' if own else ''}{100 * _LEVEL:g} % band"] if band else []
    rows = "".join(_row(answer, i, float(entropy[i]), sets, band) for i in first)
    rest = len(answer) - len(first)
    more = f"<p class=dim>… and {rest:,} more, less uncertain</p>" if rest else ""
    more += "".join(f"<p class=dim>{escape(sentence)}</p>" for sentence in promises)
    head = "".join(f"<th>{text}</th>" for text in heads)
    return (
        f"<div class=icgi>{_STYLE}<p>{_summary(answer)}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}</div>"
    )


def _known_errors(
    answer: "Answer", level: float
) -> tuple["BoolArray | None", tuple[Any, Any] | None, Sequence[str]]:
    """Calibrated sets and bands with what they promise, else the engine's own bands and why."""
    promise = None if answer.status is Status.EXACT else answer.guarantee
    band = None if promise is None else promise.bands(level)
    if promise is None:
        return None, answer.interval(level), ()
    if band is None:
        return None, answer.interval(level), promise.sentences(level)
    return promise.sets(level), band, promise.sentences(level)


def _summary(answer: "Answer") -> str:
    colour = _DOUBTFUL.get(answer.status, "#b7791f")
    parts = [f"<strong>{escape(shown(plain_engine(answer.engine)))}</strong>: "
            f'<b style="color:{colour}">{escape(answer.status.value)}</b>']  # fmt: skip
    if answer.marginals.note:
        parts.append(escape(shown(answer.marginals.note)))
    if answer.log_z is not None:
        parts.append(f"log Z = {answer.log_z:.10g}")
    parts.append(f"{len(answer):,} variables, {len(answer.evidence):,} observed")
    parts.append(f"{answer.seconds:.3g} s")
    return f"{'; '.join(parts)}. <span class=dim>{escape(answer.status.advice)}</span>"


def _row(
    answer: "Answer",
    i: int,
    bits: float,
    sets: "BoolArray | None",
    band: tuple[Any, Any] | None,
) -> str:
    names, row = state_names(answer.model, i), answer[i]
    order = np.argsort(-row, kind="stable")[:_MOST_STATES].tolist()
    best, p = order[0], float(row[order[0]])
    inside = f'<i style="left:0;width:{100 * p:.2f}%"></i>'
    known = ""
    if sets is not None:
        members = [shown(name) for name, kept in zip(names, sets[i], strict=False) if kept]
        rest = len(members) - _MOST_STATES
        listed = ", ".join(members[:_MOST_STATES]) + (f", … +{rest}" if rest > 0 else "")
        known = f"<td>{{{escape(listed)}}}</td>"
    if band:
        low, high = (float(side[i, best]) for side in band)
        if high > low:
            width = max(100 * (high - low), 1.0)
            inside += f'<b style="left:{100 * low:.2f}%;width:{width:.2f}%"></b>'
        known += f"<td>{low:.4f} – {high:.4f}</td>"
    states = ", ".join(f"{escape(shown(names[x]))}: {row[x]:.4f}" for x in order)
    states += f", … +{len(row) - len(order)}" if len(row) > len(order) else ""
    observed = i in answer.evidence
    return (
        f"<tr><td><strong>{escape(shown(variable_name(answer.model, i)))}</strong></td>"
        f"<td>{escape(shown(names[best]))}</td><td><div class=track>{inside}</div></td>"
        f"<td>{states}</td><td>{'observed' if observed else f'{bits:.3f}'}</td>{known}</tr>"
    )


def plot(answer: "Answer", top: int = MOST, level: float = _LEVEL, ax: Any = None) -> Any:
    """Stacked bars of the most uncertain marginals; returns the axes of matplotlib.

    Where the error is known, by calibration or to the engine, the likeliest state, which comes
    first, has its band. A name of a state has one colour.
    """
    if not 0 < level < 1:
        raise IcgiError(f"a level of {level:g} is not between 0 and 1")
    require_extra("matplotlib", "plot", "Answer.plot")
    import matplotlib.pyplot as plt

    chosen = answer.by_uncertainty()[: max(top, 0) or len(answer)].tolist()
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 1.0 + 0.3 * len(chosen)), layout="constrained")
    _, band, _ = _known_errors(answer, level)
    every = dict.fromkeys(name for i in chosen for name in state_names(answer.model, i))
    number = {name: k % 10 for k, name in enumerate(every)}
    colours = plt.get_cmap("tab10").colors
    labels = {i: shown(variable_name(answer.model, i)) for i in chosen}
    for y, i in enumerate(chosen):
        names, row, left = state_names(answer.model, i), answer[i], 0.0
        for x in np.argsort(-row, kind="stable").tolist():
            p = float(row[x])
            ax.barh(
                y, p, left=left, color=colours[number[names[x]]], edgecolor="white", linewidth=0.5
            )
            if p > 0.012 * len(names[x]) + 0.02:
                # names are text, never mathematics
                ax.text(left + p / 2, y, shown(names[x]), ha="center", va="center", fontsize=7,
                        color="white", parse_math=False)  # fmt: skip
            left += p
        if band and i not in answer.evidence:
            best = int(row.argmax())
            low, high = (float(side[i, best]) for side in band)
            if math.isfinite(low + high) and high > low:
                ax.plot([low, high], [y, y], color="black", linewidth=1.5, marker="|")
    ax.set_yticks(range(len(chosen)), list(labels.values()), parse_math=False)
    ax.set_xlim(0, 1)
    ax.set_ylim(len(chosen) - 0.4, -0.6)
    bands = f", bands of {100 * level:g} %" if band else ""
    ax.set_xlabel(f"probability{bands}")
    ax.set_title(f"{plain_engine(answer.engine)}: {answer.status.value}", parse_math=False)
    return ax
