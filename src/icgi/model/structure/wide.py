"""Double-double numbers: an unevaluated sum of two doubles, 106 bits, for sums that cancel.

Algorithms and their error bounds are those of Joldes, Muller and Popescu (ACM TOMS 44, 2017), with
u = 2⁻⁵³: a sum is right to 3u², a product to 5u², a quotient to 10u², relative to the *result*, so
cancellation costs nothing but what the terms themselves had lost before. `UNIT` covers all three.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from icgi.kernels import kernel

UNIT = 2.0**-102  # relative error of one operation, at most


@intrinsic
def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """A · b + c, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@kernel
def _two_sum(a, b):  # type: ignore[no-untyped-def]
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@kernel
def add(ah, al, bh, bl):  # type: ignore[no-untyped-def]
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
def multiply(ah, al, bh, bl):  # type: ignore[no-untyped-def]
    """Product of two wide numbers (DWTimesDW2)."""
    c = ah * bh
    e = _fma(ah, bh, -c)
    t = _fma(ah, bl, al * bh)
    s = e + t
    r = c + s
    return r, s - (r - c)


@kernel
def divide(ah, al, bh, bl):  # type: ignore[no-untyped-def]
    """Quotient of two wide numbers: a first guess, corrected twice by what it leaves over."""
    q = ah / bh
    ph, pl = multiply(bh, bl, q, 0.0)
    rh, rl = add(ah, al, -ph, -pl)
    p = rh / bh
    sh, sl = multiply(bh, bl, p, 0.0)
    rh, rl = add(rh, rl, -sh, -sl)
    h, l = _two_sum(q, p)  # noqa: E741
    return add(h, l, rh / bh, 0.0)


@kernel
def root(ah, al):  # type: ignore[no-untyped-def]
    """Square root of a non-negative wide number, one Newton step from the double's."""
    if ah <= 0.0:
        return 0.0, 0.0
    s = np.sqrt(ah)
    ph, pl = multiply(s, 0.0, s, 0.0)
    rh, _ = add(ah, al, -ph, -pl)
    return _two_sum(s, rh / (2.0 * s))
