"""Calibrated forests of bounded cliques: build one, calibrate it, read and update its beliefs.

Tables are flat and in linear space, axes ascending by variable. In a calibrated forest every clique
holds the marginal of its variables, so a variable may be summed out of one clique and stay in
others: what is left is calibrated as before.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, cast

import numpy as np

from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ordering import greedy_order

Scope = tuple[int, ...]
TINY = 1e-290  # a belief below this is taken for zero: its inverse would overflow
TOLERANCE = 1e-9  # of sums of logarithms


class Unusable(Exception):
    """Nothing is left of a table: its numbers left the range of linear arithmetic."""


@dataclass(slots=True)
class Forest:
    """Cliques, children before parents; tables hold potentials first, beliefs once calibrated."""

    scopes: list[Scope]
    parent: list[int]  # −1 for roots
    tables: list[FloatArray]
    separators: list[Scope]  # with the parent; () for roots
    said: list[FloatArray] = field(default_factory=list)  # belief of each separator, up to a factor

    @classmethod
    def of(cls, scopes: list[Scope], parent: list[int], tables: list[FloatArray]) -> "Forest":
        """Forest with potentials."""
        above = [set(scopes[b]) if b >= 0 else set() for b in parent]
        separators = [
            tuple(i for i in scope if i in others)
            for scope, others in zip(scopes, above, strict=True)
        ]
        return cls(scopes, parent, tables, separators)


def in_a_row(scopes: Sequence[Scope]) -> tuple[IntArray, IntArray]:
    """Lengths of scopes, and all their variables one after the other."""
    arity = np.fromiter(map(len, scopes), np.int64, len(scopes))
    return arity, np.fromiter(chain.from_iterable(scopes), np.int64, int(arity.sum()))


def order_of(
    cards: IntArray, arity: IntArray, flat: IntArray, most: float = math.inf
) -> IntArray | None:
    """Min-fill order of the graph in which each of the scopes, all in a row, is a clique.

    None where its largest clique has more than 2^most entries.
    """
    graph = Graph(len(cards), cards, arity, flat)
    found = greedy_order(cast(FactorGraph, graph), "min-fill")
    return found.variables if found.log2_table <= most + TOLERANCE else None


class Graph(NamedTuple):
    """What the search of an order reads of a model: no tables."""

    n_variables: int
    cards: IntArray
    arity: IntArray
    touched: IntArray


def clique_tree(
    order: IntArray, scopes: Sequence[Scope]
) -> tuple[list[Scope], list[int], list[int]]:
    """Maximal cliques of an elimination order with their parents, and a clique for every scope."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    at = position.tolist()
    buckets: dict[int, list[Sequence[int] | set[int]]] = {}
    first = [min(at[i] for i in scope) for scope in scopes]
    for p, scope in zip(first, scopes, strict=True):
        buckets.setdefault(p, []).append(scope)
    cliques: dict[int, set[int]] = {}
    above: dict[int, int] = {}
    into: dict[int, int] = {}
    for p, v in enumerate(order.tolist()):
        if p not in buckets:
            continue
        cliques[p] = members = set().union(*buckets.pop(p))
        into[p] = p
        rest = members - {v}
        if rest:
            above[p] = min(at[i] for i in rest)
            buckets.setdefault(above[p], []).append(rest)
    for p in sorted(cliques):  # a clique that is the separator below it joins its child
        q = above.get(p, -1)
        if q >= 0 and into[q] == q and len(cliques[q]) == len(cliques[p]) - 1:
            into[q] = p
    for p in sorted(cliques):
        into[p] = into[into[p]]
    up = {into[p]: into[q] for p, q in above.items() if into[p] != into[q]}
    children: dict[int, list[int]] = {}
    for a, b in up.items():
        children.setdefault(b, []).append(a)
    kept = set(into.values())
    stack = [a for a in kept if a not in up]
    down: list[int] = []
    while stack:
        a = stack.pop()
        down.append(a)
        stack.extend(children.get(a, ()))
    down.reverse()
    number = {a: k for k, a in enumerate(down)}
    return (
        [tuple(sorted(cliques[a])) for a in down],
        [number[up[a]] if a in up else -1 for a in down],
        [number[into[p]] for p in first],
    )


def entries(scope: Scope, cards: list[int]) -> int:
    """Entries of the table of a scope."""
    return math.prod(cards[i] for i in scope)


def shape(scope: Scope, cards: list[int]) -> IntArray:
    """States along each axis."""
    return np.array([cards[i] for i in scope] or [1], np.int64)


def strides(scope: Scope, part: Scope, cards: list[int]) -> IntArray:
    """Steps in the table of a part for each axis of the whole; 0 where the part has no such."""
    step, steps = 1, dict.fromkeys(scope, 0)
    for i in reversed(part):
        steps[i] = step
        step *= cards[i]
    return np.array([steps[i] for i in scope] or [0], np.int64)


def marginal(table: FloatArray, scope: Scope, part: Scope, cards: list[int]) -> FloatArray:
    """Sums over the axes that the part does not have."""
    if len(part) == len(scope):
        return table
    out = np.zeros(entries(part, cards))
    add_up(table, shape(scope, cards), strides(scope, part, cards), out)
    return out


def multiply(
    table: FloatArray, scope: Scope, small: FloatArray, part: Scope, cards: list[int]
) -> float:
    """Multiply in place and bring the largest entry to one; log of the factor taken out."""
    top = scale_by(table, shape(scope, cards), strides(scope, part, cards), small)
    if not 0.0 < top < math.inf:
        raise Unusable
    return math.log(top)


def calibrate(forest: Forest, cards: list[int]) -> float:
    """Turn potentials into beliefs that sum to one in every tree; log of what they summed to."""
    log_z = 0.0
    scopes, tables, parent = forest.scopes, forest.tables, forest.parent
    up: list[FloatArray] = []
    for a, b in enumerate(parent):
        s = forest.separators[a]
        message = marginal(tables[a], scopes[a], s, cards) if b >= 0 else tables[a].sum()[None]
        top = float(message.max())
        if not 0.0 < top < math.inf:
            raise Unusable
        log_z += math.log(top)
        up.append(message / top)
        if b >= 0:
            log_z += multiply(tables[b], scopes[b], up[a], s, cards)
        else:
            tables[a] = tables[a] / top
    forest.said = up
    distribute(forest, cards)
    return log_z


def distribute(forest: Forest, cards: list[int]) -> None:
    """Pass beliefs from the roots down; separators hold what children said last."""
    for a in range(len(forest.parent) - 1, -1, -1):
        if forest.parent[a] >= 0:
            absorb(forest, a, down=True, cards=cards)
        total = forest.tables[a].sum()
        if not 0.0 < total < math.inf:
            raise Unusable
        forest.tables[a] /= total
        if forest.parent[a] >= 0:
            forest.said[a] /= forest.said[a].sum()


def absorb(forest: Forest, a: int, down: bool, cards: list[int]) -> None:
    """Update one end of the edge above a clique by the belief of the other end."""
    b, s = forest.parent[a], forest.separators[a]
    source, target = (b, a) if down else (a, b)
    new = marginal(forest.tables[source], forest.scopes[source], s, cards)
    old = forest.said[a]
    ratio = np.divide(new, old, out=np.zeros_like(new), where=old > TINY)
    multiply(forest.tables[target], forest.scopes[target], ratio, s, cards)
    forest.said[a] = new.copy() if new is forest.tables[source] else new


def fit(forest: Forest, a: int, scope: Scope, target: FloatArray, cards: list[int]) -> None:
    """Scale a clique's belief so that its marginal on a scope is the target, where it can be."""
    now = marginal(forest.tables[a], forest.scopes[a], scope, cards)
    ratio = np.divide(target, now, out=np.zeros_like(now), where=now > TINY)
    if (ratio * now).sum() > 0.0:
        multiply(forest.tables[a], forest.scopes[a], ratio, scope, cards)


@kernel
def add_up(table, cards, steps, out):  # type: ignore[no-untyped-def]
    """Add every entry of a table to the entry of a smaller one that it belongs to."""
    d = len(cards)
    digit = np.zeros(d, np.int64)
    inner, step = cards[d - 1], steps[d - 1]
    at, where = 0, 0
    while at < len(table):
        for x in range(inner):
            out[where + x * step] += table[at + x]
        at += inner
        a = d - 2
        while a >= 0:
            digit[a] += 1
            where += steps[a]
            if digit[a] < cards[a]:
                break
            where -= cards[a] * steps[a]
            digit[a] = 0
            a -= 1


@kernel
def scale_by(table, cards, steps, small):  # type: ignore[no-untyped-def]
    """Multiply every entry by that of a smaller table; divide by the largest, which comes back."""
    d = len(cards)
    digit = np.zeros(d, np.int64)
    inner, step = cards[d - 1], steps[d - 1]
    at, where, top = 0, 0, 0.0
    while at < len(table):
        for x in range(inner):
            value = table[at + x] * small[where + x * step]
            table[at + x] = value
            top = max(top, value)
        at += inner
        a = d - 2
        while a >= 0:
            digit[a] += 1
            where += steps[a]
            if digit[a] < cards[a]:
                break
            where -= cards[a] * steps[a]
            digit[a] = 0
            a -= 1
    if top > 0.0 and top != 1.0:
        for at in range(len(table)):
            table[at] /= top
    return top
