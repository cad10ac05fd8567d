"""The contract between models and engines: budget in, marginals and an honest status out."""

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.errors import IcgiError
from icgi.model.condition import Conditioned, Evidence, condition, lift
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.precision import extent_of, resolution, shifted

# Standard error of a probability of which nothing is known: wherever the estimate lies, its band at
# 90 % reaches 0 and 1.
UNKNOWN_ERROR = 0.62
UNBOUNDED = 2**62  # iterations of a budget that only the clock ends
# Precision of log weights (`model.precision.resolution`) up to which an answer may be called exact,
# and beyond which it says nothing.
EXACT_RESOLUTION, UNUSABLE_RESOLUTION = 1e-8, 1e-2


class Status(enum.Enum):
    """How an answer ended; each carries advice for the person who reads it."""

    EXACT = "exact"
    CONVERGED = "converged"
    AT_REST = "at rest"
    ESTIMATED = "estimated"
    BUDGET_SPENT = "budget spent"
    DIVERGED = "diverged"

    @property
    def trusted(self) -> bool:
        """Whether the engine vouches for the numbers: exact, or with a small estimated error."""
        return self in (Status.EXACT, Status.CONVERGED)

    @property
    def advice(self) -> str:
        """What to do with, or about, an answer of this status."""
        return _ADVICE[self]

    @staticmethod
    def worst(found: "Iterable[Status]") -> "Status":
        """Least of several statuses, which is that of what is computed from all of them."""
        return max(found, key=tuple(Status).index)


_ADVICE = {
    Status.EXACT: "Exact up to rounding.",
    Status.CONVERGED: "An approximation whose error the engine has estimated, and found small.",
    Status.AT_REST: (
        "The iteration came to rest; that says nothing about how far its fixed point is from the "
        "truth: compare with another engine where it matters."
    ),
    Status.ESTIMATED: (
        "A trained network's estimate; nothing was checked on this model: compare with another "
        "engine where it matters."
    ),
    Status.BUDGET_SPENT: (
        "The budget ended before the engine's criterion was met: give it more time, or try "
        "another engine."
    ),
    Status.DIVERGED: "The engine's self-check failed: do not trust these numbers; try another one.",
}


@dataclass(frozen=True, slots=True)
class Budget:
    """What an engine may spend."""

    # One iteration is one sweep over all variables, for every engine. None: no bound but the time
    # where a time is given, else each engine's own (`sweeps`).
    iterations: int | None = None
    seconds: float = math.inf  # wall clock, compiling excluded; tests use iterations only
    table_bytes: int = 2**32  # tables an engine may hold at once, in bytes

    def sweeps(self, usual: int = 1000) -> int:
        """How many iterations are allowed; `usual` where neither they nor seconds are bounded."""
        if self.iterations is not None:
            return self.iterations
        return usual if math.isinf(self.seconds) else UNBOUNDED

    def deadline(self) -> Deadline:
        """Moment at which the seconds are spent, if they are counted from now."""
        return Deadline.after(self.seconds)

    def until(self, deadline: Deadline) -> "Budget":
        """Same budget with the seconds that are left before a deadline."""
        left = deadline.left
        return self if left == self.seconds else replace(self, seconds=left)


def budget_of(given: Budget | None) -> Budget:
    """Budget that a person chose, the usual one for None; says what is wrong with it."""
    if given is None:
        return Budget()
    if not isinstance(given, Budget):
        raise IcgiError(f"budget={given!r} is no budget; give one such as icgi.Budget(seconds=5)")
    for name, value in (("seconds", given.seconds), ("iterations", given.iterations)):
        if value is not None and not (isinstance(value, Real) and float(value) >= 0):
            raise IcgiError(f"Budget({name}={value!r}): give a number of at least 0")
    return given


@dataclass(frozen=True, slots=True, eq=False)
class Marginals:
    """Every single-variable marginal, and what the engine knows about them."""

    probs: FloatArray  # n k      rows sum to one; zero from cards[i] on
    status: Status
    log_z: float | None = None  # None where the engine has no estimate
    concentration: FloatArray | None = None  # n k  Dirichlet α, where the engine has one
    std_error: FloatArray | None = None  # n k  standard error, where the engine estimates one
    deviation: FloatArray | None = None  # n  between independent ensembles (ŝ of the paper), routes
    ess: FloatArray | None = None  # n k  effective number of independent draws, where sampled
    rhat: FloatArray | None = None  # n k  split R-hat, where sampled; 0 for impossible states
    pairs: Mapping[tuple[int, int], FloatArray] | None = None  # joint tables of pairs, if computed
    stats: Mapping[str, float] = field(default_factory=dict)  # sweeps, residual, width, …
    note: str = ""  # how it was obtained and what speaks for it, in words, where that says more

    @property
    def errors(self) -> FloatArray | None:
        """Standard error of every probability, n k, where the engine knows its error.

        Of a Dirichlet α it is √(p (1 − p) / (α₀ + 1)), p = α / α₀.
        """
        if self.std_error is not None or self.concentration is None:
            return self.std_error
        total = self.concentration.sum(1, keepdims=True)
        p = self.concentration / np.maximum(total, 1e-300)
        return np.asarray(np.sqrt(p * (1 - p) / (total + 1)))


class Engine(Protocol):
    """Settings that, called on a model, estimate every single-variable marginal."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Estimate the marginals of a model that carries no evidence."""
        ...


@runtime_checkable
class Improving(Protocol):
    """An engine that has several answers, each better than the one before it."""

    def answers(self, model: FactorGraph, budget: Budget, rng: Generator) -> Iterator[Marginals]:
        """Complete answers; the last one is what a call returns."""
        ...


Scope = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class JointTables:
    """Joint marginals of several variables each, and what the engine knows about them."""

    tables: tuple[FloatArray, ...]  # one per scope, axes in its order; entries sum to one
    status: Status
    log_z: float | None = None
    std_errors: tuple[FloatArray, ...] | None = None  # of every entry, where the engine knows
    note: str = ""


@runtime_checkable
class Joints(Protocol):
    """An engine that also knows how variables behave together."""

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Joint marginals of scopes of variables, each named once in a scope.

        Raises `UnsupportedModelError` for scopes that the engine knows nothing about.
        """
        ...


def infer(
    model: FactorGraph,
    evidence: Evidence,
    engine: Engine,
    budget: Budget,
    rng: Generator,
    on_answer: Callable[[Marginals], None] | None = None,
) -> Marginals:
    """Marginals of p(x | evidence): condition, run the engine, put the removed states back.

    `on_answer` is given every complete answer of an engine that improves on its own.
    """
    deadline = budget.deadline()
    conditioned = condition(model, evidence, budget.table_bytes)
    return ask(conditioned, engine, budget.until(deadline), rng, on_answer)


def ask(
    conditioned: Conditioned,
    engine: Engine,
    budget: Budget,
    rng: Generator,
    on_answer: Callable[[Marginals], None] | None = None,
) -> Marginals:
    """Marginals over all states of a question whose evidence has been entered."""
    deadline = budget.deadline()
    extent = extent_of(conditioned.model)
    model, log_scale = shifted(conditioned.model, extent)
    precision = resolution(extent)

    def whole(answer: Marginals) -> Marginals:
        if log_scale and answer.log_z is not None:
            answer = replace(answer, log_z=answer.log_z + log_scale)
        return lift(_as_precise_as_the_model(answer, precision), conditioned.alive)

    left = budget.until(deadline)
    if on_answer is None or not isinstance(engine, Improving):
        return whole(engine(model, left, rng))
    for answer in engine.answers(model, left, rng):
        best = whole(answer)
        on_answer(best)
    return best


def _as_precise_as_the_model(answer: Marginals, resolution: float) -> Marginals:
    """Call an answer exact only where double precision can hold the model's log weights."""
    if answer.status is not Status.EXACT or resolution <= EXACT_RESOLUTION:
        return answer
    return replace(
        answer,
        status=Status.DIVERGED if resolution > UNUSABLE_RESOLUTION else Status.CONVERGED,
        std_error=np.where(answer.probs > 0, min(resolution, 1.0), 0.0),
        stats={**answer.stats, "resolution": resolution},
    )


def require_device(name: str) -> None:
    """Raise `IcgiError` where torch does not know the device, or cannot use it."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):  # torch without CUDA raises the latter
        raise IcgiError(
            f"device={name} cannot be used by torch on this machine; leave it out for cpu"
        ) from None
