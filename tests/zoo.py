"""A dozen tiny named models, on which every engine is tested, and the shared test helpers."""

from functools import cache

import numpy as np
import pytest

from icgi.engines import parse_engine
from icgi.errors import CheckpointError
from icgi.exact.enumeration import Enumerate, joint
from icgi.inference import Budget, Engine, Marginals, infer
from icgi.model.graph import FactorGraph


def random_model(
    rng: np.random.Generator,
    cards: list[int],
    scopes: list[tuple[int, ...]],
    *,
    scale: float = 1.0,
    zeros: float = 0.0,
) -> FactorGraph:
    """Gaussian log tables; a share of zeros, but the all-zeros configuration stays possible."""
    tables = []
    for scope in scopes:
        table = rng.normal(0.0, scale, [cards[i] for i in scope])
        if zeros and scope:
            forbidden = rng.random(table.shape) < zeros
            forbidden[(0,) * len(scope)] = False
            table[forbidden] = -np.inf
        tables.append(np.asarray(table))
    return FactorGraph(np.array(cards, dtype=np.int64), tuple(scopes), tuple(tables))


def grid_scopes(rows: int, columns: int) -> list[tuple[int, ...]]:
    at = lambda r, c: r * columns + c  # noqa: E731
    unary: list[tuple[int, ...]] = [(i,) for i in range(rows * columns)]
    across = [(at(r, c), at(r, c + 1)) for r in range(rows) for c in range(columns - 1)]
    down = [(at(r, c), at(r + 1, c)) for r in range(rows - 1) for c in range(columns)]
    return unary + across + down


def _build() -> dict[str, FactorGraph]:
    rng = np.random.default_rng(20261116)

    def make(cards, scopes, **kwargs):
        return random_model(rng, cards, scopes, **kwargs)

    chain = [(i, i + 1) for i in range(5)]
    tree = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (5, 6)]
    return {
        "one-variable": make([3], [(0,)]),
        "chain": make([2] * 6, [(0,), *chain]),
        "tree": make([2, 3, 2, 2, 4, 2, 3], [*tree, (3,), (6,)]),
        "factor-tree": make([2, 3, 2, 2, 3], [(0, 1, 2), (2, 3, 4), (4,)]),
        "loop": make([2] * 4, [(0, 1), (1, 2), (2, 3), (3, 0), (0,), (2,)]),
        "grid-3x3": make([2] * 9, grid_scopes(3, 3)),
        "ternary-factors": make([2, 2, 3, 2], [(0, 1, 2), (1, 2, 3), (0, 3), (3, 1)]),
        "zeros": make([3] * 5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)], zeros=0.4),
        "mixed-cards": make([2, 5, 3, 4], [(0, 1), (2, 1), (3, 2), (0, 3), (2,)]),
        "one-state-variable": make([2, 1, 3, 1], [(0, 1), (1, 2), (0, 2), (3,)]),
        "disconnected": make([2, 2, 3, 3, 2], [(0, 1), (2, 3), (0,)]),
        "empty-scope": make([2, 2], [(), (0, 1), ()]),
        "no-factors": make([2, 3], []),
        "strong": make([2] * 9, grid_scopes(3, 3), scale=200.0),
    }


MODELS = _build()
TREES = (
    "one-variable",
    "chain",
    "tree",
    "factor-tree",
    "disconnected",
    "empty-scope",
    "no-factors",
)
BUDGET = Budget(iterations=1000)


def run(
    engine: Engine,
    model: FactorGraph | str,
    evidence: dict[int, int] | None = None,
    seed: int = 0,
    budget: Budget = BUDGET,
) -> Marginals:
    model = MODELS[model] if isinstance(model, str) else model
    return infer(model, evidence or {}, engine, budget, np.random.default_rng(seed))


@cache
def exact(name: str) -> Marginals:
    """Reference by enumeration."""
    return Enumerate()(MODELS[name], BUDGET, np.random.default_rng(0))


@cache
def impossible(name: str) -> np.ndarray:
    """Mask n k of states that no configuration of non-zero weight has (and of padding)."""
    model = MODELS[name]
    allowed = (joint(model) > -np.inf).reshape(model.cards.tolist())
    mask = np.ones((model.n_variables, model.max_states), bool)
    for i, card in enumerate(model.cards.tolist()):
        others = tuple(a for a in range(model.n_variables) if a != i)
        mask[i, :card] = ~allowed.any(axis=others)
    return mask


def engine_or_skip(text: str) -> Engine:
    """Engine from its text form; skips the test where its weights are not shipped."""
    try:
        return parse_engine(text)
    except CheckpointError as missing:
        if "are shipped" not in str(missing):
            raise
        pytest.skip(str(missing))
