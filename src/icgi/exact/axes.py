"""How an operand's axes lie within the clique of its node, and which children share their sums."""

import numpy as np

from icgi.kernels import kernel

BLOCK = 2048  # entries of a block: some tables of this size fit the caches of a processor
BRIEF, LONGEST = 256, 2**13  # a shorter block takes in one more axis, up to so many entries
HELD = 2**15  # entries of the sums of one block that are held for several states together
HALVES = 2  # of the largest cliques: always two, so that answers do not depend on the machine
MOST_AXES = 512  # of a clique; one of so many variables of two states fits no memory


@kernel
def strides_of(tree, node, o, strides):  # type: ignore[no-untyped-def]
    """Stride of operand `o` along every axis of a node's clique, 0 where it has none."""
    lead = 1 if tree.variable[node] >= 0 else 0
    low = tree.sep_start[node]
    m = tree.sep_start[node + 1] - low + lead
    b = tree.op_scope[o] + tree.op_arity[o] - 1
    step = 1
    for a in range(m - 1, -1, -1):
        t = tree.variable[node] if a < lead else tree.sep[low + a - lead]
        strides[a] = 0
        if b >= tree.op_scope[o] and tree.scopes[b] == t:
            strides[a] = step
            step *= tree.cards[t]
            b -= 1


@kernel
def dims_of(tree, node, dims):  # type: ignore[no-untyped-def]
    """Cardinalities of a clique's axes, the variable summed out first; returns their number."""
    m = 0
    if tree.variable[node] >= 0:
        dims[0] = tree.cards[tree.variable[node]]
        m = 1
    for a in range(tree.sep_start[node], tree.sep_start[node + 1]):
        dims[m] = tree.cards[tree.sep[a]]
        m += 1
    return m


@kernel
def merge(dims, strides, m, out_dims, out_strides):  # type: ignore[no-untyped-def]
    """Join neighbouring axes that one operand walks through evenly; returns how many are left."""
    k = 0
    for a in range(m):
        if dims[a] == 1:
            continue
        if k > 0 and (
            (strides[a] == 0 and out_strides[k - 1] == 0)
            or (strides[a] > 0 and out_strides[k - 1] == strides[a] * dims[a])
        ):
            out_dims[k - 1] *= dims[a]
            out_strides[k - 1] = strides[a]
        else:
            out_dims[k] = dims[a]
            out_strides[k] = strides[a]
            k += 1
    if k == 0:
        out_dims[0] = 1
        out_strides[0] = 0
        k = 1
    return k


_NO_CHILD, WIDEST = -2, -1


@kernel
def shares(tree, node):  # type: ignore[no-untyped-def]
    """Where each child's sums lie in the scratch of a swept node, one place for one separator.

    Children of the widest separator need none (`WIDEST`). Returns the places, the entries that are
    used, and the operand of the first widest child, −1 if there is no child.
    """
    begin = tree.op_start[node]
    ops = tree.op_start[node + 1] - begin
    place = np.full(ops, _NO_CHILD, np.int64)
    wide, used = -1, 0
    for k in range(ops):
        child = tree.op_child[begin + k]
        if child >= 0 and (wide < 0 or tree.size[child] > tree.size[tree.op_child[begin + wide]]):
            wide = k
    for k in range(ops):
        child = tree.op_child[begin + k]
        if child < 0:
            continue
        if same_scope(tree, begin + k, begin + wide):
            place[k] = WIDEST
            continue
        for q in range(k):
            if place[q] >= 0 and same_scope(tree, begin + k, begin + q):
                place[k] = place[q]
                break
        if place[k] < 0:
            place[k] = used
            used += tree.size[child]
    return place, used, wide


@kernel(forceinline=True)
def same_scope(tree, o, p):  # type: ignore[no-untyped-def]
    """Whether two operands are over the same variables."""
    if tree.op_arity[o] != tree.op_arity[p]:
        return False
    a, b = tree.op_scope[o], tree.op_scope[p]
    for i in range(tree.op_arity[o]):  # noqa: SIM110  (compiled)
        if tree.scopes[a + i] != tree.scopes[b + i]:
            return False
    return True
