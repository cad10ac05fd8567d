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

from icgi.kernels import kernel
from icgi.model.graph import FloatArray
from icgi.model.structure.wide import add, divide, multiply, root
from icgi.model.wiring import Wiring

TOLERANCE = 1e-11  # relative error of an entry
SNAP = 1e-6  # directions this close to 0 or ±1 are tried as 0 or ±1 first
ROUGH = 1e-9  # relative to the largest entry: the first test of a product
SNAP_FIT = 1e-13  # the same for the entries of the products, which nothing checks one by one
LARGEST = 2**22  # entries; larger tables are left as they are
MOST_TERMS = 64


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """Decompositions of all factors of a model; `terms[f]` is 0 where none was found."""

    terms: np.ndarray  # f    number of products
    plain: np.ndarray  # f    whether the directions are 0 and ±1: not a coincidence of numbers
    error: np.ndarray  # f    largest relative error of an entry
    log_scale: np.ndarray  # f    logarithm of the factor's largest entry, taken out
    start: np.ndarray  # f+1  where a factor's matrices begin
    high: np.ndarray  # matrices of all factors: for each axis k an array of R × d_k
    low: np.ndarray

    def matrices(self, f: int, cards: list[int]) -> list[FloatArray]:
        """Matrices A_k of a factor, one for each axis, rounded to doubles."""
        found, at, count = [], int(self.start[f]), int(self.terms[f])
        for card in cards:
            found.append(self.high[at : at + count * card].reshape(count, card))
            at += count * card
        return found


def find_sums(w: Wiring) -> Sums:
    """Sums of few products among the factors of three or more variables."""
    arity = np.diff(w.scope_start)
    size = np.diff(w.table_start)
    tried = (arity >= 3) & (size <= LARGEST)
    room = _room(w.cards, w.scope_start, w.scope, tried)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(room)])
    count = len(arity)
    found = Sums(
        np.zeros(count, np.int64), np.zeros(count, np.bool_), np.zeros(count), np.zeros(count),
        start, np.zeros(start[-1]), np.zeros(start[-1]),
    )  # fmt: skip
    _find_all(
        w.cards, w.scope_start, w.scope, w.table_start, w.values, tried,
        found.terms, found.plain, found.error, found.log_scale, start, found.high, found.low,
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
    terms, plain, error, log_scale, start, high, low,
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
            count, simple, err, mh, ml = _along_axis(linear, dims, y)
            # Generic numbers, too, make a table of eight entries a sum of two products.
            if count == 0 or err >= best or (len(linear) == 8 and not simple):
                continue
            best = err
            terms[f], plain[f], error[f] = count, simple, err
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
    if card > 2:
        basis, chosen = _nested_sets(rows, rest)
        if chosen == card:
            err, mh, ml = _fit(rows, rest, basis, np.zeros_like(basis))
            if err <= TOLERANCE:
                return card, True, err, mh, ml
    basis, low, first, second = _pencil(rows, rest)
    if first >= 0:
        pair = np.empty((2, rows.shape[1]))
        pair[0], pair[1] = rows[first], rows[second]
        snapped = _snapped(basis)
        simple = _plain(snapped)
        err, mh, ml = _fit(pair, rest, snapped, np.zeros_like(snapped) if simple else low)
        if simple and err > TOLERANCE:
            simple = False
            err, mh, ml = _fit(pair, rest, basis, low)
        if err <= TOLERANCE:
            if card > 2:
                err, mh, ml = _extend(rows, rest, first, second, mh, ml)
            if err <= TOLERANCE:
                return 2, simple, err, mh, ml
    return 0, False, np.inf, np.empty((0, 0)), np.empty((0, 0))


@kernel
def _snapped(basis):  # type: ignore[no-untyped-def]
    out = basis.copy()
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for value in (-1.0, 0.0, 1.0):
                if abs(out[i, j] - value) < SNAP:
                    out[i, j] = value
    return out


@kernel
def _plain(basis):  # type: ignore[no-untyped-def]
    return np.all((basis == 0.0) | (np.abs(basis) == 1.0))


@kernel
def _nested_sets(rows, rest):  # type: ignore[no-untyped-def]
    """Sets of states, each one larger than the last or new, whose sums of slices are products."""
    card = rows.shape[0]
    basis = np.zeros((card, card))
    used = np.zeros(card, np.bool_)
    current = np.zeros(rows.shape[1])
    member = np.zeros(card)
    chosen = 0
    while chosen < card:
        found = -1
        for x in range(card):
            if not used[x] and _is_product(current + rows[x], rest):
                found = x
                break
        if found < 0 and chosen > 0:
            for x in range(card):
                if not used[x] and _is_product(rows[x], rest):
                    found = x
                    current[:] = 0.0
                    member[:] = 0.0
                    break
        if found < 0:
            return basis, chosen
        used[found] = True
        member[found] = 1.0
        current += rows[found]
        basis[chosen] = member
        chosen += 1
    return basis, chosen


@kernel
def _pivot(values):  # type: ignore[no-untyped-def]
    best, at = -1.0, 0
    for j in range(len(values)):
        if abs(values[j]) > best:
            best, at = abs(values[j]), j
    return at


@kernel
def _is_product(values, rest):  # type: ignore[no-untyped-def]
    """Whether a table is a product of functions of its variables, roughly; leaves early if not."""
    n = len(rest)
    pivot = _pivot(values)
    if values[pivot] == 0.0:
        return False
    inner = rest[n - 1]
    origin = pivot - pivot % inner  # the row along the last axis that holds the pivot
    for start in range(0, len(values), inner):
        ratio = values[start + pivot % inner] / values[pivot]
        for x in range(inner):
            if abs(values[start + x] - ratio * values[origin + x]) > ROUGH * abs(values[pivot]):
                return False
    if n <= 2:
        return True
    outer = np.empty(len(values) // inner)
    for j in range(len(outer)):
        outer[j] = values[j * inner + pivot % inner]
    rest_dims, at = rest[: n - 1], len(outer)
    while len(rest_dims) > 1:
        last = rest_dims[len(rest_dims) - 1]
        pivot = _pivot(outer[:at])
        origin = pivot - pivot % last
        for start in range(0, at, last):
            ratio = outer[start + pivot % last] / outer[pivot]
            for x in range(last):
                if abs(outer[start + x] - ratio * outer[origin + x]) > ROUGH * abs(outer[pivot]):
                    return False
        for j in range(at // last):
            outer[j] = outer[j * last + pivot % last]
        at //= last
        rest_dims = rest_dims[: len(rest_dims) - 1]
    return True


@kernel
def _pencil(rows, rest):  # type: ignore[no-untyped-def]
    """Two directions in which two slices combine to a product, if one 2×2 block allows any.

    det(α M₀ + β M₁) = c₀ α² + c₁ αβ + c₂ β² of the block with the best separated roots among the
    first ones; first slice −1 where there is no such block, or its roots are complex.
    """
    card, total = rows.shape
    n = len(rest)
    stride = np.ones(n, np.int64)
    for a in range(n - 2, -1, -1):
        stride[a] = stride[a + 1] * rest[a + 1]
    best, looked = 0.0, 0
    c0 = c1 = c2 = 0.0
    l0 = l1 = l2 = 0.0
    first = second = -1
    for other in range(1, card):
        for k in range(n - 1):
            for l in range(k + 1, n):  # noqa: E741
                for corner in range(total):
                    if best > 0.05 or looked > 4096:
                        break
                    xk, xl = corner // stride[k] % rest[k], corner // stride[l] % rest[l]
                    if xk == 0 or xl == 0:
                        continue
                    looked += 1
                    j00 = corner - xk * stride[k] - xl * stride[l]
                    j01, j10 = j00 + xl * stride[l], j00 + xk * stride[k]
                    a, b = rows[0], rows[other]
                    size = max(
                        max(max(a[j00], a[j01]), max(a[j10], a[corner])),
                        max(max(b[j00], b[j01]), max(b[j10], b[corner])),
                    )
                    if size == 0.0:
                        continue
                    d0, e0 = _det(a[j00], a[corner], a[j01], a[j10])
                    d2, e2 = _det(b[j00], b[corner], b[j01], b[j10])
                    p, q = _det(a[j00], b[corner], a[j01], b[j10])
                    r, s = _det(b[j00], a[corner], b[j01], a[j10])
                    d1, e1 = add(p, q, r, s)
                    largest = max(abs(d0), max(abs(d1), abs(d2)))
                    if largest < 1e-10 * size**2:
                        continue  # a product whatever the direction, up to rounding
                    square = d1 * d1 - 4.0 * d0 * d2
                    if square < -1e-3 * largest**2:
                        return np.empty((0, 0)), np.empty((0, 0)), -1, -1
                    score = square / size**4
                    if score > best and square > 1e-6 * largest**2:
                        best, first, second = score, 0, other
                        c0, c1, c2, l0, l1, l2 = d0, d1, d2, e0, e1, e2
        if first >= 0:
            break
    if first < 0:
        return np.empty((0, 0)), np.empty((0, 0)), -1, -1
    # c₂ β² + c₁ β + c₀ without cancellation: q = −(c₁ ± √(c₁² − 4 c₀ c₂)) / 2
    sh, sl = multiply(c1, l1, c1, l1)
    ph, pl = multiply(4.0 * c0, 4.0 * l0, c2, l2)
    sh, sl = add(sh, sl, -ph, -pl)
    sh, sl = root(sh, sl)
    if c1 < 0.0:
        sh, sl = -sh, -sl
    qh, ql = add(c1, l1, sh, sl)
    qh, ql = -0.5 * qh, -0.5 * ql
    basis, low = np.empty((2, 2)), np.empty((2, 2))
    basis[0, 0], low[0, 0], basis[0, 1], low[0, 1] = c2, l2, qh, ql
    basis[1, 0], low[1, 0], basis[1, 1], low[1, 1] = qh, ql, c0, l0
    for i in range(2):
        j = 0 if abs(basis[i, 0]) >= abs(basis[i, 1]) else 1
        h, l = basis[i, j], low[i, j]  # noqa: E741
        basis[i, 1 - j], low[i, 1 - j] = divide(basis[i, 1 - j], low[i, 1 - j], h, l)
        basis[i, j], low[i, j] = 1.0, 0.0
    return basis, low, first, second


@kernel
def _det(a, b, c, d):  # type: ignore[no-untyped-def]
    """A · b − c · d in wide arithmetic."""
    ph, pl = multiply(a, 0.0, b, 0.0)
    qh, ql = multiply(c, 0.0, d, 0.0)
    return add(ph, pl, -qh, -ql)


@kernel
def _inverse(basis, low):  # type: ignore[no-untyped-def]
    """Inverse of a small wide matrix (Gauss–Jordan with pivots); False where singular."""
    n = basis.shape[0]
    ah, al = np.zeros((n, 2 * n)), np.zeros((n, 2 * n))
    ah[:, :n], al[:, :n] = basis, low
    for i in range(n):
        ah[i, n + i] = 1.0
    for c in range(n):
        p = c
        for i in range(c, n):
            if abs(ah[i, c]) > abs(ah[p, c]):
                p = i
        if abs(ah[p, c]) < 1e-9:
            return False, ah[:, n:].copy(), al[:, n:].copy()
        for j in range(2 * n):
            ah[c, j], ah[p, j] = ah[p, j], ah[c, j]
            al[c, j], al[p, j] = al[p, j], al[c, j]
        dh, dl = ah[c, c], al[c, c]
        for j in range(2 * n):
            ah[c, j], al[c, j] = divide(ah[c, j], al[c, j], dh, dl)
        for i in range(n):
            fh, fl = ah[i, c], al[i, c]
            if i == c or fh == 0.0:
                continue
            for j in range(2 * n):
                ph, pl = multiply(fh, fl, ah[c, j], al[c, j])
                ah[i, j], al[i, j] = add(ah[i, j], al[i, j], -ph, -pl)
    return True, ah[:, n:].copy(), al[:, n:].copy()


@kernel
def _fit(rows, rest, basis, low):  # type: ignore[no-untyped-def]
    """Products for all directions of a basis, and the largest relative error of an entry."""
    card = rows.shape[0]
    width = 0
    for d in rest:
        width += d
    mh, ml = np.zeros((card, card + width)), np.zeros((card, card + width))
    sound, inverse, inverse_low = _inverse(basis, low)
    if not sound:
        return np.inf, mh, ml
    # Rounding breaks Σ_y T(y, ·) = 1 by 10⁻¹⁶. A direction that mixes all states is fitted first,
    # and the larger entries then follow from it and the smaller ones, which keep all their digits.
    lead = -1
    for s in range(card):
        if (basis[s] != 0.0).all():
            lead = s
    order = np.empty(card, np.int64)
    order[0] = max(lead, 0)
    for s in range(1, card):
        order[s] = s - 1 if s <= order[0] else s
    for s in order:
        with_lead = lead >= 0 and s != lead
        if not _fit_one(rows, rest, basis, low, s, lead if with_lead else -1, mh, ml):
            return np.inf, mh, ml
    for s in range(card):
        amplitude_h, amplitude_l = mh[s, s], ml[s, s]
        for x in range(card):
            mh[s, x], ml[s, x] = multiply(
                inverse[x, s], inverse_low[x, s], amplitude_h, amplitude_l
            )
    return _check(rows, rest, mh, ml), mh, ml


@kernel
def _entry(rows, basis, low, s, lead, at, lead_h, lead_l):  # type: ignore[no-untyped-def]
    """Σ_x b_s(x) T(x, at), the largest of the T replaced by what the lead leaves for it."""
    card = rows.shape[0]
    big = -1
    if lead >= 0:
        big = 0
        for x in range(card):
            if rows[x, at] > rows[big, at]:
                big = x
    h, l = 0.0, 0.0  # noqa: E741
    bh, bl = lead_h, lead_l
    for x in range(card):
        if x == big:
            continue
        ph, pl = multiply(basis[s, x], low[s, x], rows[x, at], 0.0)
        h, l = add(h, l, ph, pl)  # noqa: E741
        if big >= 0:
            ph, pl = multiply(basis[lead, x], low[lead, x], rows[x, at], 0.0)
            bh, bl = add(bh, bl, -ph, -pl)
    if big >= 0 and basis[s, big] != 0.0:
        bh, bl = divide(bh, bl, basis[lead, big], low[lead, big])
        ph, pl = multiply(basis[s, big], low[s, big], bh, bl)
        h, l = add(h, l, ph, pl)  # noqa: E741
    return h, l


@kernel
def _fit_one(rows, rest, basis, low, s, lead, mh, ml):  # type: ignore[no-untyped-def]
    """Product that agrees with one direction on the lines through its largest entry.

    Its amplitude is left in column s of row s.
    """
    card, total = rows.shape
    values = np.zeros(total)
    for x in range(card):
        if basis[s, x] != 0.0:
            values += basis[s, x] * rows[x]
    if lead < 0 and not _is_product(values, rest):
        return False
    pivot = _pivot(values)
    n = len(rest)
    stride = total
    column = card
    ph, pl = _at(rows, rest, basis, low, s, lead, pivot, mh, ml)
    if ph == 0.0:
        return False
    for a in range(n):
        stride //= rest[a]
        x0 = pivot // stride % rest[a]
        for x in range(rest[a]):
            at = pivot + (x - x0) * stride
            h, l = _at(rows, rest, basis, low, s, lead, at, mh, ml)  # noqa: E741
            h, l = divide(h, l, ph, pl)  # noqa: E741
            for value in (-1.0, 0.0, 1.0):
                if abs((h - value) + l) < SNAP_FIT:
                    h, l = value, 0.0  # noqa: E741
            mh[s, column + x], ml[s, column + x] = h, l
        column += rest[a]
    mh[s, s], ml[s, s] = ph, pl
    return True


@kernel
def _at(rows, rest, basis, low, s, lead, at, mh, ml):  # type: ignore[no-untyped-def]
    h, l = 0.0, 0.0  # noqa: E741
    if lead >= 0:
        h, l = mh[lead, lead], ml[lead, lead]  # noqa: E741
        column, stride = rows.shape[0], rows.shape[1]
        for a in range(len(rest)):
            stride //= rest[a]
            x = at // stride % rest[a]
            h, l = multiply(h, l, mh[lead, column + x], ml[lead, column + x])  # noqa: E741
            column += rest[a]
    return _entry(rows, basis, low, s, lead, at, h, l)


@kernel
def _check(rows, rest, mh, ml):  # type: ignore[no-untyped-def]
    """Largest relative error of an entry; infinite where a zero is not given back exactly."""
    terms, (card, total) = mh.shape[0], rows.shape
    n = len(rest)
    digits = np.zeros(n, np.int64)
    # partial[s, a]: product of the first a axes at the present digits
    parh, parl = np.ones((terms, n + 1)), np.zeros((terms, n + 1))
    column = np.empty(n, np.int64)
    at = card
    for a in range(n):
        column[a] = at
        at += rest[a]
    changed = 0
    worst = 0.0
    for j in range(total):
        for s in range(terms):
            for a in range(changed, n):
                c = column[a] + digits[a]
                parh[s, a + 1], parl[s, a + 1] = multiply(
                    parh[s, a], parl[s, a], mh[s, c], ml[s, c]
                )
        for x in range(card):
            h, l = 0.0, 0.0  # noqa: E741
            for s in range(terms):
                ph, pl = multiply(mh[s, x], ml[s, x], parh[s, n], parl[s, n])
                h, l = add(h, l, ph, pl)  # noqa: E741
            truth = rows[x, j]
            difference = abs((h - truth) + l)
            if truth == 0.0:
                if difference > 0.0:
                    return np.inf
            else:
                worst = max(worst, difference / truth)
        if worst > TOLERANCE:
            return np.inf
        a = n - 1
        while a >= 0:
            digits[a] += 1
            if digits[a] < rest[a]:
                break
            digits[a] = 0
            a -= 1
        changed = max(a, 0)
    return worst


@kernel
def _extend(rows, rest, first, second, mh, ml):  # type: ignore[no-untyped-def]
    """Two products found for two states of an axis, fitted to all its states."""
    card, total = rows.shape
    width = mh.shape[1] - 2
    oh, ol = np.zeros((2, card + width)), np.zeros((2, card + width))
    oh[:, card:], ol[:, card:] = mh[:, 2:], ml[:, 2:]
    products = np.ones((2, total))
    for j in range(total):
        column, stride = 2, total
        for a in range(len(rest)):
            stride //= rest[a]
            x = j // stride % rest[a]
            products[0, j] *= mh[0, column + x]
            products[1, j] *= mh[1, column + x]
            column += rest[a]
    p = _pivot(products[0])
    q, best = -1, 0.0
    for j in range(total):
        det = abs(products[0, p] * products[1, j] - products[0, j] * products[1, p])
        if det > best:
            q, best = j, det
    if q < 0 or best < 1e-9:
        return np.inf, oh, ol
    ah, al = np.empty((2, 2)), np.empty((2, 2))
    for s in range(2):
        for c in range(2):
            h, l = 1.0, 0.0  # noqa: E741
            column, stride = 2, total
            for a in range(len(rest)):
                stride //= rest[a]
                x = (p if c == 0 else q) // stride % rest[a]
                h, l = multiply(h, l, mh[s, column + x], ml[s, column + x])  # noqa: E741
                column += rest[a]
            ah[c, s], al[c, s] = h, l
    sound, ih, il = _inverse(ah, al)
    if not sound:
        return np.inf, oh, ol
    for s in range(2):
        for x in range(card):
            ph, pl = multiply(ih[s, 0], il[s, 0], rows[x, p], 0.0)
            qh, ql = multiply(ih[s, 1], il[s, 1], rows[x, q], 0.0)
            oh[s, x], ol[s, x] = add(ph, pl, qh, ql)
        oh[s, first], ol[s, first] = mh[s, 0], ml[s, 0]
        oh[s, second], ol[s, second] = mh[s, 1], ml[s, 1]
    return _check(rows, rest, oh, ol), oh, ol
