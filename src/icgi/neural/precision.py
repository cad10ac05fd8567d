"""Variance of an answer's error, from the spread over several elimination orders.

Orders that disagree, and passes that disagree, are far better signs of error than what a network
learns to say of itself while it learns means. So a handful of coefficients, fitted on held-out
models once training is over, turns these signs into the variance that sets α₀.
"""

import torch
from torch import Tensor, nn

FEATURES = 7
TINY = 1e-10
LEAST_SUM, MOST_SUM = 0.1, 1e6  # of α₀


class Precision(nn.Module):
    """log variance of p(s = +1) − its estimate, linear in the logarithms of the signs."""

    coefficients: Tensor  # 2 7    for one order, and for several; all zero: not fitted

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("coefficients", torch.zeros(2, FEATURES))

    def forward(self, alphas: Tensor, first: Tensor, real: Tensor) -> Tensor:
        """Concentrations (b n 2) of all orders together.

        The mean weighs every order by its α₀; where nothing was fitted so does α₀.

        Parameters
        ----------
        alphas
            Concentrations that each order found, o b n 2.
        first
            Means ⟨s⟩ of the first pass, b n.
        real
            0 for padding, b n.
        """
        together = alphas.mean(0)
        row = self.coefficients[min(len(alphas), 2) - 1]
        if not row.any():
            return together
        p = together / together.sum(-1, keepdim=True)
        variance = torch.exp(signs_of_error(alphas, first, real) @ row.to(p.dtype))
        total = (p[..., 0] * p[..., 1] / variance - 1.0).clamp(LEAST_SUM, MOST_SUM)
        return p * total[..., None]


def signs_of_error(alphas: Tensor, first: Tensor, real: Tensor) -> Tensor:
    """Logarithms (b n 7) of what tells the size of the error; zero where there is one order only.

    In turn: 1, the variance that the orders claim, their spread, the squared change since the
    first pass, both of the latter averaged over the model, p(1 − p).
    """
    total = alphas.sum(-1)
    up = alphas[..., 0] / total  # o b n
    claimed = (up * (1.0 - up) / (total + 1.0)).mean(0)
    together = alphas.mean(0)
    p = together[..., 0] / together.sum(-1)
    change = (p - 0.5 * (1.0 + first)).square()
    parts = [torch.zeros_like(p), torch.log(claimed + TINY)]
    several = len(alphas) > 1
    spread = up.var(0) if several else torch.zeros_like(p)
    parts += [torch.log(spread + TINY) if several else spread, torch.log(change + TINY)]
    for x, known in ((spread, several), (change, True)):
        whole = (x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
        parts.append((torch.log(whole + TINY) if known else whole).expand_as(p))
    parts.append(torch.log(p * (1.0 - p) + TINY))
    parts[0] = parts[0] + 1.0
    return torch.stack(parts, -1)


def fit(signs: Tensor, error: Tensor, noise: Tensor, ridge: float = 1e-4) -> Tensor:
    """Coefficients (7) of largest likelihood of Gaussian errors with that log variance.

    Parameters
    ----------
    signs
        Rows of `signs_of_error`, m 7.
    error, noise
        p̂ − p of each, and the standard error of p itself, m.
    """
    signs, error, noise = signs.double(), error.double(), noise.double()
    weight = torch.zeros(FEATURES, dtype=torch.float64, device=signs.device, requires_grad=True)
    with torch.no_grad():
        weight[0] = torch.log((error * error).mean() + TINY)
    optimizer = torch.optim.LBFGS([weight], max_iter=300, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        variance = torch.exp((signs @ weight).clamp(-30.0, 5.0)) + noise * noise
        loss = (error * error / variance + torch.log(variance)).mean()
        loss = loss + ridge * weight[1:].square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weight.detach().float()
