"""Counting: interchangeable variables become one variable, how many of them are in which state.

Factors are functions of counts: a table θ of m members of a class is there for every choice of m
members, so all of them together are Σ_p Π_x C(a_x, p_x) θ(p), with a_x members of the class and p_x
of the m in state x. The configurations behind a count enter as a multinomial coefficient, and each
member's marginal is E[a_x] / n. Lone variables are classes of one, for which all this is nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING

import numpy as np

from icgi.clock import Deadline
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.structure.private import Remainder, Scope, find_remainder
from icgi.model.structure.symmetry import LEAST, aligned, find_classes, find_colours

if TYPE_CHECKING:
    from icgi.inference import Marginals

MOST_STATES = 2**17  # of a count
LARGEST = 2**24  # entries of one table of the counted model


@dataclass(frozen=True, eq=False, slots=True)
class Class:
    """Interchangeable variables and what their count can be."""

    members: tuple[int, ...]
    counts: IntArray  # s k  members in each state, for every state of the count


@dataclass(frozen=True, eq=False, slots=True)
class Counted:
    """A model of counts, and the way back to every variable of the original."""

    whole: FactorGraph
    model: FactorGraph  # one variable for each class, then one for each kind of draw
    remainder: Remainder
    classes: tuple[Class, ...]
    draws: dict[tuple[int, ...], int]  # classes of a few members → the variable of their states
    class_of: dict[int, int]
    states: IntArray  # n k  state of the original for each that classes and remainder use

    @property
    def counted(self) -> list[int]:
        """Sizes of the classes that are counted."""
        return [len(c.members) for c in self.classes if len(c.members) > 1]

    def __str__(self) -> str:
        sizes = self.counted
        summed = f", {n} private ones summed out" if (n := len(self.remainder.steps)) else ""
        return (
            f"{sum(sizes)} interchangeable variables counted in {len(sizes)} "
            f"class{'es' if len(sizes) > 1 else ''}{summed}"
        )

    def spread(self, marginals: "Marginals") -> "Marginals":
        """Marginals of the original model; other fields than `probs` and log Z are kept as is."""
        found = np.zeros((self.whole.n_variables, max(self.whole.max_states, 1)))
        found[self.whole.cards == 1, 0] = 1.0
        for c, each in enumerate(self.classes):
            mean = marginals.probs[c, : len(each.counts)] @ each.counts / len(each.members)
            found[list(each.members), : len(mean)] = mean

        def joint(scope: Scope) -> FloatArray:
            if len(scope) == 1:
                return np.asarray(found[scope[0], : self.whole.cards[scope[0]]])
            order = sorted(range(len(scope)), key=lambda a: (self.class_of[scope[a]], a))
            drawn = self.draws[tuple([self.class_of[scope[a]] for a in order])]
            cards = [int(self.whole.cards[scope[a]]) for a in order]
            table = marginals.probs[drawn, : math.prod(cards)].reshape(cards)
            return table.transpose(np.argsort(order))

        self.remainder.descend(joint, found)
        probs = np.empty_like(found)
        np.put_along_axis(probs, self.states, found, 1)
        return replace(marginals, probs=probs)


def count_classes(model: FactorGraph, deadline: Deadline | None = None) -> Counted | None:
    """Count the interchangeable variables of a model; None where there are none, or no time."""
    within = deadline or Deadline()
    free = np.flatnonzero(model.cards > 1)
    if find_colours(model, within, 1).largest(free) < LEAST:  # more rounds only tell more apart
        return None
    colours = find_colours(model, within)
    if within.passed or colours.largest(free) < LEAST:
        return None
    remainder = find_remainder(aligned(model, colours), within)
    if remainder is None or within.passed:
        return None
    found = find_classes(remainder.tables, colours.of)
    if found is None:
        return None
    classes = _worth_counting(found, model.cards)
    if all(len(c.members) == 1 for c in classes):
        return None
    class_of = {i: c for c, each in enumerate(classes) for i in each.members}
    built = _build(remainder, classes, class_of, model.cards)
    if built is None:
        return None
    counted, draws = built
    return Counted(model, counted, remainder, tuple(classes), draws, class_of, colours.states)


def _worth_counting(found: Sequence[list[int]], cards: IntArray) -> list[Class]:
    classes = []
    for members in found:
        n, k = len(members), int(cards[members[0]])
        if n >= LEAST and math.comb(n + k - 1, k - 1) <= MOST_STATES:
            classes.append(Class(tuple(members), compositions(n, k)))
        else:
            classes += [Class((i,), compositions(1, k)) for i in members]
    return classes


def compositions(n: int, k: int) -> IntArray:
    """All ways to put n members into k states, those in the first state first."""
    if k == 1:
        return np.full((1, 1), n)
    if k == 2:
        return np.stack([np.arange(n, -1, -1), np.arange(n + 1)], 1)
    blocks = []
    for first in range(n, -1, -1):
        rest = compositions(n - first, k - 1)
        blocks.append(np.hstack([np.full((len(rest), 1), first), rest]))
    return np.concatenate(blocks)


def _build(
    remainder: Remainder, classes: Sequence[Class], class_of: dict[int, int], cards: IntArray
) -> tuple[FactorGraph, dict[tuple[int, ...], int]] | None:
    """The model of counts, and the variable of each kind of draw; None where a table is too large.

    A draw is the states of a few members, chosen without replacement: it changes nothing, and its
    marginal is the joint that leads back to private variables.
    """
    sizes = [len(c.counts) for c in classes]
    scopes: list[tuple[int, ...]] = [(c,) for c in range(len(classes))]
    tables = [_configurations(c) for c in classes]
    kinds: dict[tuple[int, ...], Scope] = {}
    for scope in remainder.tables:
        kinds.setdefault(tuple(sorted(class_of[i] for i in scope)), scope)
    for kind, scope in kinds.items():
        held = list(dict.fromkeys(kind))
        if math.prod(sizes[c] for c in held) > LARGEST:
            return None
        scopes.append(tuple(held))
        axes = [[a for a, i in enumerate(scope) if class_of[i] == c] for c in held]
        tables.append(_over_counts(remainder.tables[scope], axes, [classes[c] for c in held]))
    draws: dict[tuple[int, ...], int] = {}
    all_cards = list(sizes)
    for scope in remainder.wanted():
        kind = tuple(sorted(class_of[i] for i in scope))
        if len(scope) == 1 or kind in draws:
            continue
        held = list(dict.fromkeys(kind))
        states = math.prod(classes[c].counts.shape[1] for c in kind)
        if states * math.prod(sizes[c] for c in held) > LARGEST:
            return None
        draws[kind] = len(all_cards)
        scopes.append((len(all_cards), *held))
        tables.append(_drawn(kind, held, classes))
        all_cards.append(states)
    scopes.append(())
    tables.append(np.array(remainder.constant))
    return FactorGraph(np.array(all_cards), tuple(scopes), tuple(tables)), draws


def _configurations(each: Class) -> FloatArray:
    """Logarithm of the number of configurations behind every count."""
    log = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, len(each.members) + 1)))])
    return np.asarray(log[-1] - log[each.counts].sum(1))


def _over_counts(
    table: FloatArray, axes: Sequence[Sequence[int]], classes: Sequence[Class]
) -> FloatArray:
    """Sum of a table over all choices of members, for every count of its classes.

    `axes` are those of the table that belong to each class.
    """
    ways, index = [], [np.empty(0, np.int64)] * table.ndim
    for c, (own, each) in enumerate(zip(axes, classes, strict=True)):
        k = each.counts.shape[1]
        patterns = np.array(list(combinations_with_replacement(range(k), len(own))))  # p m
        inside = (patterns[:, :, None] == np.arange(k)).sum(1)  # p k
        ways.append(_choices(each.counts, inside))  # s p
        for m, a in enumerate(own):
            shape = [1] * len(axes)
            shape[c] = len(patterns)
            index[a] = patterns[:, m].reshape(shape)
    chosen = table[tuple(index)]
    zero = np.isneginf(chosen)
    total = np.where(zero, 0.0, chosen)
    for each_way in ways:
        total = np.tensordot(total, each_way, (0, 1))
    if not zero.any():
        return np.asarray(total)
    hits = zero.astype(np.float64)
    for each_way in ways:
        hits = np.tensordot(hits, each_way, (0, 1))
    return np.where(hits > 0.0, -np.inf, total)


def _choices(counts: IntArray, inside: IntArray) -> FloatArray:
    """Π_x C(a_x, p_x) for every count and pattern."""
    top = int(counts.max(initial=0))
    most = int(inside.max(initial=0))
    binomial = np.array([[float(math.comb(a, p)) for p in range(most + 1)] for a in range(top + 1)])
    return np.asarray(binomial[counts[:, None, :], inside[None]].prod(2))


def _drawn(kind: tuple[int, ...], held: Sequence[int], classes: Sequence[Class]) -> FloatArray:
    """Log probability of the states (first axis) of members drawn without replacement."""
    cards = [classes[c].counts.shape[1] for c in kind]
    rows = []
    for states in product(*(range(k) for k in cards)):
        row = np.ones([1] * len(held))
        for c in held:
            counts, left = classes[c].counts, len(classes[c].members)
            chance, used = np.ones(len(counts)), np.zeros(counts.shape[1])
            for which, x in zip(kind, states, strict=True):
                if which == c:
                    chance = chance * np.maximum(counts[:, x] - used[x], 0.0) / left
                    used[x] += 1
                    left -= 1
            shape = [1] * len(held)
            shape[held.index(c)] = len(chance)
            row = row * chance.reshape(shape)
        rows.append(row)
    with np.errstate(divide="ignore"):
        return np.log(np.stack(rows))
