"""What an elimination order costs: sizes of all cliques without forming the fill."""

import numpy as np

from icgi.kernels import kernel


@kernel
def clique_costs(start, neighbour, order, logs):  # type: ignore[no-untyped-def]
    """Sizes of all cliques by weighted column counts (Gilbert, Ng, Peyton 1994), nearly linear.

    Row i of the triangular factor is a subtree of the elimination tree. Its weight is added at the
    leaves of that subtree and taken off where two of its branches meet and above its root, so that
    sums over descendants give every column.
    """
    n = len(order)
    position, parent = _elimination_tree(start, neighbour, order)
    post = _postorder(parent, np.arange(n)[::-1])
    table = np.zeros(n)  # log₂ of the clique table
    count = np.zeros(n, np.int64)  # variables in the clique of more than one state
    first = np.full(n, -1, np.int64)  # postorder rank of the first descendant
    for k in range(n):
        p = post[k]
        if first[p] == -1:
            table[p] = logs[order[p]]
            count[p] = logs[order[p]] > 0
        while p != -1 and first[p] == -1:
            first[p] = k
            p = parent[p]
    ancestor = np.arange(n)
    latest = np.full(n, -1, np.int64)
    leaf = np.full(n, -1, np.int64)
    for k in range(n):
        p = post[k]
        i = order[p]
        if parent[p] != -1:
            table[parent[p]] -= logs[i]
            count[parent[p]] -= logs[i] > 0
        for e in range(start[i], start[i + 1]):
            j = neighbour[e]
            q = position[j]
            if q <= p or first[p] <= latest[q]:
                continue
            latest[q] = first[p]
            table[p] += logs[j]
            count[p] += logs[j] > 0
            previous = leaf[q]
            leaf[q] = p
            if previous == -1:
                continue
            meet = previous
            while meet != ancestor[meet]:
                meet = ancestor[meet]
            while previous != meet:
                above = ancestor[previous]
                ancestor[previous] = meet
                previous = above
            table[meet] -= logs[j]
            count[meet] -= logs[j] > 0
        if parent[p] != -1:
            ancestor[p] = parent[p]
    width, fill, largest, entries, messages = 0, 0, 0.0, -np.inf, 0.0
    for k in range(n):
        p = post[k]
        own = logs[order[p]]
        if parent[p] != -1:
            table[parent[p]] += table[p]
            count[parent[p]] += count[p]
        width = max(width, count[p] - (own > 0))
        fill += count[p]
        largest = max(largest, table[p])
        entries = log2_add(entries, table[p])
        messages += 2.0 ** (table[p] - own)
    return parent, table, fill, width, largest, entries, messages


@kernel
def _elimination_tree(start, neighbour, order):  # type: ignore[no-untyped-def]
    """Parent of each position: the first position that its clique still holds after it, or −1."""
    n = len(order)
    position = np.empty(n, np.int64)
    for p in range(n):
        position[order[p]] = p
    parent = np.full(n, -1, np.int64)
    ancestor = np.full(n, -1, np.int64)
    for p in range(n):
        i = order[p]
        for e in range(start[i], start[i + 1]):
            q = position[neighbour[e]]
            while q != -1 and q < p:
                above = ancestor[q]
                ancestor[q] = p
                if above == -1:
                    parent[q] = p
                q = above
    return position, parent


@kernel
def _postorder(parent, entered):  # type: ignore[no-untyped-def]
    """Postorder of a forest; among siblings, the last in the sequence `entered` comes first."""
    n = len(parent)
    child = np.full(n, -1, np.int64)
    sibling = np.full(n, -1, np.int64)
    for p in entered:
        if parent[p] >= 0:
            sibling[p] = child[parent[p]]
            child[parent[p]] = p
    post = np.empty(n, np.int64)
    stack = np.empty(n, np.int64)
    k = 0
    for root in range(n):
        if parent[root] >= 0:
            continue
        top = 0
        stack[0] = root
        while top >= 0:
            p = stack[top]
            c = child[p]
            if c >= 0:
                child[p] = sibling[c]
                top += 1
                stack[top] = c
            else:
                post[k] = p
                k += 1
                top -= 1
    return post


@kernel
def heavy_first(parent, table):  # type: ignore[no-untyped-def]
    """Postorder that enters the branch of the largest table first, while few messages wait."""
    heaviest = table.copy()
    for p in range(len(parent)):  # children come before parents in any elimination order
        if parent[p] >= 0:
            heaviest[parent[p]] = max(heaviest[parent[p]], heaviest[p])
    return _postorder(parent, np.argsort(heaviest, kind="mergesort"))


@kernel
def log2_add(a, b):  # type: ignore[no-untyped-def]
    """log₂(2^a + 2^b)."""
    if a < b:
        a, b = b, a
    if b < a - 60.0:
        return a
    return a + np.log2(1.0 + 2.0 ** (b - a))
