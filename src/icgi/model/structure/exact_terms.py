"""Sums and products of two doubles without error, as a double and what rounding left of it."""

from typing import Any

from numba import types
from numba.extending import intrinsic

from icgi.kernels import kernel


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """A · b + c, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@kernel
def two_sum(a, b):  # type: ignore[no-untyped-def]
    """Sum and its rounding error, whatever the order of a and b."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@kernel
def product(a, b):  # type: ignore[no-untyped-def]
    """Product and its rounding error."""
    h = a * b
    return h, fma(a, b, -h)
