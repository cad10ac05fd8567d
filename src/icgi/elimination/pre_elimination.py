"""Exact elimination of cheap variables, in log tables, before trains take the rest."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from icgi.clock import Deadline
from icgi.elimination.dense import Collected, collect, distribute
from icgi.inference import Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ordering import neighbours

_LARGEST = 2**18  # entries of one table
# Messages over two variables leave what remains as pairwise as the model was. Wider were better on
# some sparse graphs, no better on others, and worse on pedigrees (docs/engines/ttve.md).
_NEIGHBOURS = 2
_FURTHER = 3.0  # times what its neighbours move, that a variable may move by their marginals alone
_INHERITED = 0.7  # of the worst error among the variables it depends on, for p = ½


@dataclass(frozen=True, slots=True, eq=False)
class PreEliminated:
    """What is left of a model when some variables have gone, its log Z the same; the way back."""

    model: FactorGraph
    remainder: FactorGraph  # over `kept`, numbered anew
    kept: IntArray
    collected: Collected

    @property
    def steps(self) -> int:
        """Number of variables that went, of those with a choice of states."""
        return int(np.count_nonzero(self.model.cards[self.collected.order] > 1))

    @property
    def roots(self) -> list[tuple[int, ...]]:
        """Scopes of the remainder whose joints lead back: messages of several variables."""
        return sorted({scope for scope in self._roots().values() if len(scope) > 1})

    def restore(
        self, probs: FloatArray, joints: Mapping[tuple[int, ...], FloatArray]
    ) -> FloatArray:
        """Marginals n k of the whole model from those of the remainder and joints of its `roots`.

        What is negative or impossible in them does not count; where nothing is left, all that is
        possible counts the same. Without a joint marginal its variables count as independent.
        """
        given = {}
        for v, scope in self._roots().items():
            found = joints.get(scope)
            if found is None:
                found = np.ones(())
                for i in scope:
                    found = np.multiply.outer(found, probs[i, : self.remainder.cards[i]])
            possible = ~np.isneginf(self.collected.messages[v])
            sound = np.where(possible & np.isfinite(found), found, 0.0).clip(0.0)
            sound = sound if sound.any() else 1.0 * possible
            with np.errstate(divide="ignore"):
                given[v] = np.log(sound / sound.sum())
        out = np.zeros((self.model.n_variables, self.model.max_states))
        out[self.kept, : probs.shape[1]] = probs
        distribute(self.collected, given, out)
        return out

    def restore_errors(
        self, errors: FloatArray, probs: FloatArray, rough: FloatArray | None = None
    ) -> FloatArray:
        """Standard errors n k of the whole model from those of the remainder.

        An eliminated variable is taken to be as uncertain as the worst of the variables that it
        depends on. That is too little where their joint marginal is wrong and their own are not:
        it shows by how much further the variable is from a `rough` answer than they are.
        """
        out = np.zeros_like(probs)
        out[self.kept, : errors.shape[1]] = errors
        level = out.max(1, initial=0.0)
        moved = np.zeros(len(probs)) if rough is None else np.abs(probs - rough).max(1)
        scopes = self.collected.scopes
        for v in self.collected.order[::-1].tolist():
            above = scopes[v][1:]
            level[v] = max((level[i] for i in above), default=0.0)
            apart = moved[v] - _FURTHER * max((moved[i] for i in above), default=0.0)
            width = 2.0 * np.sqrt(probs[v] * (1.0 - probs[v]))
            out[v] = width * max(_INHERITED * level[v], apart)
            level[v] = max(level[v], apart)
        return out

    def exact(self) -> Marginals:
        """Answer where nothing is left."""
        probs = self.restore(np.zeros((0, 0)), {})
        stats = {"dense": 1.0, "steps": float(self.steps)}
        return Marginals(probs, Status.EXACT, self.collected.log_constant, stats=stats)

    def _roots(self) -> dict[int, tuple[int, ...]]:
        """Neighbours, as numbered in the remainder, of variables whose neighbours all stay."""
        number = {int(i): k for k, i in enumerate(self.kept)}
        return {
            v: tuple(number[i] for i in scope[1:])
            for v, scope in self.collected.scopes.items()
            if len(scope) > 1 and scope[1] in number
        }


def pre_eliminate(
    model: FactorGraph,
    steps: int | None = None,
    entries: int = 2**23,
    deadline: Deadline | None = None,
) -> PreEliminated:
    """Eliminate `steps` variables, smallest tables first; None: all with few enough neighbours.

    No table has more than 2^18 entries, and all of them together have at most `entries`.
    """
    found = [] if steps == 0 else _cheapest(model, steps, entries, deadline or Deadline())
    order = np.array(found, dtype=np.int64)
    kept = np.setdiff1d(np.arange(model.n_variables), order)
    collected = collect(model, order, deadline) or _nothing(model)
    if not len(collected.order):
        return PreEliminated(model, model, np.arange(model.n_variables), collected)
    number = {int(i): k for k, i in enumerate(kept)}
    remainder = FactorGraph(
        model.cards[kept],
        (*(tuple(number[i] for i in scope) for scope, _ in collected.rest), ()),
        (*(table for _, table in collected.rest), np.array(collected.log_constant)),
    )
    return PreEliminated(model, remainder, kept, collected)


def _nothing(model: FactorGraph) -> Collected:
    """Elimination of no variable at all."""
    return Collected(np.empty(0, np.int64), {}, {}, {}, [], 0.0)


def _cheapest(model: FactorGraph, steps: int | None, entries: int, deadline: Deadline) -> list[int]:
    """Variables in order of elimination: always one of the smallest table."""
    cards = model.cards.tolist()
    start, flat = neighbours(model)
    near = [set(flat[start[i] : start[i + 1]].tolist()) for i in range(len(cards))]

    def size(v: int) -> int:
        return int(cards[v] * prod(cards[i] for i in near[v]))

    sizes = [size(v) for v in range(len(cards))]
    heap = [(found, v) for v, found in enumerate(sizes)]
    heapq.heapify(heap)
    order: list[int] = []
    while heap and (steps is None or len(order) < steps) and not deadline.passed:
        found, v = heapq.heappop(heap)
        if found > min(_LARGEST, entries):
            break
        # gone or of another size by now; if too many neighbours, it comes again when they change
        if found != sizes[v] or (steps is None and len(near[v]) > _NEIGHBOURS):
            continue
        order.append(v)
        entries -= found
        sizes[v] = -1
        for i in near[v]:
            near[i] = (near[i] | near[v]) - {i, v}
            sizes[i] = size(i)
            heapq.heappush(heap, (sizes[i], i))
    return order
