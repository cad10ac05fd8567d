"""`exact`: the cheapest exact method that fits the budget, or a refusal that says what it takes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.chained import chained_joints
from icgi.errors import BudgetError, IcgiError
from icgi.exact.forecast import Forecast
from icgi.exact.forms import AlongBest, best_forecast
from icgi.exact.joints import exact_joints
from icgi.exact.junction_tree import AlongOrder
from icgi.exact.kept import forecast_kept
from icgi.inference import Budget, Engine, JointTables, Marginals, Scope, Status
from icgi.model.graph import FactorGraph
from icgi.model.ising import IsingArrays, as_ising

TRIAL_SHARE = 0.4  # of the time, for a search that may end or not: what is refused needs no time


@dataclass(frozen=True, slots=True)
class Exact:
    """Exact marginals, or `BudgetError`: trees, structure, decisions, Pfaffians, symmetry."""

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Forecast, then whatever is exact and fits."""
        deadline = budget.deadline()
        ahead = self.forecast(model, budget, rng)
        return self.along(ahead)(model, budget.until(deadline), rng)

    def forecast(self, model: FactorGraph, budget: Budget, rng: Generator) -> Forecast:
        """Cost of exact inference on a model, in the form and along the order it would take."""
        return best_forecast(model, budget, rng, TRIAL_SHARE)

    def along(self, ahead: Forecast) -> Engine:
        """Same engine for the model of a forecast, without another search."""
        return ExactAlong(ahead)

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Exact joint marginals, from the cliques of a tree or by conditioning, else a refusal."""
        deadline = budget.deadline()
        ahead = self.forecast(model, budget, rng)
        found = joints_as_forecast(model, scopes, ahead, budget.until(deadline), rng)
        if found is not None:
            return found
        raise BudgetError(
            f"exact joint marginals do not fit the budget ({ahead}); give more memory or seconds, "
            "ask for fewer variables, or use pt or ttve"
        )

    def prepared(self, model: FactorGraph, budget: Budget, rng: Generator) -> Engine:
        """Same engine with one order for many evidences, where exact fits without any evidence."""
        ahead = self.forecast(model, budget, rng)
        plain = ahead.plain or ahead
        return AlongOrder(plain.order) if plain.fits(budget) else self


@dataclass(frozen=True, slots=True, eq=False)
class ExactAlong:
    """`exact` with its forecast made."""

    ahead: Forecast

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Junction tree of the cheapest form where it fits, else by symmetry, else a refusal."""
        deadline = budget.deadline()
        if not self.ahead.fits(budget):
            found = by_symmetry(model, as_ising(model), budget, rng)
            if found is not None:
                return found
        return AlongBest(self.ahead)(model, budget.until(deadline), rng)


def joints_as_forecast(
    model: FactorGraph, scopes: Sequence[Scope], ahead: Forecast, budget: Budget, rng: Generator
) -> JointTables | None:
    """Exact joint marginals where the forecast fits the budget; None where they do not."""
    deadline = budget.deadline()
    plain = ahead.plain or ahead
    if forecast_kept(model, plain.order, both=True).fits(budget):
        try:
            return exact_joints(model, scopes, budget, rng, plain.order)
        except BudgetError:  # no clique holds the variables, and adding one is too much
            pass
    left = budget.until(deadline)
    if not ahead.fits(left):
        return None
    try:
        return chained_joints(model, scopes, Exact(), left, rng, ahead.seconds)
    except BudgetError:
        return None


def by_symmetry(
    model: FactorGraph, spins: IsingArrays | None, budget: Budget, rng: Generator
) -> Marginals | None:
    """Spins without field: every marginal is ½; log Z where the model is planar. Else None.

    `spins` are the model as such, where it is one of spins.
    """
    if spins is None or spins.fields.any() or not model.n_variables:
        return None
    from icgi.exact.pfaffian import Pfaffian  # slow to load, and seldom needed

    try:
        found = Pfaffian()(model, budget, rng)
    except IcgiError:  # not planar, or too large for the time: log Z stays unknown
        probs = np.full((model.n_variables, 2), 0.5)
        return Marginals(probs, Status.EXACT, None, stats={"symmetric": 1.0}, note=SYMMETRIC)
    return found


SYMMETRIC = "no field acts on these spins, so flipping all of them changes nothing"
