"""The moving parts of a tempering run: ensembles of replicas on a common ladder."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.clock import Deadline, now
from icgi.inference import Budget
from icgi.model.graph import FloatArray
from icgi.sampling import exchange
from icgi.sampling.clusters import interaction_graph, marks
from icgi.sampling.ladder import first_ladder
from icgi.sampling.replicas import drawn, make_scratch, make_state, weight_of
from icgi.sampling.streams import Stream, stream
from icgi.sampling.targets import Target, arranging_bytes, refuse, replica_bytes

FIRST_LEVELS = 8
CHUNK = 0.1  # seconds between two looks at the clock
AHEAD = 1 / 8  # share of the time left that a chunk may take: others may get the processor
SLOW = 0.05  # seconds a sweep from which on the deadline may cut it short
NEVER = Deadline()

MOVES = {
    "none": exchange.NO_CLUSTERS,
    "swendsen-wang": exchange.SWENDSEN_WANG,
    "houdayer": exchange.HOUDAYER,
}


@dataclass(frozen=True, slots=True)
class Room:
    """How much of everything the memory allows."""

    ensembles: int
    levels: int  # at most, with that of true zeros
    trace: int  # log weights kept per level


def room(aim: Target, budget: Budget, copies: int, ensembles: int, levels: int) -> Room:
    """Most levels, else shorter traces, else fewer ensembles that fit; `BudgetError` if none do."""
    fixed = arranging_bytes(aim.original)

    def needed(wish: Room) -> int:
        replicas = copies * wish.levels
        # the state twice, when the ladder is replaced; sums and traces are copied to be judged
        sums = 5 * 16 * exchange.BATCHES * aim.slots
        each = 2 * replicas * replica_bytes(aim) + sums + 3 * 8 * wish.trace * replicas
        return fixed + wish.ensembles * each

    least = min(levels, 4 + int(aim.has_zeros))
    wishes = [Room(ensembles, t, exchange.TRACE) for t in range(levels, least - 1, -1)]
    wishes += [Room(m, least, s) for m in range(ensembles, 1, -1) for s in (1024, 128)]
    for wish in wishes:
        if needed(wish) <= budget.table_bytes:
            return wish
    raise refuse("pt", needed(wishes[-1]), budget)


@dataclass(slots=True, eq=False)
class Ensemble:
    """One independent set of replicas; its arrays change in place."""

    stream: Stream
    state: Any
    walk: exchange.Walk
    record: exchange.Record
    scratch: Any
    marks: Any


class Ensembles:
    """All ensembles on their common ladder, run side by side.

    Parameters
    ----------
    room
        How many ensembles, levels at most, and entries of the traces.
    levels
        How many the ladder has, with that of true zeros; None for a first guess.
    """

    def __init__(
        self,
        aim: Target,
        rng: Generator,
        pool: ThreadPoolExecutor,
        room: Room,
        deadline: Deadline = NEVER,
        *,
        levels: int | None,
        hottest: float = 0.0,
        clusters: str = "none",
    ) -> None:
        self.aim, self.deadline, self.room, self._pool = aim, deadline, room, pool
        self.sweeps = 0
        self._pace: float | None = None  # seconds per sweep of all ensembles
        self._moves = MOVES[clusters]
        self._copies = 2 if clusters == "houdayer" else 1
        self._graph = interaction_graph(aim.model if clusters == "houdayer" else None)
        self.top = int(aim.has_zeros)  # the level of true zeros comes after those with penalties
        soft = max(2, min(levels or FIRST_LEVELS, room.levels) - self.top)
        self.ladder = first_ladder(soft, hottest, _spread(aim, rng))
        n = aim.model.n_variables
        projections = exchange.PROJECTIONS if hottest > 0 else 0
        self._direction = rng.normal(size=(projections, n))
        shape = room.ensembles, self._copies * self.levels, n
        starts = rng.integers(0, aim.model.cards, shape, dtype=np.int32)
        streams = [stream(child) for child in rng.spawn(room.ensembles)]
        self.members = [
            self._member(s, make_state(aim.kernel, x))
            for s, x in zip(streams, starts, strict=True)
            if not deadline.passed
        ]

    @property
    def levels(self) -> int:
        """All levels, with that of true zeros."""
        return len(self.ladder) + self.top

    @property
    def all_levels(self) -> FloatArray:
        """λ of all levels."""
        return np.append(self.ladder, np.ones(self.top))

    @property
    def pace(self) -> float | None:
        """Seconds that a sweep of everything takes; None before the first."""
        return self._pace

    def _member(self, source: Stream, state: Any, origin: FloatArray | None = None) -> Ensemble:
        aim = self.aim
        trace = 2 if origin is None else self.room.trace
        origin = np.zeros(0) if origin is None else origin
        return Ensemble(
            source,
            state,
            exchange.new_walk(self._copies, self.levels),
            exchange.new_record(self._copies, self.levels, origin, trace, self._direction),
            make_scratch(aim.kernel),
            marks(aim.model.n_variables),
        )

    def sweep(self, sweeps: int, recording: bool = False, until: Deadline | None = None) -> int:
        """Sweep all ensembles up to so often, until a deadline; returns how often.

        All ensembles do the same number of sweeps: one that the deadline cuts short is forgotten.
        """
        until = until or self.deadline
        done, chunk = 0, 1
        with until.flag() as stop:
            while done < sweeps and not until.passed:
                size = min(chunk, sweeps - done)
                before = now()
                if self._pace is None or self._pace > SLOW:
                    size = 1
                    if not self._one(recording, stop):
                        break
                else:
                    self._many(size, recording)
                self._pace = (now() - before) / size
                done += size
                self.sweeps += size
                most = int(min(CHUNK, AHEAD * until.left) / max(self._pace, 1e-9))
                chunk = max(1, min(4 * size, most))
        return done

    def _arguments(self, member: Ensemble) -> tuple[Any, ...]:
        return (
            self.aim.kernel, member.state, self._graph, self.all_levels, self.aim.has_zeros,
            member.walk, member.stream, member.scratch, member.marks, member.record, self._moves,
        )  # fmt: skip

    def _many(self, size: int, recording: bool) -> None:
        def run(member: Ensemble) -> None:
            exchange.run(*self._arguments(member), size, recording)

        list(self._pool.map(run, self.members))

    def _one(self, recording: bool, stop: NDArray[np.uint8]) -> bool:
        """One sweep of everything, which `stop` may end; whether it was finished."""

        def run(member: Ensemble) -> None:
            exchange.advance(*self._arguments(member), recording, stop)

        list(self._pool.map(run, self.members))
        if stop[0]:
            return False
        for member in self.members:
            exchange.settle(
                member.walk, member.record, member.state, self.all_levels, self.aim.has_zeros,
                member.stream, recording,
            )  # fmt: skip
        return True

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
            self._member(member.stream, drawn(member.state, member.walk.at[:, nearest].ravel()))
            for member in self.members
        ]

    def start_record(self) -> None:
        """Forget the counts of the burn-in and record from here on."""
        first = self.members[0]
        origin = self.aim.indicators(first.state.x[first.walk.at[0, -1]])
        self.members = [
            self._member(member.stream, drawn(member.state, member.walk.at.ravel()), origin)
            for member in self.members
        ]


def _spread(aim: Target, rng: Generator, draws: int = 64) -> float:
    """Standard deviation of the log weight over random configurations."""
    shape = draws, aim.model.n_variables
    held = make_state(aim.kernel, rng.integers(0, aim.model.cards, shape, dtype=np.int32))
    return float(np.std([weight_of(aim.kernel, held, r) for r in range(draws)]))
