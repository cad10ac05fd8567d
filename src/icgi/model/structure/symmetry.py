"""Interchangeable variables: swapping any two of a class leaves every table of the model as it is.

Colours of states, refined from the numbers of the tables, say who may be interchangeable and which
states correspond. Then each variable is compared with one of its class: the swap must map the
tables of the model onto each other. Swaps that do so form an equivalence, so one proof each is
enough, and the colours only decide where to look.
"""

from dataclasses import dataclass

import numpy as np

from icgi.clock import Deadline
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.structure.private import Scope
from icgi.model.wiring import wiring

LEAST = 3  # members of a class that is worth anything
ROUNDS = 3  # of refining colours
TRIES = 4  # classes that a variable is compared with
TOLERANCE = 1e-9  # sum over all tables of what equal ones may differ by, in log potentials
_GRID = 2.0**31 / np.pi  # steps of log potentials by which numbers are first compared
_OFFSET = 0.5772156649015329  # so that round numbers do not lie between two steps
_ZERO = -(2**62)  # the step of a zero
OFTEN = 2**16  # entries between two looks at the deadline


@dataclass(frozen=True, eq=False, slots=True)
class Colours:
    """A number for every variable that interchangeable ones share, and one for every state."""

    of: IntArray  # n
    states: IntArray  # n k  states in the order of their own colours

    def largest(self, free: IntArray) -> int:
        """Size of the largest class of some variables with one colour."""
        return int(np.unique(self.of[free], return_counts=True)[1].max(initial=0))


def find_colours(
    model: FactorGraph, deadline: Deadline | None = None, rounds: int = ROUNDS
) -> Colours:
    """Colours of variables and states, from rounds of looking at all neighbours.

    When the time is over they are those of fewer rounds, which mean less.
    """
    w = wiring(model)
    most = max(model.max_states, 1)
    with (deadline or Deadline()).flag() as stop:
        colour = _refine(
            w.cards, w.scope_start, w.scope, w.table_start, w.values, most, rounds, stop
        )
    past = np.arange(colour.shape[1]) >= w.cards[:, None]
    ranked = np.where(past, np.uint64(2**64 - 1), colour)
    states = np.argsort(ranked, 1, kind="stable")
    mixed = np.where(past, np.uint64(0), colour * colour * np.uint64(0x9E3779B97F4A7C15) + colour)
    return Colours(mixed.sum(1, dtype=np.uint64).view(np.int64), states)


def aligned(model: FactorGraph, colours: Colours) -> FactorGraph:
    """Model with the states of every variable in the order of their colours."""
    moved = (colours.states != np.arange(colours.states.shape[1])).any(1)
    if not moved.any():
        return model
    tables = []
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        for a, i in enumerate(scope):
            if moved[i]:
                table = np.take(table, colours.states[i, : model.cards[i]], a)
        tables.append(table)
    return FactorGraph(model.cards, model.scopes, tuple(tables), model.names)


def find_classes(tables: dict[Scope, FloatArray], colours: IntArray) -> list[list[int]] | None:
    """Classes of interchangeable variables, lone ones included; None where there are only those.

    `tables` has one table for each ascending scope. Only colours that `LEAST` variables share are
    looked at.
    """
    views = _Views(tables)
    variables = np.array(sorted({i for scope in tables for i in scope}), np.int64)
    _, which, often = np.unique(colours[variables], return_inverse=True, return_counts=True)
    alone = set(variables[often[which] < LEAST].tolist())
    if len(alone) == len(variables):
        return None
    seen: dict[int, dict[Scope, int]] = {}  # of each variable: others of a factor → how it sees it
    for scope in tables:
        for a, i in enumerate(scope):
            if i not in alone:
                seen.setdefault(i, {})[scope[:a] + scope[a + 1 :]] = views.seen_from(scope, a)
    classes: list[list[int]] = [[i] for i in sorted(alone)]
    leading: dict[int, int] = {}  # class of each first member
    alike: dict[int, list[int]] = {}  # first members by all that they see
    for i in sorted(seen):
        key = hash((int(colours[i]), frozenset(seen[i].items())))
        near: dict[int, None] = {}
        for others in seen[i]:
            for j in others:
                if j in leading and colours[j] == colours[i] and len(near) < TRIES:
                    near[j] = None
        for first in [*near, *alike.get(key, ())[:TRIES]]:
            if _swap(i, first, seen, views):
                classes[leading[first]].append(i)
                break
        else:
            leading[i] = len(classes)
            classes.append([i])
            alike.setdefault(key, []).append(i)
    if not views.unlike <= TOLERANCE or max(map(len, classes)) < LEAST:
        return None
    return classes


def _swap(i: int, j: int, seen: dict[int, dict[Scope, int]], views: "_Views") -> bool:
    """Whether the model stays as it is when two variables change places."""
    if len(seen[i]) != len(seen[j]):
        return False
    for others, view in seen[i].items():
        if j in others:
            scope = tuple(sorted((i, *others)))
            if not views.symmetric(scope, scope.index(i), scope.index(j)):
                return False
        elif seen[j].get(others) != view:
            return False
    return True


class _Views:
    """Numbers for tables, equal for equal ones, and for what each of their axes sees of them."""

    def __init__(self, tables: dict[Scope, FloatArray]) -> None:
        self._number: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._table: list[FloatArray] = []
        self._seen: dict[tuple[int, int], int] = {}
        self._symmetric: dict[tuple[int, int, int], bool] = {}
        self._tables = tables
        self._of: dict[Scope, int] = {}
        self.unlike = 0.0  # what the numbers of equal tables differ by, added up

    def _find(self, table: FloatArray) -> int:
        steps = np.where(np.isneginf(table), _ZERO, np.floor(table * _GRID + _OFFSET))
        key = table.shape, steps.tobytes()
        number = self._number.setdefault(key, len(self._table))
        if number == len(self._table):
            self._table.append(table)
            return number
        first = self._table[number]
        if first is not table and not np.array_equal(first, table):
            apart = np.abs(np.where(np.isneginf(table), 0.0, table) - np.maximum(first, -1e300))
            self.unlike += float(apart[~np.isneginf(table)].max(initial=0.0))
        return number

    def _number_of(self, scope: Scope) -> int:
        if scope not in self._of:
            self._of[scope] = self._find(self._tables[scope])
        return self._of[scope]

    def seen_from(self, scope: Scope, axis: int) -> int:
        """Number of a scope's table with one axis first."""
        key = self._number_of(scope), axis
        if key not in self._seen:
            self._seen[key] = self._find(np.moveaxis(self._table[key[0]], axis, 0))
        return self._seen[key]

    def symmetric(self, scope: Scope, a: int, b: int) -> bool:
        """Whether two axes of a scope's table can change places."""
        key = self._number_of(scope), a, b
        if key not in self._symmetric:
            table = self._table[key[0]]
            self._symmetric[key] = self._find(np.swapaxes(table, a, b)) == key[0]
        return self._symmetric[key]


@kernel
def _mixed(value):  # type: ignore[no-untyped-def]
    """Finaliser of splitmix64: every bit of the result depends on every bit of the value."""
    z = value + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def _refine(cards, scope_start, scope, table_start, values, most, rounds, stop):  # type: ignore[no-untyped-def]
    """Colours of all states; those of variables that can change places are equal."""
    n = len(cards)
    colour = np.ones((n, most), np.uint64)
    digits = np.empty(64, np.int64)
    for _ in range(rounds):
        new = np.empty((n, most), np.uint64)
        for i in range(n):
            for x in range(most):
                new[i, x] = _mixed(colour[i, x] + np.uint64(cards[i]))
        for f in range(len(scope_start) - 1):
            begin, arity = scope_start[f], scope_start[f + 1] - scope_start[f]
            if arity == 0:
                continue
            table = values[table_start[f] : table_start[f + 1]]
            top = table.max()
            digits[:arity] = 0
            for j in range(len(table)):
                if j % OFTEN == 0 and stop[0]:
                    return colour
                value = table[j]
                if value > -np.inf:
                    number = np.uint64(np.int64(np.floor((value - top) * _GRID + _OFFSET)))
                else:
                    number = np.uint64(_ZERO)
                number = _mixed(number)
                around = np.uint64(0)
                for a in range(arity):
                    around += _mixed(colour[scope[begin + a], digits[a]])
                for a in range(arity):
                    i, x = scope[begin + a], digits[a]
                    new[i, x] += _mixed(number + around - _mixed(colour[i, x]))
                a = arity - 1
                while a >= 0:
                    digits[a] += 1
                    if digits[a] < cards[scope[begin + a]]:
                        break
                    digits[a] = 0
                    a -= 1
        colour = new
    return colour
