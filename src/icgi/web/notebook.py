"""`icgi.view`: a model as a widget of a notebook."""

from typing import TYPE_CHECKING

from icgi.api import GivenEvidence
from icgi.extras import require_extra
from icgi.model.condition import resolve_evidence
from icgi.model.graph import FactorGraph, state_names, variable_name
from icgi.web.questions import Question

if TYPE_CHECKING:
    from icgi.web.widget import View


def view(
    model: FactorGraph,
    evidence: GivenEvidence = None,
    engine: str = "auto",
    seconds: float | None = None,
    level: float = 0.9,
    seed: int = 0,
    name: str = "",
) -> "View":
    """Show a model in a notebook, to be clicked.

    Parameters
    ----------
    evidence
        What is observed to begin with.
    seconds
        Time that each answer may take.
    level
        Of the bands.
    """
    require_extra("anywidget", "web", "icgi.view")
    from icgi.web.widget import View

    known: dict[int | str, int | str] = {
        variable_name(model, i): state_names(model, i)[x]
        for i, x in resolve_evidence(model, evidence).items()
    }
    return View(
        model, Question(known, engine=engine, seconds=seconds, level=level, seed=seed), name
    )
