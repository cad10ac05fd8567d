"""Bytes, seconds and logarithms as people say them."""

import math

YEAR = 365.25 * 86400


def readable_bytes(count: float) -> str:
    """Format a number of bytes as a person says it: 3.4 GB, 10^23 GB."""
    if count >= 1e300:
        return "more than 10^290 GB"
    if count >= 1e15:
        return f"10^{math.log10(count / 1e9):.0f} GB"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def readable_seconds(count: float) -> str:
    """Format a duration as a person says it: 0.01 s, 12 min, 10^12 years."""
    if count < 0.01:
        return "0.01 s"
    if math.isinf(count):
        return "more than 10^290 years"
    if count >= 1e9 * YEAR:
        return f"10^{math.log10(count / YEAR):.0f} years"
    units = (("years", YEAR), ("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
    unit, size = next((u for u in units if count >= 2 * u[1]), units[-1])
    value = count / size
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"


def ten_digits(logarithm: float) -> str:
    """Format the logarithm of a sum; what rounding leaves of the logarithm of one is 0."""
    return f"{0.0 if abs(logarithm) < 1e-13 else logarithm:.10g}"
