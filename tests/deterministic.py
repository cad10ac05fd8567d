"""Random networks compiled from rules: most of their tables hold zeros and ones only."""

import numpy as np

from icgi.model.graph import FactorGraph

Question = tuple[FactorGraph, dict[int, int]]


class Rules:
    """Binary variables, one after the other: coins, gates over earlier ones, and what is seen."""

    def __init__(self, rng) -> None:
        self.rng = rng
        self.count = 0
        self.factors: list[tuple[tuple[int, ...], np.ndarray]] = []
        self.seen: dict[int, int] = {}

    def coin(self, p: float) -> int:
        self.factors.append(((self.count,), np.array([1.0 - p, p])))
        self.count += 1
        return self.count - 1

    def gate(self, parents, rule) -> int:
        """A new variable, `rule` of its parents: a state, or the probability of the second one."""
        table = np.empty([2] * (len(parents) + 1))
        for states in np.ndindex(*table.shape[:-1]):
            p = float(rule(*states))
            table[states] = 1.0 - p, p
        self.factors.append(((*parents, self.count), table))
        self.count += 1
        return self.count - 1

    def any(self, parents) -> int:
        """Whether one of them is true, by a tree of gates of two."""
        left = list(parents)
        while len(left) > 1:
            pairs = [left[i : i + 2] for i in range(0, len(left), 2)]
            left = [p[0] if len(p) == 1 else self.gate(p, lambda a, b: a or b) for p in pairs]
        return left[0]

    def one_of(self, k: int) -> list[int]:
        """Variables of which one is true, each with its own weight, by a chain of choices."""
        weights = self.rng.dirichlet(np.full(k, 5.0))
        made = [self.coin(weights[0])]
        left = self.gate(made, lambda a: 1 - a)
        for c in range(1, k):
            p = weights[c] / weights[c:].sum()
            made.append(self.gate([left], lambda a, p=p: a * p))
            left = self.gate([left, made[-1]], lambda a, b: a and not b)
        return made

    def at_least(self, parents) -> list[int]:
        """For each number from one on, whether that many are true."""
        counts: list[int] = []
        for x in parents:
            new = []
            for j in range(len(counts) + 1):
                below = [] if j == 0 else [counts[j - 1]]
                reached = [] if j == len(counts) else [counts[j]]
                scope, one_less = [x, *below, *reached], len(below)
                new.append(
                    self.gate(scope, lambda x, *s, k=one_less: (x and all(s[:k])) or any(s[k:]))
                )
            counts = new
        return counts

    def question(self) -> Question:
        with np.errstate(divide="ignore"):
            tables = tuple(np.log(table) for _, table in self.factors)
        model = FactorGraph(np.full(self.count, 2), tuple(s for s, _ in self.factors), tables)
        return model, self.seen


def guessing_game(rng, colours: int, guesses: int, pegs: int) -> Question:
    """Which colours a hidden row and several guesses have, when only the answers are known.

    An answer says how many pegs agree, and how many colours both rows have.
    """
    net = Rules(rng)
    hidden = [net.one_of(colours) for _ in range(pegs)]
    truth = rng.integers(colours, size=pegs)
    for _ in range(guesses):
        row = [net.one_of(colours) for _ in range(pegs)]
        said = rng.integers(colours, size=pegs)

        def both(a: int, b: int) -> int:
            return net.gate([a, b], lambda a, b: a and b)

        agree = [
            net.any([both(hidden[p][c], row[p][c]) for c in range(colours)]) for p in range(pegs)
        ]
        common = [
            both(net.any([each[c] for each in hidden]), net.any([each[c] for each in row]))
            for c in range(colours)
        ]
        answers = int((truth == said).sum()), len({*truth.tolist()} & {*said.tolist()})
        for found, number in zip((agree, common), answers, strict=True):
            for j, count in enumerate(net.at_least(found)):
                net.seen[count] = int(number > j)
    return net.question()


def walk(rng, side: int, steps: int, every: int = 3) -> Question:
    """Where on a map an agent was, and where its walls are, from its places now and then.

    It moves in one of four directions, unless a wall, or the end of the map, is in the way.
    """
    net = Rules(rng)
    cells = [(r, c) for r in range(side) for c in range(side)]
    number = {cell: i for i, cell in enumerate(cells)}
    walls = [net.coin(0.25) for _ in cells]
    blocked = rng.random(len(cells)) < 0.2
    here = int(rng.integers(len(cells)))
    blocked[here] = False
    place = [net.coin(float(i == here)) for i in range(len(cells))]
    ways = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    for step in range(steps):
        bits = net.coin(0.5), net.coin(0.5)
        moves = [net.gate(bits, lambda a, b, m=m: 2 * a + b == m) for m in range(len(ways))]
        reached: list[list[int]] = [[] for _ in cells]
        for i, (r, c) in enumerate(cells):
            leaves = []
            for m, (dr, dc) in enumerate(ways):
                j = number.get((r + dr, c + dc))
                if j is not None:
                    way = [place[i], moves[m], walls[j]]
                    leaves.append(net.gate(way, lambda p, m, w: p and m and not w))
                    reached[j].append(leaves[-1])
            stays = [place[i], net.any(leaves)]
            reached[i].append(net.gate(stays, lambda p, left: p and not left))
        place = [net.any(each) for each in reached]
        (r, c), (dr, dc) = cells[here], ways[int(rng.integers(len(ways)))]
        there = number.get((r + dr, c + dc))
        if there is not None and not blocked[there]:
            here = there
        if step % every == every - 1:
            net.seen[place[here]] = 1
    return net.question()


def clauses(rng, n: int, count: int) -> Question:
    """Coins, and clauses of three of them that all hold; one configuration at least does so."""
    net = Rules(rng)
    for _ in range(n):
        net.coin(float(rng.uniform(0.3, 0.7)))
    possible = rng.integers(2, size=n)
    while count > 0:
        scope, signs = rng.permutation(n)[:3], rng.integers(2, size=3)
        if (possible[scope] == signs).any():
            table = np.ones((2, 2, 2))
            table[tuple(1 - signs)] = 0.0
            net.factors.append((tuple(scope.tolist()), table))
            count -= 1
    return net.question()
