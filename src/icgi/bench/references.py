"""Reference marginals of models that come without: made once, kept as lines, their error printed.

Exact where that fits (by width, structure or planarity). Else two runs of tempering from different
seeds, whose mean is the reference, and other methods beside it where they have an answer. Each run
is a job with a line of its own: references are made in parallel, and a stopped one goes on. Runs
are bounded by sweeps, and by seconds where a machine is too slow for those.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from icgi import clock
from icgi.bench.table import Case, References
from icgi.data.jobs.answers import alone
from icgi.data.jobs.job import REFUSED, Job, Question
from icgi.data.jobs.manifest import Line, Manifest
from icgi.data.jobs.run import Executor, run_jobs
from icgi.engines import parse_engine
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Budget, Marginals, infer
from icgi.metrics import mean_absolute_error
from icgi.model.graph import FloatArray

DIGITS = 8
RUNS = (20261, 20262)
"""Seeds of the two runs of tempering."""


def exact(question: Question, log2_table: float) -> dict[str, Any]:
    """Line of exact marginals; `probs` is missing where neither structure nor width allows them."""
    began = clock.now()
    # the largest table and others of a junction tree, some three times as much
    budget = Budget(table_bytes=4 * 8 * int(2**log2_table))
    for engine in ("exact", "jt"):  # the former was seen to refuse what the latter can do
        with suppress(BudgetError, UnsupportedModelError):
            made = alone(parse_engine(engine))
            found = infer(question.model, question.evidence, made, budget, _rng(RUNS[0]))
            return _line(question, found, began)
    return {"status": REFUSED, "message": f"no exact engine below 2^{log2_table:g} entries"}


def sampled(
    question: Question, engine: str, seed: int, sweeps: int | None, seconds: float
) -> dict[str, Any]:
    """Line of one run of a method that is not exact."""
    began = clock.now()
    budget = Budget(sweeps, seconds, table_bytes=2**31)
    found = infer(
        question.model, question.evidence, alone(parse_engine(engine)), budget, _rng(seed)
    )
    return _line(question, found, began)


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _line(question: Question, found: Marginals, began: float) -> dict[str, Any]:
    cards = question.model.cards.tolist()
    rows = [row[:card] for row, card in zip(found.probs, cards, strict=True)]
    line: dict[str, Any] = {
        "status": found.status.value,
        "seconds": clock.now() - began,
        "probs": [[round(float(p), DIGITS) for p in row] for row in rows],
    }
    if found.std_error is not None:
        line["stated"] = float(found.std_error.sum(1).mean())
    if "rhat" in found.stats:
        line["rhat"] = float(found.stats["rhat"])
    return line


def asked(settings: References) -> dict[str, dict[str, Any]]:
    """What is asked for one reference, by names; all but the first only where that has none."""
    found: dict[str, dict[str, Any]] = {"exact": {"log2_table": settings.log2_table}}
    for seed in RUNS:
        own = {"engine": "pt", "seed": seed, "sweeps": settings.sweeps}
        found[f"pt {seed}"] = {**own, "seconds": settings.seconds}
    for engine in settings.others:
        own = {"engine": engine, "seed": RUNS[0], "sweeps": None}
        found[engine] = {**own, "seconds": settings.other_seconds}
    return found


def jobs(question: Question, group: str, settings: References) -> dict[str, Job]:
    """Jobs of one reference by their names."""
    return {
        part: Job(
            f"{__name__}:{'exact' if part == 'exact' else 'sampled'}",
            question.digest, own, f"reference {part} {group}",
        )
        for part, own in asked(settings).items()
    }  # fmt: skip


def combined(parts: Mapping[str, Line]) -> Line | None:
    """Reference from the lines of its jobs, and how sure it is; None where there is none yet.

    Its error is that of the mean L1: what both runs state, or half of what they differ.
    """
    done = {name: line for name, line in parts.items() if "probs" in line}
    if "exact" in done:
        own = done["exact"]
        return {"method": "exact", "error": 0.0, "seconds": own["seconds"], "probs": own["probs"]}
    runs = [done[f"pt {seed}"] for seed in RUNS if f"pt {seed}" in done]
    if len(runs) < len(RUNS):
        return None
    each = [_padded(line["probs"]) for line in runs]
    probs = np.asarray((each[0] + each[1]) / 2)
    apart = mean_absolute_error(each[0], each[1])
    stated = math.hypot(*(line.get("stated", 0.0) for line in runs)) / len(runs)
    others = {}
    for name, line in parts.items():
        if name == "exact" or name.startswith("pt "):
            continue
        gap = mean_absolute_error(_padded(line["probs"]), probs) if "probs" in line else None
        others[name] = {"status": line["status"], "apart": gap}
    cards = [len(row) for row in runs[0]["probs"]]
    return {
        "method": "pt",
        "error": max(stated, apart / 2),
        "apart": apart,
        "rhat": max(line.get("rhat", math.inf) for line in runs),
        "seconds": math.fsum(line["seconds"] for line in done.values()),
        "others": others,
        "probs": [row[:card] for row, card in zip(probs.tolist(), cards, strict=True)],
    }


def _padded(rows: list[list[float]]) -> FloatArray:
    full = np.zeros((len(rows), max(map(len, rows), default=0)))
    for i, row in enumerate(rows):
        full[i, : len(row)] = row
    return full


def make_references(
    cases: list[Case],
    settings: References | None,
    manifest: Manifest,
    executor: Executor,
    done: Callable[[Line], None],
) -> None:
    """Compute the references that cases need and the manifest does not have."""
    if settings is None:
        return
    known = settings

    def todo(cases: Iterable[Case], later: bool) -> Iterator[tuple[Job, Question, Line]]:
        lines = manifest.finished()
        for case in cases:
            question = case.load()
            if question.reference is not None:
                continue
            parts = jobs(question, case.group, known)
            exact_line = lines.get(parts["exact"].key, {})
            for part, job in parts.items():
                if (part != "exact") is later and (not later or "probs" not in exact_line):
                    yield job, question, {"case": case.name, "part": part, "asked": job.settings}

    run_jobs(todo(cases, False), manifest, executor, done)
    # the last rows of tables are the largest; what takes longest should not begin last
    run_jobs(todo(reversed(cases), True), manifest, executor, done)


def with_references(
    cases: list[Case], settings: References | None, manifest: Manifest
) -> Iterator[tuple[Case, Question, str]]:
    """Questions of cases with their references, and what names those."""
    lines = manifest.finished() if settings is not None else {}
    for case in cases:
        question = case.load()
        if question.reference is not None or settings is None:
            yield case, question, "published" if question.reference is not None else "none"
            continue
        keys = {part: job.key for part, job in jobs(question, case.group, settings).items()}
        found = combined({part: lines[key] for part, key in keys.items() if key in lines})
        if found is None:
            yield case, question, "none"
            continue
        full = np.zeros((question.model.n_variables, question.model.max_states))
        for i, row in enumerate(found["probs"]):
            full[i, : len(row)] = row
        known = replace(question, reference=full, reference_error=float(found["error"]))
        name = keys["exact"] if found["method"] == "exact" else keys[f"pt {RUNS[0]}"]
        yield case, known, name


def of_cases(manifest: Manifest, settings: References) -> dict[str, Line]:
    """References by the names of their models, as far as there are lines made by these settings."""
    wanted = asked(settings)
    parts: dict[str, dict[str, Line]] = {}
    for line in manifest.finished().values():
        if wanted.get(line["part"]) == line["asked"]:
            parts.setdefault(line["case"], {})[line["part"]] = line
    return {case: found for case, own in parts.items() if (found := combined(own)) is not None}
