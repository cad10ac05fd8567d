"""The paper's claims one by one, and whether they hold for the lines that there are."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from icgi.bench.cells import Entry, best, entries, reference_error
from icgi.bench.runner import Run
from icgi.bench.statistics import LEVEL, TIE, compare, spread
from icgi.bench.summary import FEWEST, Grid
from icgi.bench.table import DID_NOT_CONVERGE, OUT_OF_MEMORY, Row, number
from icgi.bench.tables.regimes import REGIMES
from icgi.bench.uncertainty import Measured, measured
from icgi.data.jobs.manifest import Manifest
from icgi.inference import Status

HOLDS, FAILS, OPEN, UNSEEN = "holds", "**does not hold**", "cannot be told", "not measured"
SURE = 2.0  # standard errors over seeds, below which a difference is none
LESS = "worse, less than claimed"
NEARLY = 0.75  # of a claimed factor, from which it holds
PAPER, ALONE = "ICG-I", "Full"
SAME_STEPS = "paper-short"
"""The whole network, trained as its ablations."""
PARTS = {
    "paper-star": "No TT", "paper-static": "Static SPD", "paper-laplacian": "Static SPD",
    "paper-random-order": "Random order",
}  # fmt: skip
"""Ablations that were trained, and the paper's names for them."""
CUT = Status.BUDGET_SPENT.value
EXTRA = ("LBP", "icgi:fast", "ttve", "pt", "auto")
"""Columns beside the paper's own network in the short comparison."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim, what was measured, and what follows."""

    table: str
    row: str
    claim: str
    measured: str
    verdict: str


def claims(runs: Mapping[str, Run]) -> Grid:
    """Every claim of the tables that have been run."""
    found: list[Verdict] = []
    for name in ("table1", "table2"):
        if name in runs:
            found += _errors(runs[name])
    if "table3" in runs:
        found += _ablations(runs["table3"])
        found += _trained_without(runs["table3"])
    if "table4" in runs:
        found += _coverage(runs["table4"])
    rows = tuple((v.table, v.row, v.claim, v.measured, v.verdict) for v in found)
    return Grid(
        "The paper's claims, one by one",
        ("table", "row", "claim", "measured", "verdict"),
        rows,
        "An error holds if ours is not larger; it cannot be told where ours is within three "
        "standard errors of the references of it. A method that *does not converge* is confirmed "
        "where it does not on at least half of its answers. *In this time*: at least half of our "
        "answers were cut short by the seconds of the table. Networks trained without a part are "
        "told from the whole one by a paired test over models, and two standard errors over seeds.",
    )


def short(runs: Mapping[str, Run]) -> Grid:
    """Mean L1 errors of tables 1 and 2, a line for each row of the paper."""
    rows = []
    for name in ("table1", "table2"):
        if name not in runs:
            continue
        run = runs[name]
        for row, found in _rows(run):
            have = {e.column.title: e for e in found}
            claim = run.table.claims.get((row.claimed_as, "mae", PAPER))
            cells = [_mean(have.get(title)) for title in (PAPER, *EXTRA)]
            cases = {line["case"] for e in found for line in e.lines}
            error = reference_error(found)
            rows.append((
                row.group, str(len(cases)), "–" if claim is None else str(claim), *cells,
                f"{error:.1e}" if error else "exact",
            ))  # fmt: skip
    header = (
        "row", "graphs", f"{PAPER}, claimed", f"{PAPER}, here", *EXTRA, "error of the reference"
    )  # fmt: skip
    kept = [k for k in range(len(header)) if any(row[k] != "–" for row in rows)]
    return Grid(
        "Mean L1 error at equal time",
        tuple(header[k] for k in kept),
        tuple(tuple(row[k] for k in kept) for row in rows),
        "`LBP` is the best of three dampings; `ttve` is elimination without learning, `pt` "
        "sampling, in the same seconds.",
    )


def _rows(run: Run) -> Iterator[tuple[Row, list[Entry]]]:
    """Rows that have answers, and what each column has there."""
    lines = run.lines()
    missing = [line for line in lines if "case" not in line]
    for row in run.scale.rows:
        own = [line for line in lines if line.get("group") == row.group]
        if own:
            yield row, entries(run.table, [*own, *missing])


def _mean(entry: Entry | None) -> str:
    if entry is None or not entry.lines:
        return "–"
    found = entry.spread("mae")
    return number(found.mean, 4) + (f" (median {number(found.median, 4)})" if found.skewed else "")


def _errors(run: Run) -> Iterator[Verdict]:
    """Claims of tables 1 and 2: sizes of errors, the order of methods, who does not converge."""
    title = run.table.title.partition(":")[0]
    for row, found in _rows(run):
        have = {e.column.title: e for e in found if e.lines}
        error = reference_error(found)
        for column in run.table.columns:
            claim = run.table.claim(row, run.table.metrics[0], column)
            entry = have.get(column.title)
            if claim == DID_NOT_CONVERGE:
                yield _unsettled(title, row, column.title, entry)
            elif isinstance(claim, float) and column.title == PAPER:
                words, seen = f"{PAPER} has a mean L1 error of {claim:g}", _with_time(entry)
                yield Verdict(title, row.group, words, seen, _size(entry, claim, error))
        paper = [e for e in found if e.column.claimed_as and e.lines]
        if PAPER in have and len(paper) > 1:
            leaders = best(paper, run.table.metrics[0])
            others = [e for e in paper if e.column.title != PAPER]
            leader = min(others, key=lambda e: e.spread("mae").mean)
            words = f"{PAPER} has the least error of the paper's methods"
            seen = f"{_with_time(have[PAPER])}; {leader.column.title} {_mean(leader)}"
            fails = FAILS + _hurried(have[PAPER])
            verdict = fails if PAPER not in leaders else OPEN if len(leaders) > 1 else HOLDS
            yield Verdict(title, row.group, words, seen, verdict)


def _with_time(entry: Entry | None) -> str:
    """Mean, and how many answers the seconds did not suffice for."""
    short_of = 0 if entry is None else sum(x["status"] == CUT for x in entry.lines)
    if entry is None or not short_of:
        return _mean(entry)
    return f"{_mean(entry)}, {short_of} of {len(entry.lines)} answers cut short by the time"


def _size(entry: Entry | None, claim: float, reference: float) -> str:
    if entry is None:
        return UNSEEN
    mean = entry.spread("mae").mean
    if abs(mean - claim) <= TIE * reference:
        return OPEN
    if round(mean, 3) <= claim:  # as the paper prints it
        return HOLDS
    return f"{FAILS}{_hurried(entry)}: {mean / claim:.2g} times as large"


def _hurried(entry: Entry) -> str:
    """Words for a verdict on answers that were mostly cut short."""
    cut = sum(line["status"] == CUT for line in entry.lines)
    return " in this time" if 2 * cut >= len(entry.lines) else ""


def _unsettled(table: str, row: Row, title: str, entry: Entry | None) -> Verdict:
    claim = f"{title} does not converge"
    if entry is None:
        return Verdict(table, row.group, claim, "–", UNSEEN)
    seen = f"{entry.unsettled} of {len(entry.lines)} did not; error {_mean(entry)}"
    verdict = HOLDS if 2 * entry.unsettled >= len(entry.lines) else FAILS
    return Verdict(table, row.group, claim, seen, verdict)


def _ablations(run: Run) -> Iterator[Verdict]:
    """Claims of table 3: how much worse the network is without one of its parts."""
    title, metric = run.table.title.partition(":")[0], run.table.metrics[0]
    for row, found in _rows(run):
        have = {e.column.title: e for e in found if e.lines}
        full = have.get(ALONE)
        whole = run.table.claims.get((row.claimed_as, metric.key, ALONE))
        others = [c for c in run.table.columns if c.title != ALONE]
        claimed = [(c, run.table.claim(row, metric, c)) for c in others]
        for column, claim in claimed:
            if claim is None or whole is None:
                continue
            other = have.get(column.title)
            words = f"{column.title} is worse than {ALONE.lower()}"
            if claim == OUT_OF_MEMORY:
                words = f"{column.title} runs out of memory"
            elif isinstance(claim, float):
                words += f", {claim / float(whole):.1f} times the error"
            if full is None or other is None:
                reason = next(e.reason for e in found if e.column is column) if not other else ""
                yield Verdict(title, row.group, words, reason[:100] or "–", UNSEEN)
                continue
            seen = f"{_mean(full)} against {_mean(other)}"
            if claim == OUT_OF_MEMORY:
                yield Verdict(title, row.group, words, f"answers, {seen}", FAILS)
                continue
            factor = claim / float(whole) if isinstance(claim, float) else 0.0
            verdict = _worse(full, other, metric.key, len(claimed), factor)
            yield Verdict(title, row.group, words, seen, verdict)


def _worse(full: Entry, other: Entry, key: str, tests: int, factor: float) -> str:
    first, second = full.values(key), other.values(key)
    common = [case for case in first if case in second]
    if len(common) < FEWEST:
        return OPEN
    error = reference_error([full, other])
    return _paired([first[c] for c in common], [second[c] for c in common], tests, error, factor)


def _paired(
    first: Sequence[float], second: Sequence[float], tests: int, error: float, factor: float
) -> str:
    """Whether the second is worse, by a paired test over graphs, and as much as claimed."""
    test = compare(first, second, tests, error)
    ratio = math.fsum(second) / math.fsum(first)
    times = f"{ratio:.2f} times, p = {test.p:.2g}"
    if test.tie or test.p > LEVEL:
        return f"no difference is seen ({times})"
    if test.difference > 0:
        return f"{FAILS} ({times})"
    return f"{HOLDS if ratio >= NEARLY * factor else LESS} ({times})"


def _trained_without(run: Run) -> Iterator[Verdict]:
    """Networks that were trained without a part, on equal terms, by `benchmarks/ablations.py`."""
    title, metric = run.table.title.partition(":")[0], run.table.metrics[0]
    row = next(row for row in run.scale.rows if row.claimed_as)
    errors: dict[str, dict[str, list[list[float]]]] = {}
    for line in Manifest(run.folder.parent / "ablations.jsonl").lines():
        if "set" in line and line.get("variant"):
            errors.setdefault(line["set"], {}).setdefault(line["variant"], []).append(line["mae"])
    whole = run.table.claims.get((row.claimed_as, metric.key, ALONE))
    for models, by_variant in errors.items():
        means = {
            variant: [math.fsum(each) / len(each) for each in zip(*lists, strict=True)]
            for variant, lists in by_variant.items()
        }
        if SAME_STEPS not in means or whole is None:
            continue
        full = means[SAME_STEPS]
        for variant, column in PARTS.items():
            claim = run.table.claims.get((row.claimed_as, metric.key, column))
            if variant not in means or claim is None:
                continue
            words = f"{column} is worse than {ALONE.lower()}"
            if isinstance(claim, float):
                words += f", {claim / float(whole):.1f} times the error"
            elif claim == OUT_OF_MEMORY:
                words = f"{column} runs out of memory"
            other, seeds = means[variant], len(by_variant[variant])
            seen = (
                f"{number(math.fsum(full) / len(full), 4)} against "
                f"{number(math.fsum(other) / len(other), 4)}, `{variant}`"
            )
            where = f"{models}, {len(full)} models, {seeds} seeds"
            tests = len(means) - 1
            factor = claim / float(whole) if isinstance(claim, float) else 0.0
            spread_of = _between_seeds(by_variant[SAME_STEPS], by_variant[variant])
            verdict = _paired(full, other, tests, SURE * spread_of / TIE, factor)
            if claim == OUT_OF_MEMORY:
                verdict = f"{FAILS}: it answers, {verdict}"
            yield Verdict(title, where, words, seen, verdict)


def _between_seeds(full: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """Standard error over seeds of the mean difference."""
    gaps = [(math.fsum(b) - math.fsum(a)) / len(a) for a, b in zip(full, other, strict=False)]
    return spread(gaps).sd / math.sqrt(len(gaps))


def _coverage(run: Run) -> Iterator[Verdict]:
    """Claims of table 4: coverage, size of sets and the number of graphs behind them."""
    title, lines = run.table.title.partition(":")[0], run.lines()
    column = next(c for c in run.table.columns if c.title == PAPER)
    for row in run.scale.rows:
        regime = REGIMES[row.group]
        found = measured(lines, row, column, weighted=True)
        claim = run.table.claims.get((row.claimed_as, "coverage", f"{PAPER} weighted"))
        words = f"weighted {PAPER} covers {1 - regime.alpha:g} ({claim} claimed)"
        if not isinstance(found, Measured):
            yield Verdict(title, row.group, words, "–", UNSEEN)
            continue
        seen = f"{found.coverage:.3f} on {found.graphs} graphs"
        seen += f", {found.seeds} seeds" if found.seeds > 1 else ""
        if found.everything:
            share = f"{found.everything} of {found.answers}"
            seen += f"; {share} without a guarantee hold all states"
        enough = found.coverage >= 1 - regime.alpha
        trivial = 2 * found.everything > found.answers
        verdict = f"{OPEN}: most sets hold all states" if trivial and enough else (
            HOLDS if enough else FAILS
        )  # fmt: skip
        yield Verdict(title, row.group, words, seen, verdict)
        yield from _sizes(run, row, found, title)


def _sizes(run: Run, row: Row, found: Measured, title: str) -> Iterator[Verdict]:
    size = run.table.claims.get((row.claimed_as, "set_size", f"{PAPER} weighted"))
    if isinstance(size, float):
        spins = row.group.startswith(("SK", "EA"))
        impossible = f"{FAILS}: a spin has two states" if spins and size > 2 else ""
        verdict = impossible or (HOLDS if round(found.set_size, 2) <= size else FAILS)
        words = f"its sets have {size:g} states"
        yield Verdict(title, row.group, words, number(found.set_size, 2), verdict)
    error = run.table.claims.get((row.claimed_as, "ece", PAPER))
    if isinstance(error, float):
        words = f"its calibration error is {error:g}"
        verdict = HOLDS if round(found.ece, 3) <= error else FAILS  # as the paper prints it
        yield Verdict(title, row.group, words, number(found.ece, 3), verdict)


def markdown_of(grid: Grid) -> str:
    """Grid without a heading of its own, for a place in another page."""
    out = [f"**{grid.title}.** {grid.note}", ""]
    out.append("| " + " | ".join(grid.header) + " |")
    out.append("|---" * len(grid.header) + "|")
    out += ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in grid.rows]
    return "\n".join([*out, ""])


def counted(grid: Grid) -> str:
    """How many claims hold, in a sentence."""
    kinds = [row[-1].partition(":")[0].partition(" (")[0].replace("**", "") for row in grid.rows]
    words = dict.fromkeys(kinds)
    return ", ".join(f"{word} {kinds.count(word)}" for word in words)
