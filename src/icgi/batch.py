"""Many questions at once: threads over questions, one order for all evidences of a model."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from numpy.random import Generator

from icgi.answer import Answer
from icgi.inference import Budget, Engine, infer
from icgi.model.condition import Evidence
from icgi.model.graph import FactorGraph


def run_batch(
    questions: Sequence[tuple[FactorGraph, Evidence]],
    engine: Engine,
    budget: Budget,
    rng: Generator,
    threads: int | None = None,
    shared: bool = False,
) -> list[Answer]:
    """Answer every question with its own random stream; `shared` says that all have one model."""
    if not questions:
        return []
    name = repr(engine)
    chosen = _with_shared_order(engine, questions[0][0], budget, rng) if shared else engine
    streams = rng.spawn(len(questions))

    def answer(number: int) -> Answer:
        model, evidence = questions[number]
        began = time.perf_counter()
        found = infer(model, evidence, chosen, budget, streams[number])
        return Answer(model, evidence, found, name, time.perf_counter() - began)

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return list(pool.map(answer, range(len(questions))))


def _with_shared_order(
    engine: Engine, model: FactorGraph, budget: Budget, rng: Generator
) -> Engine:
    """Return an engine that reuses one elimination order, where the engine offers that."""
    prepare = getattr(engine, "prepared", None)
    return engine if prepare is None else prepare(model, budget, rng)
