"""A question as the verbs hold it: model and evidence, the cost of exact inference, the answer."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from icgi.cli.startup import loading
from icgi.errors import BudgetError, EvidenceError, IcgiError

if TYPE_CHECKING:
    from icgi.answer import Answer
    from icgi.inference import Budget, Engine
    from icgi.model.condition import Conditioned, Evidence
    from icgi.model.graph import FactorGraph
    from icgi.model.ordering import Order
    from icgi.portfolio.auto import Forecast

_BRIEFLY = 0.3  # seconds of search that nobody has to wait for
_HOPELESS = 16  # times the budget; longer searches were seen to save a factor of five
_SEARCHED = 10_000  # variables up to which engines that need no order get one searched


@dataclass(frozen=True, eq=False)
class Question:
    """A model with evidence, and the smaller model that the engines see."""

    path: Path
    model: "FactorGraph"
    evidence: "Evidence"
    conditioned: "Conditioned"


class Refused(BudgetError):
    """A `BudgetError` with the question it answers."""

    def __init__(
        self, message: str, question: Question, ahead: "Forecast", engine: str, budget: "Budget"
    ) -> None:
        super().__init__(message)
        self.question, self.ahead, self.engine, self.budget = question, ahead, engine, budget


@loading()
def load(path: Path, evidence_file: Path | None, observed: Sequence[str] | None) -> Question:
    """Read the files, add what was observed on the command line, remove impossible states."""
    from icgi.api import load as load_model
    from icgi.api import load_evidence
    from icgi.model.condition import condition

    model = load_model(path)
    evidence = dict(load_evidence(evidence_file, model)) if evidence_file else {}
    for i, x in _observations(model, observed or ()):
        if evidence.setdefault(i, x) != x:
            raise EvidenceError(
                f"variable {i} is observed in state {evidence[i]} and in state {x}; keep one"
            )
    return Question(path, model, evidence, condition(model, evidence))


def unused_evidence(path: Path, evidence_file: Path | None) -> Path | None:
    """Evidence file that lies next to the model but was not asked for."""
    beside = Path(f"{_unpacked(path)}.evid")
    return beside if evidence_file is None and beside.is_file() else None


def answer_file(path: Path) -> Path:
    """`MODEL.MAR` next to the model, without the ending of a packed one."""
    return Path(f"{_unpacked(path)}.MAR")


def cost_of(question: Question, engine: "Engine", budget: "Budget", seed: int) -> "Forecast":
    """Cost of exact inference: searched for engines that need it, an upper bound for the others."""
    from icgi.exact.junction_tree import JunctionTree
    from icgi.model.ordering import find_order, greedy_order
    from icgi.portfolio.auto import Auto, hopeless
    from icgi.randomness import generator

    model = question.conditioned.model
    exact = isinstance(engine, Auto | JunctionTree)
    if not exact and model.n_variables > _SEARCHED:
        return forecast_along(greedy_order(model, "smallest-front"))
    share = engine.search_share if isinstance(engine, JunctionTree) else JunctionTree().search_share
    seconds = share * budget.seconds
    brief, enough = min(seconds, _BRIEFLY), hopeless(budget)
    ahead = forecast_along(find_order(model, generator(seed), brief, hopeless=enough))
    if not exact or seconds <= _BRIEFLY or ahead.table_bytes > _HOPELESS * budget.table_bytes:
        return ahead
    return forecast_along(find_order(model, generator(seed), seconds=seconds))


def forecast_along(order: "Order") -> "Forecast":
    """Cost of exact inference along a given order."""
    from icgi.portfolio.auto import ENTRIES_PER_SECOND, Forecast

    entries = 2.0**order.log2_entries if order.log2_entries < 1000 else math.inf
    return Forecast(order, 8 * order.message_entries, 2 * entries / ENTRIES_PER_SECOND)


def cost_line(question: Question, ahead: "Forecast", name: str, budget: "Budget") -> str:
    """One line: size of the question, what exact inference would take, which engine and why."""
    from icgi.exact.junction_tree import readable_bytes
    from icgi.portfolio.auto import readable_seconds

    model = question.model
    return (
        f"{question.path.name}: {count(model.n_variables, 'variable')}, "
        f"{count(model.n_factors, 'factor')}, {states(model)}, {len(question.evidence)} observed; "
        f"exact: width {ahead.order.width}, tables {readable_bytes(ahead.table_bytes)}, about "
        f"{readable_seconds(ahead.seconds)}; engine {name}: {reason(name, ahead, budget)}"
    )


def reason(name: str, ahead: "Forecast", budget: "Budget") -> str:
    """Why this engine."""
    from icgi.exact.junction_tree import readable_bytes
    from icgi.portfolio.auto import readable_seconds

    if name != "auto":
        return "as asked"
    if ahead.fits(budget):
        return "takes jt, exact fits the budget"
    if ahead.table_bytes > budget.table_bytes:
        return f"exact needs more than {readable_bytes(budget.table_bytes)}"
    return f"exact needs more than {readable_seconds(budget.seconds)}"


def answer(
    question: Question, engine: "Engine", ahead: "Forecast", budget: "Budget", seed: int
) -> "Answer":
    """Run the engine, along the order already found where it is one that needs an order."""
    from icgi.answer import Answer
    from icgi.model.condition import lift
    from icgi.randomness import generator

    began = time.perf_counter()
    run = _along(engine, ahead, budget)
    found = run(question.conditioned.model, budget, generator(seed))
    lifted = lift(found, question.conditioned.alive)
    seconds = time.perf_counter() - began
    return Answer(question.model, question.evidence, lifted, repr(engine), seconds)


def count(number: int, what: str) -> str:
    """`1 variable`, `2 variables`; thousands are separated."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def states(model: "FactorGraph") -> str:
    """Numbers of states of a model's variables: `2 states`, `2–81 states`."""
    low, high = int(model.cards.min(initial=model.max_states)), model.max_states
    return count(high, "state") if low == high else f"{low}–{high:,} states"


def _along(engine: "Engine", ahead: "Forecast", budget: "Budget") -> "Engine":
    from icgi.exact.junction_tree import AlongOrder, JunctionTree
    from icgi.portfolio.auto import Auto, refuse_beyond

    if isinstance(engine, Auto):
        refuse_beyond(ahead, budget)  # all that `auto` has is exact: what it would do, at once
        return AlongOrder(ahead.order)
    return (
        AlongOrder(ahead.order, engine.arithmetic) if isinstance(engine, JunctionTree) else engine
    )


def _observations(model: "FactorGraph", observed: Sequence[str]) -> list[tuple[int, int]]:
    from icgi.model.condition import resolve_evidence

    pairs: list[tuple[int, int]] = []
    for text in observed:
        variable, equals, state = (part.strip() for part in text.rpartition("="))
        if not equals or not variable or not state:
            raise IcgiError(f"--observe {text!r}: write VARIABLE=STATE, such as --observe 3=1")
        given: dict[int | str, int | str] = {variable: state}
        pairs.extend(resolve_evidence(model, given).items())
    return pairs


def _unpacked(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path
