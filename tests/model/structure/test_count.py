"""Interchangeable variables are found behind any disguise, and counting them changes nothing."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

import structured
import zoo
from icgi.errors import EvidenceError
from icgi.exact.enumeration import Enumerate
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph
from icgi.model.structure.count import compositions, count_classes
from icgi.model.structure.private import find_remainder
from icgi.model.structure.symmetry import find_classes

BUDGET = Budget()


def check(model: FactorGraph, rng) -> None:
    counted = count_classes(model)
    assert counted is not None
    found = counted.spread(JunctionTree()(counted.model, BUDGET, rng))
    truth = Enumerate()(model, BUDGET, rng)
    assert_allclose(found.probs, truth.probs, atol=1e-11)
    assert_allclose(found.log_z, truth.log_z, atol=1e-11)


@pytest.mark.parametrize("seed", range(40))
def test_hidden_groups_are_found_and_agree_with_enumeration(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    sizes = [[4], [3, 4], [5, 3], [6]][seed % 4]
    cards, factors, groups = structured.exchangeable_network(
        rng, sizes, lone=2, states=2 if sum(sizes) > 6 else 3, zeros=0.2 * (seed % 3 == 0)
    )
    model, _, number = structured.hide(rng, cards, factors, {})
    counted = count_classes(model)
    assert counted is not None
    found = [set(c.members) for c in counted.classes]
    for group in groups:
        assert any({int(number[i]) for i in group} <= members for members in found)
    check(model, rng)


@pytest.mark.parametrize("seed", range(12))
def test_evidence_breaks_a_group_into_what_is_left_of_it(seed: int) -> None:
    rng = np.random.default_rng([8, seed])
    cards, factors, _ = structured.exchangeable_network(rng, [6], lone=2, states=2)
    try:
        model, seen, _ = structured.hide(rng, cards, factors, {0: 0, 1: 1})
        check(condition(model, seen).model, rng)
    except EvidenceError:
        return


@pytest.mark.parametrize("seed", range(30))
def test_equal_tables_on_any_graph_agree_with_enumeration(seed: int) -> None:
    """Many variables look alike; whether swaps are symmetries is up to the proof."""
    rng = np.random.default_rng([9, seed])
    n = int(rng.integers(6, 10))
    table = rng.uniform(0.2, 2.0, (2, 2))
    if seed % 2:
        table = table + table.T
    edges = [(i, j) for i in range(n) for j in range(i) if rng.random() < rng.choice([0.3, 0.9])]
    edges = [e if rng.random() < 0.5 else e[::-1] for e in edges]
    model, _, _ = structured.hide(rng, [2] * n, [(e, table) for e in edges], {})
    counted = count_classes(model)
    if counted is None:
        return
    check(model, rng)
    for c in counted.classes:  # a swap of two members leaves the joint as it is
        joint = zoo.joint(model).reshape(model.cards)
        for j in c.members[1:]:
            assert_allclose(np.swapaxes(_in_colours(joint, counted), c.members[0], j),
                            _in_colours(joint, counted), atol=1e-11)  # fmt: skip


def _in_colours(joint: np.ndarray, counted) -> np.ndarray:
    for i, states in enumerate(counted.states):
        joint = np.take(joint, states, i)
    return joint


def test_a_table_one_digit_apart_breaks_the_symmetry() -> None:
    same = np.array([[1.0, 2.0], [2.0, 5.0]])
    other = same * np.array([[1.0, 1.0], [1.0, 1.0 + 1e-7]])
    factors = [((i, j), same) for i in range(5) for j in range(i)]
    cards = [2] * 5
    whole = structured.hide(np.random.default_rng(0), cards, factors, {})[0]
    broken = structured.hide(np.random.default_rng(0), cards, [*factors[1:], ((0, 1), other)], {})
    assert [len(c.members) for c in count_classes(whole).classes] == [5]
    counted = count_classes(broken[0])
    assert counted is not None
    assert sorted(len(c.members) for c in counted.classes) == [1, 1, 3]


def test_no_classes_in_models_without_symmetry() -> None:
    for name in ("grid-3x3", "ternary-factors", "mixed-cards", "chain", "tree"):
        assert count_classes(zoo.MODELS[name]) is None


def test_twins_by_definition() -> None:
    """Classes of a remainder are exactly those that swaps of the whole joint table show."""
    for seed in range(20):
        rng = np.random.default_rng([10, seed])
        tables = {}
        kinds = [rng.uniform(-1, 1, (2, 2)) for _ in range(2)]
        kinds = [k + k.T for k in kinds]
        for i in range(5):
            tables[(i,)] = np.array([0.0, -0.5])
            for j in range(i):
                tables[(j, i)] = kinds[int(rng.random() < 0.15)]
        model = FactorGraph(np.full(5, 2), tuple(tables), tuple(tables.values()))
        joint = zoo.joint(model).reshape(model.cards)
        classes = find_classes(tables, np.zeros(5, np.int64))
        if classes is None:
            classes = [[i] for i in range(5)]
        of = {i: c for c, members in enumerate(classes) for i in members}
        sizes = [len(members) for members in classes]
        for i in range(5):
            for j in range(i):
                same = np.allclose(np.swapaxes(joint, i, j), joint, atol=1e-12)
                assert same or of[i] != of[j]
                assert not same or of[i] == of[j] or max(sizes) < 3


def test_spins_that_are_all_coupled() -> None:
    """Curie–Weiss: the counts of both states are the whole model."""
    n, coupling, field = 60, 0.02, 0.1
    pair = coupling * np.array([[1.0, -1.0], [-1.0, 1.0]])
    unary = np.array([field, -field])
    scopes = [(i,) for i in range(n)] + [(i, j) for i in range(n) for j in range(i)]
    model = FactorGraph(
        np.full(n, 2), tuple(scopes), tuple(unary if len(s) == 1 else pair for s in scopes)
    )
    counted = count_classes(model)
    found = counted.spread(JunctionTree()(counted.model, BUDGET, np.random.default_rng(0)))
    up = np.arange(n + 1)
    spin = 2 * up - n
    log = np.array([math.log(math.comb(n, k)) for k in up])
    log = log + coupling * (spin**2 - n) / 2 + field * spin
    weights = np.exp(log - log.max())
    assert_allclose(found.probs[:, 0], (weights * up).sum() / weights.sum() / n, atol=1e-12)
    assert_allclose(found.log_z, np.log(weights.sum()) + log.max(), atol=1e-10)


@pytest.mark.parametrize(("n", "k"), [(0, 2), (5, 1), (5, 2), (4, 3), (3, 4)])
def test_compositions(n: int, k: int) -> None:
    rows = compositions(n, k)
    assert (rows.sum(1) == n).all()
    assert len({tuple(row) for row in rows.tolist()}) == len(rows) == math.comb(n + k - 1, k - 1)


@pytest.mark.parametrize("name", sorted(zoo.MODELS))
def test_summing_out_private_variables_leads_back(name: str) -> None:
    model = zoo.MODELS[name]
    remainder = find_remainder(model)
    assert remainder is not None
    gone = {i for i, _, _ in remainder.steps}
    cards = np.array([1 if i in gone else c for i, c in enumerate(model.cards)])
    rest = FactorGraph(
        cards, (*remainder.tables, ()), (*remainder.tables.values(), np.array(remainder.constant))
    )
    rng = np.random.default_rng(0)
    truth, small = Enumerate()(model, BUDGET, rng), Enumerate()(rest, BUDGET, rng)
    assert_allclose(small.log_z, truth.log_z, atol=1e-12)
    weights = np.exp(zoo.joint(rest) - small.log_z).reshape(cards)
    probs = np.zeros(truth.probs.shape)
    probs[:, : small.probs.shape[1]] = small.probs
    remainder.descend(
        lambda scope: weights.sum(tuple(i for i in range(len(cards)) if i not in scope)), probs
    )
    assert_allclose(probs, truth.probs, atol=1e-12)


@pytest.mark.slow
def test_many_hidden_groups_agree_with_enumeration() -> None:
    for seed in range(1000):
        rng = np.random.default_rng([11, seed])
        sizes = [int(rng.integers(3, 6)) for _ in range(int(rng.integers(1, 3)))]
        states = 3 if sum(sizes) < 6 else 2
        zeros = float(rng.choice([0.0, 0.3]))
        cards, factors, _ = structured.exchangeable_network(rng, sizes, 2, states, zeros=zeros)
        model, _, _ = structured.hide(rng, cards, factors, {})
        check(model, rng)
