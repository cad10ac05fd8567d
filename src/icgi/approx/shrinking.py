"""Cliques of a calibrated forest made small: variables leave where they tell least about the rest.

A variable v that leaves clique C, but stays beyond the separator S, costs at least the divergence
I(v; C∖S | S∖v), which is read from the belief of C. Variables that no later factor asks about leave
for good once only one clique has them; that costs nothing.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icgi.approx.forests import TINY, TOLERANCE, Forest, Scope, marginal
from icgi.approx.reading import check
from icgi.clock import Deadline
from icgi.model.graph import FloatArray

CHEAP = 1e-2  # bits that a variable may cost before other ways are looked for
TRIED = 4  # variables whose move to a new piece is costed exactly


@dataclass(slots=True)
class Piece:
    """A part of a clique with its belief."""

    scope: Scope
    belief: FloatArray
    source: int  # clique of the forest that it was a part of


class Part(NamedTuple):
    """What the next forest begins with: a piece's scope, its potential, and where it came from."""

    scope: Scope
    table: FloatArray
    source: int


class Shrinking:
    """Working copy of a forest: pieces, and the separators between neighbours."""

    def __init__(self, forest: Forest, wanted: set[int], cards: list[int], deadline: Deadline):
        self.cards, self.wanted, self.deadline = cards, wanted, deadline
        self.pieces = {
            a: Piece(scope, table, a)
            for a, (scope, table) in enumerate(zip(forest.scopes, forest.tables, strict=True))
        }
        self.near: dict[int, dict[int, Scope]] = {a: {} for a in self.pieces}
        for a, b in enumerate(forest.parent):
            if b >= 0:
                self.near[a][b] = self.near[b][a] = forest.separators[a]
        self.logs = [math.log2(c) for c in cards]
        self.costs: dict[int, dict[tuple[int, int], float]] = {}
        self._tidy(list(self.pieces))

    def _bits(self, scope: Scope) -> float:
        return sum(self.logs[i] for i in scope)

    def shrink(self, most: float) -> None:
        """Let variables leave until no table has more than 2^most entries."""
        large = [a for a, p in self.pieces.items() if self._bits(p.scope) > most + TOLERANCE]
        for a in sorted(large, key=lambda a: -self._bits(self.pieces[a].scope)):
            check(self.deadline)
            while a in self.pieces and self._bits(self.pieces[a].scope) > most + TOLERANCE:
                if len(self.pieces[a].scope) == 1:
                    break
                self._reduce(a, most)

    def _reduce(self, a: int, most: float) -> None:
        """Let the variable leave that costs least, per bit."""
        near = self.near[a]
        best, choice = math.inf, None
        # what leaving this clique alone costs is a bound on all of it, so the cheapest come first
        here = sorted(
            (self._cost(a, b, v) / self.logs[v], v, b) for b, s in near.items() for v in s
        )
        for bound, v, b in here:
            if bound >= best:
                break
            lost = self._beyond(a, b, v, best * self.logs[v]) / self.logs[v]
            if lost < best:
                best, choice = lost, (v, b)
        if best > CHEAP:
            aside, lost = self._aside(a, most)
            if lost < best or choice is None:
                self._split(a, *aside)
                return
        assert choice is not None
        v, kept = choice
        touched, stack = [a], [(a, kept)]
        while stack:
            c, origin = stack.pop()
            for b, s in self.near[c].items():
                if b != origin and v in s:
                    stack.append((b, c))
                    touched.append(b)
        gone = set(touched)
        for c in touched:
            self._cut(c, _less(self.pieces[c].scope, v))
            for b, s in list(self.near[c].items()):
                if v in s and (b in gone or (c == a and b == kept)):
                    self.near[c][b] = self.near[b][c] = _less(s, v)
        self._tidy([*touched, kept])

    def _beyond(self, a: int, kept: int, v: int, most: float) -> float:
        """What it costs that a variable stays beyond one separator of a clique only.

        It leaves this clique and all that are connected with it elsewhere by the variable, the
        farthest first, each at the cost that its belief shows.
        """
        lost, stack = 0.0, [(a, kept)]
        while stack and lost < most:
            c, origin = stack.pop()
            lost += self._cost(c, origin, v)
            stack.extend((b, c) for b, s in self.near[c].items() if b != origin and v in s)
        return lost if not stack else math.inf

    def _cost(self, a: int, b: int, v: int) -> float:
        """I(v; C∖S | S∖v) of a clique C and its separator S from a neighbour, in bits."""
        known = self.costs.setdefault(a, {})
        if (b, v) not in known:
            piece, s = self.pieces[a], self.near[a][b]
            inner = self._read(piece, s)
            rest = marginal(inner, s, _less(s, v), self.cards)
            without = self._read(piece, _less(piece.scope, v))
            lost = entropy(inner) + entropy(without) - entropy(rest) - entropy(piece.belief)
            known[b, v] = max(lost, 0.0)
        return known[b, v]

    def _aside(self, a: int, most: float) -> tuple[tuple[int, Scope], float]:
        """A variable, those that it would move to a new piece with, and the cost per bit."""
        piece = self.pieces[a]
        scope = piece.scope
        mutual = self._mutual(piece)
        options = []
        for k, v in enumerate(scope):
            needed = {i for s in self.near[a].values() if v in s for i in s if i != v}
            beside = [j for j, i in enumerate(scope) if i in needed]
            room = most - self.logs[v] - sum(self.logs[i] for i in needed)
            if room < -TOLERANCE or len(beside) > len(scope) - 2:
                continue
            for j in np.argsort(-mutual[k], kind="stable").tolist():
                if (
                    j != k
                    and j not in beside
                    and self.logs[scope[j]] <= room + TOLERANCE
                    and len(beside) < len(scope) - 2
                ):
                    beside.append(j)
                    room -= self.logs[scope[j]]
            rough = (mutual[k].sum() - mutual[k, beside].sum()) / self.logs[v]
            options.append((rough, v, tuple(sorted(scope[j] for j in beside))))
        best = math.inf
        found: tuple[int, Scope] = (scope[0], ())
        whole = entropy(piece.belief)
        for _, v, beside_v in sorted(options)[:TRIED]:
            with_v = self._read(piece, tuple(sorted((*beside_v, v))))
            lost = entropy(with_v) + entropy(self._read(piece, _less(scope, v))) - whole
            if beside_v:
                lost -= entropy(self._read(piece, beside_v))
            if lost / self.logs[v] < best:
                best, found = lost / self.logs[v], (v, beside_v)
        return found, best

    def _split(self, a: int, v: int, beside: Scope) -> None:
        """Move a variable to a new piece, with others that stay in both."""
        piece = self.pieces[a]
        new = max(self.pieces) + 1
        with_v = tuple(sorted((*beside, v)))
        self.pieces[new] = Piece(with_v, self._read(piece, with_v), piece.source)
        self.near[new] = {}
        for b, s in list(self.near[a].items()):
            if v in s:
                del self.near[a][b], self.near[b][a]
                self.near[b][new] = self.near[new][b] = s
        self._cut(a, _less(piece.scope, v))
        if beside:
            self.near[new][a] = self.near[a][new] = beside
        self._tidy([a, new])

    def _mutual(self, piece: Piece) -> FloatArray:
        """Mutual information of every pair of a clique's variables."""
        scope = piece.scope
        single = [entropy(self._read(piece, (v,))) for v in scope]
        found = np.zeros((len(scope), len(scope)))
        for x, v in enumerate(scope):
            for y in range(x):
                pair = self._read(piece, (scope[y], v))
                found[x, y] = found[y, x] = max(single[x] + single[y] - entropy(pair), 0.0)
        return found

    def _read(self, piece: Piece, part: Scope) -> FloatArray:
        return marginal(piece.belief, piece.scope, part, self.cards)

    def _cut(self, a: int, scope: Scope) -> None:
        piece = self.pieces[a]
        self.pieces[a] = Piece(scope, self._read(piece, scope), piece.source)

    def _tidy(self, waiting: list[int]) -> None:
        """Sum out what nobody asks about, and merge pieces that lie within a neighbour."""
        while waiting:
            a = waiting.pop()
            self.costs.pop(a, None)
            if a not in self.pieces:
                continue
            for b in self.near[a]:
                self.costs.pop(b, None)
            near = self.near[a]
            for b in [b for b, s in near.items() if not s]:
                del near[b], self.near[b][a]
            shared = {v for s in near.values() for v in s}
            scope = self.pieces[a].scope
            left = tuple(v for v in scope if v in self.wanted or v in shared)
            into = next((b for b, s in near.items() if len(s) == len(left)), None)
            if not left or into is not None:
                for b, s in near.items():
                    del self.near[b][a]
                    if b != into and into is not None:
                        self.near[b][into] = self.near[into][b] = s
                waiting.extend(near)
                del self.pieces[a], self.near[a]
            elif len(left) < len(scope):
                self._cut(a, left)

    def parts(self) -> list[Part]:
        """All pieces; their tables multiply to the distribution that is left."""
        made = []
        seen: set[int] = set()
        for root in self.pieces:
            stack: list[tuple[int, Scope]] = [] if root in seen else [(root, ())]
            seen.add(root)
            while stack:
                a, s = stack.pop()
                piece = self.pieces[a]
                table = piece.belief.copy()
                if s:
                    below = self._read(piece, s)
                    inverse = np.divide(1.0, below, out=np.zeros_like(below), where=below > TINY)
                    axes = [self.cards[i] if i in s else 1 for i in piece.scope]
                    view = table.reshape([self.cards[i] for i in piece.scope])
                    view *= inverse.reshape(axes)
                made.append(Part(piece.scope, table, piece.source))
                for b, t in self.near[a].items():
                    if b not in seen:
                        seen.add(b)
                        stack.append((b, t))
        return made


def entropy(p: FloatArray) -> float:
    """−Σ p log₂ p of a table that sums to one."""
    positive = p[p > 0]
    return -float(positive @ np.log2(positive))


def _less(scope: Scope, v: int) -> Scope:
    return tuple(i for i in scope if i != v)
