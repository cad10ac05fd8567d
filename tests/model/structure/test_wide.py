"""Double-double arithmetic against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest

from icgi.model.structure.wide import UNIT, add, divide, multiply, root


def pair(rng) -> tuple[float, float]:
    high = float(rng.normal() * 10.0 ** rng.integers(-20, 20))
    return high, float(high * rng.uniform(-1, 1) * 2.0**-54)


def exact(number: tuple[float, float]) -> Fraction:
    return Fraction(number[0]) + Fraction(number[1])


@pytest.mark.parametrize(
    ("operation", "truth"),
    [
        (add, lambda a, b: a + b),
        (multiply, lambda a, b: a * b),
        (divide, lambda a, b: a / b),
    ],
)
def test_error_is_below_the_unit(operation, truth) -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        a, b = pair(rng), pair(rng)
        if rng.random() < 0.5:  # nearly opposite: cancellation
            b = (
                -a[0] * (1 + rng.normal() * 2.0**-40),
                b[1] if abs(b[1]) < abs(a[0]) / 2**53 else 0.0,
            )
        right = truth(exact(a), exact(b))
        assert abs(exact(operation(*a, *b)) - right) <= abs(right) * Fraction(UNIT)


def test_square_root_squares_back() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        high, low = pair(rng)
        a = (abs(high), low)
        s = root(*a)
        assert abs(exact(s) ** 2 - exact(a)) <= exact(a) * Fraction(2) ** -98
