"""Table 4: sets of states with standard and weighted conformal prediction, from stored marginals.

An answer's line keeps the marginals of some variables, ours and the reference's. Coverage counts a
state with its true probability, so nothing is drawn; calibration graphs count once each, whatever
their size (`conformal/`). Weights come from a logistic regression that tells the calibration
graphs from the test graphs by a few features.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from icgi.bench.runner import Run
from icgi.bench.summary import Grid
from icgi.bench.table import Column, Row, number
from icgi.bench.tables.regimes import CALIBRATION, REGIMES, TEST
from icgi.conformal.quantiles import hierarchical_quantile
from icgi.conformal.scores import adaptive, sets_of_states, state_atoms
from icgi.conformal.shift import density_ratio, support
from icgi.data.jobs import answers
from icgi.data.jobs.job import Question
from icgi.data.jobs.manifest import Line
from icgi.model.graph import FloatArray

MOST = 100  # variables of an answer that are kept
DIGITS = 6
BINS = 20  # of the expected calibration error
RIDGE = 1.0  # of the logistic regression, on standardised features


def answer(
    question: Question,
    engine: str,
    seed: int,
    seconds: float | None,
    table_bytes: int,
    identity: str = "",
) -> dict[str, Any]:
    """Line of one answer with the marginals of up to `MOST` variables and features."""
    found, line = answers.ask(question, engine, seed, seconds, table_bytes)
    return line | stored(question, found.probs, seed)


def stored(question: Question, probs: FloatArray, seed: int) -> dict[str, Any]:
    """What a line keeps of an answer; nothing where there is no reference."""
    if question.reference is None:
        return {}
    free = answers.free_variables(question)
    kept = np.sort(np.random.default_rng(seed).permutation(free)[:MOST])
    rows = [(int(i), int(question.model.cards[i])) for i in kept]
    return {
        "ours": [[round(float(p), DIGITS) for p in probs[i, :k]] for i, k in rows],
        "truth": [[round(float(p), DIGITS) for p in question.reference[i, :k]] for i, k in rows],
        "features": _features(question),
    }


def _features(question: Question) -> list[float]:
    """What the classifier sees of a graph: size, density, and how strong factors are."""
    model = question.model
    wide = [t for s, t in zip(model.scopes, model.log_tables, strict=True) if len(s) > 1]
    spans = [float(np.ptp(t[np.isfinite(t)])) for t in wide if np.isfinite(t).any()]
    ends = sum(len(s) for s in model.scopes if len(s) > 1)
    return [
        math.log(model.n_variables),
        ends / model.n_variables,
        float(np.mean(spans)) if spans else 0.0,
        float(np.std(spans)) if spans else 0.0,
        math.log(float(model.cards.mean())),
    ]


@dataclass(frozen=True, slots=True)
class _Graph:
    """Marginals of a line, ours and true, padded with zeros."""

    ours: FloatArray  # n k
    truth: FloatArray  # n k
    features: FloatArray
    seconds: float
    settled: bool

    @classmethod
    def of(cls, line: Line) -> "_Graph":
        width = max(len(row) for row in line["ours"])

        def padded(rows: Sequence[Sequence[float]]) -> FloatArray:
            full = np.zeros((len(rows), width))
            for i, row in enumerate(rows):
                full[i, : len(row)] = row
            return np.asarray(full / full.sum(1, keepdims=True))

        settled = line["status"] not in ("budget spent", "diverged")
        features = np.asarray(line["features"], np.float64)
        return cls(padded(line["ours"]), padded(line["truth"]), features, line["seconds"], settled)


def calibration_error(graphs: Sequence[_Graph]) -> float:
    """ECE = Σ_b (n_b/n) |confidence − accuracy| over 20 bins of the likeliest state's probability.

    The accuracy is the true probability of that state: no state has to be drawn.
    """
    best = [g.ours.argmax(1) for g in graphs]
    sure = np.concatenate([g.ours.max(1) for g in graphs])
    right = np.concatenate([
        g.truth[np.arange(len(b)), b] for g, b in zip(graphs, best, strict=True)
    ])  # fmt: skip
    which = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    gaps = [abs(float((sure - right)[which == b].sum())) for b in range(BINS)]
    return math.fsum(gaps) / len(sure)


def classifier(calibration: FloatArray, test: FloatArray) -> FloatArray:
    """Probability that a graph is a test graph, for both sets; ridge logistic regression."""
    both = np.vstack([calibration, test])
    scale = np.maximum(both.std(0), 1e-9)
    x = np.hstack([(both - both.mean(0)) / scale, np.ones((len(both), 1))])
    y = np.r_[np.zeros(len(calibration)), np.ones(len(test))]
    balance = np.where(y > 0, 0.5 / len(test), 0.5 / len(calibration)) * len(y)
    w = np.zeros(x.shape[1])
    for _ in range(50):  # Newton
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        curve = (x * (balance * p * (1 - p))[:, None]).T @ x + RIDGE * np.eye(len(w))
        w = w - np.linalg.solve(curve, x.T @ (balance * (p - y)) + RIDGE * w)
    return np.asarray(1 / (1 + np.exp(-np.clip(x @ w, -30, 30))))


@dataclass(frozen=True, slots=True)
class Measured:
    """Numbers of one method on one row."""

    ece: float
    coverage: float
    coverage_sd: float  # between graphs
    set_size: float
    n_eff: float
    seconds: float
    graphs: int
    everything: int  # answers whose sets hold every state: no threshold keeps the promise
    unsettled: int
    seeds: int = 1

    @property
    def answers(self) -> int:
        """Graphs times seeds."""
        return self.graphs * self.seeds


def measure(
    calibration: Sequence[_Graph], test: Sequence[_Graph], alpha: float, weighted: bool
) -> Measured:
    """Coverage and size of the sets of test graphs, calibrated on other graphs."""
    atoms = [state_atoms(g.ours, g.truth, adaptive) for g in calibration]
    weights, own = np.ones(len(calibration)), np.ones(len(test))
    if weighted:
        seen = [np.stack([g.features for g in part]) for part in (calibration, test)]
        ratios = density_ratio(classifier(*seen))
        weights, own = ratios[: len(calibration)], ratios[len(calibration) :]
    # equal weights have equal thresholds
    found = {w: hierarchical_quantile(atoms, weights, w, alpha) for w in set(own.tolist())}
    covered, sizes, everything = [], [], 0
    for graph, weight in zip(test, own.tolist(), strict=True):
        threshold = found[weight]
        everything += math.isinf(threshold)
        possible = np.ones(graph.ours.shape, bool)
        rng = np.random.default_rng(0)
        chosen = sets_of_states(graph.ours, possible, threshold, adaptive, rng)
        covered.append(float((graph.truth * chosen).sum(1).mean()))
        sizes.append(float((chosen & (graph.truth + graph.ours > 0)).sum(1).mean()))
    return Measured(
        calibration_error(test),
        float(np.mean(covered)),
        float(np.std(covered)),
        float(np.mean(sizes)),
        support(weights, 1.0).effective,
        float(np.median([g.seconds for g in test])),
        len(test),
        everything,
        sum(not g.settled for g in test),
    )


_METRICS = (
    ("ece", "ECE"), ("coverage", "coverage"), ("set_size", "set size"), ("n_eff", "n_eff"),
    ("seconds", "seconds"),
)  # fmt: skip


def grids(run: Run) -> list[Grid]:
    """A grid for each data set and level."""
    lines = run.lines()
    reasons = {line["column"]: line["message"] for line in lines if "case" not in line}
    made = []
    for row in run.scale.rows:
        rows, records = [], []
        for column, weighted in itertools.product(run.table.columns, (False, True)):
            name = f"{column.title} weighted" if weighted else column.title
            found = measured(lines, row, column, weighted)
            cells = [_cell(run, row, column, weighted, key, found) for key, _ in _METRICS]
            if isinstance(found, str):
                reason = reasons.get(column.title, found)[:140]
                rows.append((name, *cells, "–", "–", reason))
                continue
            note = (
                f"{found.everything} of {found.answers} without a guarantee: sets hold all states"
            )
            rows.append((
                name, *cells, number(found.coverage_sd, 3),
                f"{found.unsettled} of {found.answers}", note if found.everything else "",
            ))  # fmt: skip
            records += [
                {
                    "table": run.table.name, "scale": run.scale_name, "row": row.group,
                    "method": name, "metric": key, "mean": getattr(found, key),
                    "claimed": _claim(run, row, column, weighted, key), "graphs": found.graphs,
                }
                for key, _ in _METRICS
            ]  # fmt: skip
        header = ("method", *(title for _, title in _METRICS), "sd of coverage over graphs",
                  "not converged", "")  # fmt: skip
        note = "Sets of states; the target is a coverage of at least "
        note += f"{1 - REGIMES[row.group].alpha:g}."
        made.append(Grid(row.group, header, tuple(rows), note, records=tuple(records)))
    return made


def measured(lines: Sequence[Line], row: Row, column: Column, weighted: bool) -> Measured | str:
    """Numbers of a method on a row, means over seeds; in words why there are none.

    Each seed is calibrated by its own answers. A seed whose graphs are not all answered yet is left
    out where another has more.
    """
    regime = REGIMES[row.group]
    sources = {CALIBRATION: regime.calibrated_on, TEST: regime.data}
    seeds: dict[int, dict[str, list[_Graph]]] = {}
    for line in lines:
        if line.get("column") == column.title and "ours" in line:
            for part, source in sources.items():
                if line["part"] == part and line["group"] == source:
                    own = seeds.setdefault(line["seed"], {CALIBRATION: [], TEST: []})
                    own[part].append(_Graph.of(line))
    sizes = [min(map(len, parts.values())) and sum(map(len, parts.values()))
             for parts in seeds.values()]  # fmt: skip
    if not any(sizes):
        refused = [
            line["message"] for line in lines
            if line.get("group") == regime.data and line.get("column") == column.title
            and line.get("message")
        ]  # fmt: skip
        return refused[0] if refused else "not run"
    whole = [parts for parts, size in zip(seeds.values(), sizes, strict=True) if size == max(sizes)]
    return _mean([measure(p[CALIBRATION], p[TEST], regime.alpha, weighted) for p in whole])


def _mean(found: Sequence[Measured]) -> Measured:
    """Means over seeds; answers without a promise, or that did not end, of all seeds together."""
    means = {
        name: float(np.mean([getattr(each, name) for each in found]))
        for name in ("ece", "coverage", "coverage_sd", "set_size", "n_eff", "seconds")
    }
    counts = {
        name: sum(getattr(each, name) for each in found) for name in ("everything", "unsettled")
    }
    return Measured(**means, **counts, graphs=found[0].graphs, seeds=len(found))  # type: ignore[arg-type]


def _claim(run: Run, row: Row, column: Column, weighted: bool, key: str) -> float | str | None:
    name = f"{column.claimed_as} weighted" if weighted else column.claimed_as
    return run.table.claims.get((row.claimed_as, key, name))


def _cell(
    run: Run, row: Row, column: Column, weighted: bool, key: str, found: Measured | str
) -> str:
    claim = _claim(run, row, column, weighted, key)
    claimed = "" if claim is None else f"[{claim if isinstance(claim, str) else number(claim)}] "
    return claimed + ("–" if isinstance(found, str) else number(getattr(found, key)))
