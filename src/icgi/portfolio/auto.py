"""`auto`: say what exact inference would cost, and take it whenever it fits the budget."""

from dataclasses import dataclass

from numpy.random import Generator

from icgi.exact.forecast import Forecast, forecast
from icgi.exact.junction_tree import AlongForecast, AlongOrder
from icgi.inference import Budget, Engine, Marginals
from icgi.model.graph import FactorGraph


@dataclass(frozen=True, slots=True)
class Auto:
    """Exact whenever it fits the budget; otherwise a clear refusal that says what it would take."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Forecast, then the engine that the forecast calls for."""
        deadline = budget.deadline()
        ahead = self.forecast(model, budget, rng)
        return self.along(ahead)(model, budget.until(deadline), rng)

    def forecast(self, model: FactorGraph, budget: Budget, rng: Generator) -> Forecast:
        """Cost of exact inference on a model, along the order that would be taken."""
        return forecast(model, budget, rng)

    def along(self, ahead: Forecast) -> Engine:
        """Engine for the model of a forecast; the place for what may follow where exact is beyond.

        So far there is one rung: the junction tree, which refuses what exceeds the budget.
        """
        return AlongForecast(ahead)

    def prepared(self, model: FactorGraph, budget: Budget, rng: Generator) -> Engine:
        """Same engine with one order for many evidences, where exact fits without any evidence."""
        ahead = self.forecast(model, budget, rng)
        return AlongOrder(ahead.order) if ahead.fits(budget) else self
