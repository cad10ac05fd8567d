"""Cluster moves leave the distribution as it is, and Houdayer's keeps the sum of log weights."""

import itertools

import mixed
import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zoo
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising, ising_model, potts_model
from icgi.sampling import clusters, exchange
from icgi.sampling.replicas import make_state, weight_of
from icgi.sampling.streams import stream
from icgi.sampling.targets import Target, target

RNG = np.random.default_rng(3)
ISING = {
    "sparse": ising_model((mixed.edges(RNG, 5, 0.3), 0.6), RNG.normal(0, 0.4, 5)),
    "frustrated": ising_model(np.triu(RNG.normal(0, 0.8, (5, 5)), 1), RNG.normal(0, 0.3, 5)),
    "no-field": ising_model((np.array([(0, 1), (1, 2), (0, 2), (2, 3)]), [1.0, -0.7, 0.5, 0.9])),
}
ANY = {
    **ISING,
    "potts": potts_model(np.array([(0, 1), (1, 2), (2, 3)]), [0.9, -0.5, 0.7], n_states=3),
    "ternary": zoo.random_model(RNG, [2, 3, 2, 2], [(0, 1, 2), (2, 3), (3,)]),
    "zeros": zoo.random_model(RNG, [3, 3, 2, 2], [(0, 1), (1, 2), (2, 3)], zeros=0.2),
}


def drawn(aim: Target, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Independent configurations from the exact distribution, and that distribution."""
    p = mixed.gibbs(mixed.log_joint(aim.model))
    chosen = rng.choice(len(p), count, p=p)
    return mixed.configurations(aim.model.cards)[chosen], p


def p_value(x: np.ndarray, model: FactorGraph, p: np.ndarray) -> float:
    return mixed.chi_square(np.bincount(mixed.numbers(x, model.cards), minlength=len(p)), p)


@pytest.mark.parametrize("name", ISING)
def test_swendsen_wang_leaves_the_distribution_invariant(name: str) -> None:
    rng = np.random.default_rng(17)
    aim = target(ISING[name])
    x, p = drawn(aim, 20_000, rng)
    state = make_state(aim.kernel, x.copy())
    source, marks = stream(rng), clusters.marks(aim.model.n_variables)
    for r in range(len(x)):
        clusters.swendsen_wang(aim.kernel, state, r, 1.0, source, marks)
    assert (state.x != x).any(1).mean() > 0.2, "clusters hardly ever flip"
    assert p_value(state.x, aim.model, p) > 1e-3
    fresh = make_state(aim.kernel, state.x.copy())
    assert_allclose(state.field, fresh.field, atol=1e-5)


def test_swendsen_wang_has_the_right_temperature() -> None:
    """Run alone on a ferromagnet with fields, it finds the distribution by itself."""
    rng = np.random.default_rng(5)
    aim = target(ising_model((np.array([(0, 1), (1, 2), (0, 2)]), 0.5), [0.3, -0.2, 0.1]))
    state = make_state(aim.kernel, rng.integers(0, 2, (4000, 3), dtype=np.int32))
    source, marks = stream(rng), clusters.marks(3)
    for _ in range(12):
        for r in range(4000):
            clusters.swendsen_wang(aim.kernel, state, r, 0.7, source, marks)
    p = mixed.gibbs(0.7 * mixed.log_joint(aim.model))
    assert p_value(state.x, aim.model, p) > 1e-3


@pytest.mark.parametrize("name", ANY)
def test_houdayer_leaves_both_replicas_invariant(name: str) -> None:
    rng = np.random.default_rng(23)
    aim = target(ANY[name])
    x, p = drawn(aim, 20_000, rng)
    state = make_state(aim.kernel, x.copy())
    source, marks = stream(rng), clusters.marks(aim.model.n_variables)
    graph = clusters.interaction_graph(aim.model)
    before = np.array([weight_of(aim.kernel, state, r) for r in range(200)])
    for r in range(0, len(x), 2):
        exchange._exchange_cluster(aim.kernel, state, r, r + 1, graph, source, marks)
    after = np.array([weight_of(aim.kernel, state, r) for r in range(200)])
    assert_allclose(before.reshape(-1, 2).sum(1), after.reshape(-1, 2).sum(1), atol=1e-4)
    assert (state.x != x).any(1).mean() > 0.2, "replicas hardly ever exchange anything"
    for rows in (state.x[::2], state.x[1::2]):
        assert p_value(rows, aim.model, p) > 1e-3
    together = [np.sort(np.stack([s[::2], s[1::2]]), 0) for s in (x, state.x)]
    assert_array_equal(*together)  # nothing is lost: the pair of states at each variable is kept


def test_interaction_graph_joins_variables_of_a_factor() -> None:
    model = zoo.random_model(RNG, [2] * 5, [(0, 1, 3), (3, 4), (2,)])
    graph = clusters.interaction_graph(model)
    lists = [cut.tolist() for cut in np.split(graph.neighbour, graph.start[1:-1])]
    assert lists == [[1, 3], [0, 3], [], [0, 1, 4], [3]]


def swendsen_wang_matrix(model: FactorGraph, scale: float) -> np.ndarray:
    """Transition matrix by summing over all sets of bonds and all flips of their clusters."""
    ising = as_ising(model)
    n = model.n_variables
    states = mixed.configurations(model.cards)
    matrix = np.zeros((len(states), len(states)))
    for row, x in zip(matrix, states, strict=True):
        s = 2 * x - 1
        strength = ising.couplings * s[ising.edges[:, 0]] * s[ising.edges[:, 1]]
        keep = np.where(strength > 0, 1 - np.exp(-2 * scale * strength), 0.0)
        for bonds in itertools.product([False, True], repeat=len(keep)):
            p_bonds = np.prod(np.where(bonds, keep, 1 - keep))
            if p_bonds == 0:
                continue
            graph = nx.Graph(ising.edges[list(bonds)].tolist())
            graph.add_nodes_from(range(n))
            clusters_found = [list(part) for part in nx.connected_components(graph)]
            for flips in itertools.product([False, True], repeat=len(clusters_found)):
                p, y = p_bonds, x.copy()
                for part, flip in zip(clusters_found, flips, strict=True):
                    p_flip = 1 / (1 + np.exp(2 * scale * (ising.fields[part] * s[part]).sum()))
                    p *= p_flip if flip else 1 - p_flip
                    y[part] = 1 - y[part] if flip else y[part]
                row[mixed.numbers(y[None], model.cards)[0]] += p
    return matrix


@pytest.mark.parametrize("scale", [0.4, 1.0])
def test_swendsen_wang_has_its_exact_transition_matrix(scale: float) -> None:
    rng = np.random.default_rng(29)
    pairs = np.array([(0, 1), (1, 2), (0, 2), (2, 3)])
    model = ising_model((pairs, [0.9, -0.7, 0.5, 0.8]), [0.3, -0.2, 0.0, 0.4])
    matrix = swendsen_wang_matrix(model, scale)
    p = mixed.gibbs(scale * mixed.log_joint(model))
    assert_allclose(matrix.sum(1), 1.0)
    assert_allclose(p[:, None] * matrix, (p[:, None] * matrix).T, atol=1e-12)  # detailed balance
    aim = target(model)
    source, marks = stream(rng), clusters.marks(4)
    for x, row in zip(mixed.configurations(model.cards), matrix, strict=True):
        state = make_state(aim.kernel, np.tile(x, (4000, 1)))
        for r in range(4000):
            clusters.swendsen_wang(aim.kernel, state, r, scale, source, marks)
        assert p_value(state.x, model, row) > 1e-4
