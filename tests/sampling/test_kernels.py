"""Every kernel against the transition matrix that heat-bath sweeps have, on tiny models."""

import mixed
import numpy as np
import pytest
from numpy.testing import assert_allclose

import zoo
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model, potts_model
from icgi.sampling import pairs, spins, tables
from icgi.sampling.annealing import relax
from icgi.sampling.choice import conditional_range
from icgi.sampling.replicas import make_scratch, make_state, reach
from icgi.sampling.streams import stream
from icgi.sampling.targets import Target, target

RNG = np.random.default_rng(11)
TRIANGLE = np.array([(0, 1), (1, 2), (0, 2)])
MODELS = {
    "spins": ising_model((mixed.edges(RNG, 5, 0.4), 0.7), RNG.normal(0, 0.5, 5)),
    "dense-spins": ising_model(np.triu(RNG.normal(0, 0.6, (5, 5)), 1), 0.3),
    "potts": potts_model(TRIANGLE, RNG.normal(0, 1, 3), RNG.normal(0, 0.5, (3, 3))),
    "mixed-cards": zoo.random_model(RNG, [2, 4, 3], [(0, 1), (2, 1), (0,)]),
    "ternary": zoo.random_model(RNG, [2, 3, 2, 2], [(0, 1, 2), (3, 1, 2), (3,)]),
    "pair-zeros": zoo.random_model(RNG, [3, 3, 2], [(0, 1), (1, 2), (0, 2)], zeros=0.2),
    "ternary-zeros": zoo.random_model(RNG, [2, 3, 2, 2], [(0, 1, 2), (3, 1, 2)], zeros=0.2),
}
CASES = [(name, kind) for name in MODELS for kind in ("auto", "tables")]


def hot_log_weight(aim: Target, scale: float) -> np.ndarray:
    """λ times the log weights with penalties, as the hot levels see them."""
    from icgi.sampling.targets import soften

    soft = FactorGraph(aim.model.cards, aim.model.scopes, tuple(soften(aim.model)))
    return scale * mixed.log_joint(soft)


def after_one_sweep(aim: Target, x: np.ndarray, scale: float, hard: bool) -> tuple:
    """Configurations after one sweep from each row of `x`, log weights, p(x_i | rest)."""
    state = make_state(aim.kernel, x.copy())
    weight, broken = np.empty(len(x)), np.empty(len(x), np.int64)
    local = np.zeros((len(x), aim.slots))
    source = stream(np.random.default_rng(5))
    scratch = make_scratch(aim.kernel)
    stop = np.zeros(1, np.uint8)
    relax(aim.kernel, state, scale, hard, 1, source, scratch, weight, broken, local, stop)
    return state.x, weight, broken, local


def test_kernels_are_the_ones_meant() -> None:
    kinds = {name: type(target(model).kernel) for name, model in MODELS.items()}
    assert kinds["spins"] is kinds["dense-spins"] is spins.Spins
    assert kinds["potts"] is kinds["pair-zeros"] is pairs.Pairs
    assert kinds["ternary"] is kinds["ternary-zeros"] is tables.Tables
    assert len(target(MODELS["dense-spins"]).kernel.matrix)


@pytest.mark.parametrize("scale", [0.0, 0.4, 1.0])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_one_sweep_has_the_exact_transition_matrix(name: str, kind: str, scale: float) -> None:
    aim = target(MODELS[name], kind)
    cards = aim.model.cards
    starts = mixed.configurations(cards)
    hot = hot_log_weight(aim, scale)
    matrix = mixed.sweep_matrix(hot, cards)
    assert_allclose(mixed.gibbs(hot) @ matrix, mixed.gibbs(hot), atol=1e-12)
    each = 4000
    found, _, _, _ = after_one_sweep(aim, np.repeat(starts, each, 0), scale, False)
    ends = mixed.numbers(found, cards).reshape(len(starts), each)
    p = [
        mixed.chi_square(np.bincount(row, minlength=len(starts)), exact)
        for row, exact in zip(ends, matrix, strict=True)
    ]
    assert min(p) > 1e-5
    assert np.mean(np.array(p) < 0.1) < 0.35


@pytest.mark.parametrize(("name", "kind"), [case for case in CASES if "zeros" in case[0]])
def test_true_zeros_are_never_entered(name: str, kind: str) -> None:
    aim = target(MODELS[name], kind)
    cards = aim.model.cards
    log_weight = mixed.log_joint(aim.model)
    allowed = np.flatnonzero(np.isfinite(log_weight))
    assert 0 < len(allowed) < log_weight.size
    matrix = mixed.sweep_matrix(log_weight, cards)[allowed]
    starts = np.repeat(mixed.configurations(cards)[allowed], 2000, 0)
    found, weight, broken, local = after_one_sweep(aim, starts, 1.0, True)
    assert (broken == 0).all()
    ends = mixed.numbers(found, cards)
    assert_allclose(weight, log_weight[ends], atol=1e-9)
    rows = ends.reshape(len(allowed), -1)
    p = [
        mixed.chi_square(np.bincount(row, minlength=log_weight.size), exact)
        for row, exact in zip(rows, matrix, strict=True)
    ]
    assert min(p) > 1e-5
    assert_allclose(local.sum(1), len(cards), atol=1e-9)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_log_weights_and_reported_conditionals(name: str, kind: str) -> None:
    aim = target(MODELS[name], kind)
    cards = aim.model.cards
    starts = mixed.configurations(cards)
    hot = hot_log_weight(aim, 1.0)
    found, weight, _, local = after_one_sweep(aim, starts, 1.0, False)
    ends = mixed.numbers(found, cards)
    shift = aim.constant if isinstance(aim.kernel, spins.Spins) else 0.0
    assert_allclose(weight + shift, hot[ends], atol=1e-5)
    # the first variable is drawn given the start: its reported distribution is known exactly
    table = mixed.gibbs(hot).reshape(tuple(cards))
    first = (table / table.sum(0)).reshape(cards[0], -1)
    rest = mixed.numbers(starts[:, 1:], cards[1:])
    if isinstance(aim.kernel, spins.Spins):
        assert_allclose(local[:, 0], first[1, rest], atol=1e-6)
    else:
        assert_allclose(local[:, : cards[0]].T, first[:, rest], atol=1e-9)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_conditionals_stay_within_their_reach(name: str, kind: str) -> None:
    aim = target(MODELS[name], kind)
    cards = aim.model.cards
    bound = reach(aim.kernel)
    assert bound.shape == (aim.slots,)
    table = np.exp(mixed.log_joint(aim.model)).reshape(tuple(cards))
    slot = 0
    for i, card in enumerate(cards):
        total = table.sum(i, keepdims=True)
        with np.errstate(invalid="ignore"):
            conditional = np.moveaxis(table / total, i, 0).reshape(card, -1)
        spread = np.nanmax(conditional, 1) - np.nanmin(conditional, 1)
        states = [1] if isinstance(aim.kernel, spins.Spins) else range(card)
        for x in states:
            assert spread[x] <= bound[slot] + 1e-6
            slot += 1


def test_incremental_fields_do_not_drift() -> None:
    rng = np.random.default_rng(0)
    n = 200
    dense = ising_model(np.triu(rng.normal(0, 2 / np.sqrt(n), (n, n)), 1), 0.1)
    for model in (dense, ising_model((mixed.edges(rng, n, 0.02), 1.3), rng.normal(0, 1, n))):
        aim = target(model)
        state = make_state(aim.kernel, rng.integers(0, 2, (4, n), dtype=np.int32))
        weight, broken = np.empty(4), np.empty(4, np.int64)
        source, scratch = stream(rng), make_scratch(aim.kernel)
        for _ in range(64):  # as many sweeps as the drivers do before they rebuild the fields
            for r in range(4):
                spins.sweep(aim.kernel, state, r, 0.5, False, source, scratch, np.empty(n), False)
        fresh = make_state(aim.kernel, state.x.copy())
        assert_allclose(state.field, fresh.field, atol=2e-5)
        for r in range(4):
            weight[r], broken[r] = spins.weigh(aim.kernel, fresh, r)
        s = 2.0 * state.x - 1
        exact = np.zeros(4)
        for scope, table in zip(model.scopes, model.log_tables, strict=True):
            exact += table[tuple(state.x[:, list(scope)].T)]
        assert_allclose(weight + aim.constant, exact, atol=1e-3)
        assert np.isin(s, (-1, 1)).all()


def test_a_choice_never_leaves_its_range() -> None:
    """Weights that are all zero, in memory that is zero before them: state 0, not a walk down."""
    from icgi.sampling.choice import choose

    memory = np.zeros(4096)
    memory[0] = 1.0
    two, none = np.uint64(2), np.uint64(0)
    for u in (0.0, 0.3, 1.0 - 2**-53):
        assert choose(memory[2000:2002], two, 0.0, u, np.zeros(2), none, True) == 0
        assert choose(np.array([1.0, 0.0]), two, 1.0, u, np.zeros(2), none, False) == 0
        assert choose(np.array([0.0, 1.0]), two, 1.0, u, np.zeros(2), none, False) == 1


WIDE = {
    "wide-ternary": zoo.random_model(
        RNG, [2, 3, 2, 2], [(0, 1, 2), (3, 1, 2), (3,)], scale=600.0, zeros=0.3
    ),
    "wide-pairs": zoo.random_model(
        RNG, [3, 3, 2], [(0, 1), (1, 2), (0, 2)], scale=600.0, zeros=0.2
    ),
    "wide-spins": ising_model((TRIANGLE, [700.0, -650.0, 690.0]), [0.4, -0.2, 0.1]),
}


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("name", WIDE)
def test_one_sweep_of_wide_ranges_has_the_exact_transition_matrix(name: str, hard: bool) -> None:
    """Log weights differ by far more than e^745 holds; the best state is still the one drawn."""
    aim = target(WIDE[name])
    assert not isinstance(aim.kernel, spins.Spins)
    cards = aim.model.cards
    log_weight = mixed.log_joint(aim.model) if hard else hot_log_weight(aim, 1.0)
    starts = mixed.configurations(cards)
    allowed = np.flatnonzero(np.isfinite(log_weight))
    found, _, broken, local = after_one_sweep(aim, np.repeat(starts[allowed], 500, 0), 1.0, hard)
    assert np.isfinite(local).all()
    if hard:
        assert (broken == 0).all()
    ends = mixed.numbers(found, cards).reshape(len(allowed), -1)
    for k, row in zip(allowed, ends, strict=True):
        exact = one_sweep_from(log_weight.reshape(tuple(cards)), k)
        assert mixed.chi_square(np.bincount(row, minlength=log_weight.size), exact) > 1e-5


def one_sweep_from(log_weight: np.ndarray, start: int) -> np.ndarray:
    """Row of the transition matrix of a sweep, conditionals formed in log space."""
    total = np.zeros(log_weight.shape)
    total.flat[start] = 1.0
    for i in range(log_weight.ndim):
        top = log_weight.max(i, keepdims=True)
        with np.errstate(invalid="ignore"):
            weight = np.nan_to_num(np.exp(log_weight - top))
        sums = np.maximum(weight.sum(i, keepdims=True), 1e-300)
        total = total.sum(i, keepdims=True) * weight / sums
    return total.ravel()


def test_reach_of_wide_ranges_is_not_lost_to_rounding() -> None:
    """State 0 wins with e^256 at best and loses with e^-141 at worst: it can do anything."""
    first = np.array([0, 3], np.uint64)
    high, low = np.array([256.3, -13.2, -300.0]), np.array([-140.9, -789.4, -1058.0])
    found = conditional_range(first, high, low)
    assert found[0] > 0.99
    assert found[1] > 0.99


def test_large_tables_are_read_for_bounds_only_while_that_is_soon_done() -> None:
    """A dozen of 2^20 entries would take seconds; what is not read may do anything."""
    rng = np.random.default_rng(0)
    small = [((i, i + 1), rng.normal(size=(2, 2))) for i in range(17, 30)]
    few = [(tuple(range(17)), rng.normal(size=[2] * 17))]
    many = [(tuple(range(k, k + 18)), rng.normal(size=[2] * 18)) for k in range(6)]
    for factors, most in ((small + few, 2**20), (small + few + many, 2**18 - 1)):
        scopes, values = zip(*factors, strict=True)
        made = tables.tables(FactorGraph(np.full(31, 2), scopes, values), list(values))
        assert tables._readable(made) == most
