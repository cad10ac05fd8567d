"""The paper's lemmas and theorems on factors, order and losses, each tried by numbers."""

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from scipy.special import digamma, gammaln
from scipy.stats import binom, chi2

from icgi.neural import losses
from icgi.neural.networks import gumbel
from icgi.tt.train import decompose, dense

torch.set_num_threads(1)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_softplus_cores_make_factors_that_are_not_negative(scale: float) -> None:
    """Lemma nonneg, for all entries of the dense factor and cores of either sign."""
    seeds = torch.Generator().manual_seed(0)
    w, k, r = 4, 3, 5
    raw = scale * torch.randn(1, 1, w, k, r, r, generator=seeds, dtype=torch.float64)
    train = torch.nn.functional.softplus(raw)[0, 0].numpy()  # w k r r
    ends = [np.ones((1, r)) / r, np.ones((r, 1))]
    factor = ends[0]
    for core in train:
        factor = np.einsum("nar,xrs->nxas", factor.reshape(-1, 1, r), core).reshape(-1, r)
    factor = factor @ ends[1]
    assert (factor >= 0).all()
    assert factor.size == k**w


@pytest.mark.parametrize(("w", "d", "r"), [(2, 2, 4), (6, 2, 3), (5, 3, 4), (8, 2, 16)])
def test_storage_is_at_most_w_d_r_squared(w: int, d: int, r: int) -> None:
    """Proposition storage; the ends are vectors, so d(2r + (w−2)r²) is reached at most."""
    tensor = np.random.default_rng(0).random((d,) * w)
    cores = decompose(tensor, rank=r)
    numbers = sum(core.size for core in cores)
    assert numbers <= d * (2 * r + (w - 2) * r * r) <= w * d * r * r
    if r >= d ** (w // 2):
        assert_allclose(dense(cores), tensor, atol=1e-12)
    full = [c.shape[1:] for c in cores[1:-1]]
    wide = [min(d**q, d ** (w - q), r) for q in range(1, w)]
    assert full == list(itertools.pairwise(wide))


def test_the_largest_perturbed_score_follows_the_softmax() -> None:
    """Lemma gumbel (i): frequencies of 40,000 choices, χ² at a level of 10⁻⁴, seed fixed."""
    score = torch.tensor([0.0, 1.0, -0.5, 2.0, 0.3])
    draws = 40_000
    noise = gumbel(torch.rand((draws, 5), generator=torch.Generator().manual_seed(7)))
    chosen = (score + noise).argmax(1)
    found = np.bincount(chosen.numpy(), minlength=5)
    expected = draws * torch.softmax(score, 0).numpy()
    assert float(((found - expected) ** 2 / expected).sum()) < chi2.ppf(1 - 1e-4, 4)


def test_the_soft_choice_becomes_the_hard_one_as_the_temperature_falls() -> None:
    """Lemma gumbel (ii)."""
    noise = gumbel(torch.rand((1000, 5), generator=torch.Generator().manual_seed(1))).double()
    key = torch.tensor([0.0, 1.0, -0.5, 2.0, 0.3], dtype=torch.float64) + noise
    hard = torch.nn.functional.one_hot(key.argmax(1), 5).double()
    gaps = [(torch.softmax(key / tau, 1) - hard).abs().sum(1).mean() for tau in (1.0, 0.1, 0.01)]
    assert gaps[0] > gaps[1] > gaps[2]
    two = key.topk(2, 1).values
    clear = (two[:, 0] - two[:, 1]) > 1e-3
    assert clear.float().mean() > 0.99
    assert (torch.softmax(key / 1e-5, 1) - hard)[clear].abs().max() < 1e-12


def expected_loss(a0: float, p: float, m: int) -> float:
    """E L_DM over counts of Multinomial(M, (p, 1−p)) at α = α₀ (p, 1−p), by summing all counts."""
    c = np.arange(m + 1)
    a = a0 * np.array([p, 1 - p])
    terms = gammaln(a[0] + c) - gammaln(a[0]) + gammaln(a[1] + m - c) - gammaln(a[1])
    return float(gammaln(a0 + m) - gammaln(a0) - (binom.pmf(c, m, p) * terms).sum())


@pytest.mark.parametrize("p", [0.5, 0.2, 0.03])
@pytest.mark.parametrize("m", [1, 10, 1000])
def test_no_finite_concentration_is_best_for_exact_targets(p: float, m: int) -> None:
    """Theorem dm-proper says that α₀* is finite. The loss falls all the way to the multinomial."""
    losses_ = [expected_loss(a0, p, m) for a0 in (1, 10, 1e2, 1e3, 1e4, 1e5)]
    limit = -m * (p * math.log(p) + (1 - p) * math.log(1 - p))
    if m == 1:  # one draw says nothing about spread: every α₀ is as good
        assert_allclose(losses_, limit, rtol=1e-9)
        return
    assert (np.diff(losses_) < 0).all()
    assert losses_[-1] > limit
    assert expected_loss(1e8, p, m) == pytest.approx(limit, rel=1e-3)


def test_the_first_order_condition_fails_at_every_finite_concentration() -> None:
    """Eq. foc at α = α₀ p: its two sides differ for M > 1, contrary to the proof."""
    m, p = 50, 0.3
    c = np.arange(m + 1)
    for a0 in (0.5, 5.0, 50.0, 500.0):
        left = float((binom.pmf(c, m, p) * digamma(a0 * p + c)).sum() - digamma(a0 * p))
        right = float(digamma(a0 + m) - digamma(a0))
        assert left > right * (1 + 1e-5)  # −dL/dα is positive: larger is better


def best_concentration(m: float, e: float, effective: float) -> float:
    """α₀ that minimises L_DM at the mean (m, 1−m) for the target (m+e, 1−m−e)."""
    target = torch.tensor([m + e, 1 - m - e], dtype=torch.float64)

    def loss(log_a0: float) -> float:
        alpha = math.exp(log_a0) * torch.tensor([m, 1 - m], dtype=torch.float64)
        return float(losses.dirichlet_multinomial(alpha, target, effective))

    found = minimize_scalar(loss, bounds=(0.0, 18.0), method="bounded", options={"xatol": 1e-6})
    return math.exp(found.x)


@pytest.mark.parametrize("effective", [1000.0, 10000.0])
@pytest.mark.parametrize(("m", "e"), [(0.5, 0.06), (0.5, -0.1), (0.3, 0.08), (0.7, 0.05)])
def test_a_mean_that_errs_has_a_finite_best_concentration(
    m: float, e: float, effective: float
) -> None:
    """α₀ ≈ m(1−m) / (e² − m(1−m)/M): where variances match."""
    predicted = m * (1 - m) / (e * e - m * (1 - m) / effective)
    assert best_concentration(m, e, effective) == pytest.approx(predicted, rel=0.15)


@pytest.mark.parametrize("m", [0.5, 0.2])
def test_errors_below_the_resolution_of_the_counts_are_not_seen(m: float) -> None:
    """e² < m(1−m)/M: no finite best, so 1,000 counts cannot see errors below 0.016."""
    e = 0.8 * math.sqrt(m * (1 - m) / 1000.0)
    assert best_concentration(m, e, 1000.0) > 1e7
    assert best_concentration(m, 0.0, 1000.0) > 1e7


def test_reliable_labels_leave_the_fit_alone() -> None:
    """Theorem composite (i)."""
    alpha = torch.tensor([[30.0, 70.0]], dtype=torch.float64)
    reference = torch.tensor([[0.4, 0.6]], dtype=torch.float64)
    fit = losses.dirichlet_multinomial(alpha, reference)
    for s in (1e-3, 1e-5, 1e-6):
        whole = losses.composite(alpha, reference, torch.tensor([s], dtype=torch.float64))
        assert_allclose(whole.numpy(), fit.numpy(), rtol=10 * s)


def best_composite(s: float) -> float:
    """α₀ that minimises the composite loss where the mean is right."""
    p = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    spread = torch.tensor([s], dtype=torch.float64)
    grid = np.exp(np.linspace(0.0, 16.0, 801))
    values = [float(losses.composite(a * p, p, spread)[0]) for a in grid]
    return float(grid[int(np.argmin(values))])


@pytest.mark.parametrize(("s", "held"), [(0.3, True), (0.1, True), (0.05, False), (0.02, False)])
def test_the_hinge_bounds_the_concentration_only_for_large_deviations(s: float, held: bool) -> None:
    """Theorem composite (ii) says that α₀ ≤ 1/ŝ² is enforced. It is where the hinge is steeper.

    At α₀ = 1/ŝ² the fit pulls with λ·½M/(α₀(α₀+M)) (two states), the hinge with (1−λ)/α₀.
    """
    edge, lam = 1 / s**2, math.exp(-losses.GAMMA * s)
    steeper = (1 - lam) >= lam * 0.5 * losses.EFFECTIVE / (edge + losses.EFFECTIVE)
    assert steeper is held
    found = best_composite(s)
    if held:
        assert found == pytest.approx(edge, rel=0.02)
    else:
        assert found > 1.05 * edge


def test_the_hinge_has_one_sided_derivatives() -> None:
    """Theorem composite (iii): 0 from the left, (1−λ)/α₀ from the right."""
    s = 0.1
    spread = torch.tensor([s], dtype=torch.float64)

    def slope(total: float) -> float:
        alpha = torch.tensor([[total / 2, total / 2]], dtype=torch.float64, requires_grad=True)
        losses.calibration(alpha, spread).sum().backward()
        assert alpha.grad is not None
        return float(alpha.grad[0, 0])

    assert slope(99.9) == 0.0
    assert slope(100.1) == pytest.approx(1 / 100.1)
