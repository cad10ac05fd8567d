"""The printed answer: marginals with the most uncertain first, then how they were obtained."""

import math
import sys
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import typer

from icgi.cli import output
from icgi.inference import Status
from icgi.model.graph import state_names, variable_name
from icgi.wording import shown

if TYPE_CHECKING:
    from icgi.answer import Answer
    from icgi.model.graph import BoolArray, FloatArray

_MOST_STATES = 6  # shown in full; of more states only the likeliest
_FEWER_STATES = 4
_BAR = 8  # cells
_WIDE = 90  # columns of a terminal that has room for them
_COLOURS = {
    Status.EXACT: "green",
    Status.CONVERGED: "green",
    Status.AT_REST: "yellow",
    Status.ESTIMATED: "yellow",
    Status.BUDGET_SPENT: "yellow",
    Status.DIVERGED: "red",
}


DOUBTFUL = 0.05  # standard error of a probability beyond which it says little
_FACTS = 4  # statistics below the table, unless all are asked for
_TELLING = (  # first, where an engine has them; the others come in its own order
    "sweeps", "residual", "rhat", "ess", "rank", "spread", "restarts", "converged_runs",
    "round_trips", "effective_runs", "population", "passes", "consistency", "halving",
)  # fmt: skip


def show(
    answer: "Answer",
    top: int,
    level: float,
    engine: str = "auto",
    verbose: bool = False,
    rows: "Sequence[int] | None" = None,
    asked: bool = False,
) -> None:
    """Print the table of the `top` most uncertain variables (0: all), and the summary.

    `rows` are the variables to print instead, where a person chose them.

    `engine` is what the person asked for; the answer knows it with all of its settings. Of an exact
    answer sets and bands are shown only where a level was `asked` for.
    """
    bounded = asked or answer.status is not Status.EXACT
    sets, band = (answer.sets(level), answer.bands(level)) if bounded else (None, None)
    calibrated = band is not None
    if bounded and band is None:
        band = answer.interval(level)
    shown = answer.by_uncertainty()[: top or len(answer)].tolist() if rows is None else [*rows]
    entropy = answer.entropy()
    columns = [
        output.Column("variable", style="bold"),
        output.Column("entropy/bits", right=True, style="cyan"),
        *([output.Column("")] if _bars() else []),
        output.Column("likeliest"),
        output.Column("probabilities", fold=True),
        *([output.Column(f"{100 * level:g} % set")] if sets is not None else []),
        *([output.Column(_band_head(level, calibrated or band is None))] if bounded else []),
    ]
    marked = _broad(band, level) if calibrated and band is not None else doubtful(answer)
    cells = [_row(answer, i, float(entropy[i]), sets, band, bounded) for i in shown]
    for i, row in zip(shown, cells, strict=True):
        row[-1] += " ?" * bool(marked[i])
    output.table(columns, cells)
    if rows is None and len(shown) < len(answer):
        typer.echo(f"… and {len(answer) - len(shown):,} more variables; --top 0 shows all")
    if count := int(marked.sum()):
        which = "1 variable has" if count == 1 else f"{count:,} variables have"
        why = f"a band wider than ±{_z(level) * DOUBTFUL:.2g}; it says little"
        own = f"an estimated error above {DOUBTFUL:g}; do not trust them"
        typer.echo(f"?: {which} {why if calibrated else own}")
    typer.echo()
    if bounded:
        for sentence in promised(answer, level, calibrated, band is not None):
            typer.echo(output.paragraph(sentence, stream=sys.stdout))
    _summary(answer, engine, verbose)


def _band_head(level: float, calibrated: bool) -> str:
    """Head of the column of bands; the engine's own are called that."""
    return f"{'' if calibrated else 'own '}{100 * level:g} % band"


def promised(answer: "Answer", level: float, calibrated: bool, banded: bool) -> list[str]:
    """What is promised about sets and bands, and what is not."""
    from icgi.calibration import sentences

    promises = [] if answer.guarantee is None else list(answer.guarantee.sentences(level))
    if not calibrated:
        promises.append(sentences.OWN_BANDS if banded else sentences.NO_BANDS)
    about = {} if answer.guarantee is None else answer.guarantee.as_json(level)
    if (far := about.get("unfamiliarity")) is not None:
        near = sentences.unfamiliarity(far, not calibrated)
        promises.append(f"{sentences.THREE} Here: {near}.")
    return promises


def _row(
    answer: "Answer",
    i: int,
    bits: float,
    sets: "BoolArray | None",
    band: "tuple[FloatArray, FloatArray] | None",
    bounded: bool,
) -> list[str]:
    names, row = state_names(answer.model, i), answer[i]
    best = int(row.argmax())
    cells = [variable_name(answer.model, i), f"{bits:.4f}"]
    if _bars():
        cells.append(_bar(bits / math.log2(len(row)) if len(row) > 1 else 0.0))
    likeliest = f"{names[best]} (observed)" if i in answer.evidence else names[best]
    cells += [likeliest, some_probabilities(row, names=names)]
    if sets is not None:
        cells.append(_members(names, sets[i]))
    if bounded:
        known = band is not None and i not in answer.evidence
        shown = f"{band[0][i, best]:.4f} – {band[1][i, best]:.4f}" if band and known else "–"
        cells.append(shown)
    return cells


def _members(names: "Sequence[str]", kept: "BoolArray") -> str:
    """States of a set; of many states the first."""
    members = [name for name, k in zip(names, kept, strict=False) if k]
    rest = len(members) - _MOST_STATES
    return "{" + ", ".join(members[:_MOST_STATES]) + (f", … +{rest}" if rest > 0 else "") + "}"


def doubtful(answer: "Answer") -> "BoolArray":
    """Which variables' estimated error is so large that their marginals should not be trusted."""
    error = answer.std_error
    return np.zeros(len(answer), bool) if error is None else np.asarray(error.max(1) > DOUBTFUL)


def _broad(band: "tuple[FloatArray, FloatArray]", level: float) -> "BoolArray":
    """Which variables' calibrated bands are as wide as those of a doubtful estimated error."""
    half: FloatArray = (band[1] - band[0]).max(1) / 2
    return half > _z(level) * DOUBTFUL


def _z(level: float) -> float:
    """Standard deviations on either side that hold this much of a normal distribution."""
    return NormalDist().inv_cdf((1 + level) / 2)


def some_probabilities(
    row: "Sequence[float] | FloatArray",
    by: "Sequence[float] | FloatArray | None" = None,
    names: "Sequence[str] | None" = None,
    digits: int = 4,
) -> str:
    """States and their probabilities; of many states only the likeliest (according to `by`)."""
    called = names or [str(x) for x in range(len(row))]
    shown = list(range(len(row)))
    if len(row) > _MOST_STATES:
        shown = np.argsort(-np.asarray(row if by is None else by), kind="stable").tolist()
        shown = shown[:_FEWER_STATES]
    text = "  ".join(f"{called[x]}: {probability(float(row[x]), digits)}" for x in shown)
    rest = len(row) - len(shown)
    return f"{text}  … +{rest}" if rest else text


def probability(p: float, digits: int = 4) -> str:
    """Fixed number of digits; true zeros and ones stand out from rounded ones."""
    if p in (0.0, 1.0):
        return f"{p:.0f}"
    return f"{p:.{digits}f}" if p >= 0.5 * 10**-digits else f"{p:.0e}"


def _bars() -> bool:
    """Whether there is a terminal, with room for bars beside the numbers."""
    return sys.stdout.isatty() and output.terminal_width() >= _WIDE


def _bar(share: float) -> str:
    eighths = round(min(max(share, 0.0), 1.0) * _BAR * 8)
    rest = "▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else ""
    return ("█" * (eighths // 8) + rest).ljust(_BAR)


def facts(answer: "Answer", verbose: bool = False) -> list[str]:
    """Estimated error and a few statistics of an answer, or all of them."""
    stats = answer.stats
    keys = [key for key in _TELLING if key in stats]
    keys = list(stats) if verbose else [*keys, *(key for key in stats if key not in keys)][:_FACTS]
    entries = [f"{key.replace('_', ' ')} {_short(stats[key])}" for key in keys]
    if answer.status is Status.EXACT:
        return entries if verbose else []
    more = len(stats) - len(keys)
    return [_error(answer), *entries, *([f"{more} more with --verbose"] if more else [])]


def _error(answer: "Answer") -> str:
    error = answer.std_error
    if error is None:
        return "estimated error: none, this engine has no estimate"
    free = [i for i in range(len(answer)) if i not in answer.evidence]
    if not free:
        return "estimated error: 0"
    worst = error[free].max(1)
    name = shown(variable_name(answer.model, free[int(worst.argmax())]))
    return (
        f"estimated error (standard): mean {worst.mean():.2g}, largest {worst.max():.2g} "
        f"(variable {name})"
    )


def _summary(answer: "Answer", engine: str, verbose: bool) -> None:
    status = answer.status
    parts = [] if answer.log_z is None else [_log_z(answer.log_z)]
    parts.append(f"{answer.seconds:.3g} s")
    if lines := facts(answer, verbose):
        typer.secho(output.paragraph("; ".join(lines), stream=sys.stdout), dim=True)
    begin = f"{engine}: {status.value}"
    if note := _in_words(answer):
        parts.insert(0, note)
    advice = _better(answer) or status.advice
    text = output.paragraph(f"{begin}; {'; '.join(parts)}. {advice}", stream=sys.stdout)
    typer.echo(f"{engine}: ", nl=False)
    typer.secho(status.value, nl=False, bold=True, fg=_COLOURS[status])
    typer.echo(text.removeprefix(begin))


def _in_words(answer: "Answer") -> str:
    """How the answer was obtained and how sure it is, where its engine says so."""
    note, error = answer.marginals.note, answer.std_error
    if not note or error is None or answer.status is Status.EXACT:
        return note
    how = f"answered by {note}" if "routes" in answer.stats else note
    return f"±{1.645 * _mean_error(answer):.2g} at 90 % on average; {how}"


def _mean_error(answer: "Answer") -> float:
    """Mean over the variables that were asked about of the largest error of a state."""
    assert answer.std_error is not None
    free = np.setdiff1d(np.arange(len(answer)), list(answer.evidence))
    return float(answer.std_error[free].max(1).mean()) if len(free) else 0.0


def _better(answer: "Answer") -> str:
    """What would make an answer of `auto` better, where it does not vouch for it."""
    if "routes" not in answer.stats or answer.status.trusted or answer.budget is None:
        return ""
    from icgi.portfolio.auto import Auto

    seconds = answer.budget.seconds
    if math.isinf(seconds):
        seconds = Auto().seconds
    trust = "Not to be trusted yet" if _mean_error(answer) > DOUBTFUL else "Fair, not confirmed"
    if answer.marginals.note.startswith("pt"):  # errors of sampling fall with the root of the time
        return f"{trust}: --seconds {4 * seconds:.3g} should about halve the error."
    return (
        f"{trust}: more time may help, --seconds {4 * seconds:.3g} say; memory (--memory) may, too."
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == round(value, 0) and abs(value) < 1e9 else f"{value:.3g}"


def _log_z(log_z: float) -> str:
    natural, decimal = (round(x, 10) + 0.0 for x in (log_z, log_z / math.log(10)))
    return f"log Z = {natural:.10g}, log10 Z = {decimal:.10g}"
