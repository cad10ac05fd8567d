"""Tables that are sums of few products: T(x) = Σ_s Π_k A_k[s, x_k], found from the numbers.

The idea: look for a basis of *one* axis in which every slice is a product of functions of single
variables. With two states there are at most two such directions (α, β), the roots of
det(α T₀ + β T₁) = 0 over any 2×2 block of two other axes: (1, 0) and (1, 1) for an or with or
without noise and leak, (1, 1) and (1, −1) for parity. With more states the directions are nested
sets of states: P(y ≤ j | causes) is a product for a noisy max, whatever the order of the states.

A decomposition counts only when it gives back *every entry* to a relative error ε, zeros exactly;
the answer of a positive model then changes by a relative Σ_f ε_f at most.
"""

from dataclasses import dataclass, replace

import numpy as np

from icgi.clock import Deadline
from icgi.kernels import kernel
from icgi.model.graph import BoolArray
from icgi.model.structure.directions import is_plain, nested_sets, pencil, snapped
from icgi.model.structure.fit import TOLERANCE, extend, fit
from icgi.model.structure.wide import add, multiply
from icgi.model.wiring import Wiring

LARGEST = 2**22  # entries; larger tables are left as they are
MOST_TERMS = 64  # of a sum: what its matrices have room for


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """Decompositions of all factors of a model; `terms[f]` is 0 where none was found."""

    terms: np.ndarray  # f    number of products
    error: np.ndarray  # f    largest relative error of an entry
    log_scale: np.ndarray  # f    logarithm of the factor's largest entry, taken out
    start: np.ndarray  # f+1  where a factor's matrices begin
    high: np.ndarray  # matrices of all factors: for each axis k an array of R × d_k
    low: np.ndarray


def find_sums(w: Wiring, among: BoolArray | None = None, deadline: Deadline | None = None) -> Sums:
    """Sums of few products among the factors (some of them) of three or more variables.

    Factors that were not looked at when the time is over have none.
    """
    arity = np.diff(w.scope_start)
    size = np.diff(w.table_start)
    tried = (arity >= 3) & (size <= LARGEST)
    if among is not None:
        tried &= among
    room = _room(w.cards, w.scope_start, w.scope, tried)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(room)])
    count = len(arity)
    found = Sums(
        np.zeros(count, np.int64), np.zeros(count), np.zeros(count), start,
        np.zeros(start[-1]), np.zeros(start[-1]),
    )  # fmt: skip
    with (deadline or Deadline()).flag() as stop:
        _find_all(
            w.cards, w.scope_start, w.scope, w.table_start, w.values, tried,
            found.terms, found.error, found.log_scale, start, found.high, found.low, stop,
        )  # fmt: skip
    return found


def as_quads(w: Wiring, found: Sums) -> Sums:
    """The same sums as quad-doubles, their errors measured anew: infinite where zeros are lost."""
    high, low = found.high + 1j * found.low, np.zeros(len(found.high), np.complex128)
    error = _deviations(
        w.cards, w.scope_start, w.scope, w.table_start, w.values, found.terms, found.log_scale,
        found.start, high, low,
    )  # fmt: skip
    return replace(found, high=high, low=low, error=error)


@kernel
def _deviations(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, table_start, values, terms, log_scale, start, high, low
):  # fmt: skip
    """Largest relative error of an entry of each factor; infinite where a zero is not zero."""
    error = np.zeros(len(terms))
    digits, column = np.empty(64, np.int64), np.empty(64, np.int64)
    for f in range(len(terms)):
        if terms[f] == 0:
            continue
        begin, n = scope_start[f], scope_start[f + 1] - scope_start[f]
        at = start[f]
        for a in range(n):
            digits[a], column[a] = 0, at
            at += terms[f] * cards[scope[begin + a]]
        for j in range(table_start[f], table_start[f + 1]):
            total, rest = high[start[f]] * 0.0, low[start[f]] * 0.0
            for s in range(terms[f]):
                h, l = high[start[f]] * 0.0 + 1.0, low[start[f]] * 0.0  # noqa: E741
                for a in range(n):
                    c = column[a] + s * cards[scope[begin + a]] + digits[a]
                    h, l = multiply(h, l, high[c], low[c])  # noqa: E741
                total, rest = add(total, rest, h, l)
            truth = np.exp(values[j] - log_scale[f])
            if truth == 0.0:
                if abs(total) > 0.0 or abs(rest) > 0.0:
                    error[f] = np.inf
            else:
                error[f] = max(error[f], abs(total.real - truth) / truth)
            a = n - 1
            while a >= 0:
                digits[a] += 1
                if digits[a] < cards[scope[begin + a]]:
                    break
                digits[a] = 0
                a -= 1
    return error


@kernel
def _room(cards, scope_start, scope, tried):  # type: ignore[no-untyped-def]
    """Entries that the matrices of each factor can have at most."""
    room = np.zeros(len(tried), np.int64)
    for f in range(len(tried)):
        if tried[f]:
            total, most = 0, 1
            for a in range(scope_start[f], scope_start[f + 1]):
                total += cards[scope[a]]
                most = max(most, cards[scope[a]])
            room[f] = total * min(most, MOST_TERMS)
    return room


@kernel
def _find_all(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, table_start, values, tried,
    terms, error, log_scale, start, high, low, stop,
):  # fmt: skip
    for f in range(len(tried)):
        if not tried[f]:
            continue
        begin, n = scope_start[f], scope_start[f + 1] - scope_start[f]
        dims = np.empty(n, np.int64)
        for a in range(n):
            dims[a] = cards[scope[begin + a]]
        table = values[table_start[f] : table_start[f + 1]]
        top = table.max()
        if not top > -np.inf:
            continue
        log_scale[f] = top
        linear = np.exp(table - top)
        best = np.inf
        for y in range(n):
            if stop[0]:
                return
            count, simple, err, mh, ml = _along_axis(linear, dims, y)
            # Generic numbers, too, make a table of eight entries a sum of two products.
            if count == 0 or err >= best or (len(linear) == 8 and not simple):
                continue
            best = err
            terms[f], error[f] = count, err
            _write(mh, ml, dims, y, start[f], high, low)
            if err == 0.0 or len(linear) > 64:
                break


@kernel
def _write(mh, ml, dims, y, at, high, low):  # type: ignore[no-untyped-def]
    """Store matrices axis by axis; in `mh` the axis y comes first."""
    count = mh.shape[0]
    first = dims[y]  # where axis 0 begins in a row of mh when y is not 0
    for a in range(len(dims)):
        column = 0 if a == y else first
        if a != y:
            first += dims[a]
        for s in range(count):
            for x in range(dims[a]):
                high[at] = mh[s, column + x]
                low[at] = ml[s, column + x]
                at += 1


@kernel
def _along_axis(linear, dims, y):  # type: ignore[no-untyped-def]
    """Decomposition by a basis of axis y: terms, whether plain, error, matrices (y first)."""
    n = len(dims)
    before, after = 1, 1
    for a in range(n):
        if a < y:
            before *= dims[a]
        elif a > y:
            after *= dims[a]
    card = dims[y]
    rows = np.empty((card, before * after))
    for b in range(before):
        for x in range(card):
            source = (b * card + x) * after
            rows[x, b * after : (b + 1) * after] = linear[source : source + after]
    rest = np.empty(n - 1, np.int64)
    for a in range(n - 1):
        rest[a] = dims[a] if a < y else dims[a + 1]
    if 2 < card <= MOST_TERMS:
        basis, chosen = nested_sets(rows, rest)
        if chosen == card:
            err, mh, ml = fit(rows, rest, basis, np.zeros_like(basis))
            if err <= TOLERANCE:
                return card, True, err, mh, ml
    basis, low, first, second = pencil(rows, rest)
    if first >= 0:
        pair = np.empty((2, rows.shape[1]))
        pair[0], pair[1] = rows[first], rows[second]
        rounded = snapped(basis)
        simple = is_plain(rounded)
        err, mh, ml = fit(pair, rest, rounded, np.zeros_like(rounded) if simple else low)
        if simple and err > TOLERANCE:
            simple = False
            err, mh, ml = fit(pair, rest, basis, low)
        if err <= TOLERANCE:
            if card > 2:
                err, mh, ml = extend(rows, rest, first, second, mh, ml)
            if err <= TOLERANCE:
                return 2, simple, err, mh, ml
    return 0, False, np.inf, np.empty((0, 0)), np.empty((0, 0))
