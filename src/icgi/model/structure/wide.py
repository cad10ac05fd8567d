"""Double-double numbers: an unevaluated sum of two doubles, 106 bits, for sums that cancel.

Algorithms and their error bounds are those of Joldes, Muller and Popescu (ACM TOMS 44, 2017), with
u = 2⁻⁵³: a sum is right to 3u², a product to 5u², a quotient to 10u², relative to the *result*, so
cancellation costs nothing but what the terms themselves had lost before. `UNIT` covers all three.

Where 106 bits are not enough, the same compiled code runs on quad-doubles: both parts of a number
are complex then and hold two doubles each. `add`, `multiply`, `divide` and `unit` go by the type.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from icgi.kernels import kernel
from icgi.model.structure import quad
from icgi.model.structure.exact_terms import fma, two_sum

UNIT = 2.0**-102  # relative error of one operation, at most


@kernel
def _add(ah, al, bh, bl):  # type: ignore[no-untyped-def]
    """Sum of two wide numbers (AccurateDWPlusDW)."""
    s = ah + bh
    t = s - ah
    e = (ah - (s - t)) + (bh - t)
    v = al + bl
    w = v - al
    f = (al - (v - w)) + (bl - w)
    c = e + v
    h = s + c
    g = f + (c - (h - s))
    r = h + g
    return r, g - (r - h)


@kernel
def _multiply(ah, al, bh, bl):  # type: ignore[no-untyped-def]
    """Product of two wide numbers (DWTimesDW2)."""
    c = ah * bh
    e = fma(ah, bh, -c)
    t = fma(ah, bl, al * bh)
    s = e + t
    r = c + s
    return r, s - (r - c)


@kernel
def _divide(ah, al, bh, bl):  # type: ignore[no-untyped-def]
    """Quotient of two wide numbers: a first guess, corrected twice by what it leaves over."""
    q = ah / bh
    ph, pl = _multiply(bh, bl, q, 0.0)
    rh, rl = _add(ah, al, -ph, -pl)
    p = rh / bh
    sh, sl = _multiply(bh, bl, p, 0.0)
    rh, rl = _add(rh, rl, -sh, -sl)
    h, l = two_sum(q, p)  # noqa: E741
    return _add(h, l, rh / bh, 0.0)


@kernel
def root(ah, al):  # type: ignore[no-untyped-def]
    """Square root of a non-negative wide number, one Newton step from the double's."""
    if ah <= 0.0:
        return 0.0, 0.0
    s = np.sqrt(ah)
    ph, pl = _multiply(s, 0.0, s, 0.0)
    rh, _ = _add(ah, al, -ph, -pl)
    return two_sum(s, rh / (2.0 * s))


@kernel
def _quad_add(ah, al, bh, bl):  # type: ignore[no-untyped-def]
    p, q, r, s = quad.add(
        ah.real, ah.imag, al.real, al.imag, bh.real, bh.imag, bl.real, bl.imag
    )  # fmt: skip
    return complex(p, q), complex(r, s)


@kernel
def _quad_multiply(ah, al, bh, bl):  # type: ignore[no-untyped-def]
    p, q, r, s = quad.multiply(
        ah.real, ah.imag, al.real, al.imag, bh.real, bh.imag, bl.real, bl.imag
    )  # fmt: skip
    return complex(p, q), complex(r, s)


@kernel
def _quad_divide(ah, al, bh, bl):  # type: ignore[no-untyped-def]
    p, q, r, s = quad.divide(
        ah.real, ah.imag, al.real, al.imag, bh.real, bh.imag, bl.real, bl.imag
    )  # fmt: skip
    return complex(p, q), complex(r, s)


def add(ah: Any, al: Any, bh: Any, bl: Any) -> Any:
    """Sum of two wide numbers; of quad-doubles, right to `unit` times |a| + |b|."""
    return _quad_add(ah, al, bh, bl) if isinstance(ah, complex) else _add(ah, al, bh, bl)


def multiply(ah: Any, al: Any, bh: Any, bl: Any) -> Any:
    """Product of two wide numbers."""
    return _quad_multiply(ah, al, bh, bl) if isinstance(ah, complex) else _multiply(ah, al, bh, bl)


def divide(ah: Any, al: Any, bh: Any, bl: Any) -> Any:
    """Quotient of two wide numbers."""
    return _quad_divide(ah, al, bh, bl) if isinstance(ah, complex) else _divide(ah, al, bh, bl)


def unit(a: Any) -> Any:
    """Error of one operation on numbers of this kind."""
    return quad.UNIT if isinstance(a, complex) else UNIT


def _by_type(doubles: Any, quads: Any) -> Any:
    """Compiled form of an operation: quads where any argument is complex."""

    def choose(ah, al, bh, bl):  # type: ignore[no-untyped-def]
        if any(isinstance(each, types.Complex) for each in (ah, al, bh, bl)):
            return lambda ah, al, bh, bl: quads(complex(ah), complex(al), complex(bh), complex(bl))
        return lambda ah, al, bh, bl: doubles(ah, al, bh, bl)

    return choose


overload(add)(_by_type(_add, _quad_add))
overload(multiply)(_by_type(_multiply, _quad_multiply))
overload(divide)(_by_type(_divide, _quad_divide))


@overload(unit)
def _unit(a):  # type: ignore[no-untyped-def]
    value = quad.UNIT if isinstance(a, types.Complex) else UNIT
    return lambda a: value
