import numpy as np

import zoo
from icgi.model.graph import FactorGraph
from icgi.sampling.repair import repair
from icgi.sampling.streams import stream
from icgi.sampling.targets import as_tables, soften


def planted(rng: np.random.Generator, n: int, factors: int) -> FactorGraph:
    """Random ternary constraints over three states that the all-zeros configuration satisfies."""
    scopes = [tuple(rng.choice(n, 3, replace=False).tolist()) for _ in range(factors)]
    return zoo.random_model(rng, [3] * n, scopes, zeros=0.55)


def violated(model: FactorGraph, x: np.ndarray) -> int:
    pairs = zip(model.scopes, model.log_tables, strict=True)
    return sum(bool(np.isneginf(table[tuple(x[list(scope)])])) for scope, table in pairs)


def test_repairs_a_random_start() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        model = planted(rng, 40, 60)
        start = rng.integers(0, 3, 40, dtype=np.int32)
        x, left = repair(as_tables(model), start, 200_000, stream(rng))
        assert left == 0
        assert violated(model, x) == 0


def test_reports_the_fewest_violations_it_found() -> None:
    rng = np.random.default_rng(1)
    differ = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)  # an odd cycle has no two-colouring
    odd = FactorGraph(np.array([2, 2, 2]), ((0, 1), (1, 2), (0, 2)), (differ,) * 3)
    x, left = repair(as_tables(odd), np.zeros(3, np.int32), 1000, stream(rng))
    assert left == violated(odd, x) == 1


def test_nothing_to_repair_without_zeros() -> None:
    model = zoo.MODELS["ternary-factors"]
    start = np.zeros(4, np.int32)
    x, left = repair(as_tables(model), start, 100, stream(np.random.default_rng(2)))
    assert left == 0
    assert (x == start).all()


def test_penalties_lie_below_everything_allowed() -> None:
    model = zoo.MODELS["zeros"]
    for soft, hard in zip(soften(model), model.log_tables, strict=True):
        gone = np.isneginf(hard)
        assert np.isfinite(soft).all()
        assert (soft[~gone] == hard[~gone]).all()
        if gone.any():
            assert soft[gone].max() <= hard[~gone].min() - 1
            assert soft[gone].max() <= hard[~gone].max() - 3
