import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import zoo
from icgi.engines import ENGINES, parse_engine
from icgi.errors import BudgetError, EvidenceError, IcgiError
from icgi.exact.enumeration import Enumerate
from icgi.exact.forecast import along, forecast
from icgi.exact.junction_tree import AlongForecast, AlongOrder, JunctionTree, solve
from icgi.exact.sweeps import THREADED
from icgi.exact.tree import LARGE, SHORT, plan
from icgi.inference import Budget, Status
from icgi.model.graph import FactorGraph
from icgi.model.ordering import cost
from icgi.units import readable_bytes

ROOT = Path(__file__).parents[2]


def grid(rows: int, columns: int, seed: int, card: int = 2, **kwargs) -> FactorGraph:
    rng = np.random.default_rng(seed)
    return zoo.random_model(
        rng, [card] * (rows * columns), zoo.grid_scopes(rows, columns), **kwargs
    )


def transfer_matrix_log_z(model: FactorGraph, rows: int, columns: int) -> float:
    """log Z of a binary grid by a site-by-site transfer matrix: no tree, no elimination order."""
    tables = dict(zip(model.scopes, model.log_tables, strict=True))
    bits = (np.arange(2**columns)[:, None] >> np.arange(columns)) & 1  # state of each row
    row_weight = np.zeros((rows, 2**columns))
    for r in range(rows):
        for c in range(columns):
            i = r * columns + c
            row_weight[r] += tables[(i,)][bits[:, c]]
            if c + 1 < columns:
                row_weight[r] += tables[(i, i + 1)][bits[:, c], bits[:, c + 1]]
    log_front = row_weight[0]
    for r in range(1, rows):
        link = np.zeros((2**columns, 2**columns))
        for c in range(columns):
            table = tables[((r - 1) * columns + c, r * columns + c)]
            link += table[bits[:, c][:, None], bits[:, c][None, :]]
        joint = log_front[:, None] + link
        top = joint.max(0)
        log_front = top + np.log(np.exp(joint - top).sum(0)) + row_weight[r]
    top = log_front.max()
    return float(top + np.log(np.exp(log_front - top).sum()))


@pytest.mark.parametrize("arithmetic", ["auto", "log"])
@pytest.mark.parametrize("name", zoo.MODELS)
def test_equals_enumeration(name: str, arithmetic: str) -> None:
    found, exact = zoo.run(JunctionTree(arithmetic=arithmetic), name), zoo.exact(name)
    assert found.status is Status.EXACT
    assert_allclose(found.probs, exact.probs, atol=1e-10)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-9, rel=1e-12)


@st.composite
def models(draw) -> FactorGraph:
    n = draw(st.integers(1, 8))
    cards = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    scopes = draw(
        st.lists(st.lists(st.integers(0, n - 1), max_size=4, unique=True).map(tuple), max_size=14)
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.1, 1.0, 30.0, 500.0]))
    zeros = draw(st.sampled_from([0.0, 0.3, 0.8]))
    return zoo.random_model(rng, cards, scopes, scale=scale, zeros=zeros)


@given(models())
@settings(max_examples=150, deadline=None)
def test_equals_enumeration_on_any_model(model: FactorGraph) -> None:
    found, exact = zoo.run(JunctionTree(), model), zoo.run(Enumerate(), model)
    assert_allclose(found.probs, exact.probs, atol=1e-9)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-8, rel=1e-11)


@given(models(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_any_elimination_order_gives_the_same_answer(model: FactorGraph, random) -> None:
    order = list(range(model.n_variables))
    random.shuffle(order)
    found = solve(model, cost(model, np.array(order, dtype=np.int64)), Budget())
    assert_allclose(found.probs, zoo.run(Enumerate(), model).probs, atol=1e-9)


@pytest.mark.parametrize(("rows", "columns"), [(14, 9), (8, 16)])
def test_large_cliques_against_a_transfer_matrix(rows: int, columns: int) -> None:
    if columns > 11:  # the oracle is quadratic in 2^columns: give it the short side
        model = grid(rows, columns, seed=5)
        turned = np.arange(rows * columns).reshape(rows, columns).T.ravel()
        place = np.argsort(turned)
        scopes = tuple(tuple(sorted(int(place[i]) for i in s)) for s in model.scopes)
        tables = tuple(
            t if tuple(place[list(s)]) == q else t.T
            for s, q, t in zip(model.scopes, scopes, model.log_tables, strict=True)
        )
        oracle = transfer_matrix_log_z(FactorGraph(model.cards, scopes, tables), columns, rows)
    else:
        model = grid(rows, columns, seed=5)
        oracle = transfer_matrix_log_z(model, rows, columns)
    sweep = np.arange(rows * columns)  # row by row: cliques of columns + 1 variables
    found = solve(model, cost(model, sweep), Budget())
    assert found.log_z == pytest.approx(oracle, rel=1e-12)
    searched = zoo.run(JunctionTree(), model)
    assert_allclose(found.probs, searched.probs, atol=1e-11)


@pytest.mark.parametrize(("card", "size"), [(2, (6, 17)), (3, (5, 10)), (7, (4, 6))])
def test_swept_blocks_equal_formed_cliques(card: int, size: tuple[int, int]) -> None:
    """The block sweep of large cliques, the small-clique path and logarithms agree."""
    model = grid(*size, seed=card, card=card, scale=2.0)
    order = cost(model, np.arange(model.n_variables).reshape(size).ravel())
    wide = cost(model, np.arange(model.n_variables).reshape(size).T.ravel())
    assert plan(model, order.variables).largest_clique > LARGE
    swept = solve(model, order, Budget())
    for other in (solve(model, wide, Budget()), solve(model, wide, Budget(), "log")):
        assert_allclose(swept.probs, other.probs, atol=1e-11)
        assert swept.log_z == pytest.approx(other.log_z, rel=1e-12)


def shared_separators(rng: np.random.Generator) -> FactorGraph:
    """Hidden variables over the same ten others, and two that see a part of them only."""
    cards = [3] * 10 + [2] * 5
    scopes = [(*range(10), h) for h in (10, 11, 12)] + [(0, 1, 2, 3, 13), (0, 5, 14)]
    return zoo.random_model(rng, cards, tuple(scopes), zeros=0.01)


@pytest.mark.parametrize("threads", [1, 2])
def test_children_of_one_separator_share_their_sums(threads: int) -> None:
    model = shared_separators(np.random.default_rng(3))
    order = cost(model, np.array([10, 11, 12, 13, 14, *range(10)]))
    made = plan(model, order.variables)
    assert made.largest_clique > LARGE
    found = JunctionTree(threads=threads).along(along(model, order))(
        model, Budget(), np.random.default_rng(0)
    )
    exact = solve(model, order, Budget(), "log")
    assert_allclose(found.probs, exact.probs, atol=1e-12)
    assert found.log_z == pytest.approx(exact.log_z, rel=1e-12)
    assert made.scratch_entries < 3**10  # three messages of so many entries need no room for sums


def test_threads_do_not_change_a_bit() -> None:
    model = grid(6, 19, seed=4, card=2)
    wide = cost(model, np.arange(6 * 19).reshape(6, 19).ravel())
    ahead = along(model, wide)
    assert plan(model, wide.variables).largest_clique > THREADED
    one, two = (
        JunctionTree(threads=threads).along(ahead)(model, Budget(), np.random.default_rng(0))
        for threads in (1, 2)
    )
    assert one.log_z == two.log_z
    assert (one.probs == two.probs).all()


def test_no_threads_are_refused() -> None:
    with pytest.raises(IcgiError, match="threads=0"):
        parse_engine("jt:threads=0")


def test_numbers_beyond_the_range_of_floats() -> None:
    """Two chains of potentials e^±900 that only meet in the middle: logarithms must take over."""
    n = 40
    tables, scopes = [], []
    for i in range(n - 1):
        scopes.append((i, i + 1))
        tables.append(np.array([[0.0, -900.0], [-900.0, -0.5]]))
    scopes += [(0,), (n - 1,)]
    tables += [np.array([0.0, -900.0]), np.array([-1800.0, 0.0])]
    model = FactorGraph(np.full(n, 2), tuple(scopes), tuple(tables))
    front = model.log_tables[-2]
    for table in tables[: n - 1]:
        front = np.logaddexp.reduce(front[:, None] + table, axis=0)
    expected = np.logaddexp.reduce(front + tables[-1])
    found = zoo.run(JunctionTree(), model)
    assert found.log_z == pytest.approx(expected, rel=1e-12)
    assert np.isfinite(found.probs).all()
    with pytest.raises(EvidenceError, match="linear arithmetic"):
        zoo.run(JunctionTree(arithmetic="linear"), model)


def test_a_hub_with_thousands_of_neighbours() -> None:
    """The product of 5,000 messages underflows unless it is rescaled on the way."""
    n = 5000
    rng = np.random.default_rng(1)
    tables = [rng.normal(size=(2, 2)) for _ in range(n)]
    model = FactorGraph(np.full(n + 1, 2), tuple((0, i + 1) for i in range(n)), tuple(tables))
    found = zoo.run(JunctionTree(), model)
    hub = sum(np.logaddexp.reduce(t, axis=1) for t in tables)
    assert found.log_z == pytest.approx(np.logaddexp.reduce(hub), rel=1e-12)
    assert found.probs[0, 0] == pytest.approx(np.exp(hub[0] - np.logaddexp.reduce(hub)), abs=1e-12)


@pytest.mark.parametrize("leaves", [3, SHORT, SHORT + 1, 40])
def test_separators_are_sorted_however_many_variables_they_have(leaves: int) -> None:
    scopes = tuple((0, i) for i in range(1, leaves + 1))
    cards = np.full(leaves + 1, 2)
    model = FactorGraph(cards, scopes, tuple([np.zeros((2, 2))] * leaves))
    tree = plan(model, np.concatenate([[0], np.arange(leaves, 0, -1)])).tree
    assert np.diff(tree.sep_start).max() == leaves
    for low, high in zip(tree.sep_start[:-1], tree.sep_start[1:], strict=True):
        assert (np.diff(tree.sep[low:high]) > 0).all()


def test_a_variable_of_many_states() -> None:
    rng = np.random.default_rng(0)
    model = zoo.random_model(rng, [40_000, 2, 3], [(0,), (0, 1), (1, 2)])
    found, exact = zoo.run(JunctionTree(), model), zoo.run(Enumerate(), model)
    assert_allclose(found.probs, exact.probs, atol=1e-12)


def test_impossible_model_is_a_clear_error() -> None:
    """Every pair is possible, no configuration is: arc consistency cannot see it, Z = 0 does."""
    differ = np.where(np.eye(2) > 0, -np.inf, 0.0)
    model = FactorGraph(
        np.full(3, 2), ((0, 1), (1, 2), (2, 0)), (differ, differ.copy(), differ.copy())
    )
    with pytest.raises(EvidenceError, match="non-zero probability"):
        zoo.run(JunctionTree(), model)


def test_refuses_before_allocating() -> None:
    model = grid(60, 60, seed=0)
    with pytest.raises(BudgetError, match=r"induced width \d+") as refusal:
        zoo.run(JunctionTree(), model)
    assert "GB" in str(refusal.value)
    assert "larger memory budget" in str(refusal.value)
    named = re.search(r"approximate engine \((.+)\)", str(refusal.value))
    assert named is not None
    assert set(named[1].split(", ")) <= set(ENGINES)


def test_budget_is_what_the_plan_says() -> None:
    model = grid(10, 10, seed=0)
    needed = int(zoo.run(JunctionTree(), model).stats["bytes"])
    assert zoo.run(JunctionTree(), model, budget=Budget(table_bytes=needed)).status is Status.EXACT
    with pytest.raises(BudgetError):
        zoo.run(JunctionTree(), model, budget=Budget(table_bytes=needed - 1))


# The high-water mark of the address space: unlike `ru_maxrss`, it starts anew with the program,
# where the other begins at whatever the parent held (a large test run hides all that follows).
PEAK = """
import sys
import numpy as np
sys.path.insert(0, "tests")
from exact.test_junction_tree import grid, zoo
from icgi.exact.junction_tree import JunctionTree, solve
from icgi.inference import Budget
from icgi.model.ordering import cost
from icgi.units import readable_bytes
def peak():
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return 1024 * int(lines["VmHWM"].split()[0])
zoo.run(JunctionTree(), grid(4, 4, 0))
small = grid(4, 16, 0)
solve(small, cost(small, np.arange(64)), Budget())  # compiled code loaded
model = grid(9, 19, seed=1)
order = cost(model, np.arange(model.n_variables))
before = peak()
found = solve(model, order, Budget())
print((peak() - before) / found.stats["bytes"], found.stats["bytes"])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_peak_memory_is_as_predicted() -> None:
    out = subprocess.run(
        [sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    ratio, predicted = float(out[0]), float(out[1])
    assert predicted > 3e8, "the test needs a model whose tables dwarf the interpreter"
    assert 0.5 < ratio <= 1.3


def test_one_order_serves_many_evidences() -> None:
    model = grid(5, 5, seed=3)
    rng = np.random.default_rng(0)
    shared = JunctionTree().prepared(model, Budget(), rng)
    assert isinstance(shared, AlongOrder)
    for evidence in ({}, {0: 1}, {3: 0, 17: 1, 24: 1}):
        assert_allclose(
            zoo.run(shared, model, evidence).probs,
            zoo.run(JunctionTree(), model, evidence).probs,
            atol=1e-12,
        )


def test_readable_bytes() -> None:
    assert readable_bytes(12) == "12 bytes"
    assert readable_bytes(3.4e9) == "3.4 GB"
    assert readable_bytes(1e40) == "10^31 GB"


def test_time_that_ends_on_the_way_is_a_refusal_too() -> None:
    """A forecast that is far too low: the passes stop when the time is over."""
    model = grid(18, 20, seed=0)
    ahead = replace(forecast(model, Budget(), np.random.default_rng(0)), seconds=0.0)
    began = time.perf_counter()
    with pytest.raises(BudgetError, match="the forecast was"):
        AlongForecast(ahead)(model, Budget(seconds=0.001), np.random.default_rng(0))
    assert time.perf_counter() - began < 0.5


def test_no_time_is_refused_at_once() -> None:
    with pytest.raises(BudgetError, match="more seconds"):
        zoo.run(JunctionTree(), grid(12, 12, seed=0), budget=Budget(seconds=1e-4))
