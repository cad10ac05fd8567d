"""Approximate answers of growing quality, from independent routes side by side.

Belief propagation, elimination with tensor trains and parallel tempering run in a thread each
(compiled code does not hold the interpreter's lock), and whatever they have found is combined.
Elimination shows early what it can do: where that is nothing, tempering gets its processors.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

import numpy as np
from numpy.random import Generator

from icgi import clock
from icgi.approx.lbp import LoopyBP
from icgi.clock import Deadline
from icgi.elimination.engine import TensorTrainElimination
from icgi.elimination.errors import estimated_error
from icgi.errors import BudgetError, IcgiError
from icgi.inference import Budget, Engine, Improving, Marginals
from icgi.model.graph import FactorGraph
from icgi.model.interactions import bonds
from icgi.model.ordering import greedy_order
from icgi.portfolio.combine import Combined, Route, combine
from icgi.portfolio.doubt import told_error
from icgi.sampling.tempering import BURN_IN, ParallelTempering


@dataclass(frozen=True, slots=True)
class Policy:
    """Who runs when, and for how long; shares are of the time."""

    first: float = 0.05  # share for belief propagation, and of elimination before tempering begins
    head: float = 0.01  # share by which elimination is ahead of it where both have one processor
    pilot: float = 0.1  # share after which elimination goes on only if it promises something
    glimpse: float = 0.02  # instead of it on dense models with more configurations than
    crowd: float = 50.0  # bits
    silence: float = 0.25  # share after which having found nothing yet is no promise any more
    promising: float = 0.1  # expected error up to which an answer is one
    dense: float = 8.0  # neighbours of a variable on average, up to which a model may be one, too,
    plane: float = 1.5  # where its width in units of √n is at most this, as in the plane
    good: float = 1e-3  # expected error of a trusted route, up to which the others soon end
    confirm: float = 0.25  # times what that route took: how long they may still go on
    least_confirm: float = 0.1  # seconds of it
    sure: float = 1e-5  # expected error of a trusted route that nobody is asked to confirm
    anew: float = 0.5  # seconds to confirm in, from which on tempering begins anew for that


POLICY = Policy()
PREPARING = 1e-5  # seconds of elimination for each factor of a dense model, before it does anything
LOOK = 0.05  # seconds between two looks at the clock
ORDERING, ORDERS = 0.5, 0.03  # seconds, and share of them, at most for each of two orders
MEMORY = {"lbp": 0.25, "ttve": 0.375, "pt": 0.375}  # share of each route, side by side
ROUTES: Mapping[str, Callable[[], Engine]] = {
    "lbp": LoopyBP,
    "ttve": TensorTrainElimination,
    "pt": lambda: ParallelTempering(threads=_cores()),
}


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What is known after a step: the routes so far and the answer they make."""

    routes: tuple[Route, ...]
    combined: Combined
    missing: Mapping[str, IcgiError]  # routes that could not be taken, and why


def approximations(
    model: FactorGraph,
    budget: Budget,
    deadline: Deadline,
    rng: Generator,
    policy: Policy = POLICY,
) -> Iterator[Found]:
    """Answers to a connected model, each at least as good as the one before it by what is known.

    Routes that the model, the memory or the time rule out are left out; there is always one.
    """
    missing: dict[str, IcgiError] = {}
    answers: dict[str, Route] = {}
    strength = bonds(model)
    streams = dict(zip(ROUTES, rng.spawn(len(ROUTES)), strict=True))
    pilot = deadline.share(pilot_share(model, policy))
    patience = deadline.share(policy.silence)
    head, start = deadline.share(policy.head), deadline.share(policy.first)
    ordering = min(ORDERING, ORDERS * deadline.left)
    began, settled = clock.now(), math.inf
    stopped: list[str] = []  # tempering, while it ends to begin anew
    judged: tuple[Marginals | None, bool] | None = None  # what was known at the last judgement
    with clock.part() as work, ThreadPoolExecutor(len(ROUTES)) as pool:
        runs = _Runs(model, budget, pool, work)
        try:
            if worth_a_pilot(model, pilot.left, policy):
                runs.start("ttve", deadline, streams["ttve"])
            while True:
                over = work.stopped and bool(answers)
                turns = {
                    "lbp": _turn_of_messages(runs, head),
                    "pt": _turn_of_tempering(runs, start, pilot),
                }
                for name, end in (("lbp", start), ("pt", deadline)):
                    if name not in runs.jobs and not over and (turns[name] or settled < math.inf):
                        # who has only to confirm burns in for a part of that time
                        end = end.within(settled - (clock.now() - began))
                        runs.start(name, end, streams[name])
                if not runs.alive:
                    break
                name, said = runs.next()
                if said is None and name in stopped:
                    del runs.jobs[stopped.pop()]  # so that it begins anew
                if isinstance(said, IcgiError):
                    missing[name] = said
                elif said is not None:
                    answers[name] = Route(name, said, told_error(name, said, strength))
                if pilot.passed and runs.going("ttve"):
                    known = answers.get("ttve")
                    signs = None if known is None else known.answer, patience.passed
                    if signs != judged and not promising(model, *signs, policy, ordering):
                        runs.parts["ttve"].stop()
                    judged = signs
                took = clock.now() - began
                if isinstance(said, Marginals):
                    routes = _independent([answers[k] for k in ROUTES if k in answers])
                    combined = combine(routes)
                    settled = min(settled, took + confirming(routes, combined, took, policy))
                    yield Found(tuple(routes), combined, dict(missing))
                if took >= settled:
                    work.stop()
                elif math.inf > settled > took + policy.anew and _too_early(runs, answers):
                    runs.parts["pt"].stop()
                    stopped.append("pt")
        finally:
            work.stop()  # whoever stops asking ends the routes too
    if not answers:
        yield _alone(model, budget, deadline, rng)


def _alone(model: FactorGraph, budget: Budget, deadline: Deadline, rng: Generator) -> Found:
    """Answer of the first route that all of the memory is enough for."""
    missing: dict[str, IcgiError] = {}
    for name, engine in ROUTES.items():
        try:
            routes = [Route(name, engine()(model, budget.until(deadline), rng))]
        except IcgiError as refusal:
            missing[name] = refusal
            continue
        return Found(tuple(routes), combine(routes), missing)
    words = "; ".join(f"{name}: {why}" for name, why in missing.items())
    short = any(isinstance(why, BudgetError) for why in missing.values())
    kind = BudgetError if short else IcgiError
    raise kind(f"no engine can answer this model within the budget: {words}")


def confirming(
    routes: Sequence[Route], combined: Combined, took: float, policy: Policy = POLICY
) -> float:
    """Seconds that the routes may still go on, given what the best of them vouches for.

    No time where that is far better than anyone needs and nobody who vouches disagrees; without end
    where it is not good enough.
    """
    vouched = [route.stated for route in routes if route.trusted]
    least = min((float(error.mean()) for error in vouched if error is not None), default=math.inf)
    if least <= policy.sure and not combined.opposing:
        return 0.0
    if least <= policy.good:
        return max(policy.confirm * took, policy.least_confirm)
    return math.inf


def pilot_share(model: FactorGraph, policy: Policy = POLICY) -> float:
    """Share of the time after which elimination has to have shown what it can do.

    Trains of a large dense model are cut wherever they are, so tempering soon gets its time.
    """
    crowded = _dense(model, policy) and float(np.log2(model.cards).sum()) > policy.crowd
    return policy.glimpse if crowded else policy.pilot


def worth_a_pilot(model: FactorGraph, seconds: float, policy: Policy = POLICY) -> bool:
    """Whether elimination can be ready for anything within its pilot.

    Before that it holds the interpreter, which the others need to get ready, too.
    """
    return not _dense(model, policy) or PREPARING * model.n_factors < seconds


def promising(
    model: FactorGraph,
    found: Marginals | None,
    silent: bool,
    policy: Policy = POLICY,
    seconds: float = ORDERING,
) -> bool:
    """Whether elimination, after its pilot, shows that more time may pay.

    Its own error tells where it has found anything. Where it has been silent for long, the model
    tells: lattices in the plane need small ranks however large they are, others too large ones.
    """
    if found is not None:
        return found.status.trusted or estimated_error(found.std_error) <= policy.promising
    if _dense(model, policy):
        return False
    if not silent:
        return True
    rules = ("smallest-front", "min-fill")  # the former finds the width of lattices
    width = min(greedy_order(model, rule, seconds=seconds).width for rule in rules)
    return width <= policy.plane * math.sqrt(int((model.cards > 1).sum()))


def _dense(model: FactorGraph, policy: Policy) -> bool:
    """Whether variables have more neighbours on average than elimination can take."""
    free = int((model.cards > 1).sum())
    return 2 * int(np.count_nonzero(model.arity > 1)) > policy.dense * free


def _turn_of_messages(runs: "_Runs", head: Deadline) -> bool:
    """At once where there are several processors; else elimination may be done before long."""
    return "ttve" not in runs.alive or _cores() > 1 or head.passed


def _turn_of_tempering(runs: "_Runs", start: Deadline, pilot: Deadline) -> bool:
    """After belief propagation where there are several processors, else after the pilot.

    It would take all processors, and elimination is often done before it has found anything. If
    somebody vouches for an answer before that, it begins to confirm it.
    """
    return "ttve" not in runs.alive or (start if _cores() > 1 else pilot).passed


def _too_early(runs: "_Runs", answers: Mapping[str, Route]) -> bool:
    """Whether tempering burns in, as for all the time there was: once only, before it answers."""
    return "pt" not in answers and runs.burning("pt")


def _cores() -> int:
    """Processors that this process may use, which can be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


Said = tuple[str, Marginals | IcgiError | None]  # None: the run has ended, or there is no news


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Routes under way, each in a part of the work that can be stopped by itself."""

    model: FactorGraph
    budget: Budget
    pool: ThreadPoolExecutor
    work: clock.Part
    parts: dict[str, clock.Part] = field(default_factory=dict)
    jobs: dict[str, Future[None]] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    burnt: dict[str, Deadline] = field(default_factory=dict)  # when tempering will have burnt in
    queue: SimpleQueue[Said] = field(default_factory=SimpleQueue)

    def start(self, name: str, deadline: Deadline, rng: Generator) -> None:
        """Let a route begin."""
        self.parts[name] = clock.Part(self.work)
        self.alive.add(name)
        self.burnt[name] = deadline.share(BURN_IN)
        self.jobs[name] = self.pool.submit(self._run, name, deadline, rng)

    def going(self, name: str) -> bool:
        """Whether a route runs and has not been asked to stop."""
        return name in self.alive and not self.parts[name].stopped

    def burning(self, name: str) -> bool:
        """Whether tempering burns in and has not been asked to stop."""
        return self.going(name) and not self.burnt[name].passed

    def next(self) -> Said:
        """The next thing that a route says, or nothing for a while."""
        try:
            name, said = self.queue.get(timeout=LOOK)
        except Empty:
            return "", None
        if said is None:
            self.alive.discard(name)
            self.jobs[name].result()  # errors of the program, not of the question
        return name, said

    def _run(self, name: str, deadline: Deadline, rng: Generator) -> None:
        memory = int(MEMORY[name] * self.budget.table_bytes)
        engine = ROUTES[name]()
        try:
            with clock.part(of=self.parts[name]):
                given = replace(self.budget.until(deadline), table_bytes=memory)
                if isinstance(engine, Improving):
                    for answer in engine.answers(self.model, given, rng):
                        self.queue.put((name, answer))
                else:
                    self.queue.put((name, engine(self.model, given, rng)))
        except IcgiError as refusal:
            self.queue.put((name, refusal))
        finally:
            self.queue.put((name, None))


def _independent(routes: list[Route]) -> list[Route]:
    """Leave one of two routes that are the same: `ttve` may fall back to messages, as `lbp`'s.

    Its answer states errors, so it stays where nothing else does.
    """
    same = [r for r in routes if r.name == "ttve" and r.answer.stats.get("messages", 0.0) > 0]
    if not same or not any(r.name == "lbp" for r in routes):
        return routes
    others = any(r.stated is not None and r not in same for r in routes)
    return [r for r in routes if (r not in same if others else r.name != "lbp")]
