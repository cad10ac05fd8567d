"""Forests one after the other: exact where one is enough, else better the larger their cliques."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from test_gbp import glass
from test_join_graph import models

from icgi.approx.anticipation import anticipated
from icgi.approx.forests import Forest, calibrate, clique_tree, in_a_row, marginal, order_of
from icgi.approx.ibia import IncrementalForests
from icgi.approx.shrinking import Shrinking
from icgi.approx.support import supported
from icgi.clock import Deadline
from icgi.errors import EvidenceError, IcgiError
from icgi.exact.enumeration import Enumerate
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray

RNG = np.random.default_rng(0)


def run(model: FactorGraph, budget: Budget | None = None, **options: int | bool) -> Marginals:
    return IncrementalForests(**options)(model, budget or Budget(), RNG)  # type: ignore[arg-type]


def possible(model: FactorGraph) -> Marginals | None:
    try:
        return Enumerate()(model, Budget(), RNG)
    except EvidenceError:
        return None


def forest_of(cards: list[int], scopes: list[tuple[int, ...]], seed: int) -> Forest:
    """Calibrated forest of random potentials over scopes."""
    rng = np.random.default_rng(seed)
    order = order_of(np.array(cards), *in_a_row(scopes))
    assert order is not None
    cliques, parent, _ = clique_tree(order, scopes)
    tables = [rng.gamma(0.5, size=math.prod(cards[i] for i in clique)) for clique in cliques]
    forest = Forest.of(cliques, parent, tables)
    calibrate(forest, cards)
    return forest


def joint(cards: list[int], tables: list[tuple[tuple[int, ...], FloatArray]]) -> FloatArray:
    """Product of tables over all variables, summing to one."""
    found = np.ones(cards)
    for scope, table in tables:
        shape = [cards[i] if i in scope else 1 for i in range(len(cards))]
        found = found * table.reshape(shape)
    return np.asarray(found / found.sum())


SCOPES = st.lists(st.sets(st.integers(0, 6), min_size=1, max_size=3), min_size=1, max_size=9)


class TestCliqueTree:
    @settings(deadline=None)
    @given(SCOPES)
    def test_holds_every_scope_and_every_variable_once_connected(
        self, sets: list[set[int]]
    ) -> None:
        scopes = [tuple(sorted(each)) for each in sets]
        order = order_of(np.full(7, 2), *in_a_row(scopes))
        assert order is not None
        cliques, parent, homes = clique_tree(order, scopes)
        for scope, home in zip(scopes, homes, strict=True):
            assert set(scope) <= set(cliques[home])
        for a, b in itertools.permutations(range(len(cliques)), 2):
            assert not set(cliques[a]) <= set(cliques[b])
        for a, b in enumerate(parent):
            assert b == -1 or b > a
        for i in set(itertools.chain.from_iterable(scopes)):
            holding = {a for a, clique in enumerate(cliques) if i in clique}
            assert sum(parent[a] not in holding for a in holding) == 1  # one top: a tree


class TestShrinking:
    @settings(max_examples=40, deadline=None)
    @given(SCOPES, st.integers(0, 99), st.sets(st.integers(0, 6)), st.sampled_from([1.0, 2.0, 3.2]))
    def test_beliefs_stay_what_they_were(
        self, sets: list[set[int]], seed: int, wanted: set[int], most: float
    ) -> None:
        cards = [2, 3, 2, 2, 4, 2, 3]
        forest = forest_of(cards, [tuple(sorted(each)) for each in sets], seed)
        wanted &= set(itertools.chain.from_iterable(forest.scopes))
        shrinking = Shrinking(forest, wanted, cards, Deadline())
        shrinking.shrink(most)
        parts = shrinking.parts()
        assert wanted <= set(itertools.chain.from_iterable(p.scope for p in parts))
        left = joint(cards, [(p.scope, p.table) for p in parts])
        for p in parts:
            assert p.table.size <= 2**most + 1e-9 or len(p.scope) == 1
            source = forest.tables[p.source], forest.scopes[p.source]
            before = marginal(*source, p.scope, cards)
            others = tuple(i for i in range(len(cards)) if i not in p.scope)
            assert_allclose(left.sum(others).ravel(), before, atol=1e-9)

    def test_a_forest_within_the_bound_is_only_summed_out(self) -> None:
        cards = [2, 2, 2, 2]
        forest = forest_of(cards, [(0, 1), (1, 2), (2, 3)], 3)
        before = joint(cards, [(s, t) for s, t in zip(forest.scopes, forest.tables, strict=True)])
        for scope, separator in zip(forest.scopes, forest.separators, strict=True):
            if separator:
                table = forest.tables[forest.scopes.index(scope)]
                below = marginal(table, scope, separator, cards)
                before = before / below.reshape([2 if i in separator else 1 for i in range(4)])
        shrinking = Shrinking(forest, {1, 2}, cards, Deadline())
        shrinking.shrink(2.0)
        left = joint([2, 2], [((0, 1), p.table) for p in shrinking.parts()])
        assert_allclose(left, before.sum((0, 3)) / before.sum(), atol=1e-12)


class TestAnticipated:
    @settings(max_examples=30, deadline=None)
    @given(models(most=6), st.booleans())
    def test_divided_factors_times_fields_are_the_model(
        self, model: FactorGraph, propagate: bool
    ) -> None:
        truth = possible(model)
        if truth is None:
            return
        part = supported(model)
        found = anticipated(part.model, Budget(), Deadline(), RNG, propagate)
        cards = part.model.cards.tolist()
        total = np.ones(cards)
        used = {i for scope, _ in found.factors for i in scope}
        for scope, table in [*found.factors, *(((i,), f) for i, f in enumerate(found.fields))]:
            total = total * table.reshape(
                [cards[i] if i in scope else 1 for i in range(len(cards))]
            )
        free = [i for i in range(len(cards)) if i not in used]
        log_z = math.log(total.sum()) + found.log_scale
        log_z -= sum(math.log(found.fields[i].sum()) for i in free)
        assert truth.log_z is not None
        assert abs(log_z - truth.log_z) < 1e-7


@settings(max_examples=60, deadline=None)
@given(models(most=8))
def test_one_forest_is_exact(model: FactorGraph) -> None:
    truth = possible(model)
    if truth is None:
        return
    found = run(model, bound=30)
    assert found.status is Status.EXACT
    assert_allclose(found.probs, truth.probs, atol=1e-7)
    assert found.log_z is not None
    assert truth.log_z is not None
    assert abs(found.log_z - truth.log_z) < 1e-7


@settings(max_examples=60, deadline=None)
@given(models(), st.integers(1, 4), st.booleans())
def test_any_bound_gives_marginals(model: FactorGraph, bound: int, anticipate: bool) -> None:
    truth = possible(model)
    if truth is None:
        return
    found = run(model, bound=bound, margin=1, anticipate=anticipate)
    assert_allclose(found.probs.sum(1), 1.0)
    assert not found.probs[np.arange(model.max_states) >= model.cards[:, None]].any()
    assert found.log_z is not None
    assert math.isfinite(found.log_z)


def test_errors_fall_as_the_bound_grows() -> None:
    errors = {bound: 0.0 for bound in (4, 8, 12)}
    for seed in range(5):
        model = glass(seed, 10)
        truth = JunctionTree()(model, Budget(), RNG)
        for bound in errors:
            found = run(model, bound=bound)
            errors[bound] += np.abs(found.probs - truth.probs).sum(1).mean() / 5
    assert errors[4] > 3 * errors[8] > 9 * errors[12]
    assert errors[12] < 0.01


def test_forests_of_a_chain_with_a_small_bound_are_exact() -> None:
    """Interfaces of one variable lose nothing, so several forests are exact, too."""
    rng = np.random.default_rng(1)
    n = 40
    scopes = tuple((i, i + 1) for i in range(n - 1))
    model = FactorGraph(np.full(n, 3), scopes, tuple(rng.normal(size=(3, 3)) for _ in scopes))
    truth = JunctionTree()(model, Budget(), RNG)
    found = run(model, bound=4, margin=2, anticipate=False)
    assert_allclose(found.probs, truth.probs, atol=1e-9)


def test_answers_have_growing_bounds() -> None:
    answers = list(IncrementalForests().answers(glass(0, 11), Budget(seconds=60.0), RNG))
    bounds = [answer.stats["bound"] for answer in answers]
    assert len(bounds) > 1
    assert bounds == sorted(set(bounds))
    assert answers[-1].status is Status.EXACT


def test_the_answer_does_not_depend_on_chance() -> None:
    model = glass(0, 10)
    first, second = (
        IncrementalForests(bound=6)(model, Budget(), np.random.default_rng(seed)) for seed in (1, 2)
    )
    assert np.array_equal(first.probs, second.probs)


@pytest.mark.parametrize("options", [{"bound": 0}, {"margin": 0}])
def test_impossible_settings_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(IcgiError, match="at least 1"):
        run(glass(0, 3), **options)
