"""Why a question has no answer: the findings that contradict each other, where that is cheap."""

import math

from icgi.clock import Deadline
from icgi.errors import BudgetError, EvidenceError
from icgi.inference import Budget, infer
from icgi.model.findings import Findings, contradiction, enter
from icgi.model.graph import FactorGraph
from icgi.portfolio.exact import Exact
from icgi.randomness import generator

CHEAP = 1.0  # seconds that exact inference may be forecast to take for a part of the findings
ALTOGETHER = 10.0  # seconds of the search for a smallest set


def explained(
    model: FactorGraph, found: Findings, error: EvidenceError, budget: Budget | None = None
) -> EvidenceError:
    """Error that names a smallest set of findings that contradict each other, else the given one.

    The zeros of single factors show most contradictions. Exact inference shows the others,
    whatever engine was asked, where it is cheap.
    """
    memory = (budget or Budget()).table_bytes
    deadline = Deadline.after(ALTOGETHER)

    def possible(part: Findings) -> bool:
        if deadline.passed:
            raise BudgetError("the search for a contradiction was ended")
        brief = Budget(seconds=min(CHEAP, deadline.left), table_bytes=memory)
        try:
            answer = infer(enter(model, part), part.observed, Exact(), brief, generator(0))
        except EvidenceError:
            return False
        return answer.log_z is None or answer.log_z > -math.inf

    try:
        return contradiction(model, found, error, possible)
    except BudgetError:
        return error
