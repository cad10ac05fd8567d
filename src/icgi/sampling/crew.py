"""The moving parts of a tempering run: ensembles of replicas on a common ladder, and the clock."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.inference import Budget
from icgi.model.graph import FloatArray
from icgi.sampling import exchange
from icgi.sampling.clusters import interaction_graph, marks
from icgi.sampling.ladder import first_ladder
from icgi.sampling.replicas import make_scratch, make_state, weight_of
from icgi.sampling.streams import Stream, stream
from icgi.sampling.targets import Target, check_memory

FIRST_LEVELS = 8
CHUNK = 0.25  # seconds between two looks at the clock

MOVES = {
    "none": exchange.NO_CLUSTERS,
    "swendsen-wang": exchange.SWENDSEN_WANG,
    "houdayer": exchange.HOUDAYER,
}


class Clock:
    """What of the budget is spent; the longest chunk of sweeps that keeps to it."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._began = time.monotonic()
        self._pace = 0.0  # seconds per sweep
        self.sweeps = 0

    def share(self) -> float:
        """Spent share of the budget, by whichever of sweeps and seconds is shorter."""
        elapsed = time.monotonic() - self._began
        by_time = elapsed / self._budget.seconds if self._budget.seconds > 0 else 1.0
        return max(self.sweeps / max(self._budget.sweeps(), 1), by_time)

    def run(self, job: Callable[[int], None], sweeps: int, until: float = 1.0) -> int:
        """Do up to `sweeps` sweeps in chunks, at least one; stop at a share of the seconds."""
        done, chunk = 0, 1
        while done < sweeps:
            size = min(chunk, sweeps - done)
            before = time.monotonic()
            job(size)
            self._pace = (time.monotonic() - before) / size
            done += size
            self.sweeps += size
            left = until * self._budget.seconds - (time.monotonic() - self._began)
            if left <= self._pace:
                break
            most = int(min(CHUNK, left) / max(self._pace, 1e-9))
            chunk = max(1, min(4 * size, most))
        return done


@dataclass(slots=True, eq=False)
class Ensemble:
    """One independent set of replicas; its arrays change in place."""

    stream: Stream
    state: Any
    walk: exchange.Walk
    record: exchange.Record
    scratch: Any
    marks: Any


class Crew:
    """All ensembles on their common ladder, run side by side.

    Parameters
    ----------
    levels
        How many the ladder has, with that of true zeros; None for a first guess.
    most_levels
        How many it may come to have: what memory is checked for.
    """

    def __init__(
        self,
        aim: Target,
        budget: Budget,
        rng: Generator,
        pool: ThreadPoolExecutor,
        *,
        ensembles: int,
        levels: int | None,
        most_levels: int,
        hottest: float = 0.0,
        clusters: str = "none",
    ) -> None:
        self.aim, self.clock, self._pool = aim, Clock(budget), pool
        self._moves = MOVES[clusters]
        self._copies = 2 if clusters == "houdayer" else 1
        self._graph = interaction_graph(aim.model if clusters == "houdayer" else None)
        self._check_memory(budget, ensembles, most_levels)
        self.top = int(aim.has_zeros)  # the level of true zeros comes after those with penalties
        soft = max(2, (levels or FIRST_LEVELS) - self.top)
        self.ladder = first_ladder(soft, hottest, _spread(aim, rng))
        n = aim.model.n_variables
        projections = exchange.PROJECTIONS if hottest > 0 else 0
        self._direction = rng.normal(size=(projections, n))
        shape = ensembles, self._copies * self.levels, n
        starts = rng.integers(0, aim.model.cards, shape, dtype=np.int32)
        streams = [stream(child) for child in rng.spawn(ensembles)]
        self.members = [self._member(s, x) for s, x in zip(streams, starts, strict=True)]

    @property
    def levels(self) -> int:
        """All levels, with that of true zeros."""
        return len(self.ladder) + self.top

    @property
    def all_levels(self) -> FloatArray:
        """λ of all levels."""
        return np.append(self.ladder, np.ones(self.top))

    def _member(
        self, source: Stream, x: NDArray[np.int32], origin: FloatArray | None = None
    ) -> Ensemble:
        aim = self.aim
        trace = 2 if origin is None else exchange.TRACE
        origin = np.zeros(0) if origin is None else origin
        return Ensemble(
            source,
            make_state(aim.kernel, x),
            exchange.new_walk(self._copies, self.levels),
            exchange.new_record(self._copies, self.levels, origin, trace, self._direction),
            make_scratch(aim.kernel),
            marks(aim.model.n_variables),
        )

    def _check_memory(self, budget: Budget, ensembles: int, levels: int) -> None:
        replicas = self._copies * levels
        kernel = sum(array.nbytes for array in self.aim.kernel)
        replica = 16 * self.aim.slots + 8 * self.aim.model.n_factors
        record = 16 * exchange.BATCHES * self.aim.slots + 8 * exchange.TRACE * replicas
        check_memory("pt", kernel + ensembles * (replicas * replica + record), budget)

    def sweep(self, sweeps: int, recording: bool = False, until: float = 1.0) -> int:
        """Sweep all ensembles, as far as the clock allows."""
        levels = self.all_levels

        def run(size: int, member: Ensemble) -> None:
            exchange.run(
                self.aim.kernel, member.state, self._graph, levels, self.aim.has_zeros,
                member.walk, member.stream, member.scratch, member.marks, member.record,
                self._moves, size, recording,
            )  # fmt: skip

        def job(size: int) -> None:
            list(self._pool.map(lambda member: run(size, member), self.members))

        return self.clock.run(job, sweeps, until)

    def rejection(self) -> FloatArray:
        """Mean rejection rates between neighbours, over all ensembles."""
        tried = sum(member.walk.tried for member in self.members)
        rejected = sum(member.walk.rejected for member in self.members)
        return np.asarray(rejected / np.maximum(tried, 1))

    def replace_ladder(self, levels: FloatArray) -> None:
        """Move to other levels; every level starts from the nearest old one's configuration."""
        old = self.all_levels
        new = np.append(levels, np.ones(self.top))
        nearest = np.abs(new[:, None] - old[None, : len(self.ladder)]).argmin(1)
        if self.top:
            nearest[-1] = len(old) - 1
        self.ladder = levels
        self.members = [
            self._member(member.stream, member.state.x[member.walk.at[:, nearest].ravel()])
            for member in self.members
        ]

    def start_record(self) -> None:
        """Forget the counts of the burn-in and record from here on."""
        first = self.members[0]
        origin = self.aim.indicators(first.state.x[first.walk.at[0, -1]])
        self.members = [
            self._member(member.stream, member.state.x[member.walk.at.ravel()], origin)
            for member in self.members
        ]


def _spread(aim: Target, rng: Generator, draws: int = 64) -> float:
    """Standard deviation of the log weight over random configurations."""
    shape = draws, aim.model.n_variables
    held = make_state(aim.kernel, rng.integers(0, aim.model.cards, shape, dtype=np.int32))
    return float(np.std([weight_of(aim.kernel, held, r) for r in range(draws)]))
