"""Quad-double arithmetic against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest

from icgi.model.structure.quad import UNIT
from icgi.model.structure.wide import add, divide, multiply, unit

Number = tuple[complex, complex]


def exact(number: Number) -> Fraction:
    return sum((Fraction(x) for c in number for x in (c.real, c.imag)), Fraction(0))


def random_number(rng) -> Number:
    """Four terms, each below the rounding error of the one before, some of them zero."""
    terms, term = [], float(rng.normal() * 10.0 ** rng.integers(-20, 20))
    for _ in range(4):
        terms.append(term)
        term *= float(rng.uniform(-1, 1)) * 2.0**-54 * bool(rng.random() < 0.9)
    return complex(*terms[:2]), complex(*terms[2:])


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
    for _ in range(3000):
        a, b = random_number(rng), random_number(rng)
        if rng.random() < 0.5:  # nearly opposite: cancellation of some or of most digits
            tail = random_number(rng)[0] * 2.0 ** -int(rng.integers(60, 200))
            b = add(-a[0], -a[1], tail.real * abs(a[0].real) + 0j, 0j)
        right = truth(exact(a), exact(b)) if operation is not divide or exact(b) else None
        if right is None:
            continue
        size = abs(exact(a)) + abs(exact(b)) if operation is add else abs(right)
        assert abs(exact(operation(*a, *b)) - right) <= size * Fraction(UNIT)


def test_numbers_of_two_terms_have_their_own_unit() -> None:
    assert unit(0j) == UNIT
    assert unit(0.0) > UNIT
    assert multiply(3.0, 0.0, 0.5, 0.0) == (1.5, 0.0)
