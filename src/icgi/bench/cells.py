"""Lines → cells: which engine stands for a column, and its numbers over the graphs of a row."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from icgi.bench.runner import UNAVAILABLE
from icgi.bench.statistics import TIE, Spread, spread
from icgi.bench.table import Claim, Column, Metric, Table, number
from icgi.data.jobs.manifest import Line
from icgi.inference import Status

SETTLED = {s.value for s in Status} - {Status.BUDGET_SPENT.value, Status.DIVERGED.value}


@dataclass(frozen=True, slots=True)
class Entry:
    """A method on the graphs of a row."""

    column: Column
    engine: str  # the best of the column's engines here
    lines: tuple[Line, ...]  # its answers
    refused: int
    reason: str = ""  # why there is no answer at all

    @property
    def unsettled(self) -> int:
        """Answers whose engine says that it did not converge."""
        return sum(line["status"] not in SETTLED for line in self.lines)

    @property
    def ended(self) -> str:
        """How the answers ended, in words."""
        if self.reason:
            return self.reason
        count = Counter(str(line["status"]) for line in self.lines)
        counts = [f"{n} {status}" for status, n in count.most_common()]
        return ", ".join([*counts, *([f"{self.refused} refused"] if self.refused else [])])

    def values(self, key: str) -> dict[str, float]:
        """Number of each graph: the mean over seeds. An excluded state makes KL infinite."""
        found: dict[str, list[float]] = defaultdict(list)
        for line in self.lines:
            value = line.get(key)
            if value is None and key == "kl" and line.get("excluded"):
                value = math.inf
            if value is not None:
                found[line["case"]].append(float(value))
        return {case: math.fsum(v) / len(v) for case, v in found.items()}

    def spread(self, key: str) -> Spread:
        """Numbers over graphs in short."""
        return spread(list(self.values(key).values()))

    def seeds_sd(self, key: str) -> float:
        """Standard deviation over seeds of the mean over graphs."""
        by: dict[int, list[float]] = defaultdict(list)
        for line in self.lines:
            if line.get(key) is not None:
                by[line["seed"]].append(float(line[key]))
        return spread([math.fsum(v) / len(v) for v in by.values()]).sd


def entries(table: Table, lines: Iterable[Line]) -> list[Entry]:
    """Every column of a table on the graphs that the lines are about."""
    by: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        by[line["column"], line["engine"]].append(line)
    return [_entry(table, column, by) for column in table.columns]


def _entry(table: Table, column: Column, by: Mapping[tuple[str, str], Sequence[Line]]) -> Entry:
    key = table.metrics[0].key
    candidates = []
    for engine in column.engines:
        own = by.get((column.title, engine), [])
        answered = tuple(line for line in own if line.get(key) is not None)
        if answered:
            refused = len([line for line in own if "case" in line]) - len(answered)
            candidates.append(Entry(column, engine, answered, refused))
    if candidates:
        sign = -1.0 if table.metrics[0].larger_is_better else 1.0
        # an engine that answers fewer graphs is not the best for its mean over those
        return min(candidates, key=lambda e: (e.refused, sign * e.spread(key).mean))
    return Entry(column, column.engines[0], (), 0, _reason(column, by))


def _reason(column: Column, by: Mapping[tuple[str, str], Sequence[Line]]) -> str:
    own = [line for engine in column.engines for line in by.get((column.title, engine), [])]
    messages = [line["message"] for line in own if line.get("message")]
    if not messages:
        return "not run"
    missing = any(line["status"] == UNAVAILABLE for line in own)
    first = " ".join(str(messages[0]).split())
    return f"{UNAVAILABLE if missing else 'refused'}: {first[:140]}"


def best(found: Sequence[Entry], metric: Metric) -> set[str]:
    """Titles of the best column, and of those that differ by no more than the reference can say."""
    means = {e.column.title: e.spread(metric.key).mean for e in found if e.lines}
    means = {title: mean for title, mean in means.items() if math.isfinite(mean)}
    if not means:
        return set()
    sign = -1.0 if metric.larger_is_better else 1.0
    leader = min(means, key=lambda title: sign * means[title])
    slack = TIE * reference_error(found) if metric.key in ("mae", "max") else 0.0
    return {t for t, mean in means.items() if sign * (mean - means[leader]) <= slack}


def reference_error(found: Sequence[Entry]) -> float:
    """Mean standard error of the references, in the mean L1 distance."""
    errors = {
        line["case"]: float(line.get("reference_error") or 0.0) for e in found for line in e.lines
    }
    return math.fsum(errors.values()) / len(errors) if errors else 0.0


def text(claim: Claim | None, entry: Entry, metric: Metric, marked: bool = False) -> str:
    """One cell: [claim] measurement, never merged."""
    paper = "" if claim is None else f"[{_claimed(claim, metric)}] "
    if not entry.lines:
        return paper + "–"
    found = entry.spread(metric.key)
    if not found.count:
        return paper + "–"
    infinite = sum(math.isinf(v) for v in entry.values(metric.key).values())
    if infinite:
        return (
            f"{paper}∞ ({infinite} of {found.count}; median {number(found.median, metric.digits)})"
        )
    body = number(found.mean, metric.digits)
    body = f"**{body}**" if marked else body
    if found.count > 1:
        body += f" ± {number(found.sd, metric.digits)}"
    if found.skewed:
        body += f" (median {number(found.median, metric.digits)})"
    return paper + body


def _claimed(claim: Claim, metric: Metric) -> str:
    return claim if isinstance(claim, str) else number(float(claim), metric.digits)
