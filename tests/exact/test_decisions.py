"""Graphs of decisions: right on random models with zeros, and far beyond any width."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import deterministic
from icgi.clock import Deadline
from icgi.errors import EvidenceError
from icgi.exact.decisions import decide
from icgi.exact.enumeration import Enumerate
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Status, infer
from icgi.model.condition import condition, lift
from icgi.model.graph import FactorGraph
from icgi.model.ordering import find_order
from icgi.portfolio.auto import Auto
from icgi.portfolio.exact import Exact

BUDGET = Budget()


def decided(model: FactorGraph, evidence, rng):
    """Marginals by a graph of decisions, over all states."""
    seen = condition(model, evidence)
    made = decide(seen.model, find_order(seen.model, rng), Deadline(), 2**30)
    return lift(made.marginals(), seen.alive)


def random_model(rng, n: int, zeros: float) -> tuple[FactorGraph, dict[int, int]]:
    """Tables of few different numbers and many zeros, with one configuration that is possible."""
    cards = rng.integers(1, 5, n)
    truth = np.array([rng.integers(card) for card in cards])
    scopes, tables = [()], [np.array(rng.normal())]
    for _ in range(int(rng.integers(n, 2 * n))):
        scope = tuple(rng.permutation(n)[: rng.integers(1, 5)].tolist())
        shape = [cards[i] for i in scope]
        table = rng.choice([0.5, 1.0, 2.0], shape) if rng.random() < 0.5 else rng.random(shape)
        table[rng.random(shape) < zeros] = 0.0
        table[tuple(truth[list(scope)])] = 1.0
        scopes.append(scope)
        with np.errstate(divide="ignore"):
            tables.append(np.log(table))
    seen = {i: int(truth[i]) for i in rng.permutation(n)[: rng.integers(0, 3)].tolist()}
    return FactorGraph(cards, tuple(scopes), tuple(tables)), seen


@pytest.mark.parametrize("seed", range(60))
def test_random_models_agree_with_enumeration(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    model, seen = random_model(rng, int(rng.integers(2, 11)), rng.choice([0.0, 0.3, 0.6]))
    found, truth = decided(model, seen, rng), infer(model, seen, Enumerate(), BUDGET, rng)
    assert_allclose(found.probs, truth.probs, atol=1e-11)
    assert_allclose(found.log_z, truth.log_z, atol=1e-10)
    assert found.status is Status.EXACT


@pytest.mark.parametrize("seed", range(5))
def test_larger_models_agree_with_the_junction_tree(seed: int) -> None:
    rng = np.random.default_rng([8, seed])
    model, seen = random_model(rng, 25, 0.5)
    found, truth = decided(model, seen, rng), infer(model, seen, JunctionTree(), BUDGET, rng)
    assert_allclose(found.probs, truth.probs, atol=1e-10)
    assert_allclose(found.log_z, truth.log_z, atol=1e-9)


def permutation_model(rng, k: int) -> tuple[FactorGraph, np.ndarray]:
    """Weights of permutations: k variables of k states, no two of them in the same."""
    scopes = [(i,) for i in range(k)]
    weights = rng.uniform(0.5, 2.0, (k, k))
    apart = np.where(np.eye(k) > 0, -np.inf, 0.0)
    pairs = [(i, j) for i in range(k) for j in range(i)]
    return FactorGraph(
        np.full(k, k), (*scopes, *pairs), (*np.log(weights), *[apart] * len(pairs))
    ), weights


def test_permanents() -> None:
    """Each subset of columns is met once: 2^k parts instead of k^k configurations."""
    rng = np.random.default_rng(0)
    k = 13
    model, weights = permutation_model(rng, k)
    made = decide(model, find_order(model, rng), Deadline(), 2**30)
    by_columns = np.zeros(2**k)  # permanent of the first rows and a set of columns
    by_columns[0] = 1.0
    for subset in range(1, 2**k):
        row = subset.bit_count() - 1
        for x in range(k):
            if subset >> x & 1:
                by_columns[subset] += weights[row, x] * by_columns[subset ^ (1 << x)]
    assert_allclose(made.log_z, np.log(by_columns[-1]), atol=1e-10)
    assert made.size < k * 2**k
    assert_allclose(made.marginals().probs.sum(0), 1.0, atol=1e-10)


def test_impossible_models_and_limits() -> None:
    rng = np.random.default_rng(0)
    unlike = np.log([[0.0, 1.0], [1.0, 0.0]], where=[[False, True], [True, False]],
                    out=np.full((2, 2), -np.inf))  # fmt: skip
    ring = FactorGraph(np.full(3, 2), ((0, 1), (1, 2), (2, 0)), (unlike,) * 3)
    with pytest.raises(EvidenceError, match="no configuration"):
        decide(ring, find_order(ring, rng), Deadline(), 2**30)
    model, _ = permutation_model(rng, 13)
    order = find_order(model, rng)
    assert decide(model, order, Deadline(), 2**16) is None  # memory
    assert decide(model, order, Deadline.after(0.0), 2**30) is None  # time
    wide = FactorGraph(np.array([100]), ((0,),), (np.zeros(100),))
    assert decide(wide, find_order(wide, rng), Deadline(), 2**30) is None  # states


@pytest.mark.parametrize("kind", ["game", "walk", "clauses"])
def test_networks_of_rules_agree_with_the_junction_tree(kind: str) -> None:
    rng = np.random.default_rng(4)
    model, seen = {
        "game": lambda: deterministic.guessing_game(rng, 3, 2, 3),
        "walk": lambda: deterministic.walk(rng, 2, 4),
        "clauses": lambda: deterministic.clauses(rng, 22, 60),
    }[kind]()
    found, truth = decided(model, seen, rng), infer(model, seen, JunctionTree(), BUDGET, rng)
    assert_allclose(found.probs, truth.probs, atol=1e-10)
    assert_allclose(found.log_z, truth.log_z, atol=1e-9)


def test_the_exact_engine_decides_what_is_too_wide() -> None:
    rng = np.random.default_rng(1)
    model, seen = deterministic.walk(rng, 6, 10)
    answer = infer(model, seen, Exact(), Budget(seconds=6.0), rng)
    assert answer.status is Status.EXACT
    assert "decisions in place of a largest table of 2^1" in answer.note
    assert_allclose(answer.probs.sum(1), 1.0, atol=1e-9)
    # p(x | seen) = Z(x, seen) / Z(seen), each from a search of its own
    i = int(np.abs(answer.probs[:, 0] - 0.5).argmin())
    other = infer(model, seen | {i: 0}, Exact(), Budget(seconds=6.0), rng)
    assert_allclose(answer.probs[i, 0], np.exp(other.log_z - answer.log_z), atol=1e-9)


def test_wide_contradictions_are_found() -> None:
    """All pegs agree, so the rows have colours in common: no single factor knows that."""
    rng = np.random.default_rng(1)
    model, seen = deterministic.guessing_game(rng, 5, 4, 4)
    counts = list(seen)[:9]  # of agreeing pegs and of common colours, for the first guess
    wrong = seen | dict.fromkeys(counts[:4], 1) | dict.fromkeys(counts[4:], 0)
    with pytest.raises(EvidenceError, match="no configuration"):
        infer(model, wrong, Exact(), Budget(seconds=6.0), rng)


def test_auto_searches_on_where_approximations_end_early(monkeypatch) -> None:
    monkeypatch.setattr("icgi.exact.forms.LONGEST_TRIAL", 0.0)  # the search has no time before
    monkeypatch.setattr("icgi.portfolio.approximate.approximations", lambda *_: iter(()))
    rng = np.random.default_rng(3)
    model, seen = deterministic.clauses(rng, 100, 420)
    answer = infer(model, seen, Auto(), Budget(seconds=10.0), rng)
    assert answer.status is Status.EXACT
    assert "decisions in place of a largest table" in answer.note
