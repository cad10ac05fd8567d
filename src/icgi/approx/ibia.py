"""Incremental build-infer-approximate: forests of bounded cliques, each begun from the one before.

Factors enter a forest as long as its cliques stay within a bound, and it is calibrated. What later
factors ask about stays on smaller cliques, whose beliefs are the potentials that the next forest
begins with; in the end the beliefs of later forests update those of earlier ones (Bathla and
Vasudevan 2023, IBIA, TMLR, and their inference of marginals, NeurIPS).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.approx.anticipation import Anticipated, Factor, anticipated
from icgi.approx.forests import (
    Forest,
    Scope,
    Unusable,
    absorb,
    calibrate,
    clique_tree,
    distribute,
    entries,
    fit,
    in_a_row,
    marginal,
    multiply,
    order_of,
)
from icgi.approx.reading import TimeSpent, check, from_fields, patient
from icgi.approx.shrinking import Part, Shrinking
from icgi.approx.support import supported
from icgi.clock import Deadline, now
from icgi.errors import IcgiError
from icgi.inference import Budget, Marginals, Status
from icgi.model.condition import lift
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray

FIRST = 13.0  # bits of the first bound; smaller ones take hardly less time
STEP = 4.0  # bits by which a bound is raised at most
GROWTH = 1.6  # times as long for every further bit of the bound, as measured
SHARED = 1 / 64  # of the entries in memory that one table may have
PORTIONS = 64  # of the factors that are left; a portion enters or waits as a whole


@dataclass(frozen=True, slots=True)
class IncrementalForests:
    """Marginals and log Z from a sequence of clique forests; log Z adds up over the forests.

    Cliques are made smaller where that costs the least divergence, I(v; C∖S | S∖v) for a variable v
    that leaves a clique C and stays beyond its separator S. Exact where one forest holds all
    factors. Without a bound it is raised as long as the seconds allow, and every bound is an
    answer.
    """

    bound: int | None = None  # log₂ of the largest clique table; a factor's table is never cut
    margin: int = 4  # bits that cliques lose before the next forest
    anticipate: bool = True  # let messages of belief propagation stand for factors to come

    def __post_init__(self) -> None:
        if self.margin < 1 or (self.bound is not None and self.bound < 1):
            raise IcgiError(f"ibia: bound={self.bound}, margin={self.margin}; both are at least 1")

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Answer with the largest bound that there was time for."""
        *_, best = self.answers(model, budget, rng)
        return best

    def answers(self, model: FactorGraph, budget: Budget, rng: Generator) -> Iterator[Marginals]:
        """One answer for every bound."""
        deadline = budget.deadline()
        try:
            part = supported(model, patient([model], deadline))
            given = anticipated(part.model, budget, deadline, rng, self.anticipate)
        except TimeSpent:
            yield from_fields(model)
            return
        most = max(math.floor(math.log2(max(budget.table_bytes * SHARED / 8, 2))), 1)
        bound = max(FIRST if self.bound is None else self.bound, given.largest)
        answer, took = None, 0.0
        while True:
            began = now()
            try:
                answer = _Run(given, bound, self.margin, deadline).answer()
            except (TimeSpent, Unusable):
                if answer is None:
                    answer = Marginals(given.beliefs, Status.BUDGET_SPENT, stats={"forests": 0.0})
                    yield lift(answer, part.alive)
                return
            yield lift(answer, part.alive)
            took = max(now() - began, 1e-3)
            if (
                answer.status is Status.EXACT
                or self.bound is not None
                or budget.seconds == math.inf
            ):
                return
            more = math.log(max(deadline.left / took, 1e-9), GROWTH)
            if more < 1 or bound >= most:
                return
            bound = min(bound + min(math.floor(more), STEP), most)


@dataclass(slots=True)
class _Level:
    forest: Forest
    # parts of its cliques that the next forest began with: clique, scope, clique of the next one
    links: list[tuple[int, Scope, int]]


class _Run:
    """All forests with one bound."""

    def __init__(self, given: Anticipated, bound: float, margin: int, deadline: Deadline):
        self.given, self.bound, self.deadline = given, bound, deadline
        self.inner = max(bound - margin, 0.0)
        self.cards = given.cards.tolist()
        self.levels: list[_Level] = []
        self.met: set[int] = set()  # variables that some forest has

    def answer(self) -> Marginals:
        """Marginals and log Z; raises `TimeSpent`, or `Unusable` where digits ran out."""
        log_z = self.given.log_scale + self.forward()
        for level, later in zip(self.levels[-2::-1], self.levels[:0:-1], strict=True):
            check(self.deadline)
            self.update(level, later.forest)
        whole = len(self.levels) <= 1
        stats = {"bound": self.bound, "forests": float(len(self.levels))}
        status = Status.EXACT if whole else Status.BUDGET_SPENT
        return Marginals(self.marginals(), status, log_z, stats=stats)

    def forward(self) -> float:
        """Build, calibrate and shrink until every factor has entered; log of their constants."""
        log_z, rest, inner = 0.0, self.along_an_order(), self.inner
        parts: list[Part] = []
        shrinking: Shrinking | None = None
        while rest:
            enters = self.choose(parts, rest)
            if shrinking is not None and not enters.any():
                # cliques of single variables leave room for any factor, so this comes to an end
                inner -= 1.0
                shrinking.shrink(max(inner, 0.0))
                parts = shrinking.parts()
                continue
            inner = self.inner
            new = [factor for factor, enter in zip(rest, enters, strict=True) if enter]
            rest = [factor for factor, enter in zip(rest, enters, strict=True) if not enter]
            forest, homes, scale = self.build([*((p.scope, p.table) for p in parts), *new])
            log_z += scale + calibrate(forest, self.cards)
            if self.levels:
                self.levels[-1].links = [
                    (p.source, p.scope, home) for p, home in zip(parts, homes, strict=False)
                ]
            self.levels.append(_Level(forest, []))
            if rest:
                wanted = {i for scope, _ in rest for i in scope}
                shrinking = Shrinking(forest, wanted, self.cards, self.deadline)
                shrinking.shrink(inner)
                parts = shrinking.parts()
        return log_z

    def along_an_order(self) -> list[Factor]:
        """Factors in the order in which a min-fill order would eliminate their first variable.

        So the branches that an exact elimination would begin with come first, one after the other.
        """
        factors = self.given.factors
        order = order_of(self.given.cards, *in_a_row([scope for scope, _ in factors]))
        assert order is not None  # no bound was given
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        first = [min(position[i] for i in scope) for scope, _ in factors]
        return [factors[f] for f in np.argsort(first, kind="stable")]

    def choose(self, parts: list[Part], rest: list[Factor]) -> BoolArray:
        """Which factors enter: portions that fit, halved where they do not."""
        scopes = [*(p.scope for p in parts), *(scope for scope, _ in rest)]
        arity, flat = in_a_row(scopes)
        fixed = len(parts)
        enters = np.arange(len(scopes)) < fixed
        least = max(len(rest) // PORTIONS, 1)
        stack = [(fixed, len(scopes))]
        while stack:
            check(self.deadline)
            a, b = stack.pop()
            trial = enters.copy()
            trial[a:b] = True
            if self.fits(arity[trial], flat[np.repeat(trial, arity)]):
                enters = trial
            elif b - a > least or (b - a > 1 and not enters[fixed:].any()):
                middle = (a + b) // 2
                stack.extend([(middle, b), (a, middle)])
        return enters[fixed:]

    def fits(self, arity: IntArray, flat: IntArray) -> bool:
        """Whether a min-fill order of these scopes has no clique beyond the bound."""
        return order_of(self.given.cards, arity, flat, most=self.bound) is not None

    def build(self, factors: list[Factor]) -> tuple[Forest, list[int], float]:
        """Forest of the factors; the clique of each; log of what its tables were scaled by."""
        check(self.deadline)
        scopes = [scope for scope, _ in factors]
        order = order_of(self.given.cards, *in_a_row(scopes))
        assert order is not None  # no bound was given
        cliques, parent, homes = clique_tree(order, scopes)
        tables = [np.ones(entries(clique, self.cards)) for clique in cliques]
        scale = 0.0
        for (scope, table), home in zip(factors, homes, strict=True):
            scale += multiply(tables[home], cliques[home], table, scope, self.cards)
        for clique, table in zip(cliques, tables, strict=True):
            for i in set(clique) - self.met:
                scale += multiply(table, clique, self.given.fields[i], (i,), self.cards)
            self.met.update(clique)
        return Forest.of(cliques, parent, tables), homes, scale

    def update(self, level: _Level, later: Forest) -> None:
        """Fit the linked parts of cliques to the later beliefs, on one tour through each tree.

        On the way down and up again each clique receives what was fitted before, so that no change
        is counted twice.
        """
        forest, cards = level.forest, self.cards
        targets: dict[int, list[tuple[Scope, FloatArray]]] = {}
        for clique, scope, home in level.links:
            belief = marginal(later.tables[home], later.scopes[home], scope, cards)
            targets.setdefault(clique, []).append((scope, belief))
        linked = [a in targets for a in range(len(forest.parent))]
        children: list[list[int]] = [[] for _ in forest.parent]
        for a, b in enumerate(forest.parent):  # children come first
            if b >= 0 and linked[a]:
                linked[b] = True
                children[b].append(a)
        stack = [(a, True) for a, b in enumerate(forest.parent) if b < 0 and linked[a]]
        while stack:
            a, arriving = stack.pop()
            if not arriving:
                absorb(forest, a, down=False, cards=cards)
                continue
            if forest.parent[a] >= 0:
                absorb(forest, a, down=True, cards=cards)
                stack.append((a, False))
            for scope, target in targets.get(a, ()):
                fit(forest, a, scope, target, cards)
            stack.extend((child, True) for child in children[a])
        distribute(forest, cards)

    def marginals(self) -> FloatArray:
        """Beliefs of variables, each from the smallest clique of the last forest that has it."""
        probs = self.given.beliefs
        for level in self.levels:
            tables, scopes = level.forest.tables, level.forest.scopes
            home: dict[int, int] = {}
            for a in sorted(range(len(scopes)), key=lambda a: -tables[a].size):
                home.update(dict.fromkeys(scopes[a], a))
            for i, a in home.items():
                probs[i, : self.cards[i]] = marginal(tables[a], scopes[a], (i,), self.cards)
        return probs
