"""Correlations of a first pass in the second, and what disagreement says about errors."""

from dataclasses import replace

import ising
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm

from icgi.neural.closed_form import enumerate_core, project
from icgi.neural.fast import FastConfig, FastNetwork
from icgi.neural.precision import FEATURES, Precision, fit, signs_of_error
from icgi.neural.spins import first_pass, make_spins


def test_projection_averages_over_correlated_spins() -> None:
    rng = np.random.default_rng(0)
    row, field, means = rng.normal(0, 0.4, 5), 0.3, rng.uniform(-0.6, 0.6, 5)
    root = rng.normal(0, 1, (5, 8))
    r = np.corrcoef(root)
    deviation = np.sqrt(1 - means**2)
    j, k, rest = 1, 3, [0, 2, 4]
    weight = row[rest] * deviation[rest]
    sd = np.sqrt(weight @ r[np.ix_(rest, rest)] @ weight)
    a = field + row[rest] @ means[rest]

    def mean_log_f(s: int, t: int) -> float:
        at = a + s * row[j] + t * row[k]
        return quad(lambda z: np.log(2 * np.cosh(at + sd * z)) * norm.pdf(z), -8, 8)[0]

    expected = 0.25 * sum(s * t * mean_log_f(s, t) for s in (1, -1) for t in (1, -1))
    x = [torch.as_tensor(v)[None] for v in (row, means, r - np.eye(5))]
    _, coupling = project(x[0], torch.tensor([field]).double(), x[1], torch.ones(1, 5), x[2])
    assert_allclose(coupling[0, j, k], expected, rtol=1e-4)


@pytest.mark.parametrize("scale", [0.05, 0.5, 3.0])  # the last is too strong for exponentials
def test_many_pairs_are_projected_as_few_are(scale: float) -> None:
    rng = np.random.default_rng(3)
    row = torch.as_tensor(rng.normal(0, scale, (2, 60)))
    means = torch.as_tensor(rng.uniform(-0.9, 0.9, (2, 60)))
    r = torch.as_tensor(rng.uniform(-0.01, 0.01, (2, 60, 60)))
    given = (row, torch.tensor([0.3, -1.0]).double(), means, torch.ones(2, 60), r + r.mT)
    with torch.no_grad():
        many = project(*given)
    for found, expected in zip(many, project(*given), strict=True):
        assert_allclose(found, expected, atol=1e-10)


def test_no_correlation_is_independence() -> None:
    rng = np.random.default_rng(1)
    row, means = (torch.as_tensor(rng.uniform(-0.8, 0.8, (2, 6))) for _ in range(2))
    field, ones = torch.zeros(2).double(), torch.ones(2, 6).double()
    plain = project(row, field, means, ones)
    projected = project(row, field, means, ones, torch.zeros(2, 6, 6).double())
    for a, b in zip(plain, projected, strict=True):
        assert_allclose(a, b, atol=1e-6)  # the variance is a little regularised


def test_on_trees_means_of_the_first_pass_are_exact_and_correlations_close() -> None:
    spins = ising.tree_batch(3, 4, 16)
    mean, covariance, _ = enumerate_core(spins.couplings, spins.fields)
    assert_allclose(spins.mean, mean, atol=1e-7)
    deviation = (1 - mean**2).sqrt()
    expected = covariance / (deviation[:, :, None] * deviation[:, None])
    assert_allclose(spins.correlation, expected - torch.eye(16), atol=0.01)


def test_the_first_pass_ignores_padding() -> None:
    small = ising.random_batch(4, 2, 15, p=0.8)
    j, h, real = np.zeros((2, 18, 18)), np.zeros((2, 18)), np.zeros((2, 18))
    j[:, :15, :15], h[:, :15], real[:, :15] = small.couplings, small.fields, 1.0
    mean, correlation = first_pass(*(torch.as_tensor(x) for x in (j, h, real)))
    assert_allclose(mean[:, :15], small.mean, atol=1e-9)
    assert_allclose(correlation[:, :15, :15], small.correlation, atol=1e-9)
    assert not correlation[:, 15:].any()


def test_correlations_make_dense_models_more_accurate() -> None:
    rng = np.random.default_rng(5)
    n = 18
    j = np.triu(rng.normal(0, 1 / np.sqrt(n), (24, n, n)), 1)
    spins = ising.batch(j + j.transpose(0, 2, 1), rng.normal(0, 0.1, (24, n)))
    exact = torch.cat([ising.exact_up(spins[k : k + 1]) for k in range(24)])
    torch.manual_seed(0)
    net = FastNetwork(FastConfig(features=16, heads=2, layers=1, hidden=8)).double()
    with torch.no_grad():
        second = ising.up(net.run(spins, 4))
        unrelated = replace(spins, correlation=torch.zeros_like(spins.correlation))
        without = ising.up(net.run(unrelated, 4))
    assert (second - exact).abs().mean() < 0.75 * (without - exact).abs().mean()


def test_many_models_are_prepared_in_chunks() -> None:
    import icgi.neural.spins as module

    spins = ising.random_batch(6, 7, 14, p=0.5)
    before, module.CHUNK = module.CHUNK, 3
    try:
        again = make_spins(spins.couplings, spins.fields, spins.real)
    finally:
        module.CHUNK = before
    for name in spins.__slots__:
        assert_allclose(getattr(again, name), getattr(spins, name), atol=1e-12)


def test_fit_finds_the_variance_that_made_the_errors() -> None:
    rng = np.random.default_rng(7)
    signs = torch.as_tensor(rng.normal(0, 1.5, (20_000, FEATURES)))
    signs[:, 0] = 1.0
    truth = torch.tensor([-6.0, 0.3, 0.5, 0.0, 0.2, -0.1, 0.4]).double()
    error = torch.exp(0.5 * signs @ truth) * torch.as_tensor(rng.normal(0, 1, 20_000))
    assert_allclose(fit(signs, error, torch.zeros(20_000)), truth, atol=0.05)


def test_orders_that_disagree_lower_the_concentration() -> None:
    precision = Precision().double()
    agree = torch.tensor([[[[6.0, 4.0]]], [[[6.0, 4.0]]]]).double()
    differ = torch.tensor([[[[9.0, 1.0]]], [[[3.0, 7.0]]]]).double()
    first, real = torch.tensor([[0.2]]).double(), torch.ones(1, 1).double()
    assert_allclose(precision(agree, first, real)[0, 0], [6.0, 4.0])  # not fitted: the average
    precision.coefficients[1] = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    sure, unsure = (precision(x, first, real)[0, 0] for x in (agree, differ))
    assert unsure.sum() < sure.sum()
    assert_allclose(sure / sure.sum(), [0.6, 0.4])
    assert_allclose(unsure / unsure.sum(), [0.6, 0.4])
    variance = unsure[0] * unsure[1] / (unsure.sum() ** 2 * (unsure.sum() + 1))
    assert_allclose(variance, 0.3**2 * 2 / (2 - 1), rtol=1e-6)  # that of 0.9 and 0.3
    assert signs_of_error(agree[:1], first, real)[0, 0, 2] == 0.0
