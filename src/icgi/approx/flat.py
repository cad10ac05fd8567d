"""Models as flat arrays for message passing: what sweeps read, and what they write.

A message m_{f→i} is kept as log m(x) − log m(0) for the states x ≥ 1, so that a binary variable
costs one number, no message needs normalising, and no product can underflow. Several models may
share the arrays; they never touch.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from icgi.approx.reading import NEVER, check, require_bytes, side_by_side
from icgi.clock import Deadline
from icgi.inference import Budget
from icgi.kernels import kernel
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray, starts
from icgi.model.wiring import Wiring

PLAIN = 1e5  # spread of log tables up to which sums keep nine digits: only then can it be exact
FLOOR = -1e8  # of finite log tables and of log ratios: around loops of zeros these grow for ever


class FlatModels(NamedTuple):
    """Models as compiled sweeps read them; unary factors are fields, constants are kept aside.

    Factors are numbered breadth first within each component, so that a backward and a forward
    sequential sweep solve a tree.
    """

    model_variable: IntArray  # m+1  where each model's variables begin
    model_factor: IntArray  # m+1  where each model's factors begin
    constant: FloatArray  # m    log Z of everything that is not in fields and tables
    ratio_start: IntArray  # n+1  where each variable's log ratios begin, one for each state x ≥ 1
    field: FloatArray  # log ratios of the unary factors
    touching_start: IntArray  # n+1  where each variable's factors begin in `touching`
    touching: IntArray  # e    factors of each variable
    edge_start: IntArray  # f+1  where each factor's edges begin
    variable: IntArray  # e    variable of each edge
    ratio: IntArray  # e    where that variable's log ratios begin
    message_start: IntArray  # e+1  where each edge's log ratios begin
    value_start: IntArray  # f    where each factor's log table begins in `values`
    values: FloatArray  # log tables, in the order of the models
    top: FloatArray  # f    largest entry of each log table
    weight_start: IntArray  # f+1  where each factor's weights begin
    weights: FloatArray  # exp((θ − top) / ρ)
    rho: FloatArray  # f    appearance probability of each factor
    numbers: IntArray  # f    0, 1, …: the order of a sweep over all factors
    largest: IntArray  # 2    states of all axes of a factor, variables of a factor: the maxima
    forest: BoolArray  # m    models whose factor graph has no cycle: two sweeps solve them
    plain: BoolArray  # m    models whose log tables have no spread that rounding would show in


class Sizes(NamedTuple):
    """How large a model is: all that laying out needs of it beside its wiring."""

    n_variables: int
    n_factors: int


class State(NamedTuple):
    """What a run changes; everything is written in place by the sweeps."""

    messages: FloatArray  # log ratios, laid out by `FlatModels.message_start`
    belief: FloatArray  # log ratios, laid out by `FlatModels.ratio_start`
    spare: FloatArray  # beliefs of the next flooding sweep
    old: FloatArray  # messages before a turn of the residual schedule
    told: (
        FloatArray  # what each factor knew of its variables when it last answered them, NaN: never
    )
    pending: FloatArray  # n    change of what each variable received that it has not yet passed on
    heap: IntArray  # n    residual schedule: variables by `pending`, the largest first
    place: IntArray  # n    where each variable is in its model's heap
    sweeps: IntArray  # m    sweeps made
    residual: FloatArray  # m    largest change that an undamped update would make


def packs(models: Sequence[FactorGraph], budget: Budget, engine: str, copies: int) -> list[slice]:
    """Runs of models that fit in the budget together, tables being copied so many times."""
    cuts, used = [0], 0
    for number, model in enumerate(models):
        needed = forecast_bytes(model, copies)
        require_bytes(needed, budget, f"the flat arrays of {engine}", "give a larger memory budget")
        if used + needed > budget.table_bytes:
            cuts.append(number)
            used = 0
        used += needed
    return [slice(a, b) for a, b in pairwise([*cuts, len(models)])]


def forecast_bytes(model: FactorGraph, copies: int) -> int:
    """Bytes of a model's flat arrays, its state, and what building them takes meanwhile."""
    edges = sum(map(len, model.scopes))
    entries = sum([table.size for table in model.log_tables])
    ratios = int(model.cards.sum()) - model.n_variables
    messages = edges * (model.max_states - 1) if edges else 0
    if model.max_states > 2:  # else exact
        cards = model.cards.tolist()
        messages = sum([cards[i] - 1 for scope in model.scopes for i in scope])
    rows = 8 * copies * entries + 72 * edges + 64 * model.n_factors + 40 * messages
    return rows + 48 * (ratios + model.n_variables)


def compile_models(models: Sequence[FactorGraph]) -> FlatModels:
    """Flat arrays of models as `support.supported` leaves them: without impossible states."""
    flat = lay_out(models)
    return reweight(flat, flat.rho)


def lay_out(
    models: Sequence[FactorGraph], w: Wiring | None = None, deadline: Deadline = NEVER
) -> FlatModels:
    """Like `compile_models`, without the weights, a copy of the tables that only sweeps need.

    `w` is what `side_by_side` has read, if it has. Raises `TimeSpent` at the deadline.
    """
    w = side_by_side(models, deadline) if w is None else w
    return lay_out_wired([Sizes(m.n_variables, m.n_factors) for m in models], w, deadline)


def lay_out_wired(models: Sequence[Sizes], w: Wiring, deadline: Deadline = NEVER) -> FlatModels:
    """`lay_out` of models that are side by side in a wiring."""
    n = len(w.cards)
    variables = starts(np.array([model.n_variables for model in models], np.int64))
    owner = np.repeat(np.arange(len(models)), [model.n_factors for model in models])  # of factors
    ratio_start = starts(w.cards - 1)
    arity = np.diff(w.scope_start)
    constant = np.zeros(len(models))
    np.add.at(constant, owner[arity == 0], w.values[w.table_start[:-1][arity == 0]])
    field = np.zeros(ratio_start[-1])
    _add_fields(
        w.scope_start, w.scope, w.table_start, w.values, ratio_start, owner, constant, field
    )
    check(deadline)
    touching_start, touching = _touching(w.scope_start, w.scope, n)
    check(deadline)
    source = _breadth_first(w.scope_start, w.scope, touching_start, touching)
    check(deadline)
    number = np.empty(len(arity), np.int64)
    number[source] = np.arange(len(source))
    edge_start = starts(arity[source])
    variable = w.scope[_ranges(w.scope_start[source], arity[source])]
    check(deadline)
    top, spread = _tops(w.table_start, w.values, arity)
    plain = np.ones(len(models), np.bool_)
    plain[owner[spread > PLAIN]] = False
    top = top[source]
    np.add.at(constant, owner[source], top)
    states = np.add.reduceat(w.cards[variable], edge_start[:-1]) if len(source) else source
    check(deadline)
    joined = forest(edge_start, variable, n, np.arange(len(source)))
    check(deadline)
    forests = np.ones(len(models), np.bool_)
    forests[owner[source[joined == 0.0]]] = False
    return FlatModels(
        model_variable=variables,
        model_factor=np.searchsorted(owner[source], np.arange(len(models) + 1)),
        constant=constant,
        ratio_start=ratio_start,
        field=field,
        touching_start=touching_start,
        touching=number[touching],
        edge_start=edge_start,
        variable=variable,
        ratio=ratio_start[variable],
        message_start=starts(w.cards[variable] - 1),
        value_start=w.table_start[source],
        values=w.values,
        top=top,
        weight_start=starts(np.diff(w.table_start)[source]),
        weights=np.empty(0),
        rho=np.ones(len(source)),
        numbers=np.arange(len(source)),
        largest=np.array([states.max(initial=1), arity.max(initial=1)]),
        forest=forests,
        plain=plain,
    )


def forest(edge_start: IntArray, variable: IntArray, n: int, order: IntArray) -> FloatArray:
    """One for each factor that closes no cycle with those before it in this order, else zero."""
    taken = np.zeros(len(edge_start) - 1)
    _grow(edge_start, variable, np.arange(n), order, taken)
    return taken


def reweight(flat: FlatModels, rho: FloatArray, reuse: bool = False) -> FlatModels:
    """Same models with other appearance probabilities of the factors.

    With `reuse` the weights are written over those of `flat`, which then is of no more use.
    """
    weights = flat.weights if reuse else np.empty(flat.weight_start[-1])
    _fill_weights(flat, rho, weights)
    return flat._replace(rho=rho, weights=weights)


def initial_state(flat: FlatModels, messages: FloatArray | None = None) -> State:
    """Before the first sweep: uniform messages, or those given."""
    n = len(flat.ratio_start) - 1
    lengths = np.diff(flat.message_start)
    if messages is None:
        messages = np.zeros(flat.message_start[-1])
    rho = np.repeat(flat.rho, np.diff(flat.edge_start))
    incoming = np.bincount(
        _ranges(flat.ratio, lengths), np.repeat(rho, lengths) * messages, len(flat.field)
    )
    place = np.arange(n) - np.repeat(flat.model_variable[:-1], np.diff(flat.model_variable))
    return State(
        messages=messages,
        belief=flat.field + incoming,
        spare=np.empty_like(flat.field),
        old=np.empty_like(messages),
        told=np.full_like(messages, np.nan),
        pending=np.diff(flat.touching_start).clip(max=1).astype(np.float64),
        heap=np.arange(n),
        place=place,
        sweeps=np.zeros(len(flat.constant), np.int64),
        residual=np.full(len(flat.constant), np.inf),
    )


def probabilities(flat: FlatModels, belief: FloatArray, width: int) -> FloatArray:
    """b_i(x) ∝ exp(belief), n × width, zero beyond each variable's states."""
    probs = np.zeros((len(flat.ratio_start) - 1, width))
    _softmax(flat.ratio_start, belief, probs)
    return probs


def _ranges(begin: IntArray, length: IntArray) -> IntArray:
    """Numbers begin, …, begin + length − 1 of every pair, one run after the other."""
    shift = begin - starts(length)[:-1]
    return np.asarray(np.repeat(shift, length) + np.arange(length.sum()))


@kernel
def _add_fields(scope_start, scope, table_start, values, ratio_start, owner, constant, field):  # type: ignore[no-untyped-def]
    """Unary factors: log ratios into `field`, the entry of state 0 into `constant`."""
    for g in range(len(owner)):
        if scope_start[g + 1] - scope_start[g] == 1:
            begin, r = table_start[g], ratio_start[scope[scope_start[g]]]
            constant[owner[g]] += values[begin]
            for x in range(table_start[g + 1] - begin - 1):
                ratio = values[begin + 1 + x] - values[begin]
                field[r + x] += min(max(ratio, FLOOR), -FLOOR)


@kernel
def _touching(scope_start, scope, n):  # type: ignore[no-untyped-def]
    """Factors of two and more variables at each variable, in ascending order."""
    start = np.zeros(n + 1, np.int64)
    for g in range(len(scope_start) - 1):
        if scope_start[g + 1] - scope_start[g] > 1:
            for a in range(scope_start[g], scope_start[g + 1]):
                start[scope[a] + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    place = start[:-1].copy()
    touching = np.empty(start[n], np.int64)
    for g in range(len(scope_start) - 1):
        if scope_start[g + 1] - scope_start[g] > 1:
            for a in range(scope_start[g], scope_start[g + 1]):
                touching[place[scope[a]]] = g
                place[scope[a]] += 1
    return start, touching


@kernel
def _tops(table_start, values, arity):  # type: ignore[no-untyped-def]
    """Largest entry of each log table, and how far below it the smallest finite one is."""
    top, spread = np.zeros(len(arity)), np.zeros(len(arity))
    for g in range(len(arity)):
        high, low = -np.inf, np.inf
        for k in range(table_start[g], table_start[g + 1]):
            high = max(high, values[k])
            if values[k] > -np.inf:
                low = min(low, values[k])
        top[g], spread[g] = high, (high - low if arity[g] else 0.0)
    return top, spread


@kernel
def _grow(edge_start, variable, parent, order, taken):  # type: ignore[no-untyped-def]
    """Join factors whose variables are all in different trees, by union-find."""
    for f in order:
        begin, end = edge_start[f], edge_start[f + 1]
        apart = True
        for e in range(begin, end):
            i = root(parent, variable[e])
            for d in range(begin, e):
                apart = apart and root(parent, variable[d]) != i
        if apart:
            taken[f] = 1.0
            for e in range(begin + 1, end):
                parent[root(parent, variable[e])] = root(parent, variable[begin])


@kernel
def root(parent, i):  # type: ignore[no-untyped-def]
    """Representative of i in a union-find forest, whose paths become shorter on the way."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def _breadth_first(scope_start, scope, touching_start, touching):  # type: ignore[no-untyped-def]
    """Factors of two and more variables, component by component, parents before children."""
    n = len(touching_start) - 1
    order, found = np.empty(len(touching), np.int64), 0
    seen, used = np.zeros(n, np.bool_), np.zeros(len(scope_start) - 1, np.bool_)
    queue = np.empty(n, np.int64)
    for root in range(n):
        if seen[root]:
            continue
        seen[root], queue[0] = True, root
        head, tail = 0, 1
        while head < tail:
            i = queue[head]
            head += 1
            for t in range(touching_start[i], touching_start[i + 1]):
                g = touching[t]
                if used[g]:
                    continue
                used[g], order[found] = True, g
                found += 1
                for a in range(scope_start[g], scope_start[g + 1]):
                    if not seen[scope[a]]:
                        seen[scope[a]], queue[tail] = True, scope[a]
                        tail += 1
    return order[:found]


@kernel
def _fill_weights(c, rho, weights):  # type: ignore[no-untyped-def]
    for f in range(len(rho)):
        begin, shift = c.value_start[f], c.weight_start[f]
        for k in range(c.weight_start[f + 1] - shift):
            weights[shift + k] = math.exp((c.values[begin + k] - c.top[f]) / rho[f])


@kernel
def _softmax(ratio_start, belief, probs):  # type: ignore[no-untyped-def]
    for i in range(len(ratio_start) - 1):
        begin, end = ratio_start[i], ratio_start[i + 1]
        top = 0.0
        for k in range(begin, end):
            top = max(top, belief[k])
        probs[i, 0] = math.exp(-top)
        total = probs[i, 0]
        for k in range(begin, end):
            value = math.exp(belief[k] - top)
            probs[i, k - begin + 1] = value
            total += value
        for x in range(end - begin + 1):
            probs[i, x] /= total
