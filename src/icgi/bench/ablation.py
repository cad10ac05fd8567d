"""The work of table 3: errors, instances per second in a batch, and floating-point operations."""

import math
import warnings
from typing import Any

import numpy as np

from icgi import clock
from icgi.bench.available import LEARNED
from icgi.bench.table import SEEDS
from icgi.data.jobs import answers
from icgi.data.jobs.job import Question
from icgi.engines import parse_engine
from icgi.inference import Budget, Engine
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph

BATCH = 32  # instances at once, as in the paper's training


def measured(
    question: Question,
    engine: str,
    seed: int,
    seconds: float | None,
    table_bytes: int,
    identity: str = "",
) -> dict[str, Any]:
    """Line of one answer; of the first seed with its costs, in a batch of the same model."""
    line = answers.answer(question, engine, seed, seconds, table_bytes, identity)
    return line | costs(question, engine, seed, seconds, table_bytes)


def costs(
    question: Question, engine: str, seed: int, seconds: float | None, table_bytes: int
) -> dict[str, Any]:
    """Throughput and operations; of the first seed only, other weights cost the same."""
    if seed != SEEDS[0]:
        return {}
    made = answers.alone(parse_engine(engine))
    model = condition(question.model, question.evidence).model
    budget = Budget(seconds=math.inf if seconds is None else seconds, table_bytes=table_bytes)
    found: dict[str, Any] = {"throughput": _throughput(made, model, budget, seed)}
    if type(made).__module__.startswith(LEARNED):
        found |= {"gflops": _operations(made, model, budget, seed) / 1e9}
    return found


def _throughput(engine: Engine, model: FactorGraph, budget: Budget, seed: int) -> float:
    """Instances per second: of a batch where the engine has one, else one after the other."""
    began = clock.now()
    many = getattr(engine, "batch", None)
    if many is not None:
        streams = np.random.default_rng(seed).spawn(BATCH)
        if many([model] * BATCH, budget, streams) is not None:
            return BATCH / (clock.now() - began)
    began = clock.now()
    engine(model, budget, np.random.default_rng(seed))
    return 1.0 / (clock.now() - began)


def _operations(engine: Engine, model: FactorGraph, budget: Budget, seed: int) -> float:
    """Floating-point operations that torch's profiler counts in one answer."""
    from torch.profiler import ProfilerActivity, profile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kernels without a formula; they are not counted
        with profile(activities=[ProfilerActivity.CPU], with_flops=True) as seen:
            engine(model, budget, np.random.default_rng(seed))
        recorder: Any = seen.profiler
        # `key_averages` has the same sum, after building a tree of all events: six times as long
        return float(sum(event.flops() for event in recorder.kineto_results.events()))
