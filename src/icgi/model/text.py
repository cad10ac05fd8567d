"""Words and numbers of a text file, read by compiled code from its bytes.

Numbers are rounded correctly, to the last bit, or handed back to the caller where that takes more
than 64-bit arithmetic.
"""

import math

import numpy as np
from numpy.typing import NDArray

from icgi.kernels import kernel


@kernel
def _is_space(c):  # type: ignore[no-untyped-def]
    return c == 32 or 9 <= c <= 13


@kernel
def count_words(text):  # type: ignore[no-untyped-def]
    """Number of words in the text."""
    count = 0 if _is_space(text[0]) else 1
    for p in range(1, len(text)):
        count += _is_space(text[p - 1]) and not _is_space(text[p])
    return count


@kernel
def next_word(text, p):  # type: ignore[no-untyped-def]
    """Where the next word begins, at `p` or later."""
    while p < len(text) and _is_space(text[p]):
        p += 1
    return p


@kernel
def _whole_number(text, p):  # type: ignore[no-untyped-def]
    """Read the number at p (at most 10^17) and find its end; −1 for any other word or none."""
    value = -1
    while p < len(text) and not _is_space(text[p]):
        digit = int(text[p]) - 48
        if digit < 0 or digit > 9:
            return -1, p
        value = 10 * max(value, 0) + digit
        if value > 10**17:
            value = 10**17
        p += 1
    return value, p


@kernel
def whole_numbers(text, p, numbers, least):  # type: ignore[no-untyped-def]
    """Fill `numbers`; return how many could be read, and where the next word begins or ended."""
    for a in range(len(numbers)):
        p = next_word(text, p)
        numbers[a], end = _whole_number(text, p)
        if numbers[a] < least:
            return a, p
        p = end
    return len(numbers), p


@kernel
def scopes(text, p, cards, longest, starts, scope, sizes):  # type: ignore[no-untyped-def]
    """Fill scopes and table sizes; return the first bad factor, what is wrong with it, where."""
    last_seen = np.full(len(cards), -1, np.int64)
    for f in range(len(sizes)):
        p = next_word(text, p)
        arity, end = _whole_number(text, p)
        if arity < 0 or arity > longest:
            return f, int(arity > longest), p
        size, at = 1, starts[f]
        for a in range(at, at + arity):
            p = next_word(text, end)
            i, end = _whole_number(text, p)
            if i < 0:
                return f, 0, p
            if i >= len(cards):
                return f, 2, p
            if last_seen[i] == f:
                return f, 3, p
            last_seen[i] = f
            scope[a] = i
            size = min(size * cards[i], 2**34)  # no file is that large; cards are below 2^29
        starts[f + 1] = at + arity
        sizes[f] = size
        p = end
    return len(sizes), 0, p


@kernel
def tables(text, p, sizes, values):  # type: ignore[no-untyped-def]
    """Fill `values`; return the first bad factor, its values, those of all factors, and where.

    A factor that announces the wrong number of values has −1 of them.
    """
    read = 0
    for f in range(len(sizes)):
        p = next_word(text, p)
        announced, end = _whole_number(text, p)
        if announced != sizes[f]:
            return f, -1, read, p
        p = end
        for a in range(announced):
            p = next_word(text, p)
            if p == len(text):
                return f, a, read, p
            values[read], p = _number(text, p)
            read += 1
    return len(sizes), 0, read, next_word(text, p)


@kernel
def _number(text, p):  # type: ignore[no-untyped-def]
    """Read the number at p and find its end; minus p for what is left to Python."""
    begin = p
    mantissa, taken, exponent = np.uint64(0), 0, 0
    digits, point, cut = 0, False, False
    if text[p] == 43:  # +
        p += 1
    while p < len(text):
        digit = int(text[p]) - 48
        if 0 <= digit <= 9:
            digits += 1
            if taken < 19:  # 10^19 < 2^64
                mantissa = mantissa * np.uint64(10) + np.uint64(digit)
                if mantissa > 0:
                    taken += 1
                if point:
                    exponent -= 1
            else:
                cut = cut or digit > 0
                if not point:
                    exponent += 1
        elif digit == -2 and not point:  # .
            point = True
        else:
            break
        p += 1
    sound = digits > 0
    if p < len(text) and (text[p] == 101 or text[p] == 69):  # e E
        p += 1
        sign = 1
        if p < len(text) and (text[p] == 43 or text[p] == 45):  # + -
            sign = 44 - int(text[p])
            p += 1
        power, p = _whole_number(text, p)
        sound = sound and power >= 0
        exponent += sign * power
    while p < len(text) and not _is_space(text[p]):
        sound = False
        p += 1
    if sound:
        value = _rounded(mantissa, exponent)
        # Digits beyond the nineteenth matter only if the next mantissa is another double.
        if value >= 0 and (not cut or _rounded(mantissa + np.uint64(1), exponent) == value):
            return value, p
    return -float(begin), p


def _powers_of_ten(least: int, most: int) -> NDArray[np.uint64]:
    """Leading 128 bits of 10^q, cut off, as two words each."""
    rows = []
    for q in range(least, most + 1):
        above, below = 10 ** max(q, 0), 10 ** max(-q, 0)
        scaled = (above << (128 + below.bit_length())) // below
        leading = scaled >> (scaled.bit_length() - 128)
        rows.append((leading >> 64, leading % 2**64))
    return np.array(rows, np.uint64)


_LEAST, _MOST = -330, 308  # a mantissa of 64 bits times any other power of ten is no normal double
_POWERS = _powers_of_ten(_LEAST, _MOST)
_EXACT = np.array([float(10**q) for q in range(23)])  # powers of ten that are doubles
_ONE = np.uint64(1)
_LOW_HALF, _LOW_NINE = np.uint64(2**32 - 1), np.uint64(2**9 - 1)


@kernel
def _rounded(w, q):  # type: ignore[no-untyped-def]
    """Double nearest to w · 10^q, ties to even; −1 where that is not decided here.

    Exact operands up to 10^22 (Clinger, 1990), else the Eisel-Lemire method: the product with 128
    bits of the power of ten decides unless it lies too near to half-way (Lemire, "Number parsing at
    a gigabyte per second", 2021).
    """
    if w == 0:
        return 0.0
    if w <= np.uint64(2**53) and -22 <= q <= 22:
        return np.float64(w) / _EXACT[-q] if q < 0 else np.float64(w) * _EXACT[q]
    if q < _LEAST or q > _MOST:
        return -1.0
    exponent = ((217706 * q) >> 16) + 64 + 1023  # 217706 / 2^16 = log2 10
    for step in (32, 16, 8, 4, 2, 1):
        if w >> np.uint64(64 - step) == 0:
            w <<= np.uint64(step)
            exponent -= step
    high, low = _product(w, _POWERS[q - _LEAST, 0])
    if high & _LOW_NINE == _LOW_NINE and low + w < w:
        carried, rest = _product(w, _POWERS[q - _LEAST, 1])
        low += carried
        if low < carried:
            high += _ONE
        if high & _LOW_NINE == _LOW_NINE and low + _ONE == 0 and rest + w < w:
            return -1.0
    top = high >> np.uint64(63)
    mantissa = high >> (top + np.uint64(9))
    if low == 0 and high & _LOW_NINE == 0 and mantissa & np.uint64(3) == _ONE:
        return -1.0
    exponent -= 1 - np.int64(top)
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    if mantissa >> np.uint64(53) > 0:
        mantissa >>= _ONE
        exponent += 1
    if exponent < 1 or exponent > 2046:
        return -1.0
    return math.ldexp(np.float64(mantissa), int(exponent) - 1075)


@kernel
def _product(a, b):  # type: ignore[no-untyped-def]
    """High and low word of a · b."""
    half = np.uint64(32)
    a_high, a_low, b_high, b_low = a >> half, a & _LOW_HALF, b >> half, b & _LOW_HALF
    middle = a_high * b_low + (a_low * b_low >> half)
    carry = (middle & _LOW_HALF) + a_low * b_high
    return a_high * b_high + (middle >> half) + (carry >> half), a * b
