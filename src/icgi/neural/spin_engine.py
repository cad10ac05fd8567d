"""`icgi:fast` on binary pairwise models, planned for the time and memory available.

Models whose junction tree is small are summed as they are. Others run whole, or in patches that are
the smaller the less time there is, until what is left of them can be summed. Elimination orders
follow one another until the time of a batch is over; what no order has answered keeps the beliefs
of the first pass, of belief propagation or of its own field, in this order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from icgi.clock import Deadline, now
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ising import IsingArrays, as_ising
from icgi.neural import doubt
from icgi.neural.cases import Case, prepare
from icgi.neural.fast import FastNetwork
from icgi.neural.gate import believes, suspected
from icgi.neural.pace import OutOfTime
from icgi.neural.patches import Patch, cut, outside_fields, whole
from icgi.neural.precision import LEAST_SUM
from icgi.neural.rest import SHARE, ExactRest
from icgi.neural.spins import Spins, make_spins

SIZES = (512, 128, 64, 32)  # variables that run whole or make a patch: the first that fits
LARGEST_PATCH = 128  # larger ones gain little and cost the third power
INSIDE = 0.375  # share of a patch that it answers
SINGLE = 4  # bytes
LARGEST_BATCH = 256
STEP_PAIRS = 2**19  # pairs of variables in one batch: a step of elimination then takes some 0.1 s
STEP_CORE = 2**22
PER_PAIR, PER_STEP = 3e-7, 4e-3  # seconds: of both passes, for n³ and for n; one core of a laptop
STRONG = 4.0  # difference of logarithms in a table from which an answer is checked by beliefs
BELIEFS = 0.1  # share of the time for these
MESSAGES = 0.3  # share of the time for belief propagation
PLANNED = 0.7  # share of the time that a plan may fill; forecasts err
WIDER = (
    4  # a tree has few tables of the largest size: log₂ of how much larger than the sum they may be
)
PRIOR_SUM = 2.0  # α₀ of variables that no order has answered


@dataclass(frozen=True, slots=True)
class Settings:
    """What `IcgiNetwork` was asked for."""

    core: int
    orders: int
    device: str
    table_bytes: int
    rest: Literal["tree", "sum"] = "tree"

    def exact(self, deadline: Deadline) -> ExactRest | None:
        """Sums what is left of a model, along a junction tree."""
        if self.rest == "sum":
            return None
        return ExactRest(self.core + WIDER, deadline, self.table_bytes)


class _Piece(NamedTuple):
    model: int
    patch: Patch
    rng: Generator


@dataclass(slots=True, eq=False)
class _Found:
    """The answer of one model as it grows."""

    alpha: FloatArray  # n 2    states +1 and −1
    answered: FloatArray  # n    orders that have answered
    spread: FloatArray  # n    deviation between orders
    change: FloatArray  # n    since the first pass
    patches: int = 0
    each: FloatArray | None = None  # o n    p(+1) of every order, of models that run whole


def spin_marginals(
    network: FastNetwork,
    models: Sequence[FactorGraph],
    arrays: Sequence[IsingArrays],
    settings: Settings,
    deadline: Deadline,
    rngs: Sequence[Generator],
) -> list[Marginals]:
    """Marginals of binary pairwise models without zeros."""
    exact = settings.exact(deadline.share(SHARE))
    done: dict[int, Marginals] = {}
    rest = list(range(len(models)))
    if exact is not None:
        done, rest = exact.split(models, lambda model: _seconds(model.n_variables, SIZES[0]))
    left = _eliminated(
        network,
        [models[k] for k in rest],
        [arrays[k] for k in rest],
        [rngs[k] for k in rest],
        settings,
        deadline,
    )
    done |= zip(rest, left, strict=True)
    return [done[k] for k in range(len(models))]


def _eliminated(
    network: FastNetwork,
    models: Sequence[FactorGraph],
    arrays: Sequence[IsingArrays],
    rngs: Sequence[Generator],
    settings: Settings,
    deadline: Deadline,
) -> list[Marginals]:
    """Marginals of models that are too wide to be summed."""
    if not models:
        return []
    sizes = [len(a.fields) for a in arrays]
    size = _plan(sizes, settings.core, settings.table_bytes, deadline.left)
    cases = [
        prepare(model, deadline.share(BELIEFS / (len(models) - m)))
        if n > size or 2.0 * np.abs(a.couplings).max(initial=0.0) >= STRONG
        else None
        for m, (model, a, n) in enumerate(zip(models, arrays, sizes, strict=True))
    ]
    until = deadline.share(MESSAGES)
    messages = [
        outside_fields(a, until, _mean(c)) if n > size else None
        for a, c, n in zip(arrays, cases, sizes, strict=True)
    ]
    found = [_start(a, m, c) for a, m, c in zip(arrays, messages, cases, strict=True)]
    ahead = sum(_seconds(n, size) for n in sizes)
    for batch in _batches(
        _pieces(arrays, messages, rngs, size), settings.core, settings.table_bytes, deadline
    ):
        if deadline.passed:
            break
        cost = sum(_cost(len(piece.patch.members)) for piece in batch)
        part = deadline.share(min(cost / max(ahead, cost), 1.0))
        ahead -= cost
        _solve(network, batch, settings, found, deadline, part)
    asked = [size >= (n if n <= SIZES[0] else LARGEST_PATCH) for n in sizes]
    for m, (model, a, f, n) in enumerate(zip(models, arrays, found, sizes, strict=True)):
        up = f.alpha[:n, 0] / f.alpha[:n].sum(1)
        if cases[m] is None and suspected(model, np.stack([1.0 - up, up], 1), a):
            cases[m] = prepare(model, deadline.share(0.5))
    return [
        _answer(model, a, f, settings, whole, c)
        for model, a, f, whole, c in zip(models, arrays, found, asked, cases, strict=True)
    ]


def _plan(sizes: Sequence[int], core: int, table_bytes: int, left: float) -> int:
    """Most variables of one piece, by memory and by time."""
    largest = max(sizes, default=0)
    fitting = [s for s in SIZES if bytes_needed(min(s, largest), core) <= table_bytes]
    if not fitting:
        need = bytes_needed(min(SIZES[-1], largest), core)
        raise BudgetError(
            f"icgi:fast needs {need / 1e6:.1f} MB for a model of {largest} variables, even in "
            f"pieces, the budget is {table_bytes / 1e6:.1f} MB; give a larger memory budget, lower "
            "`core`, or use the engine lbp"
        )
    for size in fitting:
        if sum(_seconds(n, size) for n in sizes) <= PLANNED * left:
            return size
    return fitting[-1]


def _seconds(n: int, size: int) -> float:
    """Forecast for one order of one model."""
    if n <= size:
        return _cost(n)
    size = min(size, LARGEST_PATCH)
    return n / (INSIDE * size) * _cost(size)


def _cost(n: int) -> float:
    return PER_PAIR * n**3 + PER_STEP * n / 4  # batches share the overhead of steps


def bytes_needed(n: int, core: int) -> int:
    """Predict the memory of one model of n variables: the largest step, what is kept, the core."""
    step = 24 * 4 * n * n + 64 * 8 * n * n  # quadrature of every pair, attention
    kept = n * n * 4 + n * (n + 256)
    return int(SINGLE * (step + kept + 3 * 2 ** min(core, n)))


def _mean(case: Case | None) -> FloatArray | None:
    """Means of the spins at rest, if there are some."""
    if case is None or not case.at_rest:
        return None
    return np.asarray(2.0 * case.prior[:, 1] - 1.0)


def _start(arrays: IsingArrays, message: FloatArray | None, case: Case | None = None) -> _Found:
    """What is known before any order: beliefs at rest, or fields with the messages there are."""
    n, field = len(arrays.fields), arrays.fields
    if message is not None:
        ends = np.concatenate([arrays.edges[:, 1], arrays.edges[:, 0]])
        field = field + np.bincount(ends, message, minlength=n)
    known = _mean(case)
    mean = np.clip(np.tanh(field) if known is None else known, -1 + 1e-6, 1 - 1e-6)
    alpha = 0.5 * PRIOR_SUM * np.stack([1 + mean, 1 - mean], 1)
    return _Found(alpha, np.zeros(n), np.zeros(n), np.zeros(n))


def _pieces(
    arrays: Sequence[IsingArrays],
    messages: Sequence[FloatArray | None],
    rngs: Sequence[Generator],
    size: int,
) -> Iterator[_Piece]:
    """Models that run whole, the largest first, then the patches of the others."""
    for k in sorted(range(len(arrays)), key=lambda k: -len(arrays[k].fields)):
        if messages[k] is None:
            yield _Piece(k, whole(arrays[k]), rngs[k])
    patch = min(size, LARGEST_PATCH)
    for k, message in enumerate(messages):
        if message is not None:
            for part in cut(arrays[k], int(INSIDE * patch), patch, message):
                yield _Piece(k, part, rngs[k])


def _batches(
    pieces: Iterator[_Piece], core: int, table_bytes: int, deadline: Deadline
) -> Iterator[list[_Piece]]:
    """Pieces of similar size together, so many that memory, steps and time allow."""
    group: list[_Piece] = []
    room = 0
    for piece in pieces:
        n = len(piece.patch.members)
        first = len(group[0].patch.members) if group else n
        if group and (len(group) >= room or not 0.75 * first <= n <= first):
            yield group
            group = []
        if not group:
            room = min(
                LARGEST_BATCH,
                table_bytes // max(bytes_needed(n, core), 1),
                STEP_PAIRS // max(n * n, 1),
                STEP_CORE // 2 ** min(core, n),
                int(min(0.15 * deadline.left / _cost(max(n, 1)), LARGEST_BATCH)),
            )
        group.append(piece)
    if group:
        yield group


def _solve(
    network: FastNetwork,
    batch: list[_Piece],
    settings: Settings,
    found: list[_Found],
    deadline: Deadline,
    part: Deadline,
) -> None:
    """Write the answers of one batch; those it has no time for stay as they are."""
    patches = [piece.patch for piece in batch]
    sizes = [len(p.members) for p in patches]
    noise = order_noise([piece.rng for piece in batch], sizes, settings.orders - 1)
    with torch.no_grad():
        try:
            spins = spins_from([p.arrays for p in patches], settings.device, deadline=deadline)
            moved = None
            if any(p.boundary.any() for p in patches):
                moved = _boundary_effect(spins, patches, deadline)
        except OutOfTime:
            return
        alphas = _orders(network, spins, settings, noise, deadline, part)
        spread = torch.zeros_like(spins.mean)
        if alphas:
            alpha = network.precision(torch.stack(alphas), spins.mean, spins.real)
            alpha = alpha if moved is None else doubted(alpha, moved)
            if len(alphas) > 1:
                spread = torch.stack([a[..., 0] / a.sum(-1) for a in alphas]).std(0)
        else:
            both = torch.stack([1.0 + spins.mean, 1.0 - spins.mean], -1)
            alpha = 0.5 * PRIOR_SUM * both.clamp(min=1e-6)
        change = (alpha[..., 0] / alpha.sum(-1) - 0.5 * (1.0 + spins.mean)).abs()
        answers = [x.double().cpu().numpy() for x in (alpha, spread, change)]
    for b, (piece, *answer) in enumerate(zip(batch, *answers, strict=True)):
        own, here = found[piece.model], piece.patch
        members = here.members[here.answered]
        for array, new in zip((own.alpha, own.spread, own.change), answer, strict=True):
            array[members] = new[: len(here.members)][here.answered]
        own.answered[members] = float(len(alphas))
        if alphas and len(members) == len(own.answered):
            orders = torch.stack([a[b, : len(members)] for a in alphas]).double().cpu().numpy()
            own.each = orders[..., 0] / orders.sum(-1)
        own.patches += 1


def _orders(
    network: FastNetwork,
    spins: Spins,
    settings: Settings,
    noise: Tensor,
    deadline: Deadline,
    part: Deadline,
) -> list[Tensor]:
    """Concentrations of as many orders as there is time for; the first has all the time left."""
    core = min(settings.core, spins.fields.shape[1])
    jitters = [None, *torch.exp(0.5 * noise.to(spins.fields))]
    alphas: list[Tensor] = []
    took = 0.0
    for jitter in jitters:
        if alphas and took > part.left:
            break
        began = now()
        try:
            alphas.append(network.run(spins, core, jitter, deadline, settings.exact(deadline)))
        except OutOfTime:
            break
        took = now() - began
    return alphas


def _boundary_effect(spins: Spins, patches: Sequence[Patch], deadline: Deadline) -> Tensor:
    """How far p of the first pass moves when there is no boundary field (b n)."""
    alone = [replace(p.arrays, fields=p.arrays.fields - p.boundary) for p in patches]
    without = spins_from(alone, str(spins.fields.device), spins.fields.shape[1], deadline)
    return 0.5 * (spins.mean - without.mean)


def doubted(alpha: Tensor, moved: Tensor) -> Tensor:
    """Concentrations (b n 2) that also doubt the boundary of patches.

    How far the first pass moves without it is one more deviation; without that most stated
    deviations are too small (docs/log.md).
    """
    total = alpha.sum(-1)
    p = alpha[..., 0] / total
    variance = p * (1.0 - p) / (total + 1.0) + moved * moved
    sure = (p * (1.0 - p) / variance - 1.0).clamp(min=LEAST_SUM)
    return alpha * (torch.minimum(sure, total) / total)[..., None]


def _answer(
    model: FactorGraph,
    arrays: IsingArrays,
    found: _Found,
    settings: Settings,
    as_asked: bool,
    case: Case | None = None,
) -> Marginals:
    n, k = model.n_variables, model.max_states
    alpha = np.zeros((n, k))
    alpha[:, : min(k, 2)] = found.alpha[:n, ::-1][:, : min(k, 2)]  # state 0 is spin −1
    fixed = model.cards == 1
    alpha[fixed] = 0.0
    alpha[fixed, :1] = 1.0
    tried = found.each if found.each is not None else (alpha[:, 1] / alpha.sum(1))[None]
    # one order in a worse mode tells that orders do not see which is the likeliest
    doubted = case is not None and any(
        believes(case, np.stack([1.0 - p, p], 1)) for p in tried[:, :n]
    )
    if case is not None and doubted:
        alpha = case.prior.copy()
        found.answered[:] = 0.0
    done = as_asked and bool((found.answered == settings.orders).all())
    strength = np.zeros(n)
    size = 2.0 * np.abs(arrays.couplings)
    for side in arrays.edges.T:
        np.maximum.at(strength, side, size)
    nearby = strength.copy()
    for side, other in (arrays.edges.T, arrays.edges.T[::-1]):
        np.maximum.at(nearby, side, strength[other])
    spread, change = (np.broadcast_to(x[:, None], (n, k)) for x in (found.spread, found.change))
    signs = doubt.Signs(alpha, spread, change, strength, nearby, np.zeros(n, bool))
    # patches may differ in their orders: the kind is that of the fewest
    several = found.answered[found.answered > 0].min(initial=settings.orders) > 1
    kind: doubt.Kind = "fast" if several else "fast, one order"
    if found.patches > 1:
        kind = "fast, pieces"
    alpha, error = doubt.stated(kind, signs, found.answered > 0)
    return Marginals(
        alpha / alpha.sum(1, keepdims=True),
        Status.ESTIMATED if done else Status.BUDGET_SPENT,
        concentration=alpha,
        std_error=error,
        stats={
            # on average, where there was at least one
            "orders": float(found.answered.sum() / max((found.answered > 0).sum(), 1)),
            "core": float(min(settings.core, n)),
            "patches": float(found.patches),
            "answered": float((found.answered > 0).mean()) if n else 1.0,
            "fallback": float(doubted),
        },
    )


def require_ising(model: FactorGraph) -> IsingArrays:
    """Couplings and fields, or a refusal that says what to use instead."""
    arrays = as_ising(model)
    if arrays is None:
        raise UnsupportedModelError(
            "icgi:fast takes models of two-state variables, factors of at most two variables and "
            f"no zeros, this is {model!r}; use the engine jt for an exact answer, or lbp or pt"
        )
    return arrays


def spins_from(
    arrays: Sequence[IsingArrays], device: str, largest: int = 1, deadline: Deadline | None = None
) -> Spins:
    """Batch of models without context, padded to the largest, or `largest` variables."""
    n = max([largest, *(len(a.fields) for a in arrays)])
    couplings = np.zeros((len(arrays), n, n), np.float32)
    fields = np.zeros((len(arrays), n), np.float32)
    real = np.zeros((len(arrays), n), np.float32)
    for b, a in enumerate(arrays):
        i, j = a.edges.T
        couplings[b, i, j] = couplings[b, j, i] = a.couplings
        fields[b, : len(a.fields)] = a.fields
        real[b, : len(a.fields)] = 1.0
    there = [torch.from_numpy(x).to(device) for x in (couplings, fields, real)]
    return make_spins(there[0], there[1], there[2], deadline)


def order_noise(rngs: Sequence[Generator], sizes: Sequence[int], orders: int) -> Tensor:
    """Normal draws (o b n) that make further elimination orders, from each model's own stream."""
    noise = np.zeros((orders, len(sizes), max([1, *sizes])), np.float32)
    for b, (rng, n) in enumerate(zip(rngs, sizes, strict=True)):
        noise[:, b, :n] = rng.standard_normal((orders, n))
    return torch.from_numpy(noise)


def concentrations(network: FastNetwork, spins: Spins, core: int, noise: Tensor) -> Tensor:
    """Dirichlet concentrations (b n 2) of several elimination orders together."""
    found = orders_of(network, spins, core, noise)
    alpha: Tensor = network.precision(found, spins.mean, spins.real)
    return alpha


def orders_of(network: FastNetwork, spins: Spins, core: int, noise: Tensor) -> Tensor:
    """Concentrations (1+o b n 2) that each elimination order finds.

    The first order is the best by cost; the others come from costs times e^{z/2} with the given
    noise z (o b n).
    """
    size = min(core, spins.fields.shape[1])
    found = [network.run(spins, size)]
    found += [network.run(spins, size, torch.exp(0.5 * draw)) for draw in noise.to(spins.fields)]
    return torch.stack(found)
