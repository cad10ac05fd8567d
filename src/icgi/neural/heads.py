"""From tokens to Dirichlet concentrations."""

import torch
from torch import Tensor, nn
from torch.nn import functional

FLOOR = 1e-3  # keeps log Γ(α) finite
MOST_LOG_SCALE = 9.0


class TiltedDirichletHead(nn.Module):
    """α_x = e^c (softplus(W z_x) + 10⁻³) · 2 p_x, where p is what the algebra found.

    W starts at zero, so the untrained mean is p itself. Paper: α comes from the token alone; here
    the token corrects p, and a scale e^c of its own lets α₀ reach 10³ without large weights.
    """

    def __init__(self, features: int, signals: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1, bias=False)
        self.scale = nn.Linear(features, 1)
        self.warn = nn.Sequential(
            nn.Linear(signals, features), nn.GELU(), nn.Linear(features, 1, bias=False)
        )
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.scale.weight)
        nn.init.zeros_(self.scale.bias)

    def forward(
        self, tokens: Tensor, half_logit: Tensor, learned: Tensor, signals: Tensor
    ) -> Tensor:
        """Concentrations (b n 2) of tokens (b n 2 d).

        Parameters
        ----------
        half_logit
            ½ log p(+)/p(−) of the algebra, b n.
        learned
            1 where the token may move the mean, 0 where the algebra is exact, b 1.
        signals
            What else tells how sure the mean is, b n s.
        """
        correction = self.linear(tokens)[..., 0] * learned[..., None]
        p = torch.sigmoid(2.0 * torch.stack([half_logit, -half_logit], -1))  # b n 2
        scale = self.scale(tokens.mean(-2)) + self.warn(signals)
        scale = scale.clamp(-MOST_LOG_SCALE, MOST_LOG_SCALE)
        shape = (functional.softplus(correction) + FLOOR) * 2.0 * p
        return torch.exp(scale) * shape.clamp(min=1e-7)
