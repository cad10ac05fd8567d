"""Quad-double numbers: a sum of four doubles, 212 bits, where 106 bits are too few.

Sums and products are those of Hida, Li and Bailey (ARITH 2001), with renormalisations of exact sums
only, so that no order of the terms is assumed. `UNIT` bounds the error of a product or quotient
relative to the result, that of a sum relative to |a| + |b|.
"""

from icgi.kernels import kernel
from icgi.model.structure.exact_terms import product, two_sum

UNIT = 2.0**-190


@kernel
def _three_sum(a, b, c):  # type: ignore[no-untyped-def]
    s, t = two_sum(a, b)
    a, u = two_sum(c, s)
    b, c = two_sum(t, u)
    return a, b, c


@kernel
def _settled(a, b, c, d, e):  # type: ignore[no-untyped-def]
    """Four terms, each about a rounding error of the one before, that sum to the five given."""
    d, e = two_sum(d, e)
    c, d = two_sum(c, d)
    b, c = two_sum(b, c)
    a, b = two_sum(a, b)
    d, e = two_sum(d, e)
    c, d = two_sum(c, d)
    b, c = two_sum(b, c)
    a, b = two_sum(a, b)
    d, e = two_sum(d, e)
    c, d = two_sum(c, d)
    b, c = two_sum(b, c)
    d, e = two_sum(d, e)
    c, d = two_sum(c, d)
    return a, b, c, d + e


@kernel
def add(a, b, c, d, p, q, r, s):  # type: ignore[no-untyped-def]
    """Sum of two numbers of four terms each."""
    a, t0 = two_sum(a, p)
    b, t1 = two_sum(b, q)
    c, t2 = two_sum(c, r)
    d, t3 = two_sum(d, s)
    b, t0 = two_sum(b, t0)
    c, t0, t1 = _three_sum(c, t0, t1)
    d, t0, t2 = _three_sum(d, t0, t2)
    return _settled(a, b, c, d, t0 + t1 + t2 + t3)


@kernel
def multiply(a, b, c, d, p, q, r, s):  # type: ignore[no-untyped-def]
    """Product of two numbers of four terms each."""
    h0, l0 = product(a, p)
    h1, l1 = product(a, q)
    h2, l2 = product(b, p)
    h3, l3 = product(a, r)
    h4, l4 = product(b, q)
    h5, l5 = product(c, p)
    h1, h2, l0 = _three_sum(h1, h2, l0)
    h2, l1, l2 = _three_sum(h2, l1, l2)
    h3, h4, h5 = _three_sum(h3, h4, h5)
    s0, t0 = two_sum(h2, h3)
    s1, t1 = two_sum(l1, h4)
    s2 = l2 + h5
    s1, t0 = two_sum(s1, t0)
    s2 += t0 + t1
    rest = a * s + b * r + c * q + d * p + l3 + l4 + l5 + l0
    s1, t0 = two_sum(s1, rest)
    return _settled(h0, h1, s0, s1, s2 + t0)


@kernel
def divide(a, b, c, d, p, q, r, s):  # type: ignore[no-untyped-def]
    """Quotient of two numbers, one term after the other from what is left over."""
    t0 = a / p
    e, f, g, h = multiply(p, q, r, s, t0, 0.0, 0.0, 0.0)
    a, b, c, d = add(a, b, c, d, -e, -f, -g, -h)
    t1 = a / p
    e, f, g, h = multiply(p, q, r, s, t1, 0.0, 0.0, 0.0)
    a, b, c, d = add(a, b, c, d, -e, -f, -g, -h)
    t2 = a / p
    e, f, g, h = multiply(p, q, r, s, t2, 0.0, 0.0, 0.0)
    a, b, c, d = add(a, b, c, d, -e, -f, -g, -h)
    t3 = a / p
    e, f, g, h = multiply(p, q, r, s, t3, 0.0, 0.0, 0.0)
    a, b, c, d = add(a, b, c, d, -e, -f, -g, -h)
    return _settled(t0, t1, t2, t3, a / p)
