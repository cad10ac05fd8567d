"""Exact marginals in the cheapest form that the structure of a model allows."""

from dataclasses import dataclass

from numpy.random import Generator

from icgi.errors import BudgetError
from icgi.exact.forecast import hopeless
from icgi.exact.forms import forms, is_enough, with_order
from icgi.inference import Budget, Marginals
from icgi.model.graph import FactorGraph
from icgi.model.ordering import find_order
from icgi.units import readable_bytes


@dataclass(frozen=True, slots=True)
class StructuredJunctionTree:
    """All marginals and log Z, exact; sums, copies, products and barren variables are used."""

    search_share: float = 0.1  # share of the budget's seconds that each order search may take

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Compare all forms, and answer in the cheapest one whose certificate holds."""
        deadline = budget.deadline()
        search = deadline.share(self.search_share).within(10.0)
        order = find_order(model, rng, search.left, restarts=0)
        found = forms(model, order, rng, search)
        plain = next(form for form in found if form.name == "as it is")
        if not is_enough(found[0], plain):  # else a greedy order of the plain form was enough
            order = find_order(model, rng, search.left, hopeless=hopeless(budget))
            found = with_order(found, model, order)
        for form in found:
            if form.table_bytes <= budget.table_bytes:
                answer = form.answer(budget.until(deadline))
                if answer is not None:
                    return answer
        least = min(found, key=lambda form: form.table_bytes)
        raise BudgetError(
            f"exact inference needs {readable_bytes(least.table_bytes)} for its tables (largest "
            f"2^{least.log2_table:.1f} entries; {least.words or 'no structure found'}), the "
            f"budget is {readable_bytes(budget.table_bytes)}; give a larger memory budget, or use "
            "an approximate engine"
        )
