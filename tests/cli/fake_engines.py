"""Engines that end in ways that real ones end in rarely; entered into `ENGINES` by the tests."""

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from icgi.errors import BudgetError
from icgi.inference import Budget, Marginals, Status
from icgi.metrics import uniform
from icgi.model.graph import FactorGraph

Ending = Literal["converged", "budget spent", "diverged"]


@dataclass(frozen=True, slots=True)
class Unsure:
    """Uniform marginals with any status and uncertainty that a test asks for.

    More words about it.
    """

    status: Ending = "budget spent"
    std_error: float | None = None  # of every probability
    pseudo_counts: float | None = None

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        probs = uniform(model.cards)
        return Marginals(
            probs,
            Status(self.status),
            concentration=None if self.pseudo_counts is None else probs * self.pseudo_counts,
            std_error=None if self.std_error is None else np.where(probs > 0, self.std_error, 0.0),
            stats={"sweeps": 7, "residual": 0.25},
        )


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Behaves as if Ctrl-C was pressed."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class Sleeper:
    """Takes ten minutes."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        time.sleep(600)
        raise AssertionError


@dataclass(frozen=True, slots=True)
class Greedy:
    """Always wants more memory."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        raise BudgetError("greedy needs everything; give it more")
