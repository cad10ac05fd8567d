"""Models of any factors in pieces: patches of the graph whose borders are messages.

A factor that a patch cuts is summed over its outside variables, weighted by their messages from
other factors: on trees that is exact. One too wide for the network is replaced by its
messages to each of its variables, and a variable of too many states is outside of every patch.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray
from icgi.neural.sum_product import Messages


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Part of a model as a model of its own."""

    model: FactorGraph
    members: IntArray  # numbers of its variables in the whole model
    answered: BoolArray  # whose answers are taken from here; each variable has one such piece
    cut: bool  # whether messages stand for anything


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest piece that a network is given."""

    tokens: int  # variables, and factors of more than two, times the states of the largest
    states: int  # of one variable, or configurations of all but one variable of a factor
    inside: float = 0.375  # share of its tokens that a piece answers, where there are several


class _Graph:
    """Factors of several variables around each, and those of it alone added up."""

    def __init__(self, model: FactorGraph) -> None:
        self.model = model
        self.factors: list[list[int]] = [[] for _ in range(model.n_variables)]
        self.fields = [np.zeros(int(c)) for c in model.cards]
        for f, scope in enumerate(model.scopes):
            if len(scope) == 1:
                self.fields[scope[0]] = self.fields[scope[0]] + model.log_tables[f]
            else:
                for i in scope:
                    self.factors[i].append(f)

    def around(self, i: int) -> Iterator[int]:
        for f in self.factors[i]:
            yield from self.model.scopes[f]


def pieces(model: FactorGraph, messages: Messages, limits: Limits) -> Iterator[Piece]:
    """Cover a model with pieces; one if all of it is within the limits.

    They are made as they are asked for: a large model has thousands.
    """
    graph = _Graph(model)
    free = np.asarray((model.cards > 1) & (model.cards <= limits.states))
    everything = _Grown(graph, limits)
    if all(everything.take(i) for i in np.flatnonzero(free).tolist()):
        members = np.flatnonzero(free).tolist()
        if members:
            yield _piece(graph, members, set(members), messages, limits)
        return
    answered = replace(limits, tokens=int(limits.inside * limits.tokens))
    fits = np.asarray(model.cards <= limits.states)
    for first in range(model.n_variables):
        if free[first]:
            own = _nearest(graph, [first], free, answered)
            free[own] = False
            yield _piece(graph, _around(graph, own, fits, limits), set(own), messages, limits)


class _Grown:
    """Variables taken so far, and what they cost the network together."""

    def __init__(self, graph: _Graph, limits: Limits) -> None:
        self.graph, self.limits = graph, limits
        self.inside: dict[int, list[int]] = {}  # of each factor of more than two: states of each
        self.rows: dict[int, int] = {}  # states of the auxiliary variable of such a factor
        self.count, self.states = 0, 2
        self.open = True  # whether all that was asked for was within the limits

    def take(self, i: int) -> bool:
        """Whether one more variable is within the limits; it is counted if so."""
        cards, states = self.graph.model.cards, max(self.states, int(self.graph.model.cards[i]))
        rows = {}
        for f in self.graph.factors[i]:
            if len(self.graph.model.scopes[f]) > 2:
                inside = [*self.inside.get(f, []), int(cards[i])]
                if len(inside) > 2:
                    wide = int(np.prod(inside, dtype=float)) // max(inside)
                    rows[f] = 0 if wide > self.limits.states else wide
        auxiliary = {**self.rows, **rows} if rows else self.rows
        largest = max([states, *rows.values()])
        size = self.count + 1 + sum(r > 0 for r in auxiliary.values())
        if self.count and size * largest > self.limits.tokens:
            self.open = False
            return False
        for f in self.graph.factors[i]:
            self.inside.setdefault(f, []).append(int(cards[i]))
        self.rows, self.states, self.count = auxiliary, largest, self.count + 1
        return True


def _nearest(graph: _Graph, seeds: list[int], among: BoolArray, limits: Limits) -> list[int]:
    """Breadth first from a variable; from further ones where a component ends."""
    grown = _Grown(graph, limits)
    found = _walk(graph, seeds, among, grown)
    taken = set(found)
    for start in range(seeds[0] + 1, len(among)):
        if not grown.open:
            break
        if among[start] and start not in taken:
            more = _walk(graph, [start], among, grown)
            taken |= set(more)
            found += more
    return found


def _around(graph: _Graph, own: list[int], among: BoolArray, limits: Limits) -> list[int]:
    """The variables of a piece that answers some: these, and breadth first those around them."""
    return _walk(graph, own, among, _Grown(graph, limits))


def _walk(graph: _Graph, seeds: list[int], among: BoolArray, grown: _Grown) -> list[int]:
    """Breadth first from the seeds, as long as there is room."""
    found: list[int] = []
    queue, seen = deque(seeds), set(seeds)
    while queue:
        i = queue.popleft()
        if not grown.take(i):
            break
        found.append(i)
        for j in graph.around(i):
            if j not in seen and among[j]:
                seen.add(j)
                queue.append(j)
    return found


def _piece(
    graph: _Graph, members: list[int], own: set[int], messages: Messages, limits: Limits
) -> Piece:
    """A piece of a model that answers `own`."""
    model, place = graph.model, {i: m for m, i in enumerate(members)}
    touched = {f for i in members for f in graph.factors[i]}
    border = False
    fields = [graph.fields[i].copy() for i in members]
    scopes: list[tuple[int, ...]] = []
    tables: list[FloatArray] = []
    for f in sorted(touched):
        scope = model.scopes[f]
        axes = [a for a, i in enumerate(scope) if i in place]
        shape = [int(model.cards[scope[a]]) for a in axes]
        few = len(axes) < 3 or int(np.prod(shape, dtype=float)) <= limits.states * max(shape)
        border = border or len(axes) < len(scope) or not few
        if len(axes) == 1 or not few:
            for a in axes:
                fields[place[scope[a]]] += messages.to(f, a)
            continue
        scopes.append(tuple(place[scope[a]] for a in axes))
        tables.append(_summed(model, f, axes, messages))
    scopes += [(m,) for m in range(len(members))]
    tables += fields
    answered = np.array([i in own for i in members])
    part = FactorGraph(model.cards[members], tuple(scopes), tuple(tables))
    return Piece(part, np.array(members, dtype=np.int64), answered, border)


def _summed(model: FactorGraph, f: int, axes: Sequence[int], messages: Messages) -> FloatArray:
    """Log table of a factor over some of its axes, the others weighted by their cavities."""
    table, scope = model.log_tables[f], model.scopes[f]
    outside = [a for a in range(len(scope)) if a not in axes]
    if not outside:
        return table
    weight = np.exp(table - table.max())
    for a in reversed(outside):
        weight = np.tensordot(weight, messages.cavity(f, a, scope[a]), (a, 0))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weight) if weight.any() else np.zeros_like(weight))
