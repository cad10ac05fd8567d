"""Random small models of mixed type, exact joint distributions, and tests of agreement."""

from collections.abc import Iterator

import numpy as np
from scipy import stats

import zoo
from icgi.exact.enumeration import Enumerate, joint
from icgi.inference import Marginals
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model, potts_model

KINDS = ("ising", "dense-ising", "potts", "pairs", "ternary", "pair-zeros", "ternary-zeros")


def edges(rng: np.random.Generator, n: int, share: float) -> np.ndarray:
    """A random tree, so that all is connected, and a share of the other pairs."""
    tree = [(int(rng.integers(j)), j) for j in range(1, n)]
    others = [(i, j) for j in range(n) for i in range(j) if rng.random() < share]
    return np.array(sorted(set(tree + others)))


def model(kind: str, rng: np.random.Generator) -> FactorGraph:
    """One random model of at most some 10⁴ configurations."""
    scale = float(rng.uniform(0.3, 1.2))
    if kind in ("ising", "dense-ising"):
        n = int(rng.integers(5, 11))
        pairs = edges(rng, n, 0.25 if kind == "ising" else 1.0)
        return ising_model((pairs, rng.normal(0, scale, len(pairs))), rng.normal(0, 0.4, n))
    if kind == "potts":
        n = int(rng.integers(4, 8))
        pairs = edges(rng, n, 0.3)
        return potts_model(pairs, rng.normal(0, scale, len(pairs)), rng.normal(0, 0.5, (n, 3)))
    n = int(rng.integers(4, 7))
    cards = rng.integers(2, 5, n).tolist()
    scopes: list[tuple[int, ...]] = [(int(i),) for i in rng.choice(n, 2, replace=False)]
    arity = 2 if kind.startswith("pair") else 3
    for _ in range(n + 1):
        scopes.append(tuple(rng.choice(n, arity, replace=False).tolist()))
    zeros = 0.25 if kind.endswith("zeros") else 0.0
    return zoo.random_model(rng, cards, scopes, scale=scale, zeros=zeros)


def models(count: int, seed: int) -> Iterator[tuple[FactorGraph, Marginals]]:
    """Models of all kinds in turn, each with its exact answer."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        made = model(KINDS[k % len(KINDS)], rng)
        yield made, zoo.run(Enumerate(), made)


def z_score(
    found: Marginals, exact: Marginals, rng: np.random.Generator, least: float = 1e-9
) -> float | None:
    """(estimate − truth) / error of one random state; None where none has an error."""
    noisy = np.argwhere(found.std_error > least)
    if not len(noisy):
        return None
    i, x = noisy[rng.integers(len(noisy))]
    return float((found.probs[i, x] - exact.probs[i, x]) / found.std_error[i, x])


def assert_honest(z: list[float]) -> None:
    """No more large z than a normal distribution has (KS, one-sided); not absurdly small ones."""
    sizes = np.abs(z)
    test = stats.kstest(sizes, stats.halfnorm.cdf, alternative="less")
    assert test.pvalue > 0.01, f"errors are too small: z has standard deviation {np.std(z):.2f}"
    assert np.median(sizes) > 0.4, "errors are far too large"
    assert np.mean(sizes > 3) < 0.02, "three errors are enough but for the tails"
    assert sizes.max() < 6


def gibbs(log_weight: np.ndarray) -> np.ndarray:
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def configurations(cards: np.ndarray) -> np.ndarray:
    """All configurations, the last variable fastest."""
    axes = np.indices(tuple(cards)).reshape(len(cards), -1)
    return np.ascontiguousarray(axes.T, dtype=np.int32)


def numbers(x: np.ndarray, cards: np.ndarray) -> np.ndarray:
    """Number of each configuration in that list."""
    return np.ravel_multi_index(tuple(x.T), tuple(cards))


def sweep_matrix(log_weight: np.ndarray, cards: np.ndarray) -> np.ndarray:
    """Transition matrix of one heat-bath pass, exactly: one variable after the other."""
    size = log_weight.size
    shape = tuple(cards)
    total = np.eye(size)
    top = log_weight.max()
    weight = np.exp(log_weight - top).reshape(shape)
    for i in range(len(cards)):
        sums = weight.sum(i, keepdims=True)
        with np.errstate(invalid="ignore"):
            conditional = np.nan_to_num(weight / sums)
        moved = np.moveaxis(total.reshape(size, *shape), i + 1, -1)
        spread = moved.sum(-1, keepdims=True) * np.moveaxis(conditional, i, -1)
        total = np.moveaxis(spread, -1, i + 1).reshape(size, size)
    return total


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """P-value of counts against probabilities; what has probability zero must not occur."""
    assert (counts[expected == 0] == 0).all()
    mean = expected * counts.sum()
    rare = mean < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    mean = np.append(mean[~rare], mean[rare].sum())
    keep = mean > 0
    statistic = ((observed - mean)[keep] ** 2 / mean[keep]).sum()
    return float(stats.chi2.sf(statistic, max(1, keep.sum() - 1)))


def log_joint(model: FactorGraph) -> np.ndarray:
    return joint(model)
