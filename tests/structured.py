"""Random models with hidden structure: noisy or and max, parity, in chains or written out."""

from itertools import combinations, permutations

import numpy as np

from icgi.model.graph import FactorGraph

Factor = tuple[tuple[int, ...], np.ndarray]


def max_gate(rng, states: int, cards: list[int], *, leak: bool, clean: int = 0) -> np.ndarray:
    """P(y | causes) of a noisy max, y first; the first `clean` causes pass as they are."""
    below = np.ones([states, *cards])
    for k, card in enumerate(cards):
        if k < clean:
            reach = np.array([[float(x <= y) for x in range(card)] for y in range(states)])
        else:
            reach = np.cumsum(rng.dirichlet(np.ones(states), card), 1).T
            reach[:, 0] = 1.0
        reach[-1] = 1.0
        shape = [1] * len(cards)
        shape[k] = card
        below = below * reach.reshape([states, *shape])
    if leak:
        weights = np.cumsum(rng.dirichlet(np.ones(states)))
        weights[-1] = 1.0
        below = below * weights.reshape([-1] + [1] * len(cards))
    table = np.diff(np.concatenate([np.zeros_like(below[:1]), below]), axis=0)
    return np.maximum(table, 0.0)


def parity_gate(rng, count: int, *, noise: bool) -> np.ndarray:
    sign = np.ones([2] * count)
    for k in range(count):
        shape = [1] * count
        shape[k] = 2
        sign = sign * np.array([1.0, -1.0]).reshape(shape)
    keep = 1.0 - 2.0 * (rng.uniform(0.05, 0.4) if noise else 0.0)
    return np.stack([(1 + keep * sign) / 2, (1 - keep * sign) / 2])


def gate(rng, kind: str, states: int, cards: list[int], clean: int) -> np.ndarray:
    if kind == "parity":
        return parity_gate(rng, len(cards), noise=clean == 0 and bool(rng.random() < 0.5))
    return max_gate(rng, states, cards, leak=bool(rng.random() < 0.5), clean=clean)


def written_network(rng, kind: str, causes: int, effects: int, fan_in: int, states: int = 2):
    """Effects as one gate each, written out as a table of all its causes.

    Returns states of all variables, factors, and the last variable of every effect.
    """
    cards = [int(rng.integers(2, states + 1)) if kind == "max" else 2 for _ in range(causes)]
    factors: list[Factor] = [((i,), rng.dirichlet(np.ones(c))) for i, c in enumerate(cards)]
    ends = []
    for _ in range(effects):
        parents = rng.permutation(causes)[:fan_in].tolist()
        cards.append(states if kind == "max" else 2)
        ends.append(len(cards) - 1)
        table = gate(rng, kind, cards[-1], [cards[p] for p in parents], 0)
        factors.append(((ends[-1], *parents), table))
    return cards, factors, ends


def chain_network(rng, kind: str, causes: int, effects: int, fan_in: int, states: int = 2):
    """Effects as chains: the first gate has two causes, every later one the last and one more."""
    cards = [int(rng.integers(2, states + 1)) if kind == "max" else 2 for _ in range(causes)]
    factors: list[Factor] = [((i,), rng.dirichlet(np.ones(c))) for i, c in enumerate(cards)]
    ends = []
    size = states if kind == "max" else 2
    for _ in range(effects):
        parents = rng.permutation(causes)[:fan_in].tolist()
        last: list[int] = []
        while parents:
            fresh = [parents.pop() for _ in range(min(len(parents), 1 if last else 2))]
            cards.append(size)
            inputs = [*last, *fresh]
            table = gate(rng, kind, size, [cards[p] for p in inputs], len(last))
            factors.append(((len(cards) - 1, *inputs), table))
            last = [len(cards) - 1]
        ends += last
    return cards, factors, ends


def rare_network(rng, causes: int, effects: int, fan_in: int, prior: float):
    """Noisy-or chains of rare causes without leaks: the hardest for sums with signs."""
    cards, factors, ends = chain_network(rng, "or", causes, effects, fan_in)
    rare = [(s, np.array([1.0 - prior, prior])) for s, _ in factors[:causes]]
    gates = [
        (s, max_gate(rng, 2, [2, 2], leak=False, clean=int(s[1] >= causes)))
        for s, _ in factors[causes:]
    ]
    return cards, [*rare, *gates], ends


def hide(rng, cards: list[int], factors: list[Factor], evidence: dict[int, int]):
    """The same model with variables, states and axes permuted and every table rescaled.

    Returns it with its evidence and the new number of each old variable.
    """
    n = len(cards)
    number = rng.permutation(n)
    states = [rng.permutation(c) for c in cards]  # old state -> new state
    new_cards = np.empty(n, np.int64)
    new_cards[number] = cards
    scopes, tables = [], []
    for f in rng.permutation(len(factors)):
        scope, table = factors[f]
        for axis, i in enumerate(scope):
            table = np.take(table, np.argsort(states[i]), axis)
        axes = rng.permutation(len(scope))
        scopes.append(tuple(int(number[scope[a]]) for a in axes))
        with np.errstate(divide="ignore"):
            tables.append(np.log(np.transpose(table, axes) * np.exp(rng.normal())))
    model = FactorGraph(new_cards, tuple(scopes), tuple(tables))
    seen = {int(number[i]): int(states[i][x]) for i, x in evidence.items()}
    return model, seen, number


def symmetric_table(rng, card: int, order: int, zeros: float = 0.0) -> np.ndarray:
    """A table that stays as it is when its axes change places."""
    table = rng.uniform(0.2, 2.0, [card] * order)
    table[rng.random(table.shape) < zeros] = 0.0
    table[(0,) * order] = 1.0
    return sum(np.transpose(table, axes) for axes in permutations(range(order)))


def exchangeable_network(
    rng, sizes: list[int], lone: int, states: int, *, zeros: float = 0.0, order: int = 0
):
    """Groups of variables that nobody can tell apart, lone variables, and private ones between.

    Factors within a group have `order` members, two or more where that is 0. Returns states of all
    variables, factors, and the members of each group.
    """
    cards: list[int] = []
    groups = []
    for size in sizes:
        groups.append(list(range(len(cards), len(cards) + size)))
        cards += [int(rng.integers(2, states + 1))] * size
    others = list(range(len(cards), len(cards) + lone))
    cards += [2] * lone
    factors: list[Factor] = [((i,), rng.dirichlet(np.ones(cards[i]))) for i in others]

    def everywhere(table: np.ndarray, scopes) -> None:
        factors.extend((tuple(scope), table) for scope in scopes)

    def made(scope) -> np.ndarray:
        table = rng.uniform(0.2, 2.0, [cards[i] for i in scope])
        table[rng.random(table.shape) < zeros] = 0.0
        table[(0,) * len(scope)] = 1.0
        return table

    for g, members in enumerate(groups):
        card = cards[members[0]]
        everywhere(rng.uniform(0.2, 2.0, card), [(i,) for i in members])
        drawn = int(rng.choice([2, 3, len(members)]))
        scopes = list(combinations(members, order or drawn))
        everywhere(symmetric_table(rng, card, order or drawn, zeros), scopes)
        for i in others[: 1 + g]:
            everywhere(made((i, members[0])), [(i, j) for j in members])
        for other in groups[:g]:
            scope = (members[0], other[0], *others[:g])
            everywhere(made(scope), [(i, j, *others[:g]) for i in members for j in other])
    first = groups[0]
    if (
        len(first) < 5 and rng.random() < 0.7
    ):  # every pair of the first group has a private variable
        table = symmetric_table(rng, cards[first[0]], 2)[:, :, None] * rng.uniform(0.2, 2.0, 2)
        table[..., 0] = symmetric_table(rng, cards[first[0]], 2)
        for i, j in combinations(first, 2):
            cards.append(2)
            factors.append(((i, j, len(cards) - 1), table))
    return cards, factors, groups
