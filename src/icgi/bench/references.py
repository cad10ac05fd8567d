"""Reference marginals of models that come without: made once, kept as lines, their error printed.

Exact where that fits (by width, structure or planarity). Else two runs of tempering from different
seeds, whose mean is the reference: on a device where there is one, all models of a row at once,
otherwise on the processor. Other methods are asked beside them; one that vouches for a much smaller
error, and that the runs agree with as far as they know, is the reference instead. Each run is a job
with a line of its own: references are made in parallel, and a stopped one goes on. Runs are bounded
by sweeps, and by seconds where a machine is too slow for those.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from icgi import clock
from icgi.bench.table import Case, Device, References
from icgi.data.jobs.answers import alone
from icgi.data.jobs.job import REFUSED, Job, Question
from icgi.data.jobs.manifest import Line, Manifest
from icgi.data.jobs.run import Executor, run_jobs
from icgi.engines import parse_engine
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Budget, Marginals, Status, infer
from icgi.metrics import mean_absolute_error
from icgi.model.condition import condition, lift
from icgi.model.graph import FloatArray
from icgi.sampling.gpu import GpuTempering, available

DIGITS = 8
REPLICAS = 32
SEGMENTS = 32  # sums of a segment are of single precision: not too many sweeps in one
PROBE = 4096  # sweeps that place the ladder, of cold models too
SAMPLERS = ("pt-gpu", "pt")
"""Engines whose two runs make a reference, the first of them that has both."""
RUNS = (20261, 20262)
"""Seeds of the two runs of tempering."""
_SHOWN = (
    ("rhat", "rhat"), ("sweeps", "swept"), ("swap_rate_min", "swaps"),
    ("round_trips_min", "trips"),
)  # fmt: skip
VOUCHED = (Status.EXACT.value, Status.CONVERGED.value)
MUCH_SMALLER, AGREED = 0.1, 3.0  # times the error of the runs: what another method states, and its
# distance to them, where it is taken as the reference


def exact(question: Question, log2_table: float) -> dict[str, Any]:
    """Line of exact marginals; `probs` is missing where neither structure nor width allows them."""
    began = clock.now()
    # the largest table and others of a junction tree, some three times as much
    budget = Budget(table_bytes=4 * 8 * int(2**log2_table))
    for engine in ("exact", "jt"):  # the former was seen to refuse what the latter can do
        with suppress(BudgetError, UnsupportedModelError):
            made = alone(parse_engine(engine))
            found = infer(question.model, question.evidence, made, budget, _rng(RUNS[0]))
            return line_of(question, found, clock.now() - began)
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
    return line_of(question, found, clock.now() - began)


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def line_of(question: Question, found: Marginals, seconds: float) -> dict[str, Any]:
    """Line of one run of a method, `probs` as rows of each variable's own states."""
    cards = question.model.cards.tolist()
    rows = [row[:card] for row, card in zip(found.probs, cards, strict=True)]
    line: dict[str, Any] = {
        "status": found.status.value,
        "seconds": seconds,
        "probs": [[round(float(p), DIGITS) for p in row] for row in rows],
    }
    if found.std_error is not None:
        line["stated"] = float(found.std_error.sum(1).mean())
    for key, name in _SHOWN:
        if key in found.stats:
            line[name] = float(found.stats[key])
    return line


def asked(settings: References, group: str) -> dict[str, dict[str, Any]]:
    """What is asked for one reference, by names; all but the first only where that has none."""
    found: dict[str, dict[str, Any]] = {"exact": {"log2_table": settings.log2_table}}
    if settings.device is not None:
        # lines say how far they went: runs made elsewhere, for longer, take the place of shorter
        for seed in RUNS:
            found[f"pt-gpu {seed}"] = {"engine": on_device(settings.device, group), "seed": seed}
    for seed in RUNS:
        own = {"engine": "pt", "seed": seed, "sweeps": settings.sweeps}
        found[f"pt {seed}"] = {**own, "seconds": settings.seconds}
    for engine in settings.others:
        own = {"engine": engine, "seed": RUNS[0], "sweeps": None}
        found[engine] = {**own, "seconds": settings.other_seconds}
    return found


def on_device(device: Device, group: str) -> str:
    """Engine that makes the references of a row on a device."""
    engine = f"pt-gpu:replicas={REPLICAS},ensembles={device.ensembles}"
    engine += f",segments={SEGMENTS},probe={PROBE}"
    return engine + (f",hottest={device.hottest[group]}" if group in device.hottest else "")


def jobs(question: Question, group: str, settings: References) -> dict[str, Job]:
    """Jobs of one reference by their names."""
    return {
        part: Job(
            f"{__name__}:{'exact' if part == 'exact' else 'sampled'}",
            question.digest, own, f"reference {part} {group}",
        )
        for part, own in asked(settings, group).items()
    }  # fmt: skip


def combined(parts: Mapping[str, Line]) -> Line | None:
    """Reference from the lines of its jobs, and how sure it is; None where there is none yet.

    Its error is that of the mean L1: what both runs state, or half of what they differ.
    """
    done = {name: line for name, line in parts.items() if "probs" in line}
    if "exact" in done:
        own = done["exact"]
        return {"method": "exact", "error": 0.0, "seconds": own["seconds"], "probs": own["probs"]}
    method = _sampler(done)
    if method is None:
        return None
    runs = [done[f"{method} {seed}"] for seed in RUNS]
    each = [_padded(line["probs"]) for line in runs]
    mean = np.asarray((each[0] + each[1]) / 2)
    apart = mean_absolute_error(each[0], each[1])
    stated = math.hypot(*(line.get("stated", 0.0) for line in runs)) / len(runs)
    error = max(stated, apart / 2)
    others: dict[str, dict[str, Any]] = {}
    chosen = method
    for name, line in parts.items():
        if name == "exact" or name.partition(" ")[0] == method:
            continue
        gap = mean_absolute_error(_padded(line["probs"]), mean) if "probs" in line else None
        others[name] = {"status": line["status"], "apart": gap}
        if name.partition(" ")[0] in SAMPLERS:
            continue  # the same method on a processor: a check, no better
        vouched = gap is not None and line["status"] in VOUCHED and gap <= AGREED * error
        if chosen == method and vouched and line.get("stated", 0.0) <= MUCH_SMALLER * error:
            chosen = name
    cards = [len(row) for row in runs[0]["probs"]]
    probs = [row[:card] for row, card in zip(mean.tolist(), cards, strict=True)]
    return {
        "method": chosen,
        "error": error if chosen == method else done[chosen].get("stated", 0.0),
        "apart": apart,
        "rhat": max(line.get("rhat", math.inf) for line in runs),
        "seconds": math.fsum(line["seconds"] for line in done.values()),
        "sweeps": min(line.get("swept", 0.0) for line in runs),
        "others": others,
        "probs": probs if chosen == method else done[chosen]["probs"],
    }


def _sampler(parts: Mapping[str, Line]) -> str | None:
    for method in SAMPLERS:
        if all("probs" in parts.get(f"{method} {seed}", {}) for seed in RUNS):
            return method
    return None


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
    _run(cases, settings, manifest, executor, done, lambda part: part == "exact")
    if settings.device is not None and available():
        _on_device(cases, settings, settings.device, manifest, done)
    # the last rows of tables are the largest; what takes longest should not begin last
    cases = cases[::-1]
    _run(cases, settings, manifest, executor, done, lambda part: part.startswith("pt "))
    _run(cases, settings, manifest, executor, done, settings.others.__contains__)


def _run(
    cases: Iterable[Case],
    settings: References,
    manifest: Manifest,
    executor: Executor,
    done: Callable[[Line], None],
    wanted: Callable[[str], bool],
) -> None:
    """Do the wanted parts, but nothing for what is exact and no second pair of runs."""

    def todo() -> Iterator[tuple[Job, Question, Line]]:
        lines = manifest.finished()
        for case, question, parts in _bare(cases, settings):
            have = {part: lines[job.key] for part, job in parts.items() if job.key in lines}
            sampled = _sampler(have)
            for part, job in parts.items():
                pair = part.partition(" ")[0] in SAMPLERS
                needless = "probs" in have.get("exact", {}) or (pair and sampled is not None)
                if wanted(part) and (part in have or not needless):
                    yield job, question, _words(case, part, job)

    run_jobs(todo(), manifest, executor, done)


def _on_device(
    cases: list[Case],
    settings: References,
    device: Device,
    manifest: Manifest,
    done: Callable[[Line], None],
) -> None:
    """Make the runs of tempering on the device, one row after the other."""
    lines = manifest.finished()
    rows: dict[str, list[tuple[Case, Question, dict[str, Job]]]] = {}
    for case, question, parts in _bare(cases, settings):
        have = {part: lines[job.key] for part, job in parts.items() if job.key in lines}
        if "probs" not in have.get("exact", {}) and _sampler(have) is None:
            rows.setdefault(case.group, []).append((case, question, parts))
    for group, asked_for in rows.items():
        sampler, times = parse_engine(on_device(device, group)), device.patient.get(group, 1.0)
        assert isinstance(sampler, GpuTempering)
        budget = Budget(int(times * device.sweeps), times * device.seconds, table_bytes=2**35)
        for part in (f"pt-gpu {seed}" for seed in RUNS):
            own = asked_for[0][2][part].settings
            aims = [condition(question.model, question.evidence) for _, question, _ in asked_for]
            began = clock.now()
            try:
                found = sampler.run([aim.model for aim in aims], budget, _rng(own["seed"]))
            except (BudgetError, UnsupportedModelError):
                break  # the processor can
            made = []
            for (case, question, parts), aim, answer in zip(asked_for, aims, found, strict=True):
                full = lift(answer, aim.alive)
                line = line_of(question, full, clock.now() - began)
                line |= {"batch": len(found), "memory": 0}
                made.append(kept(case, part, parts[part], line))
            with manifest.writing():
                manifest.append(made)
            for line in made:
                done(line)


def kept(case: Case, part: str, job: Job, line: Line) -> Line:
    """Line of a part as the manifest has it; also of one that was made on another machine."""
    return {"key": job.key, **line, **_words(case, part, job)}


def _bare(
    cases: Iterable[Case], settings: References
) -> Iterator[tuple[Case, Question, dict[str, Job]]]:
    """Models without a published reference, and the jobs of theirs."""
    for case in cases:
        question = case.load()
        if question.reference is None:
            yield case, question, jobs(question, case.group, settings)


def _words(case: Case, part: str, job: Job) -> Line:
    return {"case": case.name, "group": case.group, "part": part, "asked": job.settings}


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
        method = found["method"]
        name = keys[f"{method} {RUNS[0]}" if method in SAMPLERS else method]
        # longer runs on a device have the key of shorter ones
        yield case, known, f"{name} {found['sweeps']:g}" if method == "pt-gpu" else name


def of_cases(manifest: Manifest, settings: References) -> dict[str, Line]:
    """References by the names of their models, as far as there are lines made by these settings."""
    parts: dict[str, dict[str, Line]] = {}
    for line in manifest.finished().values():
        if asked(settings, line.get("group", "")).get(line["part"]) == line["asked"]:
            parts.setdefault(line["case"], {})[line["part"]] = line
    return {case: found for case, own in parts.items() if (found := combined(own)) is not None}
