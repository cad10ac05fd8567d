"""`auto`: exact wherever that fits, else the best of independent approximations, and its error.

Connected parts of the model are answered apart: those whose exact cost fits are exact whatever
happens to the others. Each step of the ladder leaves a complete answer behind.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from icgi import clock
from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.exact.forecast import Forecast
from icgi.exact.forms import AlongBest, best_forecast, by_decisions
from icgi.exact.junction_tree import AlongOrder
from icgi.exact.transfer import by_transfer
from icgi.inference import Budget, Engine, JointTables, Marginals, Scope, Status
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.graph import assembled as assembled_graph
from icgi.model.ising import as_ising
from icgi.model.reduce import Component, components
from icgi.portfolio.exact import by_symmetry, joints_as_forecast

if TYPE_CHECKING:
    from icgi.portfolio.approximate import Found

HASTE = 0.3  # share of the time left, beyond which exact inference waits for a first answer
PARTS_SHARE = 0.1  # of the time left, for the searches over all parts of a model
MOST_PARTS = 4  # that are approximated each by itself
RING_SHARE = 0.7  # of the time left, for the transfer operator of a ring of columns
WORTH_A_SEARCH = 0.1  # seconds that are left when all approximations have ended
PART_SECONDS = 3e-7  # for every factor, to find the parts
_SEVERITY = (
    Status.EXACT, Status.CONVERGED, Status.AT_REST, Status.ESTIMATED, Status.BUDGET_SPENT,
    Status.DIVERGED,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Auto:
    """Exact where it fits the budget, else `lbp` at once, then `ttve` and `pt` side by side.

    Of the approximations the one with the smallest expected error answers; what the others say
    against it widens that error (docs/engines/auto.md).
    """

    seconds: float = 20.0  # of approximation, where the budget names no time
    patience: float = 60.0  # seconds that exact inference may be forecast to take there
    exact: bool = True  # false: approximate what could be exact, too

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Return the last answer of the ladder."""
        deadline = budget.deadline()
        ahead = self.forecast(model, budget, rng)
        return self.along(ahead)(model, budget.until(deadline), rng)

    def answers(self, model: FactorGraph, budget: Budget, rng: Generator) -> Iterator[Marginals]:
        """Complete answers of growing quality."""
        deadline = budget.deadline()
        ahead = self.forecast(model, budget, rng)
        yield from self.along(ahead).answers(model, budget.until(deadline), rng)

    def forecast(self, model: FactorGraph, budget: Budget, rng: Generator) -> Forecast:
        """Cost of exact inference on a model, along the order that would be taken."""
        return best_forecast(model, self.bounded(budget), rng)

    def bounded(self, budget: Budget) -> Budget:
        """Budget with the time that is taken for granted where none is named."""
        if math.isinf(budget.seconds):
            return replace(budget, seconds=self.patience)
        return budget

    def takes(self, ahead: Forecast, budget: Budget) -> bool:
        """Whether exact inference as forecast is what this engine does."""
        return self.exact and ahead.fits(self.bounded(budget))

    def along(self, ahead: Forecast) -> "Ladder":
        """Same engine for the model of a forecast, without another search."""
        return Ladder(self, ahead)

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Exact joint marginals where they fit, else those of samples by `pt`."""
        named = math.isfinite(budget.seconds)
        deadline = budget.deadline()
        if self.exact:
            limit = self.bounded(budget)
            ahead = self.forecast(model, limit, rng)
            found = joints_as_forecast(model, scopes, ahead, limit.until(deadline), rng)
            if found is not None:
                return found
        from icgi.sampling.tempering import ParallelTempering

        left = budget.until(deadline if named else Deadline.after(self.seconds))
        return ParallelTempering().joints(model, scopes, left, rng)

    def prepared(self, model: FactorGraph, budget: Budget, rng: Generator) -> Engine:
        """Same engine with one order for many evidences, where exact fits without any evidence."""
        ahead = self.forecast(model, budget, rng)
        plain = ahead.plain or ahead
        return AlongOrder(plain.order) if self.takes(plain, budget) else self


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """`auto` with the forecast of exact inference made."""

    settings: Auto
    ahead: Forecast

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Return the last answer."""
        for answer in self.answers(model, budget, rng):
            found = answer
        return found

    def answers(self, model: FactorGraph, budget: Budget, rng: Generator) -> Iterator[Marginals]:
        """Exact at once where it fits; else part by part."""
        deadline = budget.deadline()
        named = math.isfinite(budget.seconds)
        if self.settings.takes(self.ahead, budget) and (
            not named or self.ahead.seconds <= HASTE * budget.seconds
        ):
            try:
                yield AlongBest(self.ahead)(model, budget, rng)
                return
            except BudgetError:  # the forecast was too low: what is left goes to approximations
                pass
        if not named:
            deadline = deadline.within(self.settings.seconds)
        yield from self._parts(model, budget, deadline, rng)

    def _parts(
        self, model: FactorGraph, budget: Budget, deadline: Deadline, rng: Generator
    ) -> Iterator[Marginals]:
        """Answer every connected part, the cheap ones exactly and first."""
        rushed = PART_SECONDS * model.n_factors > PARTS_SHARE * deadline.left
        whole = Component(model, np.arange(model.n_variables))
        parts = [whole] if rushed and model.n_variables else components(model)
        if not parts:
            yield AlongBest(self.ahead)(model, budget, rng)
            return
        answers: list[Marginals | None] = [None] * len(parts)
        hard = []
        searching = deadline.share(PARTS_SHARE)
        for k, part in sorted(enumerate(parts), key=lambda pair: len(pair[1].variables)):
            ahead = self.ahead if len(parts) == 1 else None
            answers[k] = self._exactly(part, ahead, budget, deadline, searching, rng)
            if answers[k] is None:
                hard.append(k)
        if not hard:
            yield assembled(model, parts, answers)
            return
        if len(hard) > MOST_PARTS:  # one run for all of them, instead of one after the other
            easy = [k for k in range(len(parts)) if answers[k] is not None]
            answers = [*(answers[k] for k in easy), None]
            parts = [*(parts[k] for k in easy), united([parts[k] for k in hard])]
            hard = [len(easy)]
        with clock.paused_while():  # loading takes as long as most exact answers: only if needed
            from icgi.portfolio.approximate import approximations
        sizes = {k: 1.0 + parts[k].model.n_factors for k in hard}
        for done, k in enumerate(hard):
            share = sizes[k] / sum(sizes[j] for j in hard[done:])
            until = deadline.share(share)
            for found in approximations(parts[k].model, budget, until, rng):
                answers[k] = self._worded(found)
                yield assembled(model, parts, answers)
            # Where zeros leave approximations nothing to do, the search gets the rest of the time.
            if self.settings.exact and until.left > WORTH_A_SEARCH and not _trusted(answers[k]):
                decided = by_decisions(parts[k].model, budget.until(until), rng)
                if decided is not None:
                    answers[k] = decided
                    yield assembled(model, parts, answers)

    def _exactly(
        self,
        part: Component,
        ahead: Forecast | None,
        budget: Budget,
        deadline: Deadline,
        searching: Deadline,
        rng: Generator,
    ) -> Marginals | None:
        """Marginals of a part that need no others beside them: exact ones, or those of a ring."""
        if part.model.n_variables > 1 and (not self.settings.exact or deadline.passed):
            return None
        left = budget.until(deadline)
        if ahead is None:
            ahead = best_forecast(part.model, budget.until(searching), rng)
        if ahead.fits(replace(left, seconds=min(left.seconds, self.settings.patience))):
            try:
                return AlongBest(ahead)(part.model, left, rng)
            except BudgetError:
                return None
        spins = as_ising(part.model)
        found = by_symmetry(part.model, spins, budget.until(deadline.share(0.5)), rng)
        if found is not None:
            return found
        return by_transfer(part.model, spins, budget.until(deadline.share(RING_SHARE)), rng)

    def _worded(self, found: "Found") -> Marginals:
        """The combined answer of a part, with its expected error and who supports it."""
        made = found.combined
        route = made.chosen.answer
        stats = {f"{made.chosen.name}_{key}": value for key, value in route.stats.items()}
        stats |= {
            "routes": float(len(found.routes)),
            "expected_error": made.expected,
            "agreeing": float(len(made.agreeing)),
            "opposing": float(len(made.opposing)),
            "work": sum(each.answer.stats.get("work", 0.0) for each in found.routes),
        }
        apart, others = _others(found)
        stats |= others
        words = [made.chosen.name]
        for names, verb in ((made.agreeing, "independently agree"), (made.opposing, "disagree")):
            if names:
                words.append(f"{' and '.join(names)} {verb}{'s' if len(names) == 1 else ''}")
        return Marginals(
            route.probs,
            made.status,
            route.log_z,
            std_error=np.where(route.probs > 0, made.error[:, None], 0.0),
            deviation=apart,
            stats=stats,
            note="; ".join(words),
        )


def _others(found: "Found") -> tuple[FloatArray | None, dict[str, float]]:
    """How far the next best route is from the chosen one (n), and accounts of every route.

    A route without errors of its own is the next best only where no other is.
    """
    chosen, stats, gaps = found.combined.chosen, {}, {}
    for route in found.routes:
        stats[f"{route.name}_trusted"] = float(route.trusted)
        if route.stated is not None:
            stats[f"{route.name}_stated"] = float(route.stated.mean())
        if route is not chosen:
            gap = np.abs(route.answer.probs - chosen.answer.probs).max(1)
            stats[f"{route.name}_apart"] = float(gap.mean())
            order = math.inf if route.stated is None else float(route.stated.mean())
            gaps[order] = gap
    return (gaps[min(gaps)] if gaps else None), stats


def united(parts: Sequence[Component]) -> Component:
    """Several parts as one model, which is not connected."""
    starts = np.cumsum([0, *(len(part.variables) for part in parts)])
    scopes: list[tuple[int, ...]] = []
    tables: list[FloatArray] = []
    for part, start in zip(parts, starts.tolist(), strict=False):
        scopes += [tuple([i + start for i in scope]) for scope in part.model.scopes]
        tables += part.model.log_tables
    cards = np.concatenate([part.model.cards for part in parts])
    variables = np.concatenate([part.variables for part in parts])
    return Component(assembled_graph(cards, tuple(scopes), tuple(tables)), variables)


def assembled(
    model: FactorGraph, parts: Sequence[Component], answers: Sequence[Marginals | None]
) -> Marginals:
    """One answer from those of the parts; a part without one yet is uniform, and says nothing."""
    probs = np.zeros((model.n_variables, max(model.max_states, 1)))
    error = np.zeros_like(probs)
    apart = np.zeros(model.n_variables)
    known = [a for a in answers if a is not None]
    for part, answer in zip(parts, answers, strict=True):
        width = part.model.max_states
        if answer is None:
            cards = part.model.cards
            rows = (np.arange(width) < cards[:, None]) / cards[:, None]
            probs[part.variables, :width], error[part.variables, :width] = rows, rows > 0
            continue
        probs[part.variables, :width] = answer.probs
        if answer.std_error is not None:
            error[part.variables, :width] = answer.std_error
        if answer.deviation is not None:
            apart[part.variables] = answer.deviation
    waiting = len(known) < len(parts)
    status = max((a.status for a in known), key=_SEVERITY.index, default=Status.BUDGET_SPENT)
    if waiting:
        status = max(status, Status.BUDGET_SPENT, key=_SEVERITY.index)
    constant = 0.0 if parts else sum(float(t) for t in model.log_tables)
    values = [a.log_z for a in known]
    sums = None if waiting or None in values else constant + sum(v for v in values if v is not None)
    exact = sum(len(p.variables) for p, a in zip(parts, answers, strict=True) if _is_exact(a))
    return Marginals(
        probs,
        status,
        sums,
        std_error=error if not all(map(_is_exact, answers)) else None,
        deviation=apart if any(a.deviation is not None for a in known) else None,
        stats=_stats(parts, answers, error) | {"exact_variables": float(exact)},
        note=_note(parts, answers),
    )


def _is_exact(answer: Marginals | None) -> bool:
    return answer is not None and answer.status is Status.EXACT


def _trusted(answer: Marginals | None) -> bool:
    return answer is not None and answer.status.trusted


def _stats(
    parts: Sequence[Component], answers: Sequence[Marginals | None], error: FloatArray
) -> dict[str, float]:
    """What is known of the largest part, with the expected error of the whole model."""
    largest = max(range(len(parts)), key=lambda k: len(parts[k].variables), default=None)
    answer = None if largest is None else answers[largest]
    found = dict(answer.stats) if answer is not None else {}
    if not all(map(_is_exact, answers)):
        found["expected_error"] = float(error.max(1).mean())
    work = sum(a.stats.get("work", 0.0) for a in answers if a is not None)
    return found | {"parts": float(len(parts)), "work": work}


def _note(parts: Sequence[Component], answers: Sequence[Marginals | None]) -> str:
    """Words of the part that is worst off."""
    noted = [a for a in answers if a is not None and a.note]
    if not noted:
        return ""
    return max(noted, key=lambda a: a.stats.get("expected_error", 0.0)).note
