"""Extra states of a group's variable: which part of the tree sees them, and which look alike to it.

A message depends on the states of those stars alone whose leaves lie below it, so most extra states
look alike to most nodes; each node works on the classes that it can tell apart.
"""

import numpy as np

from icgi.kernels import kernel


@kernel
def extra_size(tree, group, count, scope_start, permuted, factor_start, high, low, chunk):  # type: ignore[no-untyped-def]
    """Entries of the largest chunk of messages over extra states, and entries touched in all."""
    nodes = inside(tree, group)
    most, work = 0.0, 0.0
    first = 0
    while first < count:
        here, needed = chunk_size(
            tree, group, nodes, first, count, scope_start, permuted, factor_start, high, low, chunk
        )
        most = max(most, needed)
        amount = classes(
            tree, group, nodes, first, here, count, scope_start, permuted, factor_start, high, low
        )[0]
        for r in range(len(nodes)):
            work += amount[r] * float(tree.entries[nodes[r]]) / tree.cards[group]
        first += here
    return most, work


@kernel
def chunk_size(  # type: ignore[no-untyped-def]
    tree, group, nodes, first, count, scope_start, permuted, factor_start, high, low, chunk
):
    """How many extra states can be handled together from `first` on, and the entries they need."""
    here = count - first
    while True:
        amount = classes(
            tree, group, nodes, first, here, count, scope_start, permuted, factor_start, high, low
        )[0]
        needed = 0.0
        for r in range(len(nodes)):
            needed += amount[r] * float(tree.entries[nodes[r]]) / tree.cards[group] + 16.0
        for r in range(len(nodes)):  # tables of factors over single states
            for c in range(tree.op_count[nodes[r]]):
                f = tree.op_factor[nodes[r], c]
                if f >= 0 and of_group(scope_start, permuted, factor_start, f, group):
                    needed += here * (factor_start[f + 1] - factor_start[f]) / count
        if needed <= chunk or here == 1:
            return here, needed
        here = max(1, min(here - 1, int(here * chunk / needed)))


@kernel
def inside(tree, group):  # type: ignore[no-untyped-def]
    """Nodes whose product holds a group's variable, operands before those who read them."""
    nodes, waiting = np.empty(len(tree.parent), np.int64), np.empty(len(tree.parent), np.int64)
    made, top = 0, 1
    waiting[0] = tree.final[group]
    while top > 0:
        top -= 1
        m = waiting[top]
        nodes[made] = m
        made += 1
        for c in range(tree.op_count[m]):
            q = tree.op_node[m, c]
            if q >= 0 and has(tree.scopes, tree.op_scope[m, c], tree.op_arity[m, c], group):
                waiting[top] = q
                top += 1
    return nodes[:made][::-1].copy()


@kernel
def has(scopes, begin, arity, t):  # type: ignore[no-untyped-def]
    """Whether a sorted scope contains time t."""
    low, high = begin, begin + arity
    while low < high:
        middle = (low + high) // 2
        if scopes[middle] < t:
            low = middle + 1
        else:
            high = middle
    return low < begin + arity and scopes[low] == t


@kernel
def classes(  # type: ignore[no-untyped-def]
    tree, group, nodes, first, here, count, scope_start, permuted, factor_start, high, low
):
    """Which extra states a node can tell apart.

    A message depends on the states of those stars alone whose leaves lie below it, so most extra
    states look alike to most nodes. Returns the number of classes of every node, the class of each
    state, and the classes of the two operands that make up each class; likewise of factors.
    """
    rows = len(nodes)
    number = np.full(len(tree.parent), -1, np.int64)
    for r in range(rows):
        number[nodes[r]] = r
    amount = np.ones(rows, np.int64)
    of_state = np.zeros((rows, here), np.int64)
    parts = np.zeros((rows, here, 2), np.int64)
    factor_class = np.zeros((rows, 2, here), np.int64)
    factor_first = np.zeros((rows, 2, here), np.int64)  # a state that stands for each class
    mine = np.zeros((2, here), np.int64)
    for r in range(rows):
        m = nodes[r]
        amounts_b = 1
        for c in range(2):
            mine[c] = 0
            if c >= tree.op_count[m]:
                continue
            q, f = tree.op_node[m, c], tree.op_factor[m, c]
            if q >= 0 and number[q] >= 0:
                mine[c] = of_state[number[q]]
                total = amount[number[q]]
            elif f >= 0 and of_group(scope_start, permuted, factor_start, f, group):
                total = _columns(
                    first, here, count, factor_start, f, high, low, factor_class[r, c],
                    factor_first[r, c],
                )  # fmt: skip
                mine[c] = factor_class[r, c]
            else:
                total = 1
            if c == 1:
                amounts_b = total
        seen = np.full((mine[0].max() + 1) * amounts_b, -1, np.int64)
        made = 0
        for s in range(here):
            key = mine[0, s] * amounts_b + mine[1, s]
            if seen[key] < 0:
                seen[key] = made
                parts[r, made, 0], parts[r, made, 1] = mine[0, s], mine[1, s]
                made += 1
            of_state[r, s] = seen[key]
        amount[r] = made
    return amount, of_state, parts, factor_class, factor_first


@kernel
def of_group(scope_start, permuted, factor_start, f, group):  # type: ignore[no-untyped-def]
    """Whether a factor has a table over the extra states of this group: its last axis then."""
    return factor_start[f + 1] > factor_start[f] and permuted[scope_start[f + 1] - 1] == group


@kernel
def _columns(first, here, count, factor_start, f, high, low, of_state, stands):  # type: ignore[no-untyped-def]
    """Equal columns of a factor's table over extra states."""
    source = factor_start[f]
    card = (factor_start[f + 1] - source) // count
    made = 0
    for s in range(here):
        of_state[s] = -1
        for k in range(made):
            same = True
            for x in range(card):
                p, q = source + x * count + first + s, source + x * count + first + stands[k]
                same = same and high[p] == high[q] and low[p] == low[q]
            if same:
                of_state[s] = k
                break
        if of_state[s] < 0:
            of_state[s] = made
            stands[made] = s
            made += 1
    return made
