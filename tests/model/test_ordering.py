import csv
import math
import os
import tarfile
import time
from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zoo
from icgi.errors import IcgiError
from icgi.model.condition import condition
from icgi.model.formats.uai import parse_evidence, parse_model
from icgi.model.graph import FactorGraph
from icgi.model.ordering import HEURISTICS, RULES, Order, cost, find_order, greedy_order, neighbours
from icgi.model.ordering.bits import bit_rows, greedy_bits
from icgi.model.ordering.graph import remainder_of
from icgi.model.ordering.lists import greedy_lists

Graph = dict[int, set[int]]


def model_of(cards: list[int], scopes: list[tuple[int, ...]]) -> FactorGraph:
    tables = tuple(np.zeros([cards[i] for i in scope]) for scope in scopes)
    return FactorGraph(np.array(cards, dtype=np.int64), tuple(scopes), tables)


def pairwise(graph: nx.Graph, states: int = 2) -> FactorGraph:
    numbered = nx.convert_node_labels_to_integers(graph)
    edges = [tuple(sorted(edge)) for edge in numbered.edges]
    return model_of([states] * len(numbered), edges)


def grid(rows: int, columns: int) -> FactorGraph:
    return model_of([2] * (rows * columns), zoo.grid_scopes(rows, columns))


def primal(model: FactorGraph) -> Graph:
    graph: Graph = {i: set() for i in range(model.n_variables)}
    for scope in model.scopes:
        for i, j in combinations(scope, 2):
            graph[i].add(j)
            graph[j].add(i)
    return graph


def eliminate(graph: Graph, i: int) -> set[int]:
    near = graph.pop(i)
    for j in near:
        graph[j] |= near
        graph[j] -= {i, j}
    return near


def naive_cost(model: FactorGraph, variables: np.ndarray) -> tuple[int, float, float, float]:
    """Width, largest table, entries and message entries by joining sets of neighbours."""
    graph, cards = primal(model), model.cards
    width, tables, messages = 0, [], []
    for i in variables:
        near = eliminate(graph, int(i))
        width = max(width, sum(cards[j] > 1 for j in near))
        messages.append(math.prod(int(cards[j]) for j in near))
        tables.append(messages[-1] * int(cards[i]))
    return width, max(tables, default=1), sum(tables), sum(messages)


def assert_cost(order: Order, model: FactorGraph) -> None:
    width, table, entries, messages = naive_cost(model, order.variables)
    assert order.width == width
    assert order.log2_table == pytest.approx(math.log2(table), abs=1e-9)
    if entries:
        assert order.log2_entries == pytest.approx(math.log2(entries), abs=1e-9)
    assert order.message_entries == pytest.approx(messages)


def assert_permutation(order: Order, model: FactorGraph) -> None:
    assert np.array_equal(np.sort(order.variables), np.arange(model.n_variables))
    assert not order.variables.flags.writeable


@st.composite
def models(draw, least_states: int = 1) -> FactorGraph:
    cards = draw(st.lists(st.integers(least_states, 4), min_size=1, max_size=14))
    scope = st.lists(st.sampled_from(range(len(cards))), max_size=4, unique=True).map(tuple)
    return model_of(cards, draw(st.lists(scope, max_size=24)))


@given(models())
@settings(max_examples=60, deadline=None)
def test_neighbours_are_those_that_share_a_factor(model: FactorGraph) -> None:
    start, neighbour = neighbours(model)
    for i, near in primal(model).items():
        assert neighbour[start[i] : start[i + 1]].tolist() == sorted(near)


@given(models(), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_cost_equals_elimination_of_sets(model: FactorGraph, random) -> None:
    variables = list(range(model.n_variables))
    random.shuffle(variables)
    order = cost(model, np.array(variables))
    assert order.variables.tolist() == variables
    assert_cost(order, model)


@given(models(), st.sampled_from(HEURISTICS), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_every_heuristic_gives_a_permutation_and_its_true_cost(
    model: FactorGraph, heuristic: str, seed: int
) -> None:
    for rng in (None, np.random.default_rng(seed)):
        order = greedy_order(model, heuristic, rng)
        assert order.heuristic == heuristic
        assert_permutation(order, model)
        assert_cost(order, model)


@pytest.mark.parametrize("name", sorted(zoo.MODELS))
def test_find_order_on_the_zoo(name: str) -> None:
    model = zoo.MODELS[name]
    order = find_order(model, np.random.default_rng(0))
    assert_permutation(order, model)
    assert_cost(order, model)


def naive_greedy(
    model: FactorGraph, rule: tuple[float, float, float, bool], jitter: np.ndarray
) -> list[int]:
    graph, (alpha, beta, gamma, weighted) = primal(model), rule
    weight = model.cards if weighted else np.ones(model.n_variables)
    chosen: list[int] = []

    def score(i: int) -> float:
        missing = [(j, h) for j, h in combinations(sorted(graph[i]), 2) if h not in graph[j]]
        fill = sum(weight[j] * weight[h] for j, h in missing)
        table = math.log2(model.cards[i]) + sum(math.log2(model.cards[j]) for j in graph[i])
        return float(alpha * fill + beta * table + gamma * len(graph[i]) + jitter[i])

    while graph:
        chosen.append(min(graph, key=score))
        eliminate(graph, chosen[-1])
    return chosen


@given(models(least_states=2), st.sampled_from(sorted(RULES)), st.integers(0, 99))
@settings(max_examples=120, deadline=None)
def test_both_kernels_follow_the_rule(model: FactorGraph, rule: str, seed: int) -> None:
    """Scores kept up to date step by step equal scores computed anew from sets."""
    remainder = remainder_of(model, forced=False)
    jitter = np.random.default_rng(seed).random(remainder.size)
    alpha, beta, gamma, weighted = RULES[rule]
    pairs = np.exp2(remainder.logs) if weighted else np.ones(remainder.size)
    weights = (
        remainder.logs,
        pairs,
        jitter,
        alpha,
        beta,
        gamma,
        np.inf,
        np.inf,
        np.zeros(1, np.uint8),
    )
    rows = bit_rows(remainder.start, remainder.neighbour)
    by_bits, bits_total, _ = greedy_bits(rows, remainder.size, *weights)
    by_lists, lists_total = greedy_lists(remainder.start, remainder.neighbour, *weights)
    expected = naive_greedy(model, RULES[rule], jitter)
    for found, total in ((by_bits, bits_total), (by_lists, lists_total)):
        assert total == pytest.approx(cost(model, found).log2_entries, abs=1e-9)
        rest = len(_common_start(found.tolist(), expected))
        # Once all that is left is a clique, kernels take the variables of most states first.
        left = expected[rest:]
        assert all(b in primal_after(model, expected[:rest])[a] for a, b in combinations(left, 2))


def _common_start(a: list[int], b: list[int]) -> list[int]:
    same = [x == y for x, y in zip(a, b, strict=True)]
    return a[: same.index(False) if False in same else len(a)]


def primal_after(model: FactorGraph, eliminated: list[int]) -> Graph:
    graph = primal(model)
    for i in eliminated:
        eliminate(graph, i)
    return graph


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("n", [1, 2, 50, 3000])
def test_trees_have_width_one(rule: str, n: int) -> None:
    rng = np.random.default_rng(n)
    tree = nx.Graph([(int(rng.integers(i)), i) for i in range(1, n)])
    tree.add_node(0)
    assert greedy_order(pairwise(tree), rule).width == min(1, n - 1)
    assert find_order(pairwise(tree, 3), rng).width == min(1, n - 1)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_k_trees_have_width_k_by_min_fill(k: int) -> None:
    rng = np.random.default_rng(k)
    edges = list(combinations(range(k + 1), 2))
    cliques = list(combinations(range(k + 1), k))
    for i in range(k + 1, 120):
        base = cliques[rng.integers(len(cliques))]
        edges += [(j, i) for j in base]
        cliques += [(*part, i) for part in combinations(base, k - 1)]
    names = rng.permutation(120).tolist()
    model = model_of([2] * 120, [(names[i], names[j]) for i, j in edges])
    assert greedy_order(model, "min-fill").width == k
    assert find_order(model, rng).width == k


def test_a_clique_has_one_cost_whatever_the_order() -> None:
    model = pairwise(nx.complete_graph(40))
    for heuristic in HEURISTICS:
        order = greedy_order(model, heuristic)
        assert (order.width, order.log2_table) == (39, 40.0)
    assert find_order(model, np.random.default_rng(0)).log2_entries == pytest.approx(41.0)


def test_parts_do_not_mix() -> None:
    model = pairwise(
        nx.disjoint_union_all([nx.cycle_graph(5), nx.empty_graph(3), nx.path_graph(4)])
    )
    for heuristic in HEURISTICS:
        assert_cost(greedy_order(model, heuristic), model)
    assert find_order(model, np.random.default_rng(0)).width == 2


def test_no_variables() -> None:
    model = model_of([], [()])
    for order in (
        find_order(model, np.random.default_rng(0)),
        cost(model, np.empty(0, np.int64)),
        *(greedy_order(model, heuristic) for heuristic in HEURISTICS),
    ):
        assert order.variables.shape == (0,)
        assert (order.width, order.log2_table, order.message_entries) == (0, 0.0, 0.0)
        assert order.log2_entries == -math.inf


def test_one_state_variables_are_free_and_come_last() -> None:
    """A hub of one state joins nothing if it is eliminated last."""
    model = model_of([1, *[2] * 30], [(0, i) for i in range(1, 31)])
    for order in (
        find_order(model, np.random.default_rng(0)),
        *(greedy_order(model, heuristic) for heuristic in HEURISTICS),
    ):
        assert order.variables[-1] == 0
        assert (order.width, order.log2_table) == (0, 1.0)
        assert_cost(order, model)


def test_an_order_names_every_variable_once() -> None:
    model = grid(2, 2)
    for wrong in ([0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 4], [-1, 0, 1, 2]):
        with pytest.raises(IcgiError, match="each of the 4 variables"):
            cost(model, np.array(wrong))


def test_unknown_heuristic() -> None:
    with pytest.raises(IcgiError, match="min-fill"):
        greedy_order(grid(2, 2), "max-fill")


@pytest.mark.parametrize(
    "model",
    [grid(16, 16), pairwise(nx.gnp_random_graph(80, 0.06, seed=1), 3)],
    ids=["grid", "random"],
)
def test_the_same_seed_gives_the_same_order(model: FactorGraph) -> None:
    first, again = (find_order(model, np.random.default_rng(5), math.inf, 3000) for _ in range(2))
    assert first.heuristic == "search"
    assert np.array_equal(first.variables, again.variables)


def test_search_beats_every_greedy_rule() -> None:
    model = grid(14, 14)
    order = find_order(model, np.random.default_rng(1), math.inf, 5000)
    rules = [greedy_order(model, heuristic) for heuristic in HEURISTICS]
    assert order.log2_entries < min(rule.log2_entries for rule in rules)
    assert_permutation(order, model)
    assert_cost(order, model)


def test_mixed_states_are_searched_by_their_tables() -> None:
    rng = np.random.default_rng(3)
    edges = list(nx.gnp_random_graph(60, 0.08, seed=4).edges)
    model = model_of(rng.integers(2, 12, 60).tolist(), edges)
    order = find_order(model, rng, math.inf, 2000)
    assert_cost(order, model)
    for rule in ("min-fill", "weighted-min-fill", "min-weight"):
        assert order.log2_entries <= greedy_order(model, rule).log2_entries + 1e-9


def test_no_restarts_means_no_randomness() -> None:
    model = grid(12, 12)
    orders = [find_order(model, np.random.default_rng(s), restarts=0).variables for s in range(2)]
    assert np.array_equal(*orders)


def test_hopeless_models_are_ordered_greedily_and_others_searched_as_ever() -> None:
    model = grid(16, 16)
    greedy = find_order(model, np.random.default_rng(5), restarts=0)
    searched = find_order(model, np.random.default_rng(5), math.inf, 3000)
    assert searched.heuristic == "search"
    for hopeless, same in ((greedy.log2_entries - 1, greedy), (greedy.log2_entries + 1, searched)):
        order = find_order(model, np.random.default_rng(5), math.inf, 3000, hopeless)
        assert np.array_equal(order.variables, same.variables)


def test_the_order_is_a_postorder() -> None:
    """Whatever is eliminated between a variable and its parent lies below the parent."""
    model = grid(9, 9)
    order = greedy_order(model, "min-fill").variables
    position = np.argsort(order)
    graph, parent = primal(model), {}
    for p, i in enumerate(order):
        near = eliminate(graph, int(i))
        parent[p] = min((position[j] for j in near), default=model.n_variables)
    for p, above in parent.items():
        assert all(parent[q] <= above for q in range(p + 1, min(above, model.n_variables)))


def test_a_sweep_keeps_its_front_small() -> None:
    order = greedy_order(grid(8, 40), "smallest-front")
    assert order.width == 8
    live: set[int] = set()
    graph, largest = primal(grid(8, 40)), 0
    for i in order.variables:
        live |= graph[int(i)]
        live -= set(order.variables[: np.flatnonzero(order.variables == i)[0] + 1].tolist())
        largest = max(largest, len(live))
    assert largest <= 9


def test_large_sparse_models() -> None:
    """Beyond the bit matrix: lists, and a search through pieces."""
    model = grid(60, 60)
    for rule in RULES:
        order = greedy_order(model, rule)
        assert_permutation(order, model)
        assert order.width < 160
    found = find_order(model, np.random.default_rng(0), math.inf, 200)
    assert_permutation(found, model)
    assert found.width <= 62
    assert found.log2_entries == pytest.approx(cost(model, found.variables).log2_entries)


def test_exploding_fill_is_counted_without_being_formed() -> None:
    model = grid(150, 150)
    order = cost(model, np.random.default_rng(0).permutation(model.n_variables))
    assert order.width > 1000
    assert order.log2_entries > order.width
    assert order.message_entries == math.inf


def test_hubs() -> None:
    n = 4000
    star = nx.star_graph(n)
    star.add_edges_from((i, i + 1) for i in range(1, n, 2))
    for rule in RULES:
        assert greedy_order(pairwise(star), rule).width == 2
    wheel = pairwise(nx.wheel_graph(n))
    assert find_order(wheel, np.random.default_rng(0)).width == 3


MANIFEST = (
    "Alchemy_11",
    "CSP_11",
    "CSP_12",
    "CSP_13",
    "DBN_11",
    "Grids_11",
    "Segmentation_11",
    "ObjectDetection_11",
    "Pedigree_11",
    "Promedus_11",
    "linkage_11",
)


@pytest.fixture(scope="module")
def data_folder() -> Path:
    folder = os.environ.get("ICGI_DATA", "")
    if not Path(folder, "manifest.csv").is_file():
        pytest.skip("set ICGI_DATA to the folder of manifest.csv to compare with published widths")
    return Path(folder)


@pytest.mark.parametrize("name", MANIFEST)
def test_widths_are_not_above_the_manifest(name: str, data_folder: Path) -> None:
    with open(data_folder / "manifest.csv", newline="") as lines:
        row = next(row for row in csv.DictReader(lines) if row["name"] == name)
    with tarfile.open(data_folder / row["archive"]) as archive:
        text, evidence = (
            archive.extractfile(f"{name}.uai{suffix}").read() for suffix in ("", ".evid")
        )
    model = parse_model(text, name)
    model = condition(model, parse_evidence(evidence, name, model)).model
    order = find_order(model, np.random.default_rng(0), seconds=2.0)
    assert order.log2_table <= float(row["log2_max_clique_after_zero_pruning"]) + 0.01


@pytest.mark.parametrize("n", [60, 3000])  # a bit matrix, neighbour lists
@pytest.mark.parametrize("heuristic", [*HEURISTICS, "search"])
def test_without_time_there_is_an_order_all_the_same(n: int, heuristic: str) -> None:
    model = pairwise(nx.random_regular_graph(4, n, seed=1))
    if heuristic == "search":
        found = find_order(model, np.random.default_rng(0), seconds=0.0)
    else:
        found = greedy_order(model, heuristic, seconds=0.0)
    assert sorted(found.variables.tolist()) == list(range(n))
    assert found.log2_entries == pytest.approx(cost(model, found.variables).log2_entries)


def test_the_clock_ends_a_rule_half_way() -> None:
    """Min-fill on this graph takes many times as long: 2,000 variables, 160,000 edges."""
    model = pairwise(nx.gnm_random_graph(2000, 160_000, seed=1))
    find_order(grid(9, 9), np.random.default_rng(0))  # compiled code loaded
    began = time.perf_counter()
    find_order(model, np.random.default_rng(0), seconds=0.2)
    assert time.perf_counter() - began < 1.2  # 0.2 s, what comes before and after, a busy machine
