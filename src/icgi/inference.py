"""The contract between models and engines: budget in, marginals and an honest status out."""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from numpy.random import Generator

from icgi.errors import IcgiError
from icgi.model.condition import Evidence, condition, lift
from icgi.model.graph import FactorGraph, FloatArray


class Status(enum.Enum):
    """How an answer ended; each carries advice for the person who reads it."""

    EXACT = "exact"
    CONVERGED = "converged"
    ESTIMATED = "estimated"
    BUDGET_SPENT = "budget spent"
    DIVERGED = "diverged"

    @property
    def advice(self) -> str:
        """What to do with, or about, an answer of this status."""
        return _ADVICE[self]


_ADVICE = {
    Status.EXACT: "Exact up to rounding.",
    Status.CONVERGED: "The engine's own criterion was met; the answer is still an approximation.",
    Status.ESTIMATED: (
        "A trained network's estimate; nothing was checked on this model: compare with another "
        "engine where it matters."
    ),
    Status.BUDGET_SPENT: (
        "The budget ended before the engine's criterion was met: give more --seconds or "
        "--iterations, or another engine."
    ),
    Status.DIVERGED: "The engine's self-check failed: do not trust these numbers; try another one.",
}


@dataclass(frozen=True, slots=True)
class Budget:
    """What an engine may spend."""

    iterations: int = 1000  # one iteration = one sweep over all variables, for every engine
    seconds: float = math.inf  # for people and benchmarks; tests use iterations only
    table_bytes: int = 2**32  # tables an engine may hold at once, in bytes


@dataclass(frozen=True, slots=True, eq=False)
class Marginals:
    """Every single-variable marginal, and what the engine knows about them."""

    probs: FloatArray  # n k      rows sum to one; zero from cards[i] on
    status: Status
    log_z: float | None = None  # None where the engine has no estimate
    concentration: FloatArray | None = None  # n k  Dirichlet α, where the engine has one
    std_error: FloatArray | None = None  # n k  Monte-Carlo standard error, where there is one
    deviation: FloatArray | None = None  # n  between independent ensembles, ŝ of the paper
    ess: FloatArray | None = None  # n k  effective number of independent draws, where sampled
    rhat: FloatArray | None = None  # n k  split R-hat, where sampled; 0 for impossible states
    pairs: Mapping[tuple[int, int], FloatArray] | None = None  # joint tables of pairs, if computed
    stats: Mapping[str, float] = field(default_factory=dict)  # sweeps, residual, width, …


class Engine(Protocol):
    """Settings that, called on a model, estimate every single-variable marginal."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Estimate the marginals of a model that carries no evidence."""
        ...


def infer(
    model: FactorGraph, evidence: Evidence, engine: Engine, budget: Budget, rng: Generator
) -> Marginals:
    """Marginals of p(x | evidence): condition, run the engine, put the removed states back."""
    conditioned = condition(model, evidence)
    return lift(engine(conditioned.model, budget, rng), conditioned.alive)


def require_device(name: str) -> None:
    """Raise `IcgiError` where torch does not know the device, or cannot use it."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):  # torch without CUDA raises the latter
        raise IcgiError(
            f"device={name} cannot be used by torch on this machine; leave it out for cpu"
        ) from None
