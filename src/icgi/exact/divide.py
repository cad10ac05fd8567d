"""Messages towards children: sums of a belief, divided by what the child had said."""

import numpy as np

from icgi.kernels import kernel

TINY = 1e-150  # below this, products of entries ≤ 1 may have lost digits to underflow
FAST = {"reassoc", "contract", "nsz", "arcp", "nnan"}  # numbers are finite, and zeros stay zeros
_FEW = 32  # entries up to which the largest is found one by one
_U = np.uint64  # unsigned places: compiled code need not ask whether they count from the end


@kernel(error_model="numpy", fastmath=FAST)
def divide(store, message, sums, first, count, scale):  # type: ignore[no-untyped-def]
    """Message = sums / (message · scale), 0 where it was; its largest entry and Σ sums."""
    total = 0.0
    a, b = _U(message), _U(first)
    for j in range(count):
        before = store[a + _U(j)] * scale
        value = sums[b + _U(j)]
        total += value
        store[a + _U(j)] = value / before if before > 0.0 else 0.0
    return largest(store, message, count), total


@kernel
def largest(values, first, count):  # type: ignore[no-untyped-def]
    """Largest of some non-negative numbers; NaN if there is one."""
    at = _U(first)
    if count <= _FEW:
        top = 0.0
        for j in range(count):
            value = values[at + _U(j)]
            top = top if value <= top else value
        return top
    # such numbers are in the same order as their bits, which several at a time are compared
    bits = values.view(np.int64)
    most = np.int64(0)
    for j in range(count):
        most = max(most, bits[at + _U(j)])
    found = np.empty(1)
    found.view(np.int64)[0] = most
    return found[0]


@kernel
def safe(top, total):  # type: ignore[no-untyped-def]
    """Whether a message towards a child has lost no digits.

    Both messages across a separator have largest entry one. Entries below 1e-308 are lost in
    each, so the answer is safe when the product of the two still has a visible sum.
    """
    return top > TINY and top < 1.0 / TINY and total > top * 1e-100
