"""Where the tables of a signed network meet: the bucket tree of an elimination order.

Variables are renamed by their elimination time. The node of variable t holds the clique
{t} ∪ separator(t), axes sorted by time, t slowest. Both messages of every separator are kept
(Shafer–Shenoy): with signs, a message may vanish where the product of all others does not, so
nothing is ever divided.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icgi.kernels import kernel
from icgi.model.graph import IntArray
from icgi.model.structure.collapse import Collapsed

CHUNK = 2**18  # clique entries with extra states that are held at once


class Tree(NamedTuple):
    """Flat description of all nodes; a plain tuple of arrays, because compiled code reads it."""

    cards: IntArray  # n    states of each variable, by time
    parent: IntArray  # n    −1 for a root
    sep_start: IntArray  # n+1  where a node's separator begins in `scopes`
    size: IntArray  # n    entries of the separator
    up: IntArray  # n    where the message to the parent begins in the store
    down: IntArray  # n    where the message from the parent begins
    op_start: IntArray  # n+1  where a node's operands begin: factors first, then children
    op_data: IntArray  # o    where an operand's table begins in the store
    op_scope: IntArray  # o    where its scope begins in `scopes`
    op_arity: IntArray  # o
    op_child: IntArray  # o    the child that sends it, −1 for a factor
    op_factor: IntArray  # o    the factor, −1 for a child
    scopes: IntArray  # sorted scopes of all factors, then all separators, as times


@dataclass(frozen=True, eq=False, slots=True)
class SignedPlan:
    """All that is known before a table is allocated."""

    tree: Tree
    time: IntArray  # n  elimination time of each variable
    permuted: IntArray  # e  scopes of all factors as times, in the order of their axes
    factor_data: IntArray  # f  where each factor's sorted table begins in the store
    store_entries: int
    scratch_entries: int  # most that one node of the downward pass holds
    extra_entries: int  # messages over extra states of one chunk
    work: float  # table entries touched by both passes and the collapsed variables

    @property
    def bytes_needed(self) -> int:
        """Tables held at once: value, rest and error bound of every entry."""
        return 24 * (self.store_entries + self.scratch_entries + self.extra_entries)


def plan_signed(collapsed: Collapsed, order: IntArray) -> SignedPlan:
    """Bucket tree of a collapsed model along an elimination order of its network."""
    net, links = collapsed.network, collapsed.links
    n = len(net.cards)
    time = np.empty(n, np.int64)
    time[order] = np.arange(n)
    permuted = time[net.scope]
    sorted_scopes = _sorted(net.scope_start, permuted)
    sizes = np.diff(net.table_start)
    cards = net.cards[order]
    tree, store = _assemble(cards, net.scope_start, sorted_scopes, sizes, net.table_start)
    tree = Tree(*tree)
    groups = time[n - len(links.extra_start) + 1 :]
    scratch, extra, work = _sizes(tree, groups, np.diff(links.extra_start))
    return SignedPlan(
        tree, time, permuted, net.table_start[:-1], int(store), int(scratch), int(extra),
        float(work),
    )  # fmt: skip


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
def _assemble(cards, scope_start, scopes, sizes, table_start):  # type: ignore[no-untyped-def]
    n, f = len(cards), len(sizes)
    head, follow = np.full(n, -1, np.int64), np.full(f, -1, np.int64)  # factors of each bucket
    for g in range(f - 1, -1, -1):
        if scope_start[g + 1] > scope_start[g]:
            t = scopes[scope_start[g]]
            follow[g] = head[t]
            head[t] = g
    child, sibling = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    parent, stamp = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    base = len(scopes)
    sep_start = np.full(n + 1, base, np.int64)
    held = np.empty(max(2 * base, 16) + n, np.int64)
    held[:base] = scopes
    size = np.ones(n, np.int64)
    op_start = np.zeros(n + 1, np.int64)
    op_data, op_scope = np.empty(f + n, np.int64), np.empty(f + n, np.int64)
    op_arity = np.empty(f + n, np.int64)
    op_child, op_factor = np.full(f + n, -1, np.int64), np.full(f + n, -1, np.int64)
    up, down = np.empty(n, np.int64), np.empty(n, np.int64)
    store = table_start[f]
    ops = 0
    for t in range(n):
        begin = sep_start[t]
        end = begin
        if begin + n - t > len(held):
            grown = np.empty(2 * len(held) + n, np.int64)
            grown[:begin] = held[:begin]
            held = grown
        stamp[t] = t
        g = head[t]
        while g >= 0:
            for a in range(scope_start[g], scope_start[g + 1]):
                if stamp[held[a]] != t:
                    stamp[held[a]] = t
                    held[end] = held[a]
                    end += 1
            op_data[ops], op_scope[ops] = table_start[g], scope_start[g]
            op_arity[ops], op_factor[ops] = scope_start[g + 1] - scope_start[g], g
            ops += 1
            g = follow[g]
        c = child[t]
        while c >= 0:
            for a in range(sep_start[c], sep_start[c + 1]):
                if stamp[held[a]] != t:
                    stamp[held[a]] = t
                    held[end] = held[a]
                    end += 1
            op_data[ops], op_scope[ops] = up[c], sep_start[c]
            op_arity[ops], op_child[ops] = sep_start[c + 1] - sep_start[c], c
            ops += 1
            c = sibling[c]
        held[begin:end] = np.sort(held[begin:end])
        sep_start[t + 1] = end
        op_start[t + 1] = ops
        entries = 1.0
        for a in range(begin, end):
            entries *= cards[held[a]]
        size[t] = int(min(entries, 2.0**60))
        up[t] = store
        down[t] = store + size[t] if entries < 2.0**50 else store
        store = min(down[t] + size[t], 2**61)
        if end > begin:
            parent[t] = held[begin]
            sibling[t] = child[held[begin]]
            child[held[begin]] = t
    return (
        cards, parent, sep_start, size, up, down, op_start, op_data[:ops], op_scope[:ops],
        op_arity[:ops], op_child[:ops], op_factor[:ops], held,
    ), store  # fmt: skip


@kernel
def _sizes(tree, groups, extra):  # type: ignore[no-untyped-def]
    """Scratch of the downward pass, store of extra states, and entries touched altogether."""
    n = len(tree.cards)
    scratch, most_extra, work = 1.0, 1.0, 0.0
    for t in range(n):
        entries = float(tree.size[t]) * tree.cards[t]
        ops = tree.op_start[t + 1] - tree.op_start[t]
        children = 0
        for o in range(tree.op_start[t], tree.op_start[t + 1]):
            if tree.op_child[o] >= 0:
                children += 1
        scratch = max(scratch, entries * (children + 3))
        work += entries * (2.0 * ops + 2.0 * children + 2.0)
    for g in range(len(groups)):
        if extra[g] == 0:
            continue
        held, largest = 0.0, 1.0
        for t in range(groups[g] + 1):
            if t == groups[g] or _has(tree, t, groups[g]):
                entries = float(tree.size[t]) * tree.cards[t] / tree.cards[groups[g]]
                held += float(tree.size[t]) / tree.cards[groups[g]]
                for o in range(tree.op_start[t], tree.op_start[t + 1]):
                    if tree.op_factor[o] >= 0 and tree.op_arity[o] <= 2:
                        last = tree.scopes[tree.op_scope[o] + tree.op_arity[o] - 1]
                        held += tree.cards[tree.scopes[tree.op_scope[o]]] + tree.cards[last]
                largest = max(largest, entries)
                work += extra[g] * entries * (tree.op_start[t + 1] - tree.op_start[t] + 1.0)
        chunk = min(float(extra[g]), max(1.0, CHUNK // largest))
        most_extra = max(most_extra, chunk * (held + largest))
    return min(scratch, 2.0**60), min(most_extra, 2.0**60), work


@kernel
def _has(tree, node, t):  # type: ignore[no-untyped-def]
    """Whether a node's separator contains time t."""
    low, high = tree.sep_start[node], tree.sep_start[node + 1]
    while low < high:
        middle = (low + high) // 2
        if tree.scopes[middle] < t:
            low = middle + 1
        else:
            high = middle
    return low < tree.sep_start[node + 1] and tree.scopes[low] == t
