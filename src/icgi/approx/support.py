"""Zeros: states that cannot occur leave a model before messages pass.

With arc-consistent states every message is positive, so that messages need no case for zero; and
mean field needs one possible configuration to start from.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from icgi.approx.reading import NEVER, TimeSpent, check, side_by_side
from icgi.clock import Deadline
from icgi.errors import EvidenceError
from icgi.kernels import kernel
from icgi.model.condition import Conditioned
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray, starts
from icgi.model.reduce import all_states, propagate, restrict
from icgi.model.wiring import Wiring

PROBING = 2 * 10**7  # table entries that probing may read, about a tenth of a second
SEARCHING = 10**8  # table entries that the search of a configuration may read


class Zeros(NamedTuple):
    """The factors that contain zeros, and which states are left."""

    scope_start: IntArray  # f+1
    scope: IntArray  # e
    table_start: IntArray  # f+1
    allowed: BoolArray  # entries that are not zero
    touching_start: IntArray  # n+1
    touching: IntArray  # e    factors of each variable
    state_start: IntArray  # n+1  where each variable's states begin in `alive`
    owner: IntArray  # variable of each state
    alive: BoolArray  # states that are left, written in place
    left: IntArray  # n    how many are left of each variable, written in place


def supported(model: FactorGraph, deadline: Deadline = NEVER) -> Conditioned:
    """Model without impossible states and without one-state variables in scopes.

    Beyond arc consistency, every state is probed as far as a bounded effort goes: one whose
    assumption leaves some variable without a state is removed (singleton arc consistency). Without
    time for that, only states without support are.
    """
    return _supported(model, side_by_side([model], deadline), deadline)


def _supported(model: FactorGraph, w: Wiring, deadline: Deadline) -> Conditioned:
    alive = all_states(model)
    if np.isneginf(w.values).any():
        alive = propagate(model, alive)
        try:
            z = _zeros(w, alive, deadline)
        except TimeSpent:
            return Conditioned(restrict(model, alive), alive)
        with deadline.flag() as stop:
            possible = _probe(z, PROBING, stop)
        if not possible:
            raise EvidenceError(
                "no configuration has non-zero probability: every choice leaves some variable "
                "without a possible state; check the evidence against the zeros of the model"
            )
        alive[alive] = z.alive
    elif not (w.cards[w.scope] == 1).any():
        return Conditioned(model, alive)
    return Conditioned(restrict(model, alive), alive)


def supported_all(
    models: Sequence[FactorGraph], deadline: Deadline = NEVER
) -> tuple[list[Conditioned], Wiring]:
    """`supported` of every model, and what is left of all of them side by side.

    That costs little where there is nothing to remove. Raises `TimeSpent` at the deadline.
    """
    w = side_by_side(models, deadline)
    marks = _reducible(w, models).tolist()
    parts = [
        supported(model, deadline) if marked else Conditioned(model, all_states(model))
        for model, marked in zip(models, marks, strict=True)
    ]
    return parts, side_by_side([part.model for part in parts], deadline) if any(marks) else w


def _reducible(w: Wiring, models: Sequence[FactorGraph]) -> BoolArray:
    """Which models have zeros or one-state variables."""
    factors = np.cumsum([0] + [model.n_factors for model in models])
    variables = np.cumsum([0] + [model.n_variables for model in models])
    return np.asarray(
        _any(np.isneginf(w.values), w.table_start[factors]) | _any(w.cards == 1, variables)
    )


def _any(marks: BoolArray, start: IntArray) -> BoolArray:
    """Whether there is a mark between each start and the next."""
    where = np.flatnonzero(marks)
    return np.asarray(np.searchsorted(where, start[1:]) > np.searchsorted(where, start[:-1]))


def possible_configuration(
    model: FactorGraph, preference: FloatArray, rng: Generator, deadline: Deadline = NEVER
) -> IntArray | None:
    """State of each variable such that no factor is zero; −1 where a variable meets no zeros.

    The search keeps arcs consistent, branches on the variable with fewest states, draws its state
    in proportion to the preference (one number per state, all variables in a row) and backtracks;
    None where it gave up, at the deadline at the latest, or nothing is possible.
    """
    try:
        z = _zeros(side_by_side([model], deadline), all_states(model), deadline)
    except TimeSpent:
        return None
    with deadline.flag() as stop:
        found = _search(z, preference, rng, SEARCHING, stop)
    if not found:
        return None
    first = [
        int(np.argmax(z.alive[a:b]))
        for a, b in zip(z.state_start[:-1], z.state_start[1:], strict=True)
    ]
    return np.where(np.diff(z.touching_start) > 0, np.array(first, np.int64), -1)


def _zeros(w: Wiring, alive: BoolArray, deadline: Deadline = NEVER) -> Zeros:
    """Constraints of a model restricted to the states that are left."""
    possible = np.isfinite(w.values)
    arity, cards = np.diff(w.scope_start), w.cards
    zero = np.flatnonzero(~possible)
    with_zeros = np.unique(np.searchsorted(w.table_start, zero, "right") - 1)
    tight = with_zeros[arity[with_zeros] > 0].tolist()
    scopes = [w.scope[w.scope_start[f] : w.scope_start[f + 1]] for f in tight]
    left = alive.sum(1)
    whole = bool((left == cards).all())
    kept = [] if whole else [np.flatnonzero(row) for row in alive]
    allowed = []
    for count, (f, scope) in enumerate(zip(tight, scopes, strict=True)):
        if count % 1000 == 0:
            check(deadline)
        table = possible[w.table_start[f] : w.table_start[f + 1]]
        if not whole:
            table = table.reshape(cards[scope])[np.ix_(*(kept[i] for i in scope))].ravel()
        allowed.append(table)
    lengths = arity[tight]
    edges = np.concatenate([np.empty(0, np.int64), *scopes])
    number = np.repeat(np.arange(len(tight)), lengths)
    order = np.argsort(edges, kind="stable")
    return Zeros(
        starts(lengths),
        edges,
        starts(np.array([len(a) for a in allowed], np.int64)),
        np.concatenate([np.empty(0, np.bool_), *allowed]),
        starts(np.bincount(edges, minlength=len(left))),
        number[order],
        starts(left),
        np.repeat(np.arange(len(left)), left),
        np.ones(int(left.sum()), np.bool_),
        left.astype(np.int64),
    )


@kernel
def _probe(z, effort, stop):  # type: ignore[no-untyped-def]
    """Remove states that are inconsistent when assumed; false if nothing is possible at all."""
    trail, scratch, none = np.empty(len(z.alive), np.int64), _scratch(z), np.int64(0)
    spent, changed = 0, True
    while changed and spent < effort and not stop[0]:
        changed = False
        for k in range(len(z.alive)):
            i = z.owner[k]
            if not z.alive[k] or z.left[i] == 1 or z.touching_start[i] == z.touching_start[i + 1]:
                continue
            if spent >= effort or stop[0]:
                break
            size = _assume(z, k, trail, none)
            size, cost = _propagate(z, i, trail, size, scratch)
            spent += cost
            _undo(z, trail, abs(size), none)
            if size < 0:
                z.alive[k] = False
                z.left[i] -= 1
                changed = True
                size, cost = _propagate(z, i, trail, none, scratch)
                spent += cost
                if size < 0:
                    return False
    return True


@kernel
def _search(z, preference, rng, effort, stop):  # type: ignore[no-untyped-def]
    """Reduce every variable that meets zeros to one state; true if that is a possible choice."""
    n = len(z.left)
    trail, scratch = np.empty(len(z.alive) + 1, np.int64), _scratch(z)
    mark, choice = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    tie = rng.random(n)
    size, depth, spent = 0, 0, 0
    while spent < effort and not stop[0]:
        i = np.int64(-1)
        for j in range(n):
            open_ = z.left[j] > 1 and z.touching_start[j] < z.touching_start[j + 1]
            if open_ and (i < 0 or z.left[j] + tie[j] < z.left[i] + tie[i]):
                i = np.int64(j)
        if i < 0:
            return True
        k = _draw(z, i, preference, rng)
        mark[depth], choice[depth] = size, k
        depth += 1
        size, cost = _propagate(z, i, trail, _assume(z, k, trail, size), scratch)
        spent += cost
        while size < 0:
            if depth == 0:
                return False
            depth -= 1
            k = choice[depth]
            _undo(z, trail, -size, mark[depth])
            z.alive[k] = False
            z.left[z.owner[k]] -= 1
            trail[mark[depth]] = k
            size, cost = _propagate(z, z.owner[k], trail, mark[depth] + 1, scratch)
            spent += cost
            if z.left[z.owner[k]] == 0:
                size = -abs(size)
    return False


@kernel(no_cpython_wrapper=True)
def _draw(z, i, preference, rng):  # type: ignore[no-untyped-def]
    """One of the states left of a variable, by preference; the smallest keep a chance."""
    total = 0.0
    for k in range(z.state_start[i], z.state_start[i + 1]):
        if z.alive[k]:
            total += preference[k] + 1e-9
    left, chosen = rng.random() * total, -1
    for k in range(z.state_start[i], z.state_start[i + 1]):
        if z.alive[k] and (chosen < 0 or left > 0.0):
            left -= preference[k] + 1e-9
            chosen = k
    return chosen


@kernel(no_cpython_wrapper=True)
def _scratch(z):  # type: ignore[no-untyped-def]
    f = len(z.scope_start) - 1
    states, arity = 1, 1
    for g in range(f):
        count = 0
        for a in range(z.scope_start[g], z.scope_start[g + 1]):
            count += z.state_start[z.scope[a] + 1] - z.state_start[z.scope[a]]
        states, arity = max(states, count), max(arity, z.scope_start[g + 1] - z.scope_start[g])
    return (
        np.empty(f, np.int64), np.zeros(f, np.bool_), np.empty(states, np.bool_),
        np.empty((2, arity), np.int64),
    )  # fmt: skip


@kernel(no_cpython_wrapper=True)
def _assume(z, k, trail, size):  # type: ignore[no-untyped-def]
    """Remove every other state of a state's variable."""
    i = z.owner[k]
    for other in range(z.state_start[i], z.state_start[i + 1]):
        if other != k and z.alive[other]:
            z.alive[other] = False
            trail[size] = other
            size += 1
    z.left[i] = 1
    return size


@kernel(no_cpython_wrapper=True)
def _undo(z, trail, size, mark):  # type: ignore[no-untyped-def]
    for t in range(mark, size):
        z.alive[trail[t]] = True
        z.left[z.owner[trail[t]]] += 1


@kernel(no_cpython_wrapper=True)
def _propagate(z, i, trail, size, scratch):  # type: ignore[no-untyped-def]
    """Arc consistency after variable i has changed: new size of the trail, and entries read.

    The size comes back negated when a variable has lost its last state.
    """
    stack, waiting, support, axes = scratch
    offset, digit = axes[0], axes[1]
    height, cost = 0, 0
    for t in range(z.touching_start[i], z.touching_start[i + 1]):
        stack[height], waiting[z.touching[t]] = z.touching[t], True
        height += 1
    while height > 0:
        height -= 1
        f = stack[height]
        waiting[f] = False
        begin, arity = z.scope_start[f], z.scope_start[f + 1] - z.scope_start[f]
        position = 0
        for a in range(arity):
            j = z.scope[begin + a]
            offset[a], digit[a] = position, 0
            position += z.state_start[j + 1] - z.state_start[j]
        support[:position] = False
        cost += (z.table_start[f + 1] - z.table_start[f]) * arity
        for entry in range(z.table_start[f], z.table_start[f + 1]):
            if z.allowed[entry]:
                usable = True
                for a in range(arity):
                    usable = usable and z.alive[z.state_start[z.scope[begin + a]] + digit[a]]
                if usable:
                    for a in range(arity):
                        support[offset[a] + digit[a]] = True
            a = arity - 1
            while a >= 0:
                j = z.scope[begin + a]
                digit[a] += 1
                if digit[a] < z.state_start[j + 1] - z.state_start[j]:
                    break
                digit[a] = 0
                a -= 1
        for a in range(arity):
            j = z.scope[begin + a]
            shift, changed = z.state_start[j] - offset[a], False
            for x in range(offset[a], offset[a] + z.state_start[j + 1] - z.state_start[j]):
                if z.alive[shift + x] and not support[x]:
                    z.alive[shift + x] = False
                    z.left[j] -= 1
                    trail[size] = shift + x
                    size, changed = size + 1, True
            if z.left[j] == 0:
                while height > 0:
                    height -= 1
                    waiting[stack[height]] = False
                return -size, cost
            if changed:
                for t in range(z.touching_start[j], z.touching_start[j + 1]):
                    g = z.touching[t]
                    if g != f and not waiting[g]:
                        stack[height], waiting[g] = g, True
                        height += 1
    return size, cost
