"""Signed exact inference: against enumeration, exact fractions, and its own certificate."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.random import Generator
from numpy.testing import assert_allclose

import structured
from collapsed import CollapsedJunctionTree, find_structure
from icgi.clock import Deadline
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.exact import signed as module
from icgi.exact.enumeration import Enumerate
from icgi.exact.junction_tree import JunctionTree
from icgi.exact.signed import _run, answer_signed, forecast_signed, solve_signed
from icgi.exact.signed_tree import plan_signed
from icgi.inference import Budget, Status, infer
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph
from icgi.model.structure.collapse import Collapsed, Links, Network

BUDGET = Budget()


def hidden(rng, build, kind, causes, effects, fan_in, states=2, observed=0, noise=2):
    cards, factors, ends = build(rng, kind, causes, effects, fan_in, states)
    for _ in range(noise):
        i, j = rng.permutation(causes)[:2].tolist()
        factors.append(((i, j), rng.uniform(0.2, 1.0, (cards[i], cards[j]))))
    seen = {y: int(rng.integers(cards[y])) for y in ends[:observed]}
    return structured.hide(rng, cards, factors, seen)


@pytest.mark.parametrize("kind", ["or", "max", "parity"])
@pytest.mark.parametrize("build", [structured.chain_network, structured.written_network])
@pytest.mark.parametrize("seed", range(6))
def test_all_marginals_agree_with_enumeration(kind, build, seed) -> None:
    rng = np.random.default_rng([seed, len(kind)])
    states = 3 if kind == "max" else 2
    fan_in = 4 if build is structured.chain_network else 5
    model, seen, _ = hidden(rng, build, kind, 6, 2, fan_in, states, observed=seed % 3)
    found = infer(model, seen, CollapsedJunctionTree(), BUDGET, rng)
    truth = infer(model, seen, Enumerate(), BUDGET, rng)
    assert found.status is Status.EXACT
    assert_allclose(found.probs, truth.probs, atol=1e-9)
    assert_allclose(found.log_z, truth.log_z, atol=1e-9)
    assert found.stats["error_bound"] < 1e-9


@pytest.mark.parametrize("kind", ["or", "max", "parity"])
def test_chains_collapse_to_one_variable_each(kind) -> None:
    rng = np.random.default_rng(5)
    states = 4 if kind == "max" else 2
    model, _, _ = hidden(rng, structured.chain_network, kind, 30, 3, 10, states)
    found = find_structure(model)
    assert found is not None
    assert found.groups == 3
    assert len(found.links.variable) == 3 * 8  # nine gates each, the last effect stays
    assert str(found).startswith(f"27 factors collapsed into 3 sums of at most {states} products")


def test_large_networks_are_exact_where_the_width_forbids_it() -> None:
    rng = np.random.default_rng(11)
    model, seen, _ = hidden(rng, structured.chain_network, "or", 200, 10, 40, observed=10)
    found = infer(model, seen, CollapsedJunctionTree(), BUDGET, rng)
    assert found.status is Status.EXACT
    assert_allclose(found.probs.sum(1), 1.0)


def test_models_without_sums_are_refused() -> None:
    rng = np.random.default_rng(0)
    table = np.log(rng.uniform(0.1, 1.0, (2, 2, 2, 2)))
    model = FactorGraph(np.array([2] * 4), ((0, 1, 2, 3),), (table,))
    assert find_structure(model) is None
    with pytest.raises(UnsupportedModelError, match="sum of few products"):
        CollapsedJunctionTree()(model, BUDGET, rng)


def test_memory_is_refused_before_it_is_taken() -> None:
    rng = np.random.default_rng(1)
    model, seen, _ = hidden(rng, structured.chain_network, "or", 60, 8, 30, observed=8)
    with pytest.raises(BudgetError, match="memory"):
        infer(model, seen, CollapsedJunctionTree(), Budget(table_bytes=10_000), rng)


def test_no_time_gives_no_answer() -> None:
    rng = np.random.default_rng(1)
    model, seen, _ = hidden(rng, structured.chain_network, "or", 60, 8, 30, observed=8)
    found = find_structure(condition(model, seen).model)
    ahead = forecast_signed(found, rng)
    assert solve_signed(found, ahead.order, Budget(seconds=0.0)) is None


def rare_causes(seed: int) -> tuple[Collapsed, FactorGraph, Generator]:
    """Rare causes without leaks: 1 − Π q is tiny for every finding."""
    rng = np.random.default_rng([15, seed])
    cards, factors, ends = structured.rare_network(rng, 40, 12, 8, 10.0 ** -rng.uniform(5, 6))
    model, seen, _ = structured.hide(rng, cards, factors, dict.fromkeys(ends, 1))
    model = condition(model, seen).model
    found = find_structure(model)
    assert found is not None
    return found, model, rng


@pytest.mark.parametrize("quads", [True, False])
def test_where_signs_cancel_too_much_other_ways_are_exact(quads: bool, monkeypatch) -> None:
    """Quad-doubles, or, where they would take too long, some sums that stay unsplit."""
    if not quads:
        monkeypatch.setattr(module, "QUADS", np.inf)
    found, model, rng = rare_causes(4)
    ahead = forecast_signed(found, rng)
    assert solve_signed(found, ahead.order, BUDGET) is None  # the certificate does not lie
    answer = answer_signed(found, ahead, BUDGET, rng)
    assert answer is not None
    assert (answer.stats["collapsed"] == len(found.links.variable)) == quads
    truth = JunctionTree()(model, BUDGET, rng)
    assert_allclose(answer.probs, truth.probs, atol=1e-9)
    assert_allclose(answer.log_z, truth.log_z, atol=1e-9)


def test_quad_doubles_answer_what_cancels_31_digits() -> None:
    rng = np.random.default_rng(3)
    cards, factors, ends = structured.rare_network(rng, 100, 15, 30, 1e-6)
    model, seen, _ = structured.hide(rng, cards, factors, dict.fromkeys(ends, 1))
    answer = infer(model, seen, CollapsedJunctionTree(), BUDGET, rng)
    assert answer.status is Status.EXACT
    # Every finding has a cause: the expected number of causes is at least one, most of the weight
    # is on configurations of the fewest causes that explain all.
    assert answer.probs[:, 1].sum() > 1.0


def exact_marginals(model):
    """Marginals and Z of a small positive model in fractions, from its double potentials."""
    potentials = [np.exp(t) for t in model.log_tables]
    mass = [[Fraction(0)] * int(c) for c in model.cards]
    total = Fraction(0)
    for x in itertools.product(*[range(int(c)) for c in model.cards]):
        weight = Fraction(1)
        for scope, table in zip(model.scopes, potentials, strict=True):
            value = float(table[tuple(x[i] for i in scope)])
            if value == 0.0:
                weight = Fraction(0)
                break
            weight *= Fraction(value)
        total += weight
        for i, s in enumerate(x):
            mass[i][s] += weight
    return mass, total


def check_certificate(seed: int) -> bool:
    """Whether an answer was given; fails where its error is above its bound."""
    rng = np.random.default_rng([77, seed])
    kind = ("or", "parity", "max")[seed % 3]
    build = (structured.chain_network, structured.written_network)[seed // 3 % 2]
    cards, factors, ends = build(rng, kind, 5, 2, 4, 3 if kind == "max" else 2)
    # extremes: tiny leaks and nearly certain causes make the signs cancel
    for i in range(3):
        p = 10.0 ** -rng.uniform(0, 12)
        factors[i] = ((i,), np.concatenate([[1.0 - p], np.full(cards[i] - 1, p)]))
    seen = {y: int(rng.integers(cards[y])) for y in ends[: seed % 3]}
    model, seen, _ = structured.hide(rng, cards, factors, seen)
    model = condition(model, seen).model
    found = find_structure(model)
    if found is None:
        return False
    answer = solve_signed(found, forecast_signed(found, rng).order, BUDGET)
    if answer is None:
        return False
    keep = np.flatnonzero(model.cards > 1)
    mass, total = exact_marginals(model)
    bound = answer.stats["error_bound"]
    for i in keep:
        for x, value in enumerate(mass[i]):
            assert abs(answer.probs[i, x] - float(value / total)) <= bound + 1e-15
    log_z = float(np.log(float(total))) if total > Fraction(1, 10**300) else None
    if log_z is not None:
        assert abs(answer.log_z - log_z) <= answer.stats["log_z_error"] + 1e-13 * len(factors)
    return True


def test_certificates_are_never_too_optimistic() -> None:
    assert sum(check_certificate(seed) for seed in range(60)) > 40


def random_signed(rng) -> Collapsed:
    """A network of random tables with signs, built so that its sums cancel."""
    n = int(rng.integers(2, 6))
    cards = rng.integers(2, 4, n)
    scopes = [tuple(rng.permutation(n)[: rng.integers(1, 4)].tolist()) for _ in range(3)]
    scopes += [(i, i + 1) for i in range(n - 1)]  # connected: masses then share one Z
    tables = []
    for scope in scopes:
        table = rng.normal(size=[cards[i] for i in scope])
        table = np.round(table * 4) / 4 if rng.random() < 0.3 else table
        if rng.random() < 0.5:  # rows that nearly add up to nothing
            table[(0,)] = -table[1:].sum(0) + 10.0 ** -rng.uniform(0, 30)
        tables.append(table)
    low = [t * rng.uniform(-1, 1, t.shape) * 2.0**-54 for t in tables]
    model = FactorGraph(cards, (), ())
    lengths = [0, *map(len, scopes)]
    sizes = [0, *(t.size for t in tables)]
    network = Network(
        model.cards, np.cumsum(lengths), np.array([i for s in scopes for i in s]),
        np.cumsum(sizes), np.concatenate([t.ravel() for t in tables]),
        np.concatenate([t.ravel() for t in low]), 0.0,
    )  # fmt: skip
    none, start, numbers = np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0)
    links = Links(
        none, none, start, numbers, numbers, start, none, np.empty((0, 1)), np.empty((0, 1)),
        np.zeros(len(scopes) + 1, np.int64), numbers, numbers,
    )  # fmt: skip
    return Collapsed(model, network, links, 0.0, 0, 0, 0, ())


def as_quads(rng, collapsed: Collapsed) -> Collapsed:
    """The same network with two more terms behind every number."""
    net, links = collapsed.network, collapsed.links
    tail = net.low * rng.uniform(-1, 1, len(net.low)) * 2.0**-54
    tail = tail + 1j * tail * 2.0**-54
    nothing = np.empty(0, np.complex128)
    return replace(
        collapsed,
        network=replace(net, high=net.high + 1j * net.low, low=tail),
        links=replace(links, own_high=nothing, own_low=nothing, high=nothing, low=nothing,
                      extra_high=links.extra_high + 0j, extra_low=links.extra_low + 0j),
    )  # fmt: skip


def fraction(*terms: complex) -> Fraction:
    return sum((Fraction(float(x)) for t in terms for x in (t.real, t.imag)), Fraction(0))


def exact_masses(network: Network) -> list[list[Fraction]]:
    mass = [[Fraction(0)] * int(c) for c in network.cards]
    tables = [fraction(a, b) for a, b in zip(network.high, network.low, strict=True)]
    for x in itertools.product(*[range(int(c)) for c in network.cards]):
        weight = Fraction(1)
        for f in range(len(network.scope_start) - 1):
            at = 0
            for i in network.scope[network.scope_start[f] : network.scope_start[f + 1]]:
                at = at * int(network.cards[i]) + x[i]
            weight *= tables[int(network.table_start[f]) + at]
        for i, s in enumerate(x):
            mass[i][s] += weight
    return mass


def check_bound(seed: int, *, quads: bool = False) -> bool:
    """Whether the masses of a random network were found; fails where one misses its bound."""
    rng = np.random.default_rng([99, seed])
    collapsed = random_signed(rng)
    if quads:
        collapsed = as_quads(rng, collapsed)
    order = rng.permutation(len(collapsed.network.cards))
    found = _run(collapsed, plan_signed(collapsed, order), Deadline())
    if found is None:
        return False
    truth = exact_masses(collapsed.network)
    checked = False
    for i, row in enumerate(truth):
        value, low, bound = found[0][:, i, : len(row)]
        total = sum(row)
        found_total = fraction(*value, *low)
        if total == 0 or abs(found_total) <= 8 * fraction(bound.sum()):
            continue
        ratio = abs(found_total / total)
        scale = Fraction(2) ** round(np.log2(float(ratio)))  # messages are scaled by powers of two
        for x, exact in enumerate(row):
            assert abs(fraction(value[x], low[x]) - scale * exact) <= fraction(bound[x])
        checked = True
    return checked


def test_running_bounds_hold_on_random_signed_models() -> None:
    assert sum(check_bound(seed) for seed in range(1000)) > 300
    assert sum(check_bound(seed, quads=True) for seed in range(300)) > 100


@pytest.mark.slow
def test_running_bounds_hold_on_ten_thousand_signed_models() -> None:
    assert sum(check_bound(seed) for seed in range(1000, 11000)) > 3000
    assert sum(check_bound(seed, quads=True) for seed in range(300, 5000)) > 1500


@pytest.mark.slow
def test_certificates_are_never_too_optimistic_at_length() -> None:
    assert sum(check_certificate(seed) for seed in range(60, 1000)) > 700
