"""The whole ladder, swaps and cluster moves included, samples every level's distribution."""

import mixed
import numpy as np
import pytest
from numpy.testing import assert_allclose

import zoo
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model
from icgi.sampling import exchange
from icgi.sampling.clusters import interaction_graph, marks
from icgi.sampling.replicas import make_scratch, make_state
from icgi.sampling.streams import stream
from icgi.sampling.targets import soften, target

RNG = np.random.default_rng(8)
MODELS = {
    "ising": ising_model(np.triu(RNG.normal(0, 0.9, (4, 4)), 1), RNG.normal(0, 0.3, 4)),
    "pairs": zoo.random_model(RNG, [2, 3, 3], [(0, 1), (1, 2), (0,)], scale=1.5),
    "zeros": zoo.random_model(RNG, [3, 2, 2, 2], [(0, 1, 2), (2, 3), (0, 3)], zeros=0.25),
}


def run(model: FactorGraph, moves: int, samples: int, thin: int = 8):
    """Configurations of all levels after every `thin` sweeps, and the record."""
    aim = target(model)
    ladder = np.array([0.0, 0.3, 0.6, 1.0])
    levels = np.append(ladder, np.ones(int(aim.has_zeros)))
    copies = 2 if moves == exchange.HOUDAYER else 1
    rng = np.random.default_rng(99)
    n = aim.model.n_variables
    x = np.zeros((copies * len(levels), n), np.int32)  # all-zeros is possible in every zoo model
    walk = exchange.new_walk(copies, len(levels))
    record = exchange.new_record(copies, len(levels), np.zeros(aim.slots), 64, np.zeros((0, n)))
    state = make_state(aim.kernel, x)
    fixed = (interaction_graph(aim.model), levels, aim.has_zeros, walk, stream(rng))
    rest = (make_scratch(aim.kernel), marks(n), record, moves)
    found = np.empty((samples, copies, len(levels), n), np.int32)
    for k in range(samples):
        exchange.run(aim.kernel, state, *fixed, *rest, thin, True)
        found[k] = state.x[walk.at]
    return aim, levels, found, walk, record


CASES = [("ising", move) for move in range(3)] + [
    ("pairs", exchange.NO_CLUSTERS),
    ("pairs", exchange.HOUDAYER),
    ("zeros", exchange.NO_CLUSTERS),
    ("zeros", exchange.HOUDAYER),
]


@pytest.mark.parametrize(("name", "moves"), CASES)
def test_every_level_has_its_distribution(name: str, moves: int) -> None:
    aim, levels, found, walk, _ = run(MODELS[name], moves, 3000)
    cards = aim.model.cards
    soft = mixed.log_joint(FactorGraph(cards, aim.model.scopes, tuple(soften(aim.model))))
    for t, scale in enumerate(levels):
        hard = aim.has_zeros and t == len(levels) - 1
        p = mixed.gibbs(mixed.log_joint(aim.model) if hard else scale * soft)
        for c in range(found.shape[1]):
            counts = np.bincount(mixed.numbers(found[:, c, t], cards), minlength=len(p))
            assert mixed.chi_square(counts, p) > 1e-3, f"level {t}, copy {c}"
    assert walk.tally[exchange.TRIPS] > 100
    assert (np.sort(walk.at.ravel()) == np.arange(walk.at.size)).all()


def test_batches_and_traces_keep_every_sweep_in_fixed_memory() -> None:
    sweeps = 8 * 400
    _, levels, _, walk, record = run(MODELS["ising"], exchange.NO_CLUSTERS, 400)
    full, inside, length = record.tally[[exchange.FULL, exchange.INSIDE, exchange.LENGTH]]
    assert full * length + inside == sweeps
    assert exchange.BATCHES // 2 <= full < exchange.BATCHES
    assert (record.total[full + 1 :] == 0).all()
    kept = record.tally[exchange.KEPT]
    assert 32 <= kept < 64
    assert record.trace.shape == (64, 1, len(levels))
    assert (record.trace[:kept] != 0).all()
    mean = record.total.sum(0) / sweeps
    assert_allclose(mean, mean.clip(0, 1))
    assert walk.tally[exchange.SWEEPS] == sweeps


def test_chunks_do_not_change_the_chain() -> None:
    a = run(MODELS["ising"], exchange.NO_CLUSTERS, 60, thin=8)[2][-1]
    b = run(MODELS["ising"], exchange.NO_CLUSTERS, 480, thin=1)[2][-1]
    assert (a == b).all()


def test_symmetric_pair_of_rejections() -> None:
    """Swaps between equal levels are always accepted, whatever the weights."""
    walk = exchange.new_walk(1, 2)
    walk.weight[:] = [3.0, -40.0]
    exchange._swap(walk, np.array([0.5, 0.5]), False, stream(np.random.default_rng(0)))
    assert walk.at[0].tolist() == [1, 0]
    assert walk.rejected[0] == 0
    assert walk.tried[0] == 1
