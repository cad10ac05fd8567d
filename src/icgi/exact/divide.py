"""Messages towards children: sums of a belief, divided by what the child had said."""

from icgi.kernels import kernel

TINY = 1e-150  # below this, products of entries ≤ 1 may have lost digits to underflow
FAST = {"reassoc", "contract", "nsz", "arcp", "nnan"}  # numbers are finite, and zeros stay zeros


@kernel(error_model="numpy", fastmath=FAST)
def divide(message, sums, scale):  # type: ignore[no-untyped-def]
    """Message = sums / (message · scale), 0 where it was; its largest entry and Σ sums."""
    top, total = 0.0, 0.0
    for j in range(len(sums)):
        before = message[j] * scale
        value = sums[j] / before if before > 0.0 else 0.0
        message[j] = value
        total += sums[j]
        top = value if value > top else top
    return top, total


@kernel
def safe(top, total):  # type: ignore[no-untyped-def]
    """Whether a message towards a child has lost no digits.

    Both messages across a separator have largest entry one. Entries below 1e-308 are lost in
    each, so the answer is safe when the product of the two still has a visible sum.
    """
    return top > TINY and top < 1.0 / TINY and total > top * 1e-100
