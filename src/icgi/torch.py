"""log Z as a function that torch differentiates: its gradient is the marginals of the factors.

d log Z / d θ_f(x_f) = p(x_f), so a model's parameters are learned by any engine that knows the
joint marginals of its factors. Of `lbp` both are Bethe's: the gradient is that of its log Z where
its messages are at rest.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from icgi.engines import engine_of
from icgi.errors import IcgiError, ModelFormatError, UnsupportedModelError
from icgi.extras import require_extra
from icgi.inference import Budget, Engine, Joints, budget_of
from icgi.joint import infer_joints
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.randomness import generator

torch = require_extra("torch", "nn", "icgi.torch")


def log_z(
    tables: Sequence[Any],
    scopes: Sequence[Sequence[int]],
    cards: Sequence[int],
    engine: str | Engine = "jt",
    budget: Budget | None = None,
    seed: int = 0,
) -> Any:
    """Return log Σ_x exp Σ_f θ_f(x_f) as a tensor; gradients flow to the tables.

    Parameters
    ----------
    tables
        θ_f, tensors of shape (…, *cards[scope]): one model, or a batch of models of one graph.
        Leading axes are those of the batch and broadcast against each other.
    scopes, cards
        Variables of each factor, and states of each variable.
    engine
        Any that knows the joint marginals of factors: jt, enumerate, exact, lbp, ….
    """
    wanted = tuple(tuple(map(int, scope)) for scope in scopes)
    if len(wanted) != len(tables):
        raise ModelFormatError(f"{len(wanted)} scopes but {len(tables)} tables; give one per scope")
    for f, table in enumerate(tables):
        if not (isinstance(table, torch.Tensor) and table.is_floating_point()):
            kind = getattr(table, "dtype", type(table).__name__)
            raise ModelFormatError(
                f"table {f} is {kind}; give a tensor of floating-point numbers, such as "
                "torch.as_tensor(table, dtype=torch.float64)"
            )
    batch: tuple[int, ...] = ()
    for f, (scope, table) in enumerate(zip(wanted, tables, strict=True)):
        shape = tuple(cards[i] for i in scope)
        leading = len(table.shape) - len(shape)
        if leading < 0 or tuple(table.shape[leading:]) != shape:
            raise ModelFormatError(
                f"table {f} has the shape {tuple(table.shape)}, but its scope {scope} needs "
                f"{shape} as the last axes"
            )
        batch = torch.broadcast_shapes(batch, table.shape[:leading])
    whole = [
        table.expand((*batch, *(cards[i] for i in scope)))
        for scope, table in zip(wanted, tables, strict=True)
    ]
    chosen = engine_of(engine)
    asked = _Question(wanted, np.asarray(cards, np.int64), batch, chosen, budget_of(budget), seed)
    found: Any = _LogZ.apply(asked, *whole)
    return found


class _Question:
    """All that is no tensor."""

    def __init__(
        self,
        scopes: tuple[tuple[int, ...], ...],
        cards: IntArray,
        batch: tuple[int, ...],
        engine: Engine,
        budget: Budget,
        seed: int,
    ) -> None:
        self.scopes, self.cards, self.batch = scopes, cards, batch
        self.engine, self.budget, self.seed = engine, budget, seed

    def answers(self, tables: list[FloatArray]) -> tuple[FloatArray, list[FloatArray]]:
        """Return log Z of every model b, and the marginals b … of every factor."""
        count = int(np.prod(self.batch))
        engine, rng = self.engine, generator(self.seed)
        if not isinstance(engine, Joints):
            raise UnsupportedModelError(
                f"gradients are not available from this engine ({engine!r}): it has no marginals "
                "of factors; use jt, exact or enumerate, or lbp, trbp or gbp"
            )
        values = np.empty(count)
        marginals = [np.empty_like(table) for table in tables]
        wanted = [scope for scope in self.scopes if scope]
        for b in range(count):
            model = FactorGraph(self.cards, self.scopes, tuple(table[b] for table in tables))
            if b == 0 and hasattr(engine, "prepared"):
                engine = engine.prepared(model, self.budget, rng)
            found = infer_joints(model, {}, wanted, engine, self.budget, rng)
            if found.log_z is None:
                raise IcgiError(
                    f"the engine has no log Z for this model ({found.status.value}), so there is "
                    "nothing to differentiate; use jt, or give it more iterations"
                )
            values[b] = found.log_z
            joints = iter(found.tables)
            for scope, target in zip(self.scopes, marginals, strict=True):
                target[b] = next(joints) if scope else 1.0
        return values, marginals


class _LogZ(torch.autograd.Function):  # type: ignore[misc,name-defined]
    """log Z forwards, marginals of factors backwards."""

    @staticmethod
    def forward(ctx: Any, asked: _Question, *tables: Any) -> Any:
        """Answer every model of the batch; what backward needs is known then."""
        flat = [
            table.detach()
            .to("cpu", torch.float64)
            .reshape(-1, *(int(asked.cards[i]) for i in scope))
            .numpy()
            for scope, table in zip(asked.scopes, tables, strict=True)
        ]
        values, marginals = asked.answers(flat)
        ctx.save_for_backward(
            *(
                torch.from_numpy(p).reshape(table.shape).to(table.device, table.dtype)
                for p, table in zip(marginals, tables, strict=True)
            )
        )
        like = tables[0] if tables else torch.zeros((), dtype=torch.float64)
        return torch.from_numpy(values).reshape(asked.batch).to(like.device, like.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradient of every table: that of log Z times the factor's marginals."""
        gradients = [
            grad.reshape((*grad.shape, *[1] * (p.dim() - grad.dim()))) * p
            for p in ctx.saved_tensors
        ]
        return None, *gradients
