"""Engines that end in ways that real ones end in rarely; entered into `ENGINES` by the tests."""

import os
import signal
import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from icgi import kernels
from icgi.errors import BudgetError
from icgi.inference import Budget, Marginals, Status
from icgi.metrics import uniform
from icgi.model.graph import FactorGraph

Ending = Literal["converged", "at rest", "budget spent", "diverged"]


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
class Patient:
    """Works until its deadline passes, then answers; `signals` presses Ctrl-C that often."""

    signals: int = 1

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        deadline = budget.deadline()
        for _ in range(self.signals):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
        while not deadline.passed:
            time.sleep(0.01)
        return Marginals(uniform(model.cards), Status.BUDGET_SPENT, stats={"sweeps": 3})


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Has nothing to say when it is stopped, as exact engines."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        Patient()(model, budget, rng)
        raise BudgetError("no time left")


@dataclass(frozen=True, slots=True)
class Compiling:
    """Compiles two kernels, slowly."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        for _ in range(2):
            kernels._LISTENER.on_start(None)
            time.sleep(0.4)
            kernels._LISTENER.on_end(None)
        return Marginals(uniform(model.cards), Status.CONVERGED)


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
