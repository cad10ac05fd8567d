"""One line per model: how an engine's answer compares with the truth, as plain numbers.

A line holds what calibration and its checks need, and no marginals: features, the law of the scores
of sets as a few quantiles, the score of the bands under every scale, errors, and calibration bins.
Lines of tuning models hold errors and signals of each variable instead of scores.
"""

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain, islice
from threading import Event, Thread
from typing import Any
from zlib import crc32

import numpy as np

from icgi.batch import run_batch
from icgi.calibration.features import portrait
from icgi.calibration.scales import TINY, Coefficients, scale, signals
from icgi.calibration.sets import Case, Known
from icgi.clock import Part, now, part
from icgi.conformal.bands import EXCEPTIONS, LEAST_SCALE, band_score
from icgi.conformal.metrics import class_bins, rank_correlation, top_bins
from icgi.conformal.quantiles import Atoms, largest_of_most
from icgi.conformal.scores import SCORES, state_atoms
from icgi.data.jobs.job import NOTHING, Job, Question
from icgi.data.jobs.run import Executor, Serial, arriving
from icgi.engines import ENGINES
from icgi.errors import IcgiError
from icgi.inference import Budget, Engine, Marginals, Status, infer
from icgi.model.condition import condition
from icgi.model.graph import FloatArray

Line = dict[str, Any]
LEVELS = np.array([
    0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.84, 0.87, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99,
    0.995, 1.0,
])  # fmt: skip
"""Levels at which the law of a model's scores is kept; between two the upper one counts."""
MASSES = np.diff(LEVELS, prepend=0.0)
BATCH = 32  # models of a batch, where an engine has batches
LOOK = 0.1  # seconds between two looks at the clock


def measured(
    todo: Iterable[Case],
    engine: Engine,
    budget: Budget,
    scales: Mapping[str, Coefficients],
    seed: int = 0,
    most: float | None = None,
    executor: Executor | None = None,
    patience: float | None = None,
) -> Generator[Line]:
    """One line for each case; a model the engine refuses has a line that says why.

    Lines come in the order of the cases where one worker does one after the other.
    With `most` each answer has a time of its own, between that of the budget and this. A model that
    takes longer than `patience` seconds is given up; engines plan by a limit, not by patience.
    """
    settings = {
        "engine": engine, "budget": budget, "scales": scales, "seed": seed, "most": most,
        "patience": patience,
    }  # fmt: skip
    with closing(arriving(_jobs(todo, settings), executor or Serial())) as incoming:
        for result in chain.from_iterable(incoming):
            if "lines" not in result.record:
                first = result.job.settings["cases"][0].name
                raise IcgiError(f"{first} could not be measured: {result.record['message']}")
            yield from result.record["lines"]


def _jobs(todo: Iterable[Case], settings: Mapping[str, Any]) -> Iterator[tuple[Job, Question]]:
    queue, engine = iter(todo), settings["engine"]
    # answers that share a batch share its time, too: those against the clock come one by one
    size = BATCH if hasattr(engine, "batch") and math.isinf(settings["budget"].seconds) else 1
    while chunk := list(islice(queue, size)):
        own = {**settings, "cases": chunk}
        yield Job(WORK, NOTHING.digest, own, f"{chunk[0].family} {chunk[0].role}"), NOTHING


WORK = "icgi.calibration.measure:lines_of"


def lines_of(
    question: Question,
    cases: Sequence[Case],
    engine: Engine,
    budget: Budget,
    scales: Mapping[str, Coefficients],
    seed: int,
    most: float | None,
    patience: float | None,
) -> dict[str, Any]:
    """Work of a job: the truth about some cases, answers, and the lines of both."""
    known = [case.load() for case in cases]
    allowed = budget if most is None else drawn_seconds(budget, most, cases[0].name)
    answers = _answers(cases, known, engine, allowed, seed, patience)
    together = zip(cases, known, answers, strict=True)
    return {"status": "done", "lines": [line_of(c, k, *found, scales) for c, k, found in together]}


def drawn_seconds(budget: Budget, most: float, name: str) -> Budget:
    """Budget with seconds from its own to `most`, all orders of magnitude alike, by the name."""
    share = crc32(f"{name} seconds".encode()) / 2**32
    return replace(budget, seconds=budget.seconds * (most / budget.seconds) ** share)


def _answers(
    chunk: Sequence[Case],
    known: Sequence[Known],
    engine: Engine,
    budget: Budget,
    seed: int,
    patience: float | None,
) -> list[tuple[Marginals | str, float]]:
    """Answers, or reasons why there are none, with the seconds each took."""
    if len(chunk) > 1 and patience is None:
        rng = np.random.default_rng([seed, crc32(chunk[0].name.encode())])
        try:
            found = run_batch([(k.model, k.evidence) for k in known], engine, budget, rng)
            return [(answer.marginals, answer.seconds) for answer in found]
        except IcgiError:  # one of them: ask one by one
            pass
    one_by_one: list[tuple[Marginals | str, float]] = []
    for case, truth in zip(chunk, known, strict=True):
        rng, began = np.random.default_rng([seed, crc32(case.name.encode())]), now()
        answer: Marginals | str
        with part() as own, _given_up_after(own, patience):
            try:
                answer = infer(truth.model, truth.evidence, engine, budget, rng)
            except IcgiError as refusal:
                answer = str(refusal)[:160]
            if own.stopped:
                answer = f"given up after {patience:g} s"
        one_by_one.append((answer, now() - began))
    return one_by_one


@contextmanager
def _given_up_after(work: Part, patience: float | None) -> Iterator[None]:
    """Ask the work within it to stop after so many seconds of the clock."""
    if patience is None:
        yield
        return
    over, began = Event(), now()

    def look() -> None:
        while not over.wait(LOOK):
            if now() - began > patience:
                work.stop()
                return

    watch = Thread(target=look, daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def line_of(
    case: Case,
    truth: Known,
    answer: Marginals | str,
    seconds: float,
    scales: Mapping[str, Coefficients],
) -> Line:
    """Line of a model; `answer` is the reason where there is no answer."""
    line: Line = {"name": case.name, "family": case.family, "role": case.role}
    line["seconds"] = round(seconds, 3)
    if isinstance(answer, str):
        return line | {"status": "refused", "why": answer}
    line["status"] = answer.status.value
    model = condition(truth.model, truth.evidence).model
    free = model.cards > 1
    drawn = portrait(model)
    line |= {"structure": drawn.structure, "features": rounded(drawn.values)}
    if answer.status is Status.EXACT or not free.any():
        return line | {"status": Status.EXACT.value}
    if "work" in answer.stats:
        line["work"] = rounded([answer.stats["work"]])[0]
    if route := route_of(answer):
        line["route"] = route
    return line | _compared(case, truth, answer, free, signals(answer, model, drawn), scales)


def route_of(answer: Marginals) -> str:
    """Engine of a portfolio that an answer comes from, by its note; empty where there is none."""
    first = answer.note.partition(";")[0]
    return first if first in ENGINES else ""


def _compared(
    case: Case,
    truth: Known,
    answer: Marginals,
    free: Any,
    logs: FloatArray,
    scales: Mapping[str, Coefficients],
) -> Line:
    predicted, probs = answer.probs[free], truth.probs[free]
    doubt = None if truth.error is None else truth.error[free]
    gap = np.abs(predicted - probs).max(1)
    sigmas = {name: scale(logs[free], c) for name, c in scales.items()}
    states = np.arange(probs.shape[1]) < truth.model.cards[free][:, None]
    line: Line = {
        "error": rounded([gap.mean(), np.median(gap), largest_of_most(gap, EXCEPTIONS)]),
        "mae": rounded([np.abs(predicted - probs).sum(1).mean()])[0],
        "stated": rounded([np.exp(logs[free, 2].mean()) - TINY])[0],
        "rank": rounded([rank_correlation(logs[free, 1], gap)])[0],
        "top": _sparse(top_bins(predicted, probs)),
        "class": _sparse(class_bins(predicted, probs, states)),
        "sets": {name: quantiles(state_atoms(predicted, probs, s)) for name, s in SCORES.items()},
        "sizes": {name: _sizes(predicted, states, name) for name in SIZED},
    }
    if case.role == "tune":
        return line | {
            "errors": rounded(gap, 3),
            "signals": [rounded(row, 4) for row in logs[free]],
        }
    return line | {
        "bands": {
            name: _upper(band_score(predicted, probs, s, reference_error=doubt, least=TINY))
            for name, s in sigmas.items()
        },
        "sigma": {name: rounded([np.median(np.maximum(s, LEAST_SCALE))])[0]
                  for name, s in sigmas.items()},
    }  # fmt: skip


THRESHOLDS = np.round(np.arange(0.5, 1.0001, 0.02), 2)
SIZED = ("least-ambiguous", "adaptive")
"""Scores for which lines keep the mean size of the sets, at thresholds."""


def _sizes(predicted: FloatArray, states: Any, name: str) -> list[float]:
    """Mean size of the sets at THRESHOLDS, over the uniform number of randomised scores."""
    drawn = [
        SCORES[name](predicted, np.full_like(predicted, u)) for u in (0.125, 0.375, 0.625, 0.875)
    ]
    counts = [[np.maximum(((s <= t) & states).sum(1), 1).mean() for s in drawn] for t in THRESHOLDS]
    return rounded(np.mean(counts, 1), 3)


def quantiles(atoms: Atoms) -> list[float]:
    """Scores at LEVELS, rounded up: never below the law they stand for."""
    order = np.argsort(atoms.scores, kind="stable")
    mass = np.cumsum(atoms.masses[order])
    at = np.searchsorted(mass, LEVELS * mass[-1] * (1 - 1e-9))
    return [_upper(s, 4) for s in atoms.scores[order][np.minimum(at, len(order) - 1)].tolist()]


def _upper(value: float, digits: int = 4) -> float:
    """Value with a few significant digits, not below it."""
    short = float(f"{value:.{digits - 1}e}")
    return (
        short if short >= value else float(f"{value * (1 + 10.0 ** (1 - digits)):.{digits - 1}e}")
    )


def _sparse(bins: FloatArray) -> list[list[float]]:
    return [[b, *rounded(row, 5)] for b, row in enumerate(bins) if row[0]]


def rounded(values: Any, digits: int = 4) -> list[float]:
    """Numbers with a few significant digits."""
    return [float(f"{float(v):.{digits}g}") for v in values]
