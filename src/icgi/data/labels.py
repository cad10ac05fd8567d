"""Reference marginals: exact where the tables fit, tempering with a stated error elsewhere."""

import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.random import Generator

from icgi.approx.tap import ThoulessAndersonPalmer
from icgi.clock import now
from icgi.data.jobs.job import Job, Question, Result
from icgi.data.jobs.run import Executor, Serial, arriving
from icgi.data.store import SHARD, Identity, Label, LabelledSet
from icgi.errors import IcgiError, UnsupportedModelError
from icgi.exact.forecast import forecast
from icgi.exact.junction_tree import AlongForecast
from icgi.exact.pfaffian import Pfaffian
from icgi.inference import Budget, Marginals, Status, ask
from icgi.model.condition import Conditioned, Evidence, condition, lift
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ising import as_ising
from icgi.sampling.tempering import ParallelTempering

FIRST_SWEEPS = 2000
LEAST_SWEEPS = 100  # of a label, whatever the time


@dataclass(frozen=True, slots=True)
class Labelling:
    """How far a reference goes: exact up to a table size, tempering to a standard error."""

    log2_table: float = 26.0  # largest clique table of exact inference, in log2 entries
    table_bytes: int = 2**32
    std_error: float = 0.005  # tempering stops when every marginal is known this well …
    seconds: float = 60.0  # … or after this time per instance; the error is recorded either way
    sweeps: int | None = None  # of one run of tempering, whatever error it has and time it takes
    tempering: ParallelTempering = ParallelTempering()  # noqa: RUF009 (frozen settings)


def label(
    model: FactorGraph, settings: Labelling, rng: Generator, evidence: Evidence | None = None
) -> Label:
    """Reference marginals of a model, by the first method that applies."""
    evidence = evidence or {}
    began = now()
    conditioned = condition(model, evidence)
    timed = Budget(seconds=settings.seconds, table_bytes=settings.table_bytes)
    ahead = forecast(conditioned.model, timed, rng)
    budget = Budget(table_bytes=settings.table_bytes)
    if ahead.order.log2_table <= settings.log2_table and ahead.fits(budget):
        answer = ask(conditioned, AlongForecast(ahead), budget, rng)
        return Label(answer.probs, "jt", answer.log_z, seconds=now() - began)
    planar = _pfaffian(conditioned.model, settings, rng)
    if planar is not None:
        answer = lift(planar, conditioned.alive)
        return Label(answer.probs, "pfaffian", answer.log_z, seconds=now() - began)
    return _sampled(conditioned, settings, rng, began)


def _pfaffian(model: FactorGraph, settings: Labelling, rng: Generator) -> Marginals | None:
    budget = Budget(seconds=settings.seconds, table_bytes=settings.table_bytes)
    try:
        answer = Pfaffian()(model, budget, rng)
    except IcgiError:
        return None  # has fields, is not planar, or is too large: tempering is for that
    return answer if answer.status is Status.EXACT else None


def _sampled(question: Conditioned, settings: Labelling, rng: Generator, began: float) -> Label:
    """One run of so many sweeps, or runs of doubling length until sure enough or out of time."""
    if settings.sweeps is not None:
        budget = Budget(settings.sweeps, table_bytes=settings.table_bytes)
        answer = lift(settings.tempering(question.model, budget, rng), question.alive)
        return _label_of(question, answer, rng, now() - began)
    sweeps = FIRST_SWEEPS
    while True:
        left = settings.seconds - (now() - began)
        budget = Budget(sweeps, seconds=max(left, 0.01), table_bytes=settings.table_bytes)
        answer = lift(settings.tempering(question.model, budget, rng), question.alive)
        if answer.ess is None:  # the time ended before anything was sampled: a label needs samples
            least = Budget(LEAST_SWEEPS, table_bytes=settings.table_bytes)
            answer = lift(settings.tempering(question.model, least, rng), question.alive)
        assert answer.std_error is not None
        worst = float(answer.std_error.max(initial=0.0))
        spent = now() - began
        # the next run takes twice as long as this one did
        enough = worst <= settings.std_error and answer.status is Status.CONVERGED
        if enough or spent + 2 * (spent - (settings.seconds - left)) > settings.seconds:
            return _label_of(question, answer, rng, spent)
        sweeps *= 2


def _label_of(question: Conditioned, answer: Marginals, rng: Generator, spent: float) -> Label:
    return Label(
        answer.probs,
        "pt",
        answer.log_z,
        answer.std_error,
        answer.deviation,
        float(answer.stats.get("log_z_std_error", 0.0)),
        float(answer.stats["rhat"]),
        spent,
        _tap_check(question, answer, rng),
        _draws(answer),
    )


def _draws(answer: Marginals) -> FloatArray:
    """Effective number of draws of each variable's worst state; infinite where all is certain."""
    assert answer.ess is not None
    assert answer.std_error is not None
    return np.asarray(np.where(answer.std_error > 0, answer.ess, np.inf).min(1, initial=np.inf))


def _tap_check(question: Conditioned, answer: Marginals, rng: Generator) -> dict[str, float]:
    """Mean L1 distance to TAP on complete Ising graphs (SK), as the paper cross-checks."""
    arrays = as_ising(question.model)
    n = question.model.n_variables
    if arrays is None or len(arrays.edges) < n * (n - 1) // 2:
        return {}
    try:
        other = ThoulessAndersonPalmer()(question.model, Budget(), rng)
    except UnsupportedModelError:
        return {}
    if other.status not in (Status.AT_REST, Status.EXACT):
        return {"tap_converged": 0.0}
    other = lift(other, question.alive)
    return {"tap": float(np.abs(other.probs - answer.probs).sum(1).mean()), "tap_converged": 1.0}


WORK = "icgi.data.labels:labelled"
Found = Label | str
"""A label, or the reason why there is none."""


def labelled(
    question: Question, name: str, seed: int, threads: int | None, settings: dict[str, Any]
) -> Label:
    """Work of a job: label of an instance, from a random stream of the seed and its name."""
    _load_compiled_code()
    stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
    tempering = ParallelTempering(**settings["tempering"], threads=threads)
    seconds = math.inf if settings["seconds"] is None else settings["seconds"]
    made = Labelling(**{**settings, "tempering": tempering, "seconds": seconds})
    return label(question.model, made, stream, question.evidence)


@cache
def _load_compiled_code() -> None:
    """Sample a tiny model, so that the first instance does not pay for a worker's start."""
    pair = FactorGraph(np.array([2, 2]), ((0, 1),), (np.array([[0.0, 1.0], [1.0, 0.5]]),))
    ParallelTempering(threads=1)(pair, Budget(iterations=8), np.random.default_rng(0))


def label_set(
    stored: LabelledSet,
    settings: Labelling,
    seed: int = 0,
    executor: Executor | None = None,
    done: Callable[[Identity, Found], None] = lambda identity, found: None,
) -> int:
    """Label what has no label yet; returns how many. Stopping loses at most what is in flight.

    Every instance has its own random stream, from the seed and its name, and labels are stored in
    the order of the set: files depend neither on the executor nor on the number of workers, unless
    the seconds end a label or the run is interrupted. An instance that no method can label, or
    whose worker dies, is given to `done` with the reason, and tried again next time. Nobody else
    can write to the set meanwhile.
    """
    with stored.writing():
        return _label_all(stored, settings, seed, executor or Serial(), done)


def _label_all(
    stored: LabelledSet,
    settings: Labelling,
    seed: int,
    executor: Executor,
    done: Callable[[Identity, Found], None],
) -> int:
    words = _described(settings)
    stored.note_labelling({"seed": seed, **words})
    stored.compact()  # what an interrupted run left
    finished = stored.labelled()
    asked: dict[str, Identity] = {}  # in the order of the run
    threads = settings.tempering.threads if isinstance(executor, Serial) else 1

    def todo() -> Iterator[tuple[Job, Question]]:
        for identity, model in _shuffled(stored, seed):
            if identity.name not in finished:
                asked[identity.name] = identity
                question = Question(identity.name, model, identity.evidence)
                own = {"name": identity.name, "seed": seed, "threads": threads, "settings": words}
                size = sum(table.size for table in model.log_tables).bit_length()
                yield Job(WORK, question.digest, own, f"{identity.family} {size}"), question

    count = compacted = 0
    arrived: set[str] = set()
    with closing(arriving(todo(), executor)) as incoming:
        try:
            for results in incoming:
                found = [(r.job.settings["name"], _found(r)) for r in results]
                labels = {name: label for name, label in found if isinstance(label, Label)}
                stored.append_all(labels)
                count += len(labels)
                arrived.update(name for name, _ in found)
                for name, each in found:
                    done(asked[name], each)
                while len(order := list(islice(asked, compacted, compacted + SHARD))) == SHARD:
                    if not arrived.issuperset(order):
                        break
                    stored.compact(order)
                    compacted += SHARD
        finally:
            stored.compact(list(islice(asked, compacted, None)))
    return count


def _found(result: Result) -> Found:
    return result.value if isinstance(result.value, Label) else str(result.record["message"])


def _described(settings: Labelling) -> dict[str, Any]:
    """Settings as JSON can hold them; threads do not matter to the answer."""
    words = asdict(settings)
    words["tempering"].pop("threads")
    words["seconds"] = settings.seconds if math.isfinite(settings.seconds) else None
    if settings.sweeps is None:
        words.pop("sweeps")  # as folders of labels have it that were begun before there was one
    return words


def _shuffled(stored: LabelledSet, seed: int) -> Iterator[tuple[Identity, FactorGraph]]:
    """Instances in random order within each shard: sets are sorted by size, time left is not."""
    rng = np.random.default_rng(seed)
    for part in stored.shards():
        for k in rng.permutation(len(part)):
            yield part[k]
