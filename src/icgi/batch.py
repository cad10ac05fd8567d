"""Many questions at once: one compiled run where the engine offers that, else threads."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from icgi import clock
from icgi.answer import Answer
from icgi.arrays import ManyMarginals, PairwiseBatch
from icgi.inference import Budget, Engine, Marginals, infer
from icgi.model.condition import Conditioned, Evidence, condition, lift
from icgi.model.graph import FactorGraph
from icgi.model.reduce import all_states, reducible

Question = tuple[FactorGraph, Evidence]


def run_batch(
    questions: Sequence[Question],
    engine: Engine,
    budget: Budget,
    rng: Generator,
    threads: int | None = None,
    shared: bool = False,
) -> list[Answer]:
    """Answer every question with its own random stream; `shared` says that all have one model.

    An engine may have a method `batch(models, budget, rngs, threads)` that gives the answers of
    calls one by one (a sampler on a device: other draws of the same quality), or None where it has
    no better way than one by one; the seconds of an answer are then its share of the whole. One
    that was prepared for a model may have `evidences(model, evidences, budget, threads)`, which
    does the same for questions on that model, and may leave some of them open (None).
    """
    if not questions:
        return []
    name = repr(engine)
    chosen = _with_shared_order(engine, questions[0][0], budget, rng) if shared else engine
    streams = rng.spawn(len(questions))
    if hasattr(chosen, "batch"):
        began = clock.now()
        parts = _conditioned(questions)
        answers = chosen.batch([part.model for part in parts], budget, streams, threads)
        if answers is not None:
            found = [lift(a, part.alive) for a, part in zip(answers, parts, strict=True)]
            share = (clock.now() - began) / len(questions)
            return [
                Answer(*q, f, name, share, budget, settings=engine)
                for q, f in zip(questions, found, strict=True)
            ]

    began = clock.now()
    known = _on_one_model(chosen, questions, budget, threads) if shared else None
    share = (clock.now() - began) / len(questions)

    def answer(number: int) -> Answer:
        if known is not None and (done := known[number]) is not None:
            return Answer(*questions[number], done, name, share, budget, settings=engine)
        began = clock.now()
        found = infer(*questions[number], chosen, budget, streams[number])
        spent = clock.now() - began
        return Answer(*questions[number], found, name, spent, budget, settings=engine)

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return list(pool.map(answer, range(len(questions))))


def run_arrays(
    batch: PairwiseBatch,
    engine: Engine,
    budget: Budget,
    rng: Generator,
    threads: int | None = None,
) -> ManyMarginals:
    """Answers to a batch of arrays: at once where the engine offers that, else model by model."""
    began = clock.now()
    at_once = getattr(engine, "arrays", None)
    found = at_once(batch, budget, rng, threads) if at_once else None
    if found is None:
        questions: list[Question] = [(batch.model(m), {}) for m in range(len(batch))]
        answers = run_batch(questions, engine, budget, rng, threads)
        shape = (len(batch), batch.n_variables, batch.n_states)
        found = ManyMarginals(
            np.array([a.probs for a in answers]).reshape(shape),
            np.array([np.nan if a.log_z is None else a.log_z for a in answers], np.float64),
            tuple(a.status for a in answers),
        )
    for array in (found.probs, found.log_z):
        array.flags.writeable = False
    return replace(found, engine=repr(engine), seconds=clock.now() - began)


def _on_one_model(
    engine: Engine, questions: Sequence[Question], budget: Budget, threads: int | None
) -> Sequence[Marginals | None] | None:
    """What an engine that was prepared for the one model of all questions answers at once."""
    ask = getattr(engine, "evidences", None)
    if ask is None:
        return None
    found: Sequence[Marginals | None] | None = ask(
        questions[0][0], [evidence for _, evidence in questions], budget, threads
    )
    return found


def _conditioned(questions: Sequence[Question]) -> list[Conditioned]:
    """`condition` of every question, at little cost where there is nothing to remove."""
    marked = reducible([model for model, _ in questions]).tolist()
    return [
        condition(model, evidence) if evidence or mark else Conditioned(model, all_states(model))
        for (model, evidence), mark in zip(questions, marked, strict=True)
    ]


def _with_shared_order(
    engine: Engine, model: FactorGraph, budget: Budget, rng: Generator
) -> Engine:
    """Return an engine that reuses one elimination order, where the engine offers that."""
    prepare = getattr(engine, "prepared", None)
    return engine if prepare is None else prepare(model, budget, rng)
