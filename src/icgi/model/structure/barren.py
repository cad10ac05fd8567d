"""Barren variables: unobserved ones whose only factor sums to a constant over them.

They send no message, so log Z and the marginals of all other variables are those of the model
without them, which is often far narrower: a Bayesian network has many. Their own marginals need
their factors back, but not all at once: in batches, each with the ancestors it needs.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from icgi.clock import Deadline
from icgi.kernels import kernel
from icgi.model.graph import BoolArray, FactorGraph, assembled
from icgi.model.wiring import Wiring, wiring

TOLERANCE = 1e-12  # relative deviation of the sums from a constant
ROUNDED = 1e-3  # likewise where tables were written with few digits
LIMITS = (1.0, 3.0, 6.0)  # log₂ by which a batch may cost more than the model without any


@dataclass(frozen=True, eq=False, slots=True)
class Barren:
    """A model, the same without its barren variables, and what puts some of them back."""

    whole: FactorGraph
    model: FactorGraph  # barren variables have one state and are in no scope
    variables: tuple[int, ...]  # barren ones, none before one that depends on it
    factors: dict[int, tuple[int, ...]]  # factors that each of them takes along
    log_sums: dict[int, float]  # logarithm of the constant each of them sums to

    def needed(self, wanted: Iterable[int]) -> set[int]:
        """Wanted barren variables and the barren ones they depend on."""
        found: set[int] = set()
        waiting = list(wanted)
        while waiting:
            i = waiting.pop()
            if i in found:
                continue
            found.add(i)
            for f in self.factors[i]:
                waiting += [j for j in self.whole.scopes[f] if j != i and j in self.factors]
        return found

    def including(self, back: set[int]) -> FactorGraph:
        """The model with some barren variables put back, `needed` ones included; same log Z."""
        if not back:
            return self.model
        cards = self.model.cards.copy()
        chosen = sorted(back)
        cards[chosen] = self.whole.cards[chosen]
        factors = [f for i in chosen for f in self.factors[i]]
        constant = -sum(self.log_sums[i] for i in chosen)
        return assembled(
            cards,
            (*self.model.scopes, *(self.whole.scopes[f] for f in factors), ()),
            (
                *self.model.log_tables,
                *(self.whole.log_tables[f] for f in factors),
                np.array(constant),
            ),
            self.whole.names,
        )  # fmt: skip


def are_barren(model: FactorGraph) -> BoolArray:
    """Which variables (n) are barren but for rounded tables: they hardly matter to log Z."""
    w = wiring(model)
    found = np.zeros(model.n_variables, np.bool_)
    found[_remove(w.cards, w.scope_start, w.scope, w.table_start, w.values, ROUNDED)[0]] = True
    return found


def find_barren(model: FactorGraph) -> Barren | None:
    """Barren variables of a (conditioned) model; None where there are none."""
    w = wiring(model)
    order, own, sums = _remove(w.cards, w.scope_start, w.scope, w.table_start, w.values, TOLERANCE)
    if len(order) == 0:
        return None
    unary = _unary(w)
    factors = {int(i): (int(f), *unary.get(int(i), ())) for i, f in zip(order, own, strict=True)}
    gone = {f for taken in factors.values() for f in taken}
    cards = model.cards.copy()
    cards[order] = 1
    kept = [f for f in range(model.n_factors) if f not in gone]
    small = assembled(
        cards,
        (*(model.scopes[f] for f in kept), ()),
        (*(model.log_tables[f] for f in kept), np.array(float(sums.sum()))),
        model.names,
    )
    log_sums = {int(i): float(c) for i, c in zip(order, sums, strict=True)}
    return Barren(model, small, tuple(int(i) for i in order), factors, log_sums)


def plan_batches(
    barren: Barren, cost: Callable[[FactorGraph], float], deadline: Deadline | None = None
) -> tuple[list[set[int]], float]:
    """Sets of barren variables to put back, one after the other, and log₂ of what all cost.

    `cost` says log₂ of the table entries of a model. All at once is one of the plans compared, and
    the only one when the time is over.
    """
    within = deadline or Deadline()
    least = cost(barren.model)
    everything = set(barren.variables)
    at_once = cost(barren.including(everything))
    best, total = [everything], _log2_sum([least, at_once])
    for limit in LIMITS:
        if least + limit >= at_once or within.passed:
            break
        wanted = list(reversed(barren.variables))
        batches, costs = _halve(barren, wanted, least + limit, cost, within)
        sum_of = _log2_sum([least, *costs])
        if sum_of < total:
            best, total = batches, sum_of
    return best, total


def _halve(
    barren: Barren,
    wanted: list[int],
    limit: float,
    cost: Callable[[FactorGraph], float],
    deadline: Deadline,
) -> tuple[list[set[int]], list[float]]:
    """One batch if it keeps the limit, or is one variable; else those of two halves."""
    batch = barren.needed(wanted)
    price = math.inf if deadline.passed else cost(barren.including(batch))
    if price <= limit or len(wanted) == 1 or deadline.passed:
        return [batch], [price]
    middle = len(wanted) // 2
    first = _halve(barren, wanted[:middle], limit, cost, deadline)
    done = set().union(*first[0])
    left = [i for i in wanted[middle:] if i not in done]
    second = _halve(barren, left, limit, cost, deadline) if left else ([], [])
    return first[0] + second[0], first[1] + second[1]


def _log2_sum(values: list[float]) -> float:
    top = max(values)
    if math.isinf(top):
        return top
    return top + math.log2(sum(2.0 ** (value - top) for value in values))


def _unary(w: Wiring) -> dict[int, list[int]]:
    """Unary factors of each variable."""
    found: dict[int, list[int]] = {}
    single = np.flatnonzero(np.diff(w.scope_start) == 1)
    for f, i in zip(single.tolist(), w.scope[w.scope_start[single]].tolist(), strict=True):
        found.setdefault(i, []).append(f)
    return found


@kernel
def _remove(cards, scope_start, scope, table_start, values, tolerance):  # type: ignore[no-untyped-def]
    """Barren variables in an order of removal, the factor of each, and log of what it sums to."""
    n, count = len(cards), len(scope_start) - 1
    degree = np.zeros(n, np.int64)  # factors of two or more variables that are left
    left = np.zeros(n, np.int64)  # sum of their numbers: the number itself when one is left
    most = cards.max() if n else 1
    weight = np.zeros((n, most))
    for f in range(count):
        arity = scope_start[f + 1] - scope_start[f]
        for a in range(scope_start[f], scope_start[f + 1]):
            i = scope[a]
            if arity >= 2:
                degree[i] += 1
                left[i] += f
            else:
                for x in range(cards[i]):
                    weight[i, x] += values[table_start[f] + x]
    waiting = np.empty(n, np.int64)
    top = 0
    for i in range(n):
        if degree[i] == 1 and cards[i] > 1:
            waiting[top] = i
            top += 1
    order, own, sums = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    made = 0
    # A variable waits once, when its degree becomes one; 0 then means that its factor is gone.
    while top > 0:
        top -= 1
        i = waiting[top]
        if degree[i] != 1:
            continue
        f, axis = left[i], 0
        while scope[scope_start[f] + axis] != i:
            axis += 1
        constant, log_sum = _constant(
            cards,
            scope_start,
            scope,
            table_start,
            values,
            f,
            axis,
            weight[i],
            tolerance,
        )
        if not constant:
            continue
        order[made], own[made], sums[made] = i, f, log_sum
        made += 1
        for b in range(scope_start[f], scope_start[f + 1]):
            j = scope[b]
            degree[j] -= 1
            left[j] -= f
            if degree[j] == 1 and cards[j] > 1:
                waiting[top] = j
                top += 1
    return order[:made], own[:made], sums[:made]


@kernel
def _constant(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, table_start, values, f, axis, weight, tolerance
):  # fmt: skip
    """Whether Σ_x w(x) T(x, rest) is the same for all rest, and its logarithm."""
    after = 1
    for a in range(scope_start[f] + axis + 1, scope_start[f + 1]):
        after *= cards[scope[a]]
    card = cards[scope[scope_start[f] + axis]]
    before = (table_start[f + 1] - table_start[f]) // (after * card)
    first = 0.0
    for b in range(before):
        for c in range(after):
            total = 0.0
            for x in range(card):
                j = table_start[f] + (b * card + x) * after + c
                total += np.exp(values[j] + weight[x])
            if b == 0 and c == 0:
                first = total
                if not first > 0.0:
                    return False, 0.0
            elif not abs(total - first) <= tolerance * first:
                return False, 0.0
    return True, np.log(first)
