"""The collapsed form alone, as an engine, so that tests and benchmarks see nothing else."""

from dataclasses import dataclass

from numpy.random import Generator

from icgi.errors import BudgetError, UnsupportedModelError
from icgi.exact.signed import answer_signed, forecast_signed
from icgi.inference import Budget, Marginals
from icgi.model.graph import FactorGraph
from icgi.model.structure.collapse import Collapsed, collapse
from icgi.model.structure.split import split_products
from icgi.units import readable_bytes


def find_structure(model: FactorGraph) -> Collapsed | None:
    """Signed network of a model after its products are split; None where no sum is found."""
    return collapse(split_products(model))


@dataclass(frozen=True, slots=True)
class CollapsedJunctionTree:
    """All marginals and log Z of a model with collapsed sums, exact with a certificate.

    Refuses models without such structure, and those whose certificate fails along every order.
    """

    search_share: float = 0.1  # share of the budget's seconds that the order search may take

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Collapse, search an order, check the memory, then collect and distribute."""
        deadline = budget.deadline()
        collapsed = find_structure(model)
        if collapsed is None:
            raise UnsupportedModelError(
                "no factor of this model is a sum of few products; use the junction tree itself"
            )
        ahead = forecast_signed(collapsed, rng, deadline.share(self.search_share))
        if ahead.table_bytes > budget.table_bytes:
            raise BudgetError(
                f"exact inference after collapsing ({collapsed}) needs "
                f"{readable_bytes(ahead.table_bytes)} for its tables (largest "
                f"2^{ahead.order.log2_table:.1f} entries), the budget is "
                f"{readable_bytes(budget.table_bytes)}; give a larger memory budget"
            )
        found = answer_signed(collapsed, ahead, budget.until(deadline), rng)
        if found is not None:
            return found
        raise BudgetError(
            "the signs of the collapsed sums cancel too many digits in every form that was tried, "
            "or the time was over; give more seconds, or use an approximate engine"
        )
