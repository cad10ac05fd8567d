"""Approximate answers of growing quality: a first one at once, then independent routes together.

Belief propagation answers first. Then elimination with tensor trains and parallel tempering run
side by side, each in a thread (compiled code does not hold the interpreter's lock), and whatever
has ended is combined. Every step leaves a complete answer behind.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from numpy.random import Generator

from icgi import clock
from icgi.approx.lbp import LoopyBP
from icgi.clock import Deadline
from icgi.elimination.engine import TensorTrainElimination
from icgi.errors import BudgetError, IcgiError
from icgi.inference import Budget, Engine, Marginals
from icgi.model.graph import FactorGraph
from icgi.portfolio.combine import Combined, Route, combine
from icgi.sampling.tempering import ParallelTempering

FIRST_SHARE = 0.1  # of the time, for the first answer
CONFIRM = 1.0  # times what the first trusted route took: how long the others may go on
LEAST_CONFIRM = 0.5  # seconds of it
DENSE = 8  # neighbours of a variable on average, beyond which tempering beats elimination
GOOD = 1e-3  # expected error of a trusted route, above which the others use all of the time


def _tempering(model: FactorGraph) -> ParallelTempering:
    """Tempering on all cores but one, which elimination has to itself where it is promising."""
    wide = sum(len(scope) > 1 for scope in model.scopes)
    if 2 * wide > DENSE * model.n_variables:
        return ParallelTempering()
    return ParallelTempering(threads=max(1, _cores() - 1))


def _cores() -> int:
    """Processors that this process may use, which can be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


SIDE_BY_SIDE: Mapping[str, Callable[[FactorGraph], Engine]] = {
    "ttve": lambda model: TensorTrainElimination(),
    "pt": _tempering,
}


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What is known after a step: the routes so far and the answer they make."""

    routes: tuple[Route, ...]
    combined: Combined
    missing: Mapping[str, IcgiError]  # routes that could not be taken, and why


def approximations(
    model: FactorGraph, budget: Budget, deadline: Deadline, rng: Generator
) -> Iterator[Found]:
    """Answers to a connected model, each at least as good as the one before it by what is known.

    Routes that the model, the memory or the time rule out are left out; there is always one.
    """
    routes: list[Route] = []
    missing: dict[str, IcgiError] = {}
    streams = rng.spawn(1 + len(SIDE_BY_SIDE))
    first = budget.until(deadline.share(FIRST_SHARE))
    _take("lbp", lambda: LoopyBP()(model, first, streams[0]), routes, missing)
    if routes:
        yield Found(tuple(routes), combine(routes), dict(missing))
    half = replace(budget, table_bytes=budget.table_bytes // 2)  # two routes at a time
    with clock.part() as work, ThreadPoolExecutor(len(SIDE_BY_SIDE)) as pool:
        began, settled = clock.now(), math.inf
        jobs: dict[Future[Marginals], str] = {}
        try:
            for (name, make), stream in zip(SIDE_BY_SIDE.items(), streams[1:], strict=True):
                jobs[pool.submit(_run, make(model), model, half, deadline, stream, work)] = name
            while jobs:
                done, _ = wait(jobs, return_when=FIRST_COMPLETED, timeout=0.05)
                for job in done:
                    _take(jobs.pop(job), job.result, routes, missing)
                routes = _independent(routes)
                took = clock.now() - began
                if done and any(map(_vouches, routes)):
                    settled = min(settled, took + max(CONFIRM * took, LEAST_CONFIRM))
                if done and routes:
                    yield Found(tuple(routes), combine(routes), dict(missing))
                if took >= settled:
                    work.stop()
        finally:
            work.stop()  # whoever stops asking ends the routes too
    if not routes:
        words = "; ".join(f"{name}: {why}" for name, why in missing.items())
        short = any(isinstance(why, BudgetError) for why in missing.values())
        kind = BudgetError if short else IcgiError
        raise kind(f"no engine can answer this model within the budget: {words}")


def _run(
    engine: Engine,
    model: FactorGraph,
    budget: Budget,
    deadline: Deadline,
    rng: Generator,
    work: clock.Part,
) -> Marginals:
    with clock.part(of=work):
        return engine(model, budget.until(deadline), rng)


def _take(
    name: str, answer: Callable[[], Marginals], routes: list[Route], missing: dict[str, IcgiError]
) -> None:
    try:
        routes.append(Route(name, answer()))
    except IcgiError as refusal:
        missing[name] = refusal


def _independent(routes: list[Route]) -> list[Route]:
    """Leave one of two routes that are the same: `ttve` may fall back to messages, as `lbp`'s.

    Its answer states errors, so it stays where nothing else does.
    """
    same = [r for r in routes if r.name == "ttve" and r.answer.stats.get("messages", 0.0) > 0]
    if not same or not any(r.name == "lbp" for r in routes):
        return routes
    others = any(r.stated is not None and r not in same for r in routes)
    return [r for r in routes if (r not in same if others else r.name != "lbp")]


def _vouches(route: Route) -> bool:
    """Whether a route vouches for errors so small that more time is not worth it."""
    stated = route.stated
    return route.trusted and stated is not None and float(stated.mean()) <= GOOD
