"""Eliminating one spin in closed form, and putting it back: the algebra that the network corrects.

Spins are ±1, p(s) ∝ exp(Σ_{i<j} J_ij s_i s_j + Σ_i θ_i s_i). All is batched and differentiable.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

# 5-point Gauss–Hermite rule for E_z f(z), z ~ N(0, 1)
NODES = (-2.8569700138728056, -1.3556261799742659, 0.0, 1.3556261799742659, 2.8569700138728056)
WEIGHTS = (
    0.011257411327720693, 0.22207592200561266, 0.5333333333333333, 0.22207592200561266,
    0.011257411327720693,
)  # fmt: skip
SIGNS = (1.0, -1.0)
SMALL = 1e-12
MOST_CORRELATION = 0.999  # of two neighbours, so that regressing on both stays sound
MOST_FIELD = 20.0  # of a spin, so that products of its exponentials are numbers
MANY_PAIRS = 2000  # from which operations cost more than the calls of them
MOST_MEAN = 1.0 - 1e-7  # |m| of a spin that is put back; keeps atanh finite in float32


@cache
def constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Tensor of a few numbers, made once: copies from the host are not allowed in a CUDA graph."""
    return torch.tensor(values, device=device, dtype=dtype)


def signs_like(like: Tensor) -> Tensor:
    """Spin of each state, (+1, −1)."""
    return constant(SIGNS, like.device, like.dtype)


def log_2cosh(y: Tensor) -> Tensor:
    """log(eʸ + e⁻ʸ), stable for any y."""
    return functional.softplus(2.0 * y) - y


def project(
    row: Tensor,
    field: Tensor,
    means: Tensor,
    present: Tensor,
    correlation: Tensor | None = None,
    widening: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Fields and couplings among the neighbours that summing a spin out leaves behind.

    The factor log f(s) = log 2cosh(θ_v + Σ_k J_vk s_k) is projected onto fields and pairs where
    spins of the given means and correlations are: ΔJ_jk = E[D_j D_k log f], F_j = E[D_j log f],
    D_j g = (g(s_j = 1) − g(s_j = −1))/2, and all but two spins enter as a Gaussian. (For Gaussian
    variables these are the coefficients of the best quadratic in mean square, correlated or not.)
    Exact for up to two neighbours.

    Parameters
    ----------
    row, field
        J_v· (b w) and θ_v (b) of the spin that goes.
    means
        Means (b w) of its neighbours.
    present
        1 for neighbours, 0 for others (b w); `row` is zero for the others.
    correlation
        Correlations (b w w) of the spins, 0 on the diagonal; independent if absent.
    widening
        Factor (b) on the Gaussian's variance; 1 if absent.

    Returns
    -------
    F (b w) and ΔJ (b w w). The fields that remain are F_j − Σ_k ΔJ_jk m_k.
    """
    nodes = constant(NODES, row.device, row.dtype)
    weights = constant(WEIGHTS, row.device, row.dtype)
    one_out, two_out = _spreads(row, means, present, correlation)
    if widening is not None:
        one_out, two_out = one_out * widening[:, None], two_out * widening[:, None, None]
    shift = row * means  # b w
    a = (field + shift.sum(-1))[:, None] - shift  # b w    the field without j
    one = a[..., None] + (one_out[..., None] + SMALL).sqrt() * nodes  # b w q
    alone = 0.5 * (log_2cosh(one + row[..., None]) - log_2cosh(one - row[..., None]))
    alone = (alone * weights).sum(-1)  # b w    one neighbour exact, the others Gaussian

    coupling, tilt = _two(row, a[:, :, None] - shift[:, None, :], two_out)
    pairs = present[:, :, None] * present[:, None, :]
    pairs = pairs * (1.0 - torch.eye(row.shape[1], device=row.device, dtype=row.dtype))
    coupling = coupling * pairs

    # F_j with one more neighbour exact: the strongest, in a smooth mixture by J⁴
    share = (row**4)[:, None, :] * pairs
    total = share.sum(-1)
    share = share / (total[..., None] + SMALL)
    slope = tilt + coupling * means[:, None, :]
    others = total / (total + SMALL)
    return (1.0 - others) * alone + (share * slope).sum(-1), coupling


def _two(row: Tensor, field: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """E[D_j D_k log f] and E[D_j log f at either s_k] (b w w) of two spins that are exact.

    Parameters
    ----------
    row
        Couplings (b w) of the spin that goes.
    field, spread
        Mean and variance (b w w) of its field without the two.
    """
    deviation = (spread + SMALL).sqrt()
    if not torch.is_grad_enabled() and field.numel() > MANY_PAIRS:
        largest = 2.0 * row.abs().amax() + field.abs().amax() + NODES[-1] * deviation.amax()
        if largest < MOST_FIELD:
            return _two_by_exponentials(row, field, deviation)
    nodes = constant(NODES, row.device, row.dtype)
    weights = constant(WEIGHTS, row.device, row.dtype)
    plus = (row[:, :, None] + row[:, None, :])[..., None]
    minus = (row[:, :, None] - row[:, None, :])[..., None]
    two = field[..., None] + deviation[..., None] * nodes  # b w w q
    f = log_2cosh(torch.stack([two + plus, two + minus, two - minus, two - plus]))
    up_up, up_down, down_up, down_down = (f * weights).sum(-1)  # b w w
    coupling = 0.25 * ((up_up + down_down) - (up_down + down_up))
    return coupling, 0.25 * ((up_up - down_down) + (up_down - down_up))


def _two_by_exponentials(row: Tensor, field: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """`_two` for fields whose exponentials are numbers, with a quarter of the logarithms.

    With a = 2J_j, b = 2J_k, y = 2·field: f(++) + f(−−) − f(+−) − f(−+)
    = log (cosh y + cosh(a + b))/(cosh y + cosh(a − b)), and
    f(++) − f(−−) + f(+−) − f(−+) = log (cosh(y + a) + cosh b)/(cosh(y − a) + cosh b).
    """
    up, down = torch.exp(2.0 * row), torch.exp(-2.0 * row)
    sinh = up - down
    both = sinh[:, :, None] * sinh[:, None]  # 2 cosh(a + b) − 2 cosh(a − b)
    apart = up[:, :, None] * down[:, None] + down[:, :, None] * up[:, None]
    other = (up + down)[:, None]
    up, down = up[:, :, None], down[:, :, None]
    coupling, tilt = torch.zeros_like(field), torch.zeros_like(field)
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        e = torch.add(field, deviation, alpha=node).mul_(2.0).exp_()
        i = e.reciprocal()
        coupling.add_((both / (e + i).add_(apart)).log1p_(), alpha=0.25 * weight)
        above = (e * up).addcmul_(i, down).add_(other)
        below = e.mul_(down).addcmul_(i, up).add_(other)
        tilt.add_(above.div_(below).log_(), alpha=0.25 * weight)
    return coupling, tilt


def _spreads(
    row: Tensor, means: Tensor, present: Tensor, correlation: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Variance of Σ J s over all neighbours but j (b w), and over all but j and k (b w w).

    Zero where no neighbour is left, not a rounding error whose root has a huge gradient.
    """
    scaled = row * (1.0 - means * means).clamp(min=1e-6).sqrt()  # b w    J_k σ_k
    own = scaled * scaled
    if correlation is None:
        one_out = own.sum(-1)[:, None] - own
        two_out = one_out[:, :, None] - own[:, None, :]
    else:
        shared = scaled * (scaled[:, None] * correlation).sum(-1)  # b w    with all others
        total = (own + shared).sum(-1)
        lost = own + 2.0 * shared
        one_out = total[:, None] - lost
        both = 2.0 * scaled[:, :, None] * scaled[:, None] * correlation
        two_out = one_out[:, :, None] - lost[:, None] + both
    degree = present.sum(-1)
    one_out = one_out.clamp(min=0.0) * (degree > 1).to(row.dtype)[:, None]
    return one_out, two_out.clamp(min=0.0) * (degree > 2).to(row.dtype)[:, None, None]


def restore(row: Tensor, field: Tensor, means: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Half log-odds (b) of a spin that is put back, and its covariances (b n) with the others.

    ⟨tanh(θ_v + Σ_k J_vk s_k)⟩ over neighbours of known means and covariances: the two strongest
    neighbours are summed exactly, the rest is Gaussian given them. Exact for up to two neighbours.

    Parameters
    ----------
    row, field
        J_v· (b n), zero where there is no edge, and θ_v (b), as they were when the spin went.
    means, covariance
        m (b n) and C (b n n) of the spins that are back.
    """
    n = row.shape[1]
    nodes = constant(NODES, row.device, row.dtype)
    weights = constant(WEIGHTS, row.device, row.dtype)
    if n == 1:
        return _restore_on_one(row[:, 0], field, means, covariance)
    top = row.abs().topk(2, dim=1).indices  # b 2
    chosen = one_hot(top, n).to(row.dtype)  # b 2 n
    m = (chosen * means[:, None]).sum(-1)  # b 2
    j = (chosen * row[:, None]).sum(-1)
    c = chosen @ covariance  # b 2 n
    var = (1.0 - m * m).clamp(min=1e-4)  # b 2
    cross = (c[:, 0] * chosen[:, 1]).sum(-1)  # b
    p = pair_probabilities(m, cross)  # b 2 2    joint of the two
    # regression of the rest on the two: Σ⁻¹ c, with the correlation kept away from ±1
    bound = MOST_CORRELATION * (var[:, 0] * var[:, 1]).sqrt()
    cross = torch.maximum(torch.minimum(cross, bound), -bound)
    det = var[:, 0] * var[:, 1] - cross * cross
    slope_0 = (var[:, 1, None] * c[:, 0] - cross[:, None] * c[:, 1]) / det[:, None]  # b n
    slope_1 = (var[:, 0, None] * c[:, 1] - cross[:, None] * c[:, 0]) / det[:, None]
    rest = 1.0 - chosen.sum(1)  # b n
    slope_0 = slope_0 * rest + chosen[:, 0]
    slope_1 = slope_1 * rest + chosen[:, 1]
    s = signs_like(row)
    step_0 = s[None, :] - m[:, 0, None]  # b 2
    step_1 = s[None, :] - m[:, 1, None]
    moved = (
        step_0[:, :, None, None] * slope_0[:, None, None]
        + step_1[:, None, :, None] * slope_1[:, None, None]
    )  # b 2 2 n
    conditional = (means[:, None, None] + moved).clamp(-1.0, 1.0)
    others = row * rest
    a = field[:, None, None] + (conditional * others[:, None, None]).sum(-1)
    a = a + j[:, 0, None, None] * s[:, None] + j[:, 1, None, None] * s
    spread = (covariance * others[:, None]).sum(-1)  # b n
    c_0, c_1 = (c[:, 0] * others).sum(-1), (c[:, 1] * others).sum(-1)
    spread = (spread - slope_0 * c_0[:, None] - slope_1 * c_1[:, None]) * rest  # conditional C·J
    sd = ((others * spread).sum(-1).clamp(min=0.0) + SMALL).sqrt()
    y = torch.tanh(a[..., None] + sd[:, None, None, None] * nodes)  # b 2 2 q
    t = (y * weights).sum(-1)
    gain = (p * ((1.0 - y * y) * weights).sum(-1)).sum((1, 2))
    mean = (p * t).sum((1, 2)).clamp(-MOST_MEAN, MOST_MEAN)
    cov = ((p * t)[..., None] * (conditional - means[:, None, None])).sum((1, 2))
    cov = cov + gain[:, None] * spread
    return torch.atanh(mean), bounded(cov, mean, means)


def bounded(covariance: Tensor, mean: Tensor, means: Tensor) -> Tensor:
    """Covariances (b n) of one spin with others, cut to |C| ≤ the product of deviations."""
    limit = ((1.0 - mean * mean)[:, None] * (1.0 - means * means)).clamp(min=SMALL).sqrt()
    return torch.maximum(torch.minimum(covariance, limit), -limit)


def pair_probabilities(means: Tensor, covariance: Tensor) -> Tensor:
    """Joint p(s, s') (b 2 2) of two spins from their means (b 2) and covariance (b)."""
    s = signs_like(means)
    m0, m1 = means[:, 0, None, None] * s[:, None], means[:, 1, None, None] * s
    both = (covariance + means[:, 0] * means[:, 1])[:, None, None] * (s[:, None] * s)
    p = (0.25 * (1.0 + m0 + m1 + both)).clamp(min=0.0)  # negative only by rounding or projection
    return p / p.sum((1, 2), keepdim=True)


def _restore_on_one(
    j: Tensor, field: Tensor, means: Tensor, covariance: Tensor
) -> tuple[Tensor, Tensor]:
    s = signs_like(j)
    t = torch.tanh(field[:, None] + j[:, None] * s)  # b 2
    p = 0.5 * (1.0 + means * s)
    mean = (p * t).sum(1).clamp(-MOST_MEAN, MOST_MEAN)
    cov = 0.5 * (t[:, 0] - t[:, 1]) * covariance[:, 0, 0]
    return torch.atanh(mean), cov[:, None]


def enumerate_core(couplings: Tensor, fields: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means (b k), covariances (b k k) and log Z (b) of small models by summing all 2ᵏ states.

    The spins are cut into two halves: E(x, y) = E(x) + E(y) + xᵀ J y is one matrix per model.
    """
    k = fields.shape[1]
    left = spin_table(k - k // 2, fields.device, fields.dtype)  # x a
    right = spin_table(k // 2, fields.device, fields.dtype)  # y c
    a = left.shape[1]
    energy = _half_energy(left, couplings[:, :a, :a], fields[:, :a])[:, :, None]
    energy = energy + _half_energy(right, couplings[:, a:, a:], fields[:, a:])[:, None]
    energy = energy + (left @ couplings[:, :a, a:]) @ right.T  # b x y
    flat = energy.flatten(1)
    weight = torch.softmax(flat, 1).view_as(energy)
    on_left, on_right = weight.sum(2), weight.sum(1)
    means = torch.cat([on_left @ left, on_right @ right], 1)
    second_left = (on_left[:, None] * left.T) @ left
    second_right = (on_right[:, None] * right.T) @ right
    cross = left.T @ weight @ right
    second = torch.cat(
        [torch.cat([second_left, cross], 2), torch.cat([cross.mT, second_right], 2)], 1
    )
    return means, second - means[:, :, None] * means[:, None], torch.logsumexp(flat, 1)


def _half_energy(spins: Tensor, couplings: Tensor, fields: Tensor) -> Tensor:
    return 0.5 * ((spins @ couplings) * spins).sum(-1) + fields @ spins.T


@cache
def spin_table(count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """All 2ᵏ configurations of k spins (2ᵏ k)."""
    codes = torch.arange(2**count, device=device)
    bits = (codes[:, None] >> torch.arange(count, device=device)) & 1
    return 1.0 - 2.0 * bits.to(dtype)


def losses(couplings: Tensor) -> Tensor:
    """How much projecting each spin's factor onto pairs loses, and its strengths' sum (… n 2).

    The loss is Σ over triples Π |tanh J|, the third elementary symmetric polynomial of |tanh J_i·|,
    zero for up to two neighbours, where nothing is lost. Eliminating the least of it first lowers
    the error two- to threefold against least degree, which cannot tell weak couplings from strong.
    """
    a = torch.tanh(couplings).abs()
    square = a * a
    p1, p2, p3 = a.sum(-1), square.sum(-1), (square * a).sum(-1)
    triples = (p1**3 - 3.0 * p1 * p2 + 2.0 * p3) / 6.0
    # rounding may make little of it nothing, which would pass for a step that is exact
    loss = triples.clamp(min=SMALL) * ((couplings != 0).sum(-1) > 2)
    return torch.stack([loss, p1], -1)


def cheapest(
    couplings: Tensor, fields: Tensor, real: Tensor, jitter: Tensor
) -> tuple[Tensor, Tensor]:
    """One-hot choice (b n) of the spin to eliminate, and what it loses (b).

    Padding goes first, then the least inexact, after its loss was multiplied by `jitter` (b n).
    Among those that lose nothing the weakest goes first: a rule that does not look at numbering.
    """
    with torch.no_grad():
        loss, strength = losses(couplings).unbind(-1)
        strength = strength + 0.1 * fields.abs()
        cost = torch.where(loss > 0, loss * jitter, -0.5 / (1.0 + strength))
        cost = cost + 2.0 * (real - 1.0)
        pick = one_hot(cost.argmin(1), cost.shape[1]).to(cost.dtype)
        return pick, (pick * loss).sum(1)


def one_hot(index: Tensor, count: int) -> Tensor:
    """One-hot rows (… count), without the check of the range that would wait for the device."""
    return index[..., None] == torch.arange(count, device=index.device)


def half_logit(p: Tensor) -> Tensor:
    """½ log(p/(1 − p)), finite for p = 0 and 1."""
    p = p.clamp(1e-6, 1.0 - 1e-6)
    return 0.5 * (torch.log(p) - torch.log1p(-p))
