"""Factors restricted to what is known: one number for every function that is left of a table.

A pattern says of each variable of a factor which state it has, or that it has none yet. What the
table is then, up to a scale, is a function of the open variables; equal ones have equal numbers,
and variables that it does not depend on are seen. That is an algebraic decision diagram of every
factor, with the numbers of its nodes kept by pattern.
"""

from dataclasses import dataclass

import numpy as np

from icgi.kernels import kernel
from icgi.model.graph import FloatArray, IntArray, starts
from icgi.model.wiring import Wiring

MOST_PATTERNS = 2**22  # of all factors together, 32 bytes each


@dataclass(frozen=True, eq=False, slots=True)
class Restrictions:
    """What is left of every factor for every pattern, the last variable of a scope fastest.

    A variable of d states has d + 1 digits in a pattern, the last one for «no state yet».
    """

    stride: IntArray  # e    of each variable in the patterns of its factor
    whole: IntArray  # f    pattern of each factor with no state known; equal tables share theirs
    first: np.ndarray  # p    128 bits that tell functions of a factor apart, up to their scale
    second: np.ndarray
    scale: FloatArray  # p    logarithm of the largest entry; −∞: nothing is possible
    depends: IntArray  # p    bit a: the function depends on variable a of the scope
    weight: FloatArray  # p    2^−k where it depends on k variables, 0 where k < 2


def restrictions(w: Wiring) -> Restrictions | None:
    """Restrictions of all factors; None where there are too many."""
    own = _alike(w)
    digits = np.log2(w.cards[w.scope] + 1.0)
    arity = np.diff(w.scope_start)
    bits = np.bincount(np.repeat(np.arange(len(arity)), arity), digits, len(arity))
    if not np.exp2(bits[own]).sum() <= MOST_PATTERNS:
        return None
    stride, sizes = _strides(w.cards, w.scope_start, w.scope)
    first_of, which = np.unique(own, return_inverse=True)
    start = starts(sizes[first_of])
    count = int(start[-1])
    found = Restrictions(
        stride, start[which + 1] - 1, np.empty(count, np.uint64), np.empty(count, np.uint64),
        np.empty(count), np.empty(count, np.int64), np.zeros(count),
    )  # fmt: skip
    _restrict(
        w.cards, w.scope_start, w.scope, w.table_start, w.values, stride, first_of, start,
        found.first, found.second, found.scale, found.depends, found.weight,
    )  # fmt: skip
    return found


def _alike(w: Wiring) -> IntArray:
    """For each factor the first one that has the same table."""
    known: dict[tuple[bytes, bytes], int] = {}
    cards = w.cards[w.scope]
    scope, table = w.scope_start.tolist(), w.table_start.tolist()
    keys = [
        (cards[scope[f] : scope[f + 1]].tobytes(), w.values[table[f] : table[f + 1]].tobytes())
        for f in range(len(scope) - 1)
    ]
    return np.array([known.setdefault(key, f) for f, key in enumerate(keys)], np.int64)


@kernel
def mixed(value):  # type: ignore[no-untyped-def]
    """Finaliser of splitmix64: every bit of the result depends on every bit of the value."""
    z = value + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def _strides(cards, scope_start, scope):  # type: ignore[no-untyped-def]
    stride, sizes = np.ones(len(scope), np.int64), np.ones(len(scope_start) - 1, np.int64)
    for f in range(len(sizes)):
        for a in range(scope_start[f + 1] - 1, scope_start[f] - 1, -1):
            stride[a] = sizes[f]
            sizes[f] *= cards[scope[a]] + 1
    return stride, sizes


@kernel
def _restrict(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, table_start, values, stride, among, start, first, second, scale,
    depends, weight,
):  # fmt: skip
    digits = np.zeros(64, np.int64)
    bits = np.empty(1)
    for k in range(len(among)):
        f = among[k]
        begin, arity = scope_start[f], scope_start[f + 1] - scope_start[f]
        digits[:arity] = 0
        for p in range(start[k], start[k + 1]):
            entry, axis = 0, -1
            for a in range(arity):
                card = cards[scope[begin + a]]
                entry = entry * card + digits[a]
                if digits[a] == card and axis < 0:
                    axis = a
            if axis < 0:
                first[p], second[p], depends[p] = np.uint64(1), np.uint64(1), 0
                scale[p] = values[table_start[f] + entry]
            else:  # what follows from each state of the first open variable comes before it
                card, step = cards[scope[begin + axis]], stride[begin + axis]
                top, around, same = -np.inf, np.int64(1) << axis, True
                q = p - card * step
                for x in range(card):
                    child = q + x * step
                    top = max(top, scale[child])
                    if scale[child] > -np.inf:
                        around |= depends[child]
                    same = same and first[child] == first[q] and second[child] == second[q]
                    same = same and scale[child] == scale[q]
                scale[p] = top
                if same or top == -np.inf:
                    first[p], second[p], depends[p] = first[q], second[q], depends[q]
                else:
                    one, two = mixed(np.uint64(axis)), mixed(np.uint64(axis + 1000))
                    for x in range(card):
                        child = q + x * step
                        if scale[child] == -np.inf:
                            one, two = mixed(one), mixed(two + np.uint64(7))
                            continue
                        bits[0] = scale[child] - top
                        word = bits.view(np.uint64)[0]
                        one = mixed(mixed(one ^ word) + first[child])
                        two = mixed(mixed(two + word) ^ second[child])
                    first[p], second[p], depends[p] = one, two, around
            left = depends[p]
            if left & (left - 1) != 0:
                weight[p] = 1.0
                while left != 0:
                    left &= left - 1
                    weight[p] *= 0.5
            a = arity - 1
            while a >= 0:
                digits[a] += 1
                if digits[a] <= cards[scope[begin + a]]:
                    break
                digits[a] = 0
                a -= 1
