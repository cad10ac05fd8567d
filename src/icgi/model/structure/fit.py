"""Products along given directions, to all digits, and the test of every entry of their sum."""

import numpy as np

from icgi.kernels import kernel
from icgi.model.structure.directions import is_product, pivot_of
from icgi.model.structure.wide import add, divide, multiply

TOLERANCE = 1e-11  # relative error of an entry
SNAP_FIT = 1e-13  # factors of products this close to 0 or ±1 are 0 or ±1: nothing checks each one


@kernel
def fit(rows, rest, basis, low):  # type: ignore[no-untyped-def]
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
def _fit_one(rows, rest, basis, low, s, lead, mh, ml):  # type: ignore[no-untyped-def]
    """Product that agrees with one direction on the lines through its largest entry.

    Its amplitude is left in column s of row s.
    """
    card, total = rows.shape
    values = np.zeros(total)
    for x in range(card):
        if basis[s, x] != 0.0:
            values += basis[s, x] * rows[x]
    if lead < 0 and not is_product(values, rest):
        return False
    pivot = pivot_of(values)
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
def extend(rows, rest, first, second, mh, ml):  # type: ignore[no-untyped-def]
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
    p = pivot_of(products[0])
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
