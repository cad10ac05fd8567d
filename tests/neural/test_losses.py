"""The paper's losses: their equations, their infimum, their gradients."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import gammaln

from icgi.neural import losses

torch.set_num_threads(1)


def draw(seed: int = 0, shape: tuple[int, ...] = (5, 3)) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(seed)
    alpha = torch.tensor(rng.gamma(2.0, 3.0, shape) + 0.05)
    reference = torch.tensor(rng.dirichlet(np.ones(shape[-1]), shape[:-1]))
    spread = torch.tensor(rng.uniform(0.0, 0.6, shape[:-1]))
    return alpha, reference, spread


def test_dirichlet_multinomial_is_the_equation() -> None:
    alpha, reference, _ = draw()
    a, c = alpha.numpy(), 1000.0 * reference.numpy()
    total = a.sum(-1)
    expected = -(gammaln(total) - gammaln(total + 1000.0) + (gammaln(a + c) - gammaln(a)).sum(-1))
    found = losses.dirichlet_multinomial(alpha, reference, excess=False)
    assert_allclose(found.numpy(), expected, rtol=1e-10)


def test_excess_subtracts_the_infimum() -> None:
    alpha, reference, _ = draw()
    excess = losses.dirichlet_multinomial(alpha, reference)
    whole = losses.dirichlet_multinomial(alpha, reference, excess=False)
    assert_allclose((whole - excess).numpy(), 1000.0 * losses.entropy(reference).numpy())
    assert (excess > 0).all()
    at_best = losses.dirichlet_multinomial(1e9 * reference, reference)
    assert_allclose(at_best.numpy(), 0.0, atol=1e-3)


def test_each_label_may_have_pseudo_counts_of_its_own() -> None:
    alpha, reference, spread = draw()
    sizes = torch.linspace(10.0, 5000.0, spread.numel(), dtype=torch.float64).reshape(spread.shape)
    together = losses.composite(alpha, reference, spread, 5.0, sizes).flatten()
    one_by_one = [
        losses.composite(a[None], r[None], s[None], 5.0, float(m))[0]
        for a, r, s, m in zip(
            alpha.flatten(0, -2), reference.flatten(0, -2), spread.flatten(), sizes.flatten(),
            strict=True,
        )
    ]  # fmt: skip
    assert_allclose(together.numpy(), torch.stack(one_by_one).numpy(), rtol=1e-12)


def test_excess_tends_to_pseudo_counts_times_kl() -> None:
    alpha, reference, _ = draw(3)
    sharp = alpha * 1e7
    assert_allclose(
        losses.dirichlet_multinomial(sharp, reference).numpy(),
        1000.0 * losses.kl(sharp, reference).numpy(),
        rtol=1e-3,
    )


def test_calibration_binds_above_the_inverse_variance() -> None:
    alpha = torch.tensor([[30.0, 70.0], [30.0, 70.0], [30.0, 70.0]])
    spread = torch.tensor([0.05, 0.1, 0.2])  # 1/s² = 400, 100, 25
    assert_allclose(losses.calibration(alpha, spread).numpy(), [0.0, 0.0, math.log(4.0)], atol=1e-5)
    assert (losses.calibration(alpha, torch.zeros(3)) == 0).all()


def test_composite_is_the_weighted_sum() -> None:
    alpha, reference, spread = draw(1)
    weight = torch.exp(-5.0 * spread)
    expected = weight * losses.dirichlet_multinomial(alpha, reference, excess=False) + (
        1 - weight
    ) * losses.calibration(alpha, spread)
    assert_allclose(
        losses.composite(alpha, reference, spread, excess=False).numpy(), expected.numpy()
    )


@pytest.mark.parametrize("name", ["composite", "dirichlet_multinomial", "calibration", "kl", "l1"])
def test_gradients_are_finite_differences(name: str) -> None:
    alpha, reference, spread = draw(2)
    alpha.requires_grad_()
    rest = {
        "composite": (reference, spread),
        "calibration": (spread,),
    }.get(name, (reference,))
    assert torch.autograd.gradcheck(lambda a: getattr(losses, name)(a, *rest), (alpha,))


def test_kl_of_a_delta_reference_is_finite() -> None:
    alpha = torch.tensor([[3.0, 1.0]], requires_grad=True)
    loss = losses.kl(alpha, torch.tensor([[1.0, 0.0]])).sum()
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(0.75), rel=1e-6)
    assert torch.isfinite(alpha.grad).all()


def test_graph_mean_gives_every_graph_the_same_weight() -> None:
    values = torch.tensor([[1.0, 1.0, 1.0], [5.0, 9.0, 9.0]])
    real = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    assert losses.graph_mean(values, real).item() == pytest.approx(3.0)
