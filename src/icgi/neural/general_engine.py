"""The network for q states as part of an engine: models in, concentrations of their states out.

Belief propagation answers everything first. A model then runs whole, or in pieces that are the
smaller the less time there is; what no piece has answered keeps the beliefs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from icgi.clock import Deadline, now
from icgi.errors import BudgetError
from icgi.inference import Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.reduce import all_states
from icgi.neural import doubt
from icgi.neural.cases import Case, prepare
from icgi.neural.factor_patches import Limits, Piece, pieces
from icgi.neural.gate import believes
from icgi.neural.general import GeneralNetwork
from icgi.neural.general_batch import (
    CORE_STATES,
    LEAST_VARIABLES,
    MOST_STATES,
    PairForm,
    assemble,
    core_size,
    listed,
    pair_form,
)
from icgi.neural.pace import OutOfTime
from icgi.neural.rest import ExactRest

SIZES = (2048, 1024, 512, 256, 128, 64)  # tokens that run whole, or make a piece: first that fits
LARGEST_PIECE = 256  # tokens, of a model that does not run whole; more gain little
QUICK_TOKENS = 1024  # up to which several orders are tried
WIDTHS = (MOST_STATES, 32, 16, 8, 4)  # states of a variable: the first that fits the memory
LARGEST_BATCH = 256
SINGLE = 4  # bytes
PER_STEP, PER_ENTRY, PER_STATES = 4e-3, 5e-7, 9e-8  # seconds: for n, n (n k)² and n k⁴
PLANNED = 0.7  # share of the time that a plan may fill; forecasts err
AT_ONCE = 0.15  # share of the time left that one round of pieces may fill
MESSAGES = 0.5  # share of the time for belief propagation
NEVER = Deadline()


class _Task(NamedTuple):
    """A piece of one of the models."""

    case: int
    piece: Piece
    form: PairForm


@dataclass(slots=True, eq=False)
class _Found:
    """The answer of one model as it grows."""

    probs: FloatArray  # n k
    total: FloatArray  # n    α₀
    answered: FloatArray  # n    orders that have answered
    spread: FloatArray  # n k    deviation between orders
    limits: Limits
    patches: int = 0


def general_marginals(
    network: GeneralNetwork,
    models: Sequence[FactorGraph],
    orders: int = 1,
    rngs: Sequence[Generator] | None = None,
    core_states: int = CORE_STATES,
    table_bytes: int = 2**32,
    device: str = "cpu",
    deadline: Deadline = NEVER,
    exact: ExactRest | None = None,
) -> list[Marginals]:
    """Dirichlet concentrations of each model, averaged over elimination orders.

    What `exact` can sum is answered by it. Models in pieces take the first order only. States found
    impossible get exactly zero, so a variable with one possible state has one positive
    concentration. Pieces of similar size share a batch.

    Parameters
    ----------
    rngs
        A stream for each model, to draw further orders from; needed where `orders` is above one.
    core_states
        Bound on the configurations of the variables that are left at the end.
    table_bytes
        Memory that one batch may take; `BudgetError` where not even a small piece fits.
    """
    states = _widest(core_states, table_bytes)
    if exact is not None:
        done, rest = exact.split(models, lambda model: _seconds(model, LARGEST_PIECE))
        left = general_marginals(
            network, [models[k] for k in rest], orders,
            None if rngs is None else [rngs[k] for k in rest],
            core_states, table_bytes, device, deadline,
        )  # fmt: skip
        done |= zip(rest, left, strict=True)
        return [done[k] for k in range(len(models))]
    cases = [
        prepare(model, deadline.share(MESSAGES / (len(models) - m)))
        for m, model in enumerate(models)
    ]
    found = [
        _start(case, states, core_states, table_bytes, deadline.left / len(cases)) for case in cases
    ]
    ahead = sum(
        _seconds(case.reduced, f.limits.tokens) for case, f in zip(cases, found, strict=True)
    )
    for tasks in _rounds(cases, found, deadline):
        forms = {t: task.form for t, task in enumerate(tasks)}
        for chosen in _batches(forms, core_states, table_bytes):
            if deadline.passed:
                break
            cost = sum(_cost(*_shape(forms[t])) for t in chosen)
            part = deadline.share(min(cost / max(ahead, cost), 1.0))
            ahead -= cost
            group = [tasks[t] for t in chosen]
            alphas = _orders(network, group, orders, rngs, core_states, device, (deadline, part))
            for b, task in enumerate(group):
                _take(cases[task.case], found[task.case], task, [a[b] for a in alphas])
    return [_answer(c, f, orders) for c, f in zip(cases, found, strict=True)]


def _widest(core_states: int, table_bytes: int) -> int:
    """Most states of a variable for which three of them fit the memory."""
    for states in WIDTHS:
        if bytes_needed(LEAST_VARIABLES, states, core_states) <= table_bytes:
            return states
    need = bytes_needed(LEAST_VARIABLES, WIDTHS[-1], core_states)
    raise BudgetError(
        f"icgi:fast needs {need / 1e6:.1f} MB even in the smallest pieces, the budget is "
        f"{table_bytes / 1e6:.1f} MB; give a larger memory budget, or use the engine lbp"
    )


def _start(case: Case, states: int, core_states: int, table_bytes: int, left: float) -> _Found:
    """Beliefs, and how large the pieces may be."""
    n, k = case.prior.shape
    largest = min(int(case.reduced.cards.max(initial=2)), states)
    fitting = [
        size
        for size in SIZES
        if bytes_needed(max(size // largest, LEAST_VARIABLES), largest, core_states) <= table_bytes
    ] or [SIZES[-1]]
    planned = (size for size in fitting if _seconds(case.reduced, size) <= PLANNED * left)
    tokens = next(planned, fitting[-1])
    if tokens < _tokens(case.reduced):
        tokens = min(tokens, LARGEST_PIECE)
    return _Found(
        case.prior.copy(), np.ones(n), np.zeros(n), np.zeros((n, k)), Limits(tokens, states)
    )


def _rounds(
    cases: Sequence[Case], found: Sequence[_Found], deadline: Deadline
) -> Iterator[list[_Task]]:
    """Pieces of all models, so many at once that memory and time allow."""
    tasks: list[_Task] = []
    cost = 0.0
    for c, case in enumerate(cases):
        if case.messages is None:
            continue
        for piece in pieces(case.reduced, case.messages, found[c].limits):
            if deadline.passed:
                return
            form = pair_form(piece.model, alive=all_states(piece.model))
            tasks.append(_Task(c, piece, form))
            cost += _cost(*_shape(form))
            if len(tasks) == LARGEST_BATCH or cost > AT_ONCE * deadline.left:
                yield tasks
                tasks, cost = [], 0.0
    if tasks:
        yield tasks


def _orders(
    network: GeneralNetwork,
    group: Sequence[_Task],
    orders: int,
    rngs: Sequence[Generator] | None,
    core_states: int,
    device: str,
    until: tuple[Deadline, Deadline],
) -> list[FloatArray]:
    """Concentrations (b n k) that each order finds; the first has all the time that is left."""
    deadline, part = until
    try:
        batch = assemble(listed([task.form for task in group]), device, deadline=deadline)
    except OutOfTime:
        return []
    quick = batch.unary[0].numel() <= QUICK_TOKENS and not any(t.piece.cut for t in group)
    core = core_size(batch.unary.shape[2], batch.unary.shape[1], core_states)
    jitters = [
        None, *torch.exp(0.5 * _noise(group, rngs, orders - 1 if quick else 0).to(batch.real))
    ]  # fmt: skip
    alphas: list[FloatArray] = []
    took = 0.0
    with torch.no_grad():
        for jitter in jitters:
            if alphas and took > part.left:
                break
            began = now()
            try:
                alphas.append(network.run(batch, core, jitter, deadline).double().cpu().numpy())
            except OutOfTime:
                break
            took = now() - began
    return alphas


def _take(case: Case, found: _Found, task: _Task, alphas: Sequence[FloatArray]) -> None:
    """Write what the orders say of one piece into the answer of its model."""
    found.patches += 1
    if not alphas:
        return
    inside = task.piece.answered
    members = task.piece.members[inside]
    rows = np.zeros((len(alphas), *case.reduced.cards.shape, case.kept.shape[1]))
    for row, alpha in zip(rows, alphas, strict=True):
        width = min(alpha.shape[1], row.shape[1])
        row[members, :width] = alpha[: len(inside), :width][inside]
    totals = rows.sum(2)[:, members]
    p = np.stack(
        [case.spread_out(r / np.where(r.sum(1) > 0, r.sum(1), 1.0)[:, None]) for r in rows]
    )
    p = p[:, members]
    weighted = (p * totals[..., None]).mean(0)
    found.probs[members] = weighted / weighted.sum(1, keepdims=True)
    found.total[members] = totals.mean(0)
    found.answered[members] = float(len(alphas))
    if len(alphas) > 1:
        found.spread[members] = p.std(0, ddof=1)


def _answer(case: Case, found: _Found, orders: int) -> Marginals:
    """What was found, with errors that say how."""
    model = case.model
    doubted = believes(case, found.probs)
    if doubted:
        found.probs, found.total = case.prior.copy(), np.ones_like(found.total)
    sure = (case.kept.sum(1) == 1) & (case.messages is not None)  # nothing to be asked
    answered = (found.answered > 0) & (not doubted)
    alpha = found.probs * found.total[:, None]
    fewest = found.answered[answered].min(initial=orders)
    kind = "general, pieces" if found.patches > 1 else doubt.kind_of("general", int(fewest))
    if (answered | sure).any():
        change = np.abs(found.probs - case.prior)
        signs = doubt.Signs(alpha, found.spread, change, *doubt.strengths_of(model))
        alpha, error = doubt.stated(kind, signs, answered | sure)
    else:  # the time is over: nothing of the model is looked at once more
        alpha, error = doubt.unknown(alpha)
    whole = found.limits.tokens >= min(_tokens(case.reduced), LARGEST_PIECE)
    wanted = orders if found.patches == 1 and _tokens(case.reduced) <= QUICK_TOKENS else 1
    done = whole and bool(((found.answered >= wanted) | sure).all())
    return Marginals(
        alpha / alpha.sum(1, keepdims=True),
        Status.ESTIMATED if done else Status.BUDGET_SPENT,
        concentration=alpha,
        std_error=error,
        stats={
            # on average, where there was at least one
            "orders": float(found.answered.sum() / max(answered.sum(), 1)),
            "patches": float(found.patches),
            "answered": float((answered | sure).mean()) if model.n_variables else 1.0,
            "fallback": float(doubted),
        },
    )


def _noise(group: Sequence[_Task], rngs: Sequence[Generator] | None, orders: int) -> Tensor:
    """Normal draws (o b n), from each model's own stream."""
    n = max([LEAST_VARIABLES, *(len(task.form.cards) for task in group)])
    noise = np.zeros((orders, len(group), n), np.float32)
    if rngs is not None:
        for b, task in enumerate(group):
            size = len(task.form.cards)
            noise[:, b, :size] = rngs[task.case].standard_normal((orders, size))
    return torch.from_numpy(noise)


def _shape(form: PairForm) -> tuple[int, int]:
    return len(form.cards), int(form.cards.max(initial=2))


def _cost(n: int, k: int) -> float:
    """Forecast of one order of one piece, in seconds of one core of a laptop."""
    return n * (PER_STEP / 4 + PER_ENTRY * (n * k) ** 2 + PER_STATES * k**4)


def _size(model: FactorGraph) -> tuple[int, int]:
    """Variables, those of large factors included, and states of the largest."""
    large = [t for t in model.log_tables if t.ndim > 2]
    rows = (min(t.size // max(t.shape), MOST_STATES) for t in large)
    free = model.cards[model.cards <= MOST_STATES]
    return int((free > 1).sum()) + len(large), max([2, int(free.max(initial=2)), *rows])


def _tokens(model: FactorGraph) -> int:
    n, k = _size(model)
    return n * k


def _seconds(model: FactorGraph, tokens: int) -> float:
    """Forecast of one order of one model."""
    n, k = _size(model)
    if n * k <= tokens:
        return _cost(n, k)
    each = max(min(tokens, LARGEST_PIECE) // k, 1)
    return n / max(Limits(tokens, k).inside * each, 1.0) * _cost(each, k)


def bytes_needed(variables: int, states: int, core_states: int = CORE_STATES) -> int:
    """Predict the memory of one model: the largest step, what is kept of all, and the core."""
    pairs = (variables * states) ** 2
    step = 60 * pairs + 8 * variables * states**3 + 120 * variables * states**2 + 6 * states**4
    core = 4 * states ** core_size(states, variables, core_states)
    return int(SINGLE * (step + pairs + core))


def _batches(forms: Mapping[int, PairForm], core_states: int, table_bytes: int) -> list[list[int]]:
    """Models of similar size and states together, each batch within the memory."""
    shape = {m: (int(f.cards.max(initial=1)), len(f.cards)) for m, f in forms.items()}
    groups: list[list[int]] = []
    largest = (0, 0)
    for m in sorted(forms, key=lambda m: shape[m], reverse=True):
        k, n = max(largest[0], shape[m][0]), max(largest[1], shape[m][1])
        # within half again of the waste-free size, and not so many that memory runs out
        alike = bool(groups) and largest[0] <= shape[m][0] + 1 and n * 2 <= 3 * shape[m][1]
        fits = (
            bool(groups) and (len(groups[-1]) + 1) * bytes_needed(n, k, core_states) <= table_bytes
        )
        if alike and fits and len(groups[-1]) < LARGEST_BATCH:
            groups[-1].append(m)
            largest = (k, n)
        else:
            groups.append([m])
            largest = shape[m]
    return groups
