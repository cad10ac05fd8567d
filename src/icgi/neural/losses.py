"""What a network is trained on: the paper's composite loss, and KL and L1 to warm up.

α are Dirichlet concentrations (… k), μ̂ reference marginals (… k), ŝ their cross-chain standard
deviation (…). Every loss comes per variable; `graph_mean` averages as the paper does.
"""

import torch
from torch import Tensor

GAMMA = 5.0  # reliability decay γ
EFFECTIVE = 1000.0  # pseudo-counts M_eff
SMALLEST_SPREAD = 1e-6  # exact references have ŝ = 0; then L_cal never binds below α₀ = 10¹²


def dirichlet_multinomial(
    alpha: Tensor, reference: Tensor, effective: float | Tensor = EFFECTIVE, *, excess: bool = True
) -> Tensor:
    """L_DM = −log Γ(α₀)/Γ(α₀ + M) − Σ_k log Γ(α_k + c_k)/Γ(α_k), c = M μ̂ (eq. dirichlet).

    M is one number, or each label's own effective sample size (…).

    With `excess` its infimum over α, M·H(μ̂), is subtracted: it does not depend on the network and
    would swamp what does. The result is ≥ 0, zero only in the limit α₀ → ∞ with mean μ̂, and about
    M·KL(μ̂ ‖ α/α₀) for α₀ ≫ M.
    """
    a = alpha.double()  # differences of log Γ at 10⁴ lose all digits of float32
    if isinstance(effective, Tensor):
        size = effective.to(a)
    else:  # filled, not copied: nothing may come from the host while a step is being recorded
        size = torch.full((), effective, dtype=a.dtype, device=a.device)
    counts = size[..., None] * reference.double()
    total = a.sum(-1)
    ratio = torch.lgamma(total) - torch.lgamma(total + size)
    loss = -(ratio + (torch.lgamma(a + counts) - torch.lgamma(a)).sum(-1))
    if excess:
        loss = loss - size * entropy(reference.double())
    return loss.to(alpha.dtype)


def calibration(alpha: Tensor, spread: Tensor) -> Tensor:
    """L_cal = max(0, log α₀ − log(1/ŝ²)) (eq. loss-cal)."""
    log_spread = torch.log(spread.clamp(min=SMALLEST_SPREAD))
    return torch.relu(torch.log(alpha.sum(-1)) + 2.0 * log_spread)


def reliability(spread: Tensor, gamma: float = GAMMA) -> Tensor:
    """λ = exp(−γ ŝ)."""
    return torch.exp(-gamma * spread)


def composite(
    alpha: Tensor,
    reference: Tensor,
    spread: Tensor,
    gamma: float = GAMMA,
    effective: float | Tensor = EFFECTIVE,
    *,
    excess: bool = True,
) -> Tensor:
    """λ L_DM + (1 − λ) L_cal of every variable (eq. loss-total)."""
    weight = reliability(spread, gamma)
    fit = dirichlet_multinomial(alpha, reference, effective, excess=excess)
    return weight * fit + (1.0 - weight) * calibration(alpha, spread)


def kl(alpha: Tensor, reference: Tensor) -> Tensor:
    """KL(μ̂ ‖ α/α₀) of every variable."""
    mean = alpha / alpha.sum(-1, keepdim=True)
    return -(reference * torch.log(mean.clamp(min=1e-9))).sum(-1) - entropy(reference)


def l1(alpha: Tensor, reference: Tensor) -> Tensor:
    """‖α/α₀ − μ̂‖₁ of every variable; its mean is the MAE."""
    return (alpha / alpha.sum(-1, keepdim=True) - reference).abs().sum(-1)


def entropy(p: Tensor) -> Tensor:
    """−Σ p log p, with 0 log 0 = 0."""
    return -torch.xlogy(p, p).sum(-1)


def graph_mean(values: Tensor, real: Tensor) -> Tensor:
    """(1/N) Σ_n (1/|V_n|) Σ_{i ∈ V_n} of values b n; `real` is 0 for padding."""
    return ((values * real).sum(-1) / real.sum(-1).clamp(min=1.0)).mean()
