"""A question of a command: model and evidence, the cost of exact inference, the answer."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from icgi.cli.startup import loading
from icgi.errors import BudgetError, EvidenceError

if TYPE_CHECKING:
    from numpy.random import Generator

    from icgi.answer import Answer
    from icgi.clock import Deadline
    from icgi.exact.forecast import Forecast
    from icgi.inference import Budget, Engine, Marginals
    from icgi.model.condition import Conditioned, Evidence
    from icgi.model.findings import Findings
    from icgi.model.graph import FactorGraph

_BRIEFLY = 3.0  # seconds of which engines that need no order leave a share to its search


@dataclass(frozen=True, eq=False)
class Question:
    """A model with evidence, and the smaller model that the engines see."""

    path: Path
    model: "FactorGraph"
    findings: "Findings"
    conditioned: "Conditioned"
    deadline: "Deadline"  # counted from the moment at which the files were read

    @property
    def evidence(self) -> "Evidence":
        """What was observed."""
        return self.findings.observed


@runtime_checkable
class Foreseeing(Protocol):
    """An engine that says what it would cost, and then runs as it said (`auto`, `exact`, `jt`)."""

    def forecast(self, model: "FactorGraph", budget: "Budget", rng: "Generator") -> "Forecast":
        """Cost on a model."""
        ...

    def along(self, ahead: "Forecast") -> "Engine":
        """Engine that runs as forecast."""
        ...


class Refused(BudgetError):
    """A `BudgetError` with the question it answers."""

    def __init__(
        self, message: str, question: Question, ahead: "Forecast", engine: str, budget: "Budget"
    ) -> None:
        super().__init__(message)
        self.question, self.ahead, self.engine, self.budget = question, ahead, engine, budget


@loading()
def load(
    path: Path,
    evidence_file: Path | None,
    observed: Sequence[str] | None,
    budget: "Budget | None" = None,
    likely: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
) -> Question:
    """Read the files, add what the command line says, remove impossible states."""
    from icgi.api import load as load_model
    from icgi.cli.known import combined
    from icgi.inference import Budget
    from icgi.model.condition import condition
    from icgi.model.findings import enter
    from icgi.portfolio.impossible import explained

    model = load_model(path)
    found = combined(model, evidence_file, observed or (), likely or (), exclude or ())
    budget = budget or Budget()
    deadline = budget.deadline()
    try:
        conditioned = condition(enter(model, found), found.observed, budget.table_bytes)
    except EvidenceError as error:
        raise explained(model, found, error, budget) from error
    return Question(path, model, found, conditioned, deadline)


def unused_evidence(path: Path, evidence_file: Path | None) -> Path | None:
    """Evidence file that lies next to the model, observes something, and was not asked for."""
    beside = Path(f"{_unpacked(path)}.evid")
    if evidence_file is not None or not beside.is_file():
        return None
    try:
        with beside.open("rb") as file:
            return None if file.read(64).split() == [b"0"] else beside
    except OSError:
        return beside


def answer_file(path: Path) -> Path:
    """`MODEL.MAR` next to the model, without the ending of a packed one."""
    return Path(f"{_unpacked(path)}.MAR")


def cost_of(question: Question, engine: "Engine", budget: "Budget", seed: int) -> "Forecast":
    """Cost of exact inference: the engine's own forecast, or that of a brief search."""
    from dataclasses import replace

    from icgi.exact.forecast import forecast
    from icgi.portfolio.impossible import explained
    from icgi.randomness import generator

    left = budget.until(question.deadline)
    model = question.conditioned.model
    if isinstance(engine, Foreseeing):
        try:
            return engine.forecast(model, left, generator(seed))
        except EvidenceError as error:
            raise explained(question.model, question.findings, error, budget) from error
    brief = replace(left, seconds=min(left.seconds, _BRIEFLY))
    return forecast(model, brief, generator(seed))


def cost_line(
    question: Question, ahead: "Forecast", engine: "Engine", name: str, budget: "Budget"
) -> str:
    """One line: size of the question, what exact inference would take, which engine and why."""
    from icgi.units import readable_bytes, readable_seconds

    model = question.model
    return (
        f"{question.path.name}: {count(model.n_variables, 'variable')}, "
        f"{count(model.n_factors, 'factor')}, {states(model)}, {len(question.evidence)} observed"
        f"{_soft(question)}; "
        f"exact: {ahead.structure or f'width {ahead.order.width}'}, tables "
        f"{readable_bytes(ahead.table_bytes)}, about "
        f"{readable_seconds(ahead.seconds)}; engine {name}: {reason(engine, ahead, budget)}"
    )


def reason(engine: "Engine", ahead: "Forecast", budget: "Budget") -> str:
    """Why this engine, or what `auto` is going to do."""
    from icgi.portfolio.auto import Auto
    from icgi.units import readable_bytes, readable_seconds

    if not isinstance(engine, Auto):
        return "as asked"
    if engine.takes(ahead, budget):
        return "takes jt, exact fits the budget" + (" with structure" if ahead.forms else "")
    limit = engine.bounded(budget)
    beyond = (
        f"more than {readable_bytes(limit.table_bytes)}"
        if ahead.table_bytes > limit.table_bytes
        else f"more than {readable_seconds(limit.seconds)}"
    )
    why = f"exact needs {beyond}" if engine.exact else "exact is switched off"
    time = min(budget.seconds, engine.seconds if limit is not budget else budget.seconds)
    plan = "lbp first, then ttve and pt side by side"
    return f"{why}; {plan}" + (f" for {readable_seconds(time)}" if time < math.inf else "")


def end_of(
    engine: "Engine", ahead: "Forecast", budget: "Budget", deadline: "Deadline"
) -> "Deadline":
    """When an answer is due that begins now: `auto` sets itself an end where nobody names one."""
    from icgi.portfolio.auto import Auto

    if isinstance(engine, Auto) and math.isinf(deadline.at) and not engine.takes(ahead, budget):
        return deadline.within(engine.seconds)
    return deadline


def answer(
    question: Question,
    engine: "Engine",
    ahead: "Forecast",
    budget: "Budget",
    seed: int,
    on_answer: "Callable[[Answer], None] | None" = None,
) -> "Answer":
    """Run the engine as it was forecast, in the time that is left.

    `on_answer` is given every complete answer of an engine that improves on its own.
    """
    from icgi import clock
    from icgi.answer import Answer
    from icgi.api import promised_of
    from icgi.inference import ask
    from icgi.portfolio.impossible import explained
    from icgi.randomness import generator

    began = clock.now()

    def whole(found: "Marginals") -> Answer:
        spent = clock.now() - began
        return Answer(
            question.model, question.evidence, found, repr(engine), spent,
            findings=question.findings, settings=engine, promise=promised_of,
        )  # fmt: skip

    run = engine.along(ahead) if isinstance(engine, Foreseeing) else engine
    left = budget.until(question.deadline)
    forward = None if on_answer is None else (lambda found: on_answer(whole(found)))
    try:
        return whole(ask(question.conditioned, run, left, generator(seed), forward))
    except EvidenceError as error:
        raise explained(question.model, question.findings, error, budget) from error


def _soft(question: Question) -> str:
    found = question.findings
    parts = [(len(found.likelihood), "with likelihoods"), (len(found.excluded), "with exclusions")]
    return "".join(f", {number} {what}" for number, what in parts if number)


def count(number: int, what: str) -> str:
    """`1 variable`, `2 variables`; thousands are separated."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def states(model: "FactorGraph") -> str:
    """Numbers of states of a model's variables: `2 states`, `2–81 states`."""
    low, high = int(model.cards.min(initial=model.max_states)), model.max_states
    return count(high, "state") if low == high else f"{low}–{high:,} states"


def _unpacked(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path
