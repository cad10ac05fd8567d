"""Reference marginals: exact where the tables fit, tempering with a stated error elsewhere."""

import math
import multiprocessing
import os
import signal
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.random import Generator

from icgi.approx.tap import ThoulessAndersonPalmer
from icgi.clock import now
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
    """Tempering runs of doubling length until the error is small enough or the time is over."""
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
        sweeps *= 2


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


Found = tuple[Identity, Label | str]
"""An instance with its label, or with the reason why there is none."""


def label_set(
    stored: LabelledSet,
    settings: Labelling,
    seed: int = 0,
    workers: int = 0,
    done: Callable[[Identity, Label | str], None] = lambda identity, found: None,
) -> int:
    """Label what has no label yet; returns how many. Stopping loses at most what is in flight.

    Work is done by `workers` processes, or in this one if there are none.

    Every instance has its own random stream, from the seed and its name, so labels do not depend
    on the number of workers or on where a run was interrupted, unless the seconds end them. An
    instance that no method can label is given to `done` with the reason, and tried again next time.
    Nobody else can write to the set meanwhile.
    """
    with stored.writing():
        return _label_all(stored, settings, seed, workers, done)


def _label_all(
    stored: LabelledSet,
    settings: Labelling,
    seed: int,
    workers: int,
    done: Callable[[Identity, Label | str], None],
) -> int:
    stored.note_labelling({"seed": seed, **_described(settings)})
    finished = stored.labelled()
    todo = (item for item in _shuffled(stored, seed) if item[0].name not in finished)
    count = 0
    try:
        for identity, found in _run(todo, settings, seed, workers):
            if isinstance(found, Label):
                stored.append(identity.name, found)
                count += 1
                if count % SHARD == 0:
                    stored.compact()
            done(identity, found)
    finally:
        stored.compact()
    return count


def _described(settings: Labelling) -> dict[str, object]:
    """Settings as JSON can hold them; threads do not matter to the answer."""
    words = asdict(settings)
    words["tempering"].pop("threads")
    words["seconds"] = settings.seconds if math.isfinite(settings.seconds) else None
    return words


def _shuffled(stored: LabelledSet, seed: int) -> Iterator[tuple[Identity, FactorGraph]]:
    """Instances in random order within each shard: sets are sorted by size, time left is not."""
    rng = np.random.default_rng(seed)
    for part in stored.shards():
        for k in rng.permutation(len(part)):
            yield part[k]


def _run(
    todo: Iterable[tuple[Identity, FactorGraph]], settings: Labelling, seed: int, workers: int
) -> Iterator[Found]:
    if workers < 1:
        for identity, model in todo:
            yield identity, _one(model, settings, seed, identity)
        return
    alone = replace(settings, tempering=replace(settings.tempering, threads=1))
    context = multiprocessing.get_context("spawn")  # threads and fork do not mix
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_follow) as pool:
        waiting: dict[Future[Label | str], Identity] = {}
        queue = iter(todo)
        try:
            while True:
                while len(waiting) < 2 * workers and (item := next(queue, None)) is not None:
                    identity, model = item
                    waiting[pool.submit(_one, model, alone, seed, identity)] = identity
                if not waiting:
                    return
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
        except BrokenProcessPool as error:
            raise IcgiError(
                "a worker process ended by itself, most likely for lack of memory; what was "
                "labelled is kept: run again with fewer workers or less memory"
            ) from error
        finally:
            if waiting:  # interrupted: nobody wants what is in flight
                for child in set(multiprocessing.active_children()) - others:
                    child.terminate()
                pool.shutdown(cancel_futures=True)


def _follow() -> None:
    """Make a worker leave interrupts to its parent, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    _load_compiled_code()


def _load_compiled_code() -> None:
    """Sample a tiny model, so that the first instance does not pay for a worker's start."""
    pair = FactorGraph(np.array([2, 2]), ((0, 1),), (np.array([[0.0, 1.0], [1.0, 0.5]]),))
    ParallelTempering(threads=1)(pair, Budget(iterations=8), np.random.default_rng(0))


def _one(model: FactorGraph, settings: Labelling, seed: int, identity: Identity) -> Label | str:
    stream = np.random.default_rng([seed, zlib.crc32(identity.name.encode())])
    try:
        return label(model, settings, stream, identity.evidence)
    except IcgiError as reason:
        return str(reason)
