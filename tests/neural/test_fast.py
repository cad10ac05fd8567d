"""The fast network: exact where the algebra is, invariant, equivariant, better than nothing."""

from dataclasses import replace

import ising
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from icgi.neural.fast import FastConfig, FastNetwork
from icgi.neural.shrink import remaining, taken
from icgi.neural.spins import make_spins

SMALL = FastConfig(features=16, heads=2, layers=1, hidden=8, encode_every=3)


def network(seed: int = 0, trained: bool = False) -> FastNetwork:
    """An untrained network, or one whose corrections are random, as if trained."""
    torch.manual_seed(seed)
    net = FastNetwork(SMALL).double()
    if trained:
        with torch.no_grad():
            for p in net.parameters():
                p.add_(0.1 * torch.randn_like(p))
    return net


@pytest.mark.parametrize("trained", [False, True])
def test_trees_are_exact(trained: bool) -> None:
    spins = ising.tree_batch(0, 4, 14)
    alpha = network(trained=trained).run(spins, core=2)
    assert_allclose(ising.up(alpha).detach(), ising.exact_up(spins), atol=1e-6)


@pytest.mark.parametrize("trained", [False, True])
def test_induced_width_two_is_exact(trained: bool) -> None:
    rng = np.random.default_rng(1)
    n = 12
    j = np.zeros((3, n, n))
    for k in range(3):
        for i in range(n):  # a ring, and triangles on it
            j[k, i, (i + 1) % n] = rng.normal()
        for i in range(0, n - 2, 4):
            j[k, i, i + 2] = rng.normal()
    spins = ising.batch(j + j.transpose(0, 2, 1), rng.normal(0, 0.7, (3, n)))
    alpha = network(trained=trained).run(spins, core=2)
    assert_allclose(ising.up(alpha).detach(), ising.exact_up(spins), atol=1e-6)


def test_a_model_no_larger_than_the_core_is_exact() -> None:
    spins = ising.random_batch(2, 3, 9, p=1.0)
    alpha = network(trained=True).run(spins, core=9)
    assert_allclose(ising.up(alpha).detach(), ising.exact_up(spins), atol=1e-6)


def test_untrained_elimination_is_close_on_loopy_graphs() -> None:
    spins = ising.random_batch(3, 8, 14, p=0.35)
    exact = ising.exact_up(spins)
    error = [
        2 * (ising.up(network().run(spins, core)) - exact).abs().mean().item() for core in (4, 8)
    ]
    constant = 2 * (exact - 0.5).abs().mean().item()
    assert error[0] < 0.15 * constant
    assert error[1] < error[0]


def test_order_of_variables_does_not_matter() -> None:
    spins = ising.random_batch(4, 3, 11)
    net = network(trained=True)
    order = torch.as_tensor(np.random.default_rng(0).permutation(11))
    moved = make_spins(
        spins.couplings[:, order][:, :, order], spins.fields[:, order], spins.real[:, order]
    )
    assert_allclose(
        net.run(moved, 5).detach(), net.run(spins, 5)[:, order].detach(), rtol=1e-7, atol=1e-9
    )


def test_relabelling_states_swaps_the_answer() -> None:
    spins = ising.random_batch(5, 3, 11)
    known = torch.randn(3, 11, dtype=torch.float64)
    spins = replace(spins, estimate=known, reliability=known.abs())
    net = network(trained=True)
    gauge = torch.as_tensor(np.random.default_rng(1).choice([-1.0, 1.0], (3, 11)))
    turned = replace(
        make_spins(
            spins.couplings * gauge[:, :, None] * gauge[:, None], spins.fields * gauge, spins.real
        ),
        estimate=known * gauge,
        reliability=known.abs(),
    )
    plain = net.run(spins, 5)
    expected = torch.where(gauge[..., None] > 0, plain, plain.flip(-1))
    assert_allclose(net.run(turned, 5).detach(), expected.detach(), rtol=1e-7, atol=1e-9)


def test_padding_changes_nothing() -> None:
    small = ising.random_batch(6, 2, 9)
    n = 13
    j, h, real = np.zeros((2, n, n)), np.zeros((2, n)), np.zeros((2, n))
    j[:, :9, :9], h[:, :9], real[:, :9] = small.couplings, small.fields, 1.0
    net = network(trained=True)
    assert_allclose(
        net.run(ising.batch(j, h, real), 4)[:, :9].detach(), net.run(small, 4).detach(), rtol=1e-7
    )


def test_context_is_read_only_where_it_is_given() -> None:
    spins = ising.random_batch(7, 2, 10)
    net = network(trained=True)
    silent = replace(spins, estimate=torch.full_like(spins.fields, 2.0) * 0)
    assert_allclose(net.run(silent, 4).detach(), net.run(spins, 4).detach())
    with_context = replace(
        spins,
        estimate=torch.full_like(spins.fields, 2.0),
        reliability=torch.full_like(spins.fields, 0.9),
    )
    assert (net.run(with_context, 4) - net.run(spins, 4)).abs().max() > 1e-4


def test_gradients_are_finite_in_single_precision() -> None:
    torch.manual_seed(0)
    net = FastNetwork(SMALL)
    spins = ising.random_batch(8, 4, 14, p=0.6, scale=3.0).to("cpu", torch.float32)
    alpha = net.run(spins, 4)
    (alpha[..., 0] / alpha.sum(-1)).square().sum().backward()
    for name, p in net.named_parameters():
        if p.grad is not None:
            assert torch.isfinite(p.grad).all(), name


def test_taken_and_remaining_split_an_axis() -> None:
    x = torch.arange(10.0).view(2, 5)
    pick = torch.zeros(2, 5)
    pick[0, 0] = pick[1, 3] = 1.0
    assert taken(x, pick).tolist() == [0.0, 8.0]
    assert sorted(remaining(x, pick)[0].tolist()) == [1.0, 2.0, 3.0, 4.0]
    assert sorted(remaining(x, pick)[1].tolist()) == [5.0, 6.0, 7.0, 9.0]
