"""Any network of the dictionary as part of an engine: models in, concentrations out.

States that cannot occur leave a model before a network sees it, and get exactly zero. Models of
similar size share a batch. Past the deadline an answer is what was known before the network.
Models too large for a network that eliminates are answered in pieces of their graph, with the
messages of belief propagation across the borders.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from icgi.clock import Deadline
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray
from icgi.neural import doubt
from icgi.neural.batch import Prepared, collate, prepared
from icgi.neural.cases import Case, prepare
from icgi.neural.factor_patches import Limits, Piece, pieces
from icgi.neural.gate import checked
from icgi.neural.general_batch import MOST_STATES
from icgi.neural.networks import Draws, network_name
from icgi.neural.networks.paper import Form
from icgi.neural.pace import OutOfTime, Watched, check, unary_beliefs
from icgi.neural.possible import possible_states

LARGEST_BATCH = 128
SINGLE = 4  # bytes
MANY_TOKENS = 512  # of a batch; a step on fewer takes milliseconds
UNCLAIMED = 1e6  # α₀ of networks that claim none: how sure they are is left to `doubt`
LARGEST_TABLE = 2**20  # entries of one padded factor
# Tokens and states of a variable of a piece, and the share that it answers: the first for which
# there is time. EA 2D L=30 at β = 1, two models: 0.06, 0.08, 0.10 and 0.14 (docs/log.md).
PIECES = (
    Limits(512, MOST_STATES, 0.5), Limits(256, MOST_STATES, 0.5), Limits(256, MOST_STATES, 0.65),
    Limits(128, MOST_STATES, 0.5),
)  # fmt: skip
PIECES_SECONDS = 60.0  # of a model in pieces, where no time is given
TOGETHER, HURRIED = 64, 16  # pieces that the network is given at once; where there is a deadline
MESSAGES = 0.2  # share of a model's time for belief propagation, where it is cut into pieces
CHECKED = 0.5  # share of what is left then, for belief propagation on models answered whole
PLANNED = 0.7  # share of the time that pieces may take by their forecast
MARGIN = 0.8  # share of that which a forecast may fill
WHOLE = 0.6  # share of the time for models as a whole; the rest is for those that did not end
# Seconds of an elimination on a processor: of a step, however many models share it; of each model
# times (nk)², and times n (nk)² where all pairs are linked (EA 2D of 8² to 20² spins, 1 to 16 at
# once, and SK of 100 and 200, on a busy processor).
PER_STEP, PER_PAIR, PER_LINKED = 4e-3, 2e-6, 2.5e-8


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A model as a network takes it."""

    number: int
    part: Prepared
    bytes: int

    @property
    def shape(self) -> tuple[int, int]:
        """What models of one batch should have in common: states, variables."""
        return max(self.part.cards, default=1), len(self.part.unary)

    @property
    def seconds(self) -> float:
        """Forecast of its elimination as a whole, on a processor."""
        k, n = self.shape
        return _seconds(n, k, 2.0 * len(self.part.factors) / max(n * n, 1))


def network_marginals(
    network: Any,
    name: str,
    models: Sequence[FactorGraph],
    budget: Budget,
    rngs: Sequence[Generator],
    deadline: Deadline,
    orders: int = 1,
    device: str = "cpu",
    cut: bool = True,
) -> list[Marginals]:
    """Marginals of many models, averaged over elimination orders where the network has several.

    Models that are not answered as a whole are answered in pieces, unless `cut` is false.

    Raises
    ------
    UnsupportedModelError
        Where the network cannot take a model, not even in pieces.
    BudgetError
        Where a single model needs more memory than the budget has.
    """
    network, kind = network.to(device).eval(), network_name(network)
    answers: dict[int, Marginals] = {}
    jobs: list[_Job] = []
    later: list[int] = []  # what is not answered as a whole
    whole = deadline.share(WHOLE) if cut else deadline
    for k, model in enumerate(models):
        alive = possible_states(model, whole)
        # arranging it takes time, and makes no fewer states of it
        arity, states = max([1, *map(len, model.scopes)]), int(alive.sum(1).max(initial=1))
        try:
            _refuse(network, name, 1, states, model.n_variables, arity)
            job = _job(network, name, k, prepared_model(network, model, alive, whole), budget)
        except OutOfTime:
            later.append(k)
        except UnsupportedModelError:
            if not network.pairwise:
                raise
            later.append(k)
        else:
            if network.pairwise and device == "cpu" and job.seconds > MARGIN * whole.left:
                later.append(k)
            else:
                jobs.append(job)
    # padding counts as a step of an elimination that ends early
    same_size = getattr(network.config, "steps", None) is not None
    for batch in _batches(jobs, budget, same_size):
        try:
            found = _solve(network, batch, rngs, whole, orders, device)
        except OutOfTime:
            later += [job.number for job in batch]
            continue
        for job, alphas, first, lost in zip(batch, *found, strict=True):
            k = job.number
            answers[k] = _answer(kind, models[k], job, alphas, first, orders)
            if network.pairwise and cut:
                until = deadline.share(CHECKED / (len(models) - len(answers) + 1))
                answers[k] = checked(models[k], answers[k], until, lost)
    for done, k in enumerate(later):
        until = deadline.share(1.0 / (len(later) - done))
        how = orders, device, cut and network.pairwise
        answers[k] = _in_pieces(network, name, models[k], budget, rngs[k], until, *how)
    return [answers[k] for k in range(len(models))]


def _in_pieces(
    network: Any, name: str, model: FactorGraph, budget: Budget, rng: Generator,
    deadline: Deadline, orders: int, device: str, cut: bool,
) -> Marginals:  # fmt: skip
    """Marginals of a model that the network does not take whole, or did not end in time."""
    case = prepare(model, deadline.share(MESSAGES))
    found, together = _Pieced(case), HURRIED if math.isfinite(deadline.left) else TOGETHER

    def ask(group: list[Piece]) -> list[Marginals]:
        parts, streams = [piece.model for piece in group], rng.spawn(len(group))
        how = orders, device, False
        return network_marginals(network, name, parts, budget, streams, deadline, *how)

    waiting: list[Piece] = []
    every: Iterable[Piece] = ()
    if cut and case.messages is not None:
        every = pieces(case.reduced, case.messages, _size(case, deadline.left, together))
    for piece in every:
        if deadline.passed:
            break
        waiting.append(piece)
        if len(waiting) == together:
            found.take(waiting, ask(waiting))
            waiting = []
    if waiting:
        found.take(waiting, ask(waiting))
    return found.answer()


def _size(case: Case, seconds: float, together: int) -> Limits:
    """The largest pieces that the network answers in most of the time."""
    n, k = int((case.reduced.cards > 1).sum()), int(case.reduced.cards.max(initial=2))
    for limits in PIECES:
        each = max(limits.tokens // k, 1)
        count = math.ceil(max(n / (limits.inside * each), 1.0))
        rounds = math.ceil(count / together)
        cost = rounds * _seconds(each, k, count=math.ceil(count / rounds))
        if cost <= PLANNED * min(seconds, PIECES_SECONDS):
            return limits
    return PIECES[-1]


def _seconds(n: int, k: int, linked: float = 0.0, count: int = 1) -> float:
    """Forecast of an elimination as a whole, on a processor, of so many models at once."""
    each = (PER_PAIR * k / 2 + PER_LINKED * linked * n) * float(n * k) ** 2
    return PER_STEP * n + count * each


class _Pieced:
    """The answer of a model as it grows piece by piece, from the beliefs that it starts with."""

    def __init__(self, case: Case) -> None:
        self.case, self.count = case, 0
        self.probs, self.total = case.prior.copy(), np.ones(case.model.n_variables)
        self.answered = np.zeros(case.model.n_variables, bool)

    def take(self, group: Sequence[Piece], answers: Sequence[Marginals]) -> None:
        """Write what the network says of some pieces."""
        for piece, found in zip(group, answers, strict=True):
            self.count += 1
            if found.status is Status.BUDGET_SPENT or found.concentration is None:
                continue  # it had no time
            inside = piece.answered
            members = piece.members[inside]
            rows = np.zeros((self.case.model.n_variables, self.case.kept.shape[1]))
            width = min(rows.shape[1], found.probs.shape[1])
            rows[members, :width] = found.probs[inside, :width]
            self.probs[members] = self.case.spread_out(rows)[members]
            self.total[members] = found.concentration.sum(1)[inside]
            self.answered[members] = True

    def answer(self) -> Marginals:
        """What the pieces and belief propagation found, with errors that say how."""
        case = self.case
        sure = (case.kept.sum(1) == 1) & (case.messages is not None)  # nothing to be asked
        alpha = self.probs * self.total[:, None]
        known = self.answered | sure
        if known.any():
            change = np.abs(self.probs - case.prior)
            spread = np.zeros_like(alpha)
            signs = doubt.Signs(alpha, spread, change, *doubt.strengths_of(case.model))
            alpha, error = doubt.stated("general, pieces", signs, known)
        else:  # the time is over: nothing of the model is looked at once more
            alpha, error = doubt.unknown(alpha)
        share = float(known.mean()) if len(known) else 1.0
        return Marginals(
            alpha / alpha.sum(1, keepdims=True),
            Status.ESTIMATED if known.all() else Status.BUDGET_SPENT,
            concentration=alpha,
            std_error=error,
            stats={"patches": float(self.count), "answered": share},
            note=self._note(),
        )

    def _note(self) -> str:
        if self.answered.any():
            return (
                "The model is too large for the network, or for its time: it was cut into "
                f"{self.count} pieces with the messages of belief propagation at their borders."
            )
        known = "single factors say" if self.case.messages is None else "belief propagation says"
        return f"There was no time for the network: this is what {known}."


def prepared_model(
    network: Any, model: FactorGraph, alive: np.ndarray, deadline: Deadline | None = None
) -> Prepared:
    """Lists of a model as the network takes them."""
    return prepared(model, alive, network.pairwise, deadline)


def _job(network: Any, name: str, number: int, part: Prepared, budget: Budget) -> _Job:
    k, n = max(part.cards, default=1), len(part.unary)
    arity = max((len(scope) for scope, _ in part.factors), default=1)
    _refuse(network, name, k**arity, k, n, arity)
    need = bytes_needed(network, part)
    if need > budget.table_bytes:
        raise BudgetError(
            f"{name} needs {need / 1e6:.0f} MB for a model of {n} variables of up to {k} states, "
            f"the budget is {budget.table_bytes / 1e6:.0f} MB; give a larger memory budget, or use "
            "the engine lbp"
        )
    return _Job(number, part, need)


def _refuse(network: Any, name: str, largest: int, k: int, n: int, arity: int) -> None:
    """Raise `UnsupportedModelError` where the network cannot take a model of these sizes."""
    why = network.refuse(largest, k, n, arity)
    if not why and arity > 2 and largest > LARGEST_TABLE:
        why = f"factors of up to {LARGEST_TABLE} entries, padded to the largest variable"
    if why:
        raise UnsupportedModelError(
            f"{name} takes {why}; this model has {n} variables of up to {k} states and factors of "
            f"up to {arity} variables; use the engine lbp or pt, or jt for an exact answer"
        )


def bytes_needed(network: Any, part: Prepared) -> int:
    """Predict the memory of one model: pairs where they are dense, else messages of factors."""
    k, n = max(2, *part.cards) if part.cards else 2, max(len(part.unary), 3)
    d = network.config.features if hasattr(network.config, "features") else 64
    heads = getattr(network.config, "heads", 1)
    tokens = 24 * n * k * d
    if network.pairwise:
        core = 8 * getattr(network.config, "core_states", 0)
        return int(SINGLE * ((n * k) ** 2 * (48 + 6 * heads) + tokens + core))
    lists = sum(len(scope) * k * (k ** (len(scope) - 1) * 4 + 6 * d) for scope, _ in part.factors)
    return int(SINGLE * (tokens + 2 * lists))


def _batches(jobs: Sequence[_Job], budget: Budget, same_size: bool) -> list[list[_Job]]:
    """Models of similar size together, each batch within the budget's memory."""
    groups: list[list[_Job]] = []
    for job in sorted(jobs, key=lambda job: job.shape, reverse=True):
        if groups:
            first = groups[-1][0]
            (k, n), (states, most) = job.shape, first.shape
            alike = k == states and (n == most if same_size else 4 * n >= 3 * most)
            room = (len(groups[-1]) + 1) * first.bytes <= budget.table_bytes
            if alike and room and len(groups[-1]) < LARGEST_BATCH:
                groups[-1].append(job)
                continue
        groups.append([job])
    return groups


def _solve(
    network: Any, batch: list[_Job], rngs: Sequence[Generator], deadline: Deadline, orders: int,
    device: str,
) -> tuple[list[FloatArray], list[FloatArray | None], list[float]]:  # fmt: skip
    """Of each model: concentrations of every order (o n k), a first pass (n k), inexactness."""
    check(deadline)
    models = collate([job.part for job in batch], deadline=deadline).to(device)
    check(deadline)
    b, n, k = models.sizes
    alphas: list[Tensor] = []
    with torch.no_grad(), Watched(deadline) if b * n * k > MANY_TOKENS else nullcontext():
        form = network.prepare(models, deadline)
        shape = network.noise(1, n)
        for order in range(orders if shape else 1):
            draws = None
            if order:
                uniform = np.stack([rngs[job.number].random(shape[1:]) for job in batch])
                one = torch.ones((), device=device)
                draws = Draws(torch.from_numpy(uniform).float().to(device), one)
            try:
                alphas.append(network(form, draws, deadline))
            except OutOfTime:
                if not alphas:
                    raise
                break
    first = getattr(form, "first", None)
    stacked = torch.stack(alphas, 1).double().cpu().numpy()  # b o n k
    stacked *= 1.0 if network.dirichlet else UNCLAIMED
    before = [None] * b if first is None else list(first.double().cpu().numpy())
    lost = form.inexactness.tolist() if isinstance(form, Form) else [0.0] * b
    return list(stacked), before, lost


def _answer(
    kind: str, model: FactorGraph, job: _Job, alphas: FloatArray, first: FloatArray | None,
    orders: int,
) -> Marginals:  # fmt: skip
    each = np.stack([_over_states(model, job.part, alpha) for alpha in alphas])
    alpha = each.mean(0)
    p = each / each.sum(-1, keepdims=True)
    mean = alpha / alpha.sum(1, keepdims=True)
    spread = p.std(0, ddof=1) if len(each) > 1 else np.zeros_like(alpha)
    if first is None:
        before = unary_beliefs(model, job.part.alive)
    else:
        before = _over_states(model, job.part, first)
        before = before / before.sum(1, keepdims=True)
    signs = doubt.Signs(alpha, spread, np.abs(mean - before), *doubt.strengths_of(model))
    alpha, error = doubt.stated(doubt.kind_of(kind, len(each)), signs)
    return Marginals(
        alpha / alpha.sum(1, keepdims=True),
        Status.ESTIMATED if len(each) in (1, orders) else Status.BUDGET_SPENT,
        concentration=alpha,
        std_error=error,
        stats={"orders": float(len(each))} if orders > 1 else {},
    )


def _over_states(model: FactorGraph, part: Prepared, values: FloatArray) -> FloatArray:
    """Values of the model's own variables over all their states, zero for impossible ones."""
    found = np.zeros((model.n_variables, model.max_states))
    for i, alive in enumerate(part.alive):
        found[i, alive] = values[i, : alive.sum()]
    return found
