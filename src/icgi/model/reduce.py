"""Pure reductions of a model: impossible states, one-state variables, components, absorption."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter

import numpy as np

from icgi.errors import EvidenceError
from icgi.kernels import brief, kernel
from icgi.model.graph import (
    BoolArray,
    FactorGraph,
    Flat,
    FloatArray,
    IntArray,
    assembled,
    of_flat,
    variable_name,
)
from icgi.model.wiring import wiring


def all_states(model: FactorGraph) -> BoolArray:
    """Mask of the states that each variable has, n × largest number of states."""
    return np.asarray(np.arange(model.max_states) < model.cards[:, None])


def has_zeros(model: FactorGraph) -> bool:
    """Whether some table forbids something."""
    if model.flat is not None:
        return bool(np.isneginf(model.flat.values).any())
    return any(float(table.min(initial=0.0)) == -np.inf for table in model.log_tables)


def reducible(models: Sequence[FactorGraph]) -> BoolArray:
    """Which models have zeros or one-state variables, all of them looked at together."""
    tables = list(chain.from_iterable(model.log_tables for model in models))
    sizes = np.fromiter(map(attrgetter("size"), tables), np.int64, len(tables))
    zeros = np.isneginf(np.concatenate([np.empty(0), *tables], axis=None))
    first = np.cumsum([0] + [model.n_factors for model in models])
    entries = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])[first]
    single = np.concatenate([np.empty(0, np.int64), *(model.cards for model in models)]) == 1
    variables = np.cumsum([0] + [model.n_variables for model in models])
    return np.asarray(_any(zeros, entries) | _any(single, variables))


def _any(marks: BoolArray, start: IntArray) -> BoolArray:
    """Whether there is a mark between each start and the next."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(marks)])
    return np.asarray(before[start[1:]] > before[start[:-1]])


def propagate(model: FactorGraph, alive: BoolArray) -> BoolArray:
    """Arc consistency: remove every state that has no support in some factor, until none is left.

    Raises `EvidenceError` when a variable loses its last state: the evidence has probability zero.
    """
    if not has_zeros(model):
        return alive
    w = wiring(model)
    kept = alive.copy()
    with brief(30 * len(w.values)):
        emptied = _propagate(w.cards, w.scope_start, w.scope, w.table_start, w.values, kept)
    if emptied >= 0:
        raise EvidenceError(
            f"no configuration has non-zero probability: variable {variable_name(model, emptied)} "
            "is left without a possible state; check the evidence against the zeros of the model"
        )
    return kept


def restrict(model: FactorGraph, alive: BoolArray) -> FactorGraph:
    """Keep the given states only; variables left with one state leave every scope, ids stay.

    Factors left without variables are added up into one constant, so log Z is unchanged.
    """
    cards = alive.sum(1).astype(np.int64)
    if (cards == model.cards).all() and (cards > 1).all():
        return model
    w = wiring(model)
    free = cards > 1
    with brief(8 * len(w.scope)):
        lengths, sizes = _restricted_sizes(w.scope_start, w.scope, cards, free)
    keep = np.flatnonzero(lengths)
    constant = np.flatnonzero(lengths == 0)
    order = np.concatenate([keep, constant[:1]])
    scope_start = np.concatenate([[0], np.cumsum(lengths[order])])
    table_start = np.concatenate([[0], np.cumsum(sizes[order])])
    scope = np.empty(scope_start[-1], np.int64)
    values = np.empty(table_start[-1])
    states, first = _kept_states(alive)
    with brief(10 * len(values) + 20 * len(constant)):
        added = _restrict(
            w.scope_start, w.scope, w.table_start, w.values, w.cards,
            order, constant[1:], cards, states, first, scope_start, scope, table_start, values,
        )  # fmt: skip
    if len(constant) > 1:
        values[-1] += added
    flat = Flat(scope_start, scope, table_start, values)
    if model.states is None:
        return of_flat(cards, flat, model.names)
    named = tuple(
        tuple(model.states[i][x] for x in np.flatnonzero(alive[i])) for i in range(len(cards))
    )
    return of_flat(cards, flat, model.names, named)


@dataclass(frozen=True, eq=False, slots=True)
class Component:
    """One connected part of a model and the original number of each of its variables."""

    model: FactorGraph
    variables: IntArray  # n of the part


def components(model: FactorGraph) -> list[Component]:
    """Connected parts; their log Z add up. Constants of the model go into the first part."""
    label = _labels(model)
    if label.size and label.max() == 0:
        return [Component(model, np.arange(model.n_variables))]
    number = np.empty(model.n_variables, np.int64)
    order = np.argsort(label, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(label))[:-1]) if len(label) else []
    for variables in members:
        number[variables] = np.arange(len(variables))
    factors: list[list[int]] = [[] for _ in members]
    for f, scope in enumerate(model.scopes):
        if members:
            factors[label[scope[0]] if scope else 0].append(f)
    return [
        Component(_part(model, variables, number, chosen), variables)
        for variables, chosen in zip(members, factors, strict=True)
    ]


def absorb(model: FactorGraph) -> FactorGraph:
    """Multiply every factor into a factor whose scope contains its own, smallest table first."""
    order = sorted(range(model.n_factors), key=lambda f: (-len(model.scopes[f]), f))
    hosts: dict[int, list[int]] = {}  # variable -> kept factors of more variables that contain it
    tables: dict[int, FloatArray] = {}
    for _, group in groupby(order, key=lambda f: len(model.scopes[f])):
        twins: dict[frozenset[int], int] = {}  # kept factors of this many variables
        for f in group:
            scope = model.scopes[f]
            candidates = _hosts(scope, hosts, tables, model)
            if (twin := twins.get(frozenset(scope))) is not None:
                candidates.append(twin)
            if candidates:
                host = min(candidates, key=lambda g: tables[g].size)
                tables[host] = np.asarray(tables[host] + _aligned(model, f, model.scopes[host]))
            else:
                tables[f] = model.log_tables[f]
                twins[frozenset(scope)] = f
        for f in twins.values():
            for i in model.scopes[f]:
                hosts.setdefault(i, []).append(f)
    kept = sorted(tables)
    for f in kept:
        tables[f].flags.writeable = False
    return assembled(
        model.cards,
        tuple(model.scopes[f] for f in kept),
        tuple(tables[f] for f in kept),
        model.names,
        model.states,
    )


def _hosts(
    scope: tuple[int, ...],
    hosts: dict[int, list[int]],
    tables: dict[int, FloatArray],
    model: FactorGraph,
) -> list[int]:
    if not scope:
        return list(tables)[:1]
    lists = [hosts.get(i, []) for i in scope]
    shortest = min(lists, key=len)
    wanted = set(scope)
    return [g for g in shortest if wanted <= set(model.scopes[g])]


def _aligned(model: FactorGraph, f: int, onto: tuple[int, ...]) -> FloatArray:
    """Table of a factor with its axes in the order of `onto`, length one where it has none."""
    scope, table = model.scopes[f], model.log_tables[f]
    axes = sorted(range(len(scope)), key=lambda a: onto.index(scope[a]))
    shape = [int(model.cards[i]) if i in scope else 1 for i in onto]
    return table.transpose(axes).reshape(shape)


def _labels(model: FactorGraph) -> IntArray:
    """Number of the connected part of each variable, by its first variable."""
    arity, scope = model.arity, model.touched
    with brief(10 * len(scope)):
        return np.asarray(_connected(model.n_variables, arity, scope))


def _part(
    model: FactorGraph, variables: IntArray, number: IntArray, chosen: list[int]
) -> FactorGraph:
    return assembled(
        model.cards[variables],
        tuple(tuple(int(number[i]) for i in model.scopes[f]) for f in chosen),
        tuple(model.log_tables[f] for f in chosen),
        None if model.names is None else tuple(model.names[i] for i in variables),
        None if model.states is None else tuple(model.states[i] for i in variables),
    )


def _kept_states(alive: BoolArray) -> tuple[IntArray, IntArray]:
    """Kept states of all variables one after the other, and where each variable's begin."""
    states = np.nonzero(alive)[1].astype(np.int64)
    first = np.concatenate([[0], np.cumsum(alive.sum(1))]).astype(np.int64)
    return states, first


@kernel
def _connected(n, arity, scope):  # type: ignore[no-untyped-def]
    parent = np.arange(n)
    at = 0
    for f in range(len(arity)):
        for e in range(at, at + arity[f]):
            i, j = scope[at], scope[e]
            while parent[i] != i:
                parent[i] = parent[parent[i]]
                i = parent[i]
            while parent[j] != j:
                parent[j] = parent[parent[j]]
                j = parent[j]
            parent[max(i, j)] = min(i, j)
        at += arity[f]
    label = np.empty(n, np.int64)
    count = 0
    for i in range(n):  # a parent is never larger
        if parent[i] == i:
            label[i] = count
            count += 1
        else:
            label[i] = label[parent[i]]
    return label


@kernel
def _restricted_sizes(scope_start, scope, cards, free):  # type: ignore[no-untyped-def]
    f = len(scope_start) - 1
    lengths = np.zeros(f, np.int64)
    sizes = np.ones(f, np.int64)
    for g in range(f):
        for a in range(scope_start[g], scope_start[g + 1]):
            if free[scope[a]]:
                lengths[g] += 1
                sizes[g] *= cards[scope[a]]
    return lengths, sizes


@kernel
def _restrict(  # type: ignore[no-untyped-def]
    scope_start, scope, table_start, values, old_cards,
    order, constant, cards, states, first,
    new_scope_start, new_scope, new_table_start, new_values,
):  # fmt: skip
    """Fill scopes and tables of the factors in `order`; returns the sum of those in `constant`."""
    digits = np.zeros(64, np.int64)
    for g in range(len(order)):
        f = order[g]
        begin, arity = scope_start[f], scope_start[f + 1] - scope_start[f]
        position = new_scope_start[g]
        for a in range(arity):
            if cards[scope[begin + a]] > 1 and position < new_scope_start[g + 1]:
                new_scope[position] = scope[begin + a]
                position += 1
            digits[a] = 0
        last = begin + arity - 1
        run = cards[scope[last]] if arity > 0 else 1
        for entry in range(new_table_start[g], new_table_start[g + 1], run):
            index = table_start[f]
            if arity > 0:
                row = 0
                for a in range(arity - 1):
                    i = scope[begin + a]
                    row = row * old_cards[i] + states[first[i] + digits[a]]
                index += row * old_cards[scope[last]]
                kept = first[scope[last]]
                for x in range(run):
                    new_values[entry + x] = values[index + states[kept + x]]
            else:
                new_values[entry] = values[index]
            a = arity - 2
            while a >= 0:
                digits[a] += 1
                if digits[a] < cards[scope[begin + a]]:
                    break
                digits[a] = 0
                a -= 1
    total = 0.0
    for f in constant:
        index = 0
        for a in range(scope_start[f], scope_start[f + 1]):
            i = scope[a]
            index = index * old_cards[i] + states[first[i]]
        total += values[table_start[f] + index]
    return total


@kernel
def _propagate(cards, scope_start, scope, table_start, values, alive):  # type: ignore[no-untyped-def]
    """Remove unsupported states in place; return a variable that lost all states, or −1."""
    n, f = len(cards), len(scope_start) - 1
    touched = np.zeros(n, np.bool_)  # variables that changed since their factors were checked
    pending = np.ones(f, np.bool_)
    digits = np.zeros(64, np.int64)
    changed = True
    while changed:
        changed = False
        for g in range(f):
            if not pending[g]:
                for a in range(scope_start[g], scope_start[g + 1]):
                    if touched[scope[a]]:
                        pending[g] = True
        touched[:] = False
        for g in range(f):
            if not pending[g]:
                continue
            pending[g] = False
            begin, arity = scope_start[g], scope_start[g + 1] - scope_start[g]
            supported = np.zeros((arity, alive.shape[1]), np.bool_)
            digits[:arity] = 0
            if arity == 0:
                if values[table_start[g]] == -np.inf:
                    return 0
                continue
            last = scope[begin + arity - 1]
            for entry in range(table_start[g], table_start[g + 1], cards[last]):
                row = True  # whether the states of all variables but the last are left
                for a in range(arity - 1):
                    row = row and alive[scope[begin + a], digits[a]]
                if row:
                    found = False
                    for x in range(cards[last]):
                        if alive[last, x] and values[entry + x] != -np.inf:
                            supported[arity - 1, x] = True
                            found = True
                    if found:
                        for a in range(arity - 1):
                            supported[a, digits[a]] = True
                a = arity - 2
                while a >= 0:
                    digits[a] += 1
                    if digits[a] < cards[scope[begin + a]]:
                        break
                    digits[a] = 0
                    a -= 1
            for a in range(arity):
                i = scope[begin + a]
                left = False
                for x in range(cards[i]):
                    if alive[i, x] and not supported[a, x]:
                        alive[i, x] = False
                        touched[i] = True
                        changed = True
                    left = left or alive[i, x]
                if not left:
                    return i
    return -1
