"""Trains of predicted cores: marginals by environments equal those of the dense table."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.sparse.csgraph import shortest_path

from icgi.neural.arrange import FAR, after_elimination, distances
from icgi.neural.paper import _closer, _filled, _rows_of
from icgi.neural.selection import choose, gumbel, keys
from icgi.neural.tensor_train import (
    cores,
    dense_marginals,
    marginals,
    mixed_marginals,
    reconstruct,
)

torch.set_num_threads(1)


def train(w: int, k: int, r: int, seed: int = 0) -> torch.Tensor:
    """Cores with a state and a place that do not exist."""
    torch.manual_seed(seed)
    states = torch.ones(2, 3, w, k, dtype=torch.float64)
    states[0, 0, 0, k - 1] = 0.0
    inside = torch.ones(2, 3, w, dtype=torch.float64)
    inside[1, 2, 1:] = 0.0
    states[1, 2, 1:] = 0.0
    return cores(torch.randn(2, 3, w, k, r, r, dtype=torch.float64), states, inside)


@pytest.mark.parametrize(("w", "k", "r"), [(1, 2, 3), (2, 3, 1), (4, 2, 5), (5, 3, 4)])
def test_environment_products_are_the_marginals_of_the_dense_table(w: int, k: int, r: int) -> None:
    given = train(w, k, r)
    unary, pairs = marginals(given)
    dense = reconstruct(given)
    assert (dense >= 0).all()
    assert_allclose(dense.flatten(2).sum(-1), 1.0)
    assert_allclose(unary.sum(-1), 1.0)  # the gauge normalises the factor
    expected_unary, expected_pairs = dense_marginals(dense)
    assert_allclose(unary, expected_unary, atol=1e-12)
    off = ~torch.eye(w, dtype=torch.bool)
    assert_allclose(pairs[:, :, off], expected_pairs[:, :, off], atol=1e-12)
    assert unary[0, 0, 0, k - 1] == 0


def test_mixtures_of_trains_have_the_mixed_marginals() -> None:
    blocks = torch.stack([train(4, 3, 2, seed) for seed in (0, 1)], 2)  # b m a w k r r
    share = torch.softmax(torch.randn(2, 3, 2, dtype=torch.float64), -1)
    unary, pairs = mixed_marginals(blocks, share)
    dense = torch.stack([reconstruct(blocks[:, :, a]) for a in (0, 1)], 2)
    table = (dense * share.view(2, 3, 2, 1, 1, 1, 1)).sum(2)
    expected_unary, expected_pairs = dense_marginals(table)
    assert_allclose(unary, expected_unary, atol=1e-12)
    off = ~torch.eye(4, dtype=torch.bool)
    assert_allclose(pairs[:, :, off], expected_pairs[:, :, off], atol=1e-12)


def test_a_long_train_neither_overflows_nor_vanishes() -> None:
    given = train(60, 2, 16)
    unary, pairs = marginals(given.float())
    assert_allclose(unary.sum(-1), 1.0, rtol=1e-5)
    off = ~torch.eye(60, dtype=torch.bool)
    assert_allclose(pairs[:, :, off].sum((-1, -2)), 1.0, rtol=1e-5)


def graph(seed: int, n: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    a = np.triu(rng.random((n, n)) < 0.18, 1)
    return torch.as_tensor((a | a.T).astype(np.float64))


@pytest.mark.parametrize("seed", range(12))
def test_distances_after_elimination_are_those_of_a_search(seed: int) -> None:
    n = 14
    adjacency = graph(seed, n)[None]
    d, alive = distances(adjacency), torch.ones(1, n, dtype=torch.float64)
    for _ in range(4):
        key = torch.randn(1, n, generator=torch.Generator().manual_seed(seed)).double()
        chosen = choose(key, adjacency, alive, 3)
        near = _rows_of(adjacency, chosen)
        alive = alive * (1.0 - chosen.mask)
        adjacency = _filled(adjacency, near, alive)
        d = _closer(d, chosen)
        left = alive[0].bool()
        found = d[0][left][:, left].numpy()
        searched = shortest_path(adjacency[0][left][:, left].numpy(), unweighted=True)
        assert_allclose(found, np.where(np.isinf(searched), FAR, searched))
    assert after_elimination(d, d[:, 0]).shape == d.shape


@pytest.mark.parametrize("seed", range(5))
def test_chosen_variables_do_not_touch(seed: int) -> None:
    adjacency = torch.stack([graph(seed, 12), graph(seed + 50, 12)])
    alive = torch.ones(2, 12, dtype=torch.float64)
    alive[:, 3] = 0.0
    key = torch.randn(2, 12, generator=torch.Generator().manual_seed(seed)).double()
    chosen = choose(key, adjacency, alive, 4)
    assert (chosen.mask.sum(1) == chosen.valid.sum(1)).all()
    assert (chosen.mask[:, 3] == 0).all()
    assert torch.einsum("bi,bij,bj->b", chosen.mask, adjacency, chosen.mask).sum() == 0
    one = choose(key, adjacency, alive, 1)
    assert (one.which[:, 0] == key.masked_fill(alive == 0, -9.0).argmax(1)).all()


def test_the_choice_is_hard_and_its_gradient_soft() -> None:
    score = torch.tensor([[0.3, 0.1, -0.5]], dtype=torch.float64, requires_grad=True)
    noise = torch.tensor([[0.0, 0.5, 0.0]], dtype=torch.float64)
    none = torch.zeros(1, 3, 3, dtype=torch.float64) + 1.0 - torch.eye(3).double()
    chosen = choose(score + noise, none, torch.ones(1, 3).double(), 1, (score + noise) / 0.5)
    assert chosen.which.item() == 1
    assert chosen.weight.item() == 1.0
    chosen.weight.sum().backward()
    pi = torch.softmax((score.detach() + noise) / 0.5, 1)[0]
    expected = [-pi[1] * pi[0] / 0.5, pi[1] * (1 - pi[1]) / 0.5, -pi[1] * pi[2] / 0.5]
    assert_allclose(score.grad[0], torch.stack(expected))


def test_low_temperatures_make_the_relaxed_choice_hard() -> None:
    score = torch.tensor([0.3, 0.1, -0.5])
    draws = gumbel((20000, 3), torch.Generator().manual_seed(0))
    share = torch.nn.functional.one_hot((score + draws).argmax(1), 3).double().mean(0)
    assert_allclose(share, torch.softmax(score.double(), 0), atol=0.015)
    warm, cold = (torch.softmax((score + draws) / t, 1).amax(1).mean() for t in (1.0, 0.1))
    assert cold > 0.9 > warm


def test_the_rule_at_test_is_least_degree() -> None:
    own = torch.randn(1, 5, generator=torch.Generator().manual_seed(0))
    degree = torch.tensor([[3.0, 2.0, 1.0, 1.0, 4.0]])
    all_alive = torch.ones(1, 5)
    far = keys("min-degree", own, 1e4 + 1e3 * own, degree, all_alive, None)
    assert torch.isinf(far[0]).tolist() == [True, True, False, False, True]
    same = keys("min-degree", own, 1e4 + 1e3 * own, torch.full((1, 5), 4.0), all_alive, None)
    assert len(same.unique()) == 5  # in a complete graph a tie would leave nobody to choose
    assert int(keys("min-degree", own, own, degree, all_alive, None).argmax()) in (2, 3)
    assert torch.equal(keys("learned", own, own, degree, all_alive, None), own)
    noise = torch.randn(1, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(keys("random", own, own, degree, all_alive, noise), noise)
    assert_allclose(keys("learned", own, own, degree, all_alive, noise), own + noise)
