"""The forms in which a model can be answered exactly, what each would cost, and the cheapest.

Every form gives all marginals and log Z of the same model: as it is; with interchangeable variables
counted; with copies merged and products split; without barren variables, which come back in
batches; with sums of products collapsed; and as a graph of decisions, where zeros take it apart.
The cost of all but the last is known beforehand. The last is made within a share of the time.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline, now, paused_while
from icgi.exact.forecast import SEARCH_SHARE, Forecast, along, forecast, hopeless
from icgi.exact.junction_tree import AlongForecast, run
from icgi.inference import Budget, Marginals
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ordering import Order, find_order
from icgi.model.precision import extent_of, shifted
from icgi.model.reduce import has_zeros

if TYPE_CHECKING:  # loading all of it takes longer than most answers
    from icgi.model.structure.barren import Barren
    from icgi.model.structure.count import Counted
    from icgi.model.structure.merge import Merged

EASY = 18.0  # log₂ of the entries up to which looking for structure costs more than it saves
NARROW = 10.0  # log₂ of the largest table up to which structure has little to take away
QUICK = 0.03  # seconds of a form that make looking for another one pointless
SHORT, MUCH = 5.0, 1e-4  # likewise seconds, where they are this share of the model as it is
AS_IT_IS = "as it is"  # name of the form without structure
BRIEFLY = 0.05  # seconds of counted work for a first order
LONGEST = 10.0  # seconds of looking for structure
LOOK_SHARE = 0.5  # of the seconds of the model as it is, that this may take at most
LOOKING = 1e-6  # seconds that this takes for every factor, at least
COUNTING = 4e-5  # seconds that looking for interchangeable variables takes for every factor
COLOURING = 2e-8  # likewise for every axis of every entry
COUNTING_SHARE = 0.05  # of the model as it is, that this may take
FAR_CHEAPER = 0.1  # times the cost of a first order: then no better order is looked for
TRIAL_SHARE = 0.1  # of what the cheapest other form takes, for a search over decisions
UNLESS_SHARE = 0.2  # of the time, where no other form fits
LONGEST_TRIAL = 20.0  # seconds
LEAST_TRIAL = 0.01  # seconds: no search is worth it in less


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """One way to an exact answer, and its cost."""

    name: str  # "as it is", "counted", "reduced", "batches", "collapsed", "decided"
    words: str  # what was found, with the width before and after
    log2_table: float  # largest table
    table_bytes: float
    seconds: float
    answer: Callable[[Budget], Marginals | None]  # None: the certificate failed

    def fits(self, budget: Budget) -> bool:
        """Whether it keeps within the budget's memory and time."""
        return self.table_bytes <= budget.table_bytes and self.seconds <= budget.seconds


def best_forecast(
    model: FactorGraph, budget: Budget, rng: Generator, trial: float = UNLESS_SHARE
) -> Forecast:
    """Cost of exact inference in the cheapest form; structure is looked for before a long search.

    Where structure makes the model far cheaper, the order of the model as it is does not matter.
    Where no form fits, a search over decisions may take the share `trial` of the time.
    """
    deadline = budget.deadline()
    ahead = _forecast(model, budget, rng)
    left = budget.until(deadline)
    fits = ahead.fits(left)
    seconds = min(TRIAL_SHARE * ahead.seconds if fits else math.inf, trial * left.seconds)
    if ahead.seconds <= QUICK or (fits and seconds < LEAST_TRIAL) or not has_zeros(model):
        return ahead
    order = (ahead.plain or ahead).order
    form = _decided(model, order, Deadline.after(min(seconds, LONGEST_TRIAL)), left)
    return ahead if form is None else _first(form, ahead.forms, ahead.plain or ahead)


def _forecast(model: FactorGraph, budget: Budget, rng: Generator) -> Forecast:
    """Cost of the cheapest form whose cost is known beforehand."""
    deadline = budget.deadline()
    # The first order has numbers of its own, so that the long search is that of the junction tree.
    own = rng.spawn(1)[0]
    quick = forecast(model, budget, own, work=BRIEFLY)
    looking = deadline.share(SEARCH_SHARE).within(min(LONGEST, LOOK_SHARE * quick.seconds))
    found: list[Form] = []
    if quick.seconds <= QUICK or looking.left < LOOKING * model.n_factors:
        if quick.table_bytes <= budget.table_bytes:
            return quick
    else:
        near, _ = shifted(model, extent_of(model))
        found = [f for f in forms(near, quick.order, rng, looking) if f.name != AS_IT_IS]
    if found and found[0].fits(budget) and found[0].seconds <= FAR_CHEAPER * quick.seconds:
        return _with_forms(quick, found)
    if quick.order.log2_entries > hopeless(budget):
        return _with_forms(quick, found)
    plain = forecast(model, budget.until(deadline), rng)
    best = min(plain, quick, key=lambda each: (each.table_bytes > budget.table_bytes, each.seconds))
    return _with_forms(best, found)


def by_decisions(model: FactorGraph, budget: Budget, rng: Generator) -> Marginals | None:
    """Exact marginals by a search that may take all of the time; None where it does not end."""
    if not has_zeros(model):
        return None
    deadline = budget.deadline()
    order = find_order(model, rng, seconds=SEARCH_SHARE * budget.seconds, work=BRIEFLY)
    form = _decided(model, order, deadline, budget)
    found = None if form is None else form.answer(budget)
    if form is None or found is None:
        return None
    return replace(found, log_z=_scaled(found.log_z, model), note=form.words)


def _decided(model: FactorGraph, order: Order, deadline: Deadline, budget: Budget) -> Form | None:
    """The model as a graph of decisions, if that is made in time and in half of the memory."""
    with paused_while():
        from icgi.exact.decisions import decide
    began = now()
    near, _ = shifted(model, extent_of(model))
    made = decide(near, order, deadline, budget.table_bytes / 2)
    if made is None:
        return None
    words = f"{made.size:,} decisions in place of a largest table of 2^{order.log2_table:.1f}"
    size = float(np.log2(max(made.size, 1)))
    return Form("decided", words, size, made.table_bytes, now() - began, lambda _: made.marginals())


def _with_forms(plain: Forecast, found: list[Form]) -> Forecast:
    cheaper = tuple([form for form in found if form.seconds < plain.seconds])
    return _first(cheaper[0], cheaper[1:], plain) if cheaper else plain


def _first(form: Form, others: tuple[Form, ...], plain: Forecast) -> Forecast:
    """Forecast of a form, with what may be tried after it."""
    return replace(
        plain,
        table_bytes=form.table_bytes,
        seconds=form.seconds,
        forms=(form, *others),
        plain=plain,
    )


@dataclass(frozen=True, slots=True, eq=False)
class AlongBest:
    """Exact inference as forecast: the forms of a model, cheapest first, then the model as it is.

    A form is given up when its certificate fails; the next one may still be exact.
    """

    ahead: Forecast

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Exact marginals, or `BudgetError` where no form fits the budget."""
        deadline = budget.deadline()
        for form in self.ahead.forms:
            left = budget.until(deadline)
            answer = form.answer(left) if form.fits(left) else None
            if answer is not None:
                return replace(answer, log_z=_scaled(answer.log_z, model), note=form.words)
        left, plain = budget.until(deadline), self.ahead.plain or self.ahead
        if not plain.fits(left):
            self.ahead.refuse_beyond(left)  # in the words of the form that comes nearest
        return AlongForecast(plain)(model, left, rng)


def _scaled(log_z: float | None, model: FactorGraph) -> float | None:
    """Forms answer for a model whose log weights are near zero; log Z of this one."""
    return None if log_z is None else log_z + shifted(model, extent_of(model))[1]


def forms(model: FactorGraph, order: Order, rng: Generator, deadline: Deadline) -> list[Form]:
    """All forms of a (conditioned) model, cheapest first; `order` is that of the model as it is.

    Structure is looked for only where the model as it is costs more than the search.
    """
    plain = _plain(AS_IT_IS, "", model, order, None)
    found = [plain]
    if order.log2_entries > EASY and order.log2_table > NARROW:
        for form in _structured(model, plain, rng, deadline):
            found.append(form)
            if form.seconds < max(QUICK, min(MUCH * plain.seconds, SHORT)):
                break
    return sorted(found, key=lambda form: form.seconds)


def counting_seconds(model: FactorGraph) -> float:
    """Seconds that looking for interchangeable variables will take."""
    if (flat := model.flat) is not None:
        axes = int(np.diff(flat.table_start) @ np.diff(flat.scope_start))
    else:
        axes = sum([table.size * table.ndim for table in model.log_tables])
    return COUNTING * model.n_factors + COLOURING * axes


def _structured(
    model: FactorGraph, plain: Form, rng: Generator, deadline: Deadline
) -> Iterator[Form]:
    """Forms that need structure, those first that are found fastest."""
    with paused_while():
        from icgi.model.structure.barren import find_barren
        from icgi.model.structure.count import count_classes
        from icgi.model.structure.merge import merge_copies
        from icgi.model.structure.split import split_products
    pays = counting_seconds(model) <= COUNTING_SHARE * plain.seconds
    counted = count_classes(model, deadline.share(0.25)) if pays else None
    if counted is not None:
        order = find_order(counted.model, rng, deadline.share(0.25).left)
        words = str(counted) + _change(plain, order.log2_table)
        yield _plain("counted", words, counted.model, order, counted)
    split = split_products(model, deadline.share(0.25))
    yield from _collapsed(split, None, plain, rng, deadline.share(0.25))
    merged = merge_copies(model, deadline.share(0.25))
    reduced = split if merged is None else split_products(merged.model, deadline.share(0.25))
    if reduced is not model:
        copies = 0 if merged is None else merged.copies
        grown = reduced.n_factors - model.n_factors
        order = find_order(reduced, rng, deadline.share(0.25).left)
        found = [f"{copies} copies merged"] * (copies > 0)
        found += [f"products split into {grown} more factors"] * (grown > 0)
        words = ", ".join(found) or "tables merged"
        yield _plain("reduced", words + _change(plain, order.log2_table), reduced, order, merged)
    if merged is not None:
        yield from _collapsed(reduced, merged, plain, rng, deadline.share(0.25))
    barren = find_barren(model)
    if barren is not None:
        yield _batches(barren, plain, rng, deadline)


def _collapsed(
    model: FactorGraph, merged: "Merged | None", plain: Form, rng: Generator, deadline: Deadline
) -> Iterator[Form]:
    """The collapsed form of a model, if there is any."""
    with paused_while():
        from icgi.exact.signed import answer_signed, forecast_signed
        from icgi.model.structure.collapse import collapse
    collapsed = collapse(model, deadline=deadline)
    if collapsed is None:
        return
    ahead = forecast_signed(collapsed, rng, deadline)

    def answer(budget: Budget) -> Marginals | None:
        found = answer_signed(collapsed, ahead, budget, rng)
        return found if found is None or merged is None else merged.spread(found)

    words = str(collapsed) + _change(plain, ahead.order.log2_table)
    if merged is not None:
        words = f"{merged.copies} copies merged, {words}"
    yield Form("collapsed", words, ahead.order.log2_table, ahead.table_bytes, ahead.seconds, answer)


def _change(plain: Form, after: float) -> str:
    return f", largest table 2^{plain.log2_table:.1f} → 2^{after:.1f}"


def reduced_form(
    model: FactorGraph, deadline: Deadline | None = None
) -> "tuple[Merged | None, FactorGraph]":
    """Positive reductions: copies merged, then products split."""
    from icgi.model.structure.merge import merge_copies
    from icgi.model.structure.split import split_products

    merged = merge_copies(model, deadline)
    return merged, split_products(model if merged is None else merged.model, deadline)


def _plain(
    name: str, words: str, model: FactorGraph, order: Order, back: "Merged | Counted | None"
) -> Form:
    ahead = along(model, order)

    def answer(budget: Budget) -> Marginals:
        found = run(model, ahead, budget)
        return found if back is None else back.spread(found)

    return Form(name, words, order.log2_table, ahead.table_bytes, ahead.seconds, answer)


def _batches(barren: "Barren", plain: Form, rng: Generator, deadline: Deadline) -> Form:
    """The model without barren variables, and every batch of them put back, each reduced."""
    from icgi.model.structure.barren import plan_batches

    def greedy(part: FactorGraph) -> float:
        return find_order(reduced_form(part, deadline)[1], rng, restarts=0).log2_entries

    sets, _ = plan_batches(barren, greedy, deadline.share(0.5))
    parts = []
    for back in [set(), *sets]:
        merged, reduced = reduced_form(barren.including(back), deadline)
        order = find_order(reduced, rng, deadline.left / (len(sets) + 1))
        parts.append((merged, reduced, along(reduced, order)))
    tables = [part[2].order.log2_table for part in parts]
    words = f"{len(barren.variables)} barren variables in {len(sets)} batches"

    def answer(budget: Budget) -> Marginals:
        deadline = budget.deadline()
        whole = barren.whole
        probs = np.zeros((whole.n_variables, max(whole.max_states, 1)))
        first = None
        for rows, (merged, reduced, ahead) in zip([None, *sets], parts, strict=True):
            found = run(reduced, ahead, budget.until(deadline))
            found = found if merged is None else merged.spread(found)
            first = first or found
            _enter(probs, found.probs, barren, rows)
        assert first is not None
        return Marginals(probs, first.status, first.log_z, stats=first.stats)

    return Form(
        "batches",
        words + _change(plain, tables[0]) + " without them",
        max(tables),
        max(part[2].table_bytes for part in parts),
        sum(part[2].seconds for part in parts),
        answer,
    )


def _enter(probs: FloatArray, found: FloatArray, barren: "Barren", rows: set[int] | None) -> None:
    """Copy the rows of a batch, or of all that are not barren."""
    gone = set(barren.variables)
    chosen = [i for i in range(len(probs)) if i not in gone] if rows is None else sorted(rows)
    probs[chosen, : found.shape[1]] = found[chosen]
