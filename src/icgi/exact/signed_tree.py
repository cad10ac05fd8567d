"""Where the tables of a signed network meet: a binary tree along an elimination order.

Variables are renamed by their elimination time. All tables with variable t as their earliest are
multiplied two at a time, smallest first, and the last product is summed over t; so each node has at
most two operands, and axes sorted by time, t slowest. Both messages of every edge are kept
(Shafer–Shenoy): with signs, a message may vanish where the product of all others does not, so
nothing is ever divided. In a binary tree this costs no more than dividing would.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icgi.exact.signed_classes import extra_size
from icgi.kernels import kernel
from icgi.model.graph import IntArray
from icgi.model.structure.collapse import Collapsed

CHUNK = 2**20  # entries over extra states that are held at once, or what one state needs
SEARCHED = 1000  # operands of a bucket up to which the best partner of the smallest is looked for


class Tree(NamedTuple):
    """Flat description of all nodes; a plain tuple of arrays, because compiled code reads it."""

    cards: IntArray  # n    states of each variable, by time
    final: IntArray  # n    node that sums a variable out
    variable: IntArray  # m    time of the variable that a node sums out, −1 for a mere product
    parent: IntArray  # m    −1 for a root
    scope: IntArray  # m    where a node's scope begins in `scopes`, its variable included
    arity: IntArray  # m
    entries: IntArray  # m    entries over that scope
    up: IntArray  # m    where the message to the parent begins in the store
    down: IntArray  # m    where the message from the parent begins
    op_count: IntArray  # m    0, 1 or 2
    op_data: IntArray  # m 2  where an operand's table begins in the store
    op_scope: IntArray  # m 2  where its scope begins in `scopes`
    op_arity: IntArray  # m 2
    op_node: IntArray  # m 2  the node that sends it, −1 for a factor
    op_factor: IntArray  # m 2  the factor, −1 for a node
    scopes: IntArray  # sorted scopes of all factors, then of all nodes, as times


@dataclass(frozen=True, eq=False, slots=True)
class SignedPlan:
    """All that is known before a table is allocated."""

    tree: Tree
    time: IntArray  # n  elimination time of each variable
    permuted: IntArray  # e  scopes of all factors as times, in the order of their axes
    store_entries: int  # factors and both messages of every edge
    scratch_entries: int  # entries of the largest node
    extra_entries: int  # messages over extra states of one chunk
    chunk: int  # entries that such messages may have
    work: float  # table entries touched by both passes and for the collapsed variables

    @property
    def bytes_needed(self) -> int:
        """Tables held at once: value, rest and error bound of every entry."""
        return 24 * (self.store_entries + 2 * self.scratch_entries + self.extra_entries)


def plan_signed(collapsed: Collapsed, order: IntArray) -> SignedPlan:
    """Binary tree of a collapsed model along an elimination order of its network."""
    net, links = collapsed.network, collapsed.links
    n = len(net.cards)
    time = np.empty(n, np.int64)
    time[order] = np.arange(n)
    permuted = time[net.scope]
    scopes = _sorted(net.scope_start, permuted)
    built, store = _assemble(net.cards[order], net.scope_start, scopes, net.table_start)
    tree = Tree(*built)
    largest = int(tree.entries.max(initial=1))
    groups = time[collapsed.model.n_variables :]
    chunk = max(CHUNK, 4 * largest)
    extra, work = 0, 7.0 * float(tree.entries.sum(dtype=np.float64))
    for g, (first, last) in enumerate(
        zip(links.extra_start[:-1].tolist(), links.extra_start[1:].tolist(), strict=True)
    ):
        if last > first and store < 2**40:
            needed, touched = extra_size(
                tree, groups[g], last - first, net.scope_start, permuted, links.factor_start,
                links.high, links.low, chunk,
            )  # fmt: skip
            extra, work = max(extra, needed), work + 3.0 * touched
    return SignedPlan(tree, time, permuted, int(store), largest, int(extra), chunk, work)


@kernel
def _sorted(scope_start, permuted):  # type: ignore[no-untyped-def]
    out = permuted.copy()
    for f in range(len(scope_start) - 1):
        begin, end = scope_start[f], scope_start[f + 1]
        if end - begin == 2:
            if out[begin] > out[begin + 1]:
                out[begin], out[begin + 1] = out[begin + 1], out[begin]
        elif end - begin > 2:
            out[begin:end] = np.sort(out[begin:end])
    return out


@kernel
def _union(scopes, a, na, b, nb, cards):  # type: ignore[no-untyped-def]
    """Entries over the union of two sorted scopes."""
    entries, i, j = 1.0, 0, 0
    while i < na or j < nb:
        if j == nb or (i < na and scopes[a + i] < scopes[b + j]):
            entries *= cards[scopes[a + i]]
            i += 1
        elif i == na or scopes[b + j] < scopes[a + i]:
            entries *= cards[scopes[b + j]]
            j += 1
        else:
            entries *= cards[scopes[a + i]]
            i += 1
            j += 1
    return entries


@kernel
def _assemble(cards, scope_start, scopes, table_start):  # type: ignore[no-untyped-def]
    n, f = len(cards), len(scope_start) - 1
    # Items are factors 0..f−1 and nodes f, f+1, …; those of a bucket are linked lists.
    room = 2 * n + f + 1
    head, follow = np.full(n, -1, np.int64), np.full(f + room, -1, np.int64)
    for g in range(f - 1, -1, -1):
        if scope_start[g + 1] > scope_start[g]:
            t = scopes[scope_start[g]]
            follow[g] = head[t]
            head[t] = g
    base = len(scopes)
    held = np.empty(max(4 * base, 16) + 2 * n, np.int64)
    held[:base] = scopes
    final, variable = np.empty(n, np.int64), np.full(room, -1, np.int64)
    parent, scope = np.full(room, -1, np.int64), np.empty(room, np.int64)
    arity, entries = np.zeros(room, np.int64), np.empty(room, np.int64)
    up, down = np.empty(room, np.int64), np.empty(room, np.int64)
    op_count = np.zeros(room, np.int64)
    op_data, op_scope = np.zeros((room, 2), np.int64), np.zeros((room, 2), np.int64)
    op_arity = np.zeros((room, 2), np.int64)
    op_node, op_factor = np.full((room, 2), -1, np.int64), np.full((room, 2), -1, np.int64)
    items, size = np.empty(f + room, np.int64), np.empty(f + room)
    store = table_start[f]
    made, filled = 0, base
    for t in range(n):
        count = 0
        q = head[t]
        while q >= 0:
            items[count] = q
            begin, length = _scope_of(q, f, scope_start, scope, arity, variable)
            size[count] = _union(held, begin, length, begin, 0, cards)
            count += 1
            q = follow[q]
        while True:
            # Merge the smallest item with the one that gives the smallest product.
            i, j = 0, 1
            if count > 2:
                for c in range(count):
                    if size[c] < size[i]:
                        i = c
                a, na = _scope_of(items[i], f, scope_start, scope, arity, variable)
                best = np.inf
                for c in range(count):
                    if c == i:
                        continue
                    b, nb = _scope_of(items[c], f, scope_start, scope, arity, variable)
                    joint = _union(held, a, na, b, nb, cards) + 1e-3 * size[c]
                    if joint < best:
                        best, j = joint, c
                    if count > SEARCHED and size[c] <= 4.0 * size[i]:
                        break
            m = made
            made += 1
            ops = min(count, 2)
            op_count[m] = ops
            scope[m] = filled
            if filled + n + 1 > len(held):
                grown = np.empty(2 * len(held) + n + 1, np.int64)
                grown[:filled] = held[:filled]
                held = grown
            a = b = na = nb = 0
            for c in range(ops):
                q = items[i if c == 0 else j]
                begin, length = _scope_of(q, f, scope_start, scope, arity, variable)
                op_scope[m, c], op_arity[m, c] = begin, length
                if q < f:
                    op_data[m, c], op_factor[m, c] = table_start[q], q
                else:
                    op_data[m, c], op_node[m, c] = up[q - f], q - f
                    parent[q - f] = m
                if c == 0:
                    a, na = begin, length
                else:
                    b, nb = begin, length
            total = 1.0
            if ops == 0:
                held[filled] = t
                filled += 1
                total = float(cards[t])
            x = y = 0
            while x < na or y < nb:
                if y == nb or (x < na and held[a + x] <= held[b + y]):
                    if y < nb and held[a + x] == held[b + y]:
                        y += 1
                    held[filled] = held[a + x]
                    x += 1
                else:
                    held[filled] = held[b + y]
                    y += 1
                total *= cards[held[filled]]
                filled += 1
            arity[m] = filled - scope[m]
            last = count <= 2
            variable[m] = t if last else -1
            kept = total / cards[t] if last else total
            entries[m] = int(min(total, 2.0**60))
            up[m] = store
            down[m] = store + int(kept) if kept < 2.0**50 else store
            store = down[m] + int(kept) if kept < 2.0**50 else 2**60
            if last:
                final[t] = m
                if arity[m] > 1:
                    p = held[scope[m] + 1]
                    follow[f + m] = head[p]
                    head[p] = f + m
                break
            items[min(i, j)], size[min(i, j)] = f + m, total
            count -= 1
            items[max(i, j)], size[max(i, j)] = items[count], size[count]
    return (
        cards, final, variable[:made], parent[:made], scope[:made], arity[:made], entries[:made],
        up[:made], down[:made], op_count[:made], op_data[:made], op_scope[:made], op_arity[:made],
        op_node[:made], op_factor[:made], held,
    ), store  # fmt: skip


@kernel
def _scope_of(q, f, scope_start, scope, arity, variable):  # type: ignore[no-untyped-def]
    """Where the scope of an item's message begins, and how long it is."""
    if q < f:
        return scope_start[q], scope_start[q + 1] - scope_start[q]
    lead = 1 if variable[q - f] >= 0 else 0
    return scope[q - f] + lead, arity[q - f] - lead
