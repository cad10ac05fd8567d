"""The bucket tree of an elimination order: which tables meet where, laid out for the kernels.

Variables are renamed by their elimination time. The node of variable t holds the clique
{t} ∪ separator(t) with axes sorted by time, t itself slowest: summing t out is then an addition of
contiguous halves, and every message is a subsequence of its parent's axes. Only messages
(separator tables) are ever stored, never cliques.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from icgi.exact.axes import HALVES, HELD, LONGEST, shares
from icgi.exact.contractions import pair_scratch
from icgi.kernels import brief, kernel
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray
from icgi.model.wiring import wiring

GROUP = 4096  # entries up to which small operands of a large clique are multiplied together first
SHORT = 24  # numbers up to which they are sorted by insertion
PAIRED = 2**10  # entries of a clique from which it may be contracted
PAIR_SHARE = 4  # times that both of its tables are smaller, at the least
# Nanoseconds of both passes for an entry of a clique: contracted, besides what short runs add;
# swept, besides what each operand adds.
PAIR, PAIR_RUN = 0.5, 6.0
SWEEP, SWEEP_EACH = 0.6, 0.7
LARGE = 2**14  # cliques above this many entries are swept in blocks, never formed


class Tree(NamedTuple):
    """Flat description of all nodes; a plain tuple of arrays, because compiled code reads it."""

    cards: IntArray  # n    states of each variable, by elimination time
    nodes: IntArray  # m    nodes, children before parents
    variable: IntArray  # m    time of the variable a node sums out, −1 for a grouping node
    sep_start: IntArray  # m+1  where a node's separator begins in `sep`
    sep: IntArray  # times, ascending
    size: IntArray  # m    entries of the separator
    clique: IntArray  # m    entries of the clique
    paired: BoolArray  # m    whether it is a product of two smaller tables (`contractions`)
    message: IntArray  # m    where a node's message begins in the store
    op_start: IntArray  # m+1  where a node's operands begin
    op_data: IntArray  # o    where an operand's table begins in the store
    op_scope: IntArray  # o    where its scope begins in `scopes`
    op_arity: IntArray  # o
    op_child: IntArray  # o    the child node that sends it, −1 for a factor
    scopes: IntArray  # sorted scopes of all operands, as times
    axis_start: IntArray  # o+1  where an operand's axes within its clique begin, those that it
    axis_dim: IntArray  # walks through evenly joined: their entries
    axis_step: IntArray  # and its stride along them, 0 where it has none


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """All that is known before a single table is allocated."""

    tree: Tree
    time: IntArray  # n  elimination time of each variable
    factor_data: IntArray  # f  where each factor's sorted table goes in the store
    store_entries: int  # factor tables and messages
    scratch_entries: int  # largest set of sums that one node of the distribute pass needs
    sweep_entries: int  # what the halves of a sweep hold besides
    formed_entries: int  # largest clique that is formed
    clique_entries: float  # sum of all clique tables: the work of one pass
    largest_clique: int


def plan(model: FactorGraph, order: IntArray) -> Plan:
    """Bucket tree of a model for an elimination order."""
    w = wiring(model)
    with brief(300.0 * (len(w.scope) + model.n_variables)):
        time, factor_data, filled, *arrays = _plan(
            model.cards, np.asarray(order), w.scope_start, w.scope, w.table_start
        )
        tree = Tree(*arrays)
        scratch, room, formed, total, largest = _needs(tree)
    store = int(filled + tree.size.sum())
    entries = store, int(scratch), int(room), int(formed), float(total), int(largest)
    return Plan(tree, time, factor_data, *entries)


def fill_store(model: FactorGraph, plan: Plan, log: bool) -> tuple[FloatArray, float]:
    """Store with every factor's table, axes sorted by time, largest entry 1; and Σ log scales."""
    w = wiring(model)
    store = np.empty(plan.store_entries)
    with brief(20 * len(w.values)):
        shift = load_tables(
            model.cards, plan.time, w.scope_start, w.scope, w.table_start, w.values,
            plan.factor_data, store, True,
        )  # fmt: skip
    if not log:
        tables = store[: len(w.values)]
        np.exp(tables, out=tables)  # several at a time, which compiled loops do not
    return store, float(shift)


@kernel
def _plan(cards, order, scope_start, scope, table_start):  # type: ignore[no-untyped-def]
    n = len(cards)
    time = np.empty(n, np.int64)
    for t in range(n):
        time[order[t]] = t
    scopes = time[scope]
    _sort_scopes(scope_start, scopes)
    by_time = cards[order]
    sizes = table_start[1:] - table_start[:-1]
    variable, parent, sep_start, sep = _separators(n, scope_start, scopes)
    built = _assemble(by_time, scope_start, scopes, sizes, variable, parent, sep_start, sep)
    nodes, variable, sep_start, sep, size, clique, paired, message, op_start = built[:9]
    op_data, op_scope, op_arity, op_child, scopes, factor_data = built[9:]
    axes = _axes(
        by_time, variable, sep_start, sep, size, clique, paired, op_start, op_scope, op_arity,
        scopes,
    )  # fmt: skip
    return (
        time, factor_data, table_start[-1], by_time, nodes, variable, sep_start,
        sep.astype(np.int32), size, clique, paired, message, op_start, op_data, op_scope,
        op_arity, op_child, scopes.astype(np.int32), *axes,
    )  # fmt: skip


@kernel
def _sort_scopes(scope_start: Any, scopes: Any) -> None:
    for f in range(len(scope_start) - 1):
        _sort(scopes, scope_start[f], scope_start[f + 1])


@kernel
def _sort(values: Any, begin: Any, end: Any) -> None:
    """Sort a part of an array in place; by insertion where it is short, as it mostly is."""
    if end - begin > SHORT:
        values[begin:end] = np.sort(values[begin:end])
        return
    for k in range(begin + 1, end):
        value = values[k]
        at = k
        while at > begin and values[at - 1] > value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value


@kernel
def _separators(n: Any, scope_start: Any, scopes: Any) -> Any:
    """Separator of every bucket: union of its factors' and children's scopes without itself."""
    f = len(scope_start) - 1
    head = np.full(n, -1, np.int64)  # factors of each bucket, as linked lists
    follow = np.full(f, -1, np.int64)
    for g in range(f - 1, -1, -1):
        if scope_start[g + 1] > scope_start[g]:
            t = scopes[scope_start[g]]
            follow[g] = head[t]
            head[t] = g
    child = np.full(n, -1, np.int64)
    sibling = np.full(n, -1, np.int64)
    parent = np.full(n, -1, np.int64)
    sep_start = np.zeros(n + 1, np.int64)
    sep = np.empty(max(16, 4 * len(scopes)), np.int64)
    stamp = np.full(n, -1, np.int64)
    for t in range(n):
        begin = sep_start[t]
        end = begin
        if begin + n - t > len(sep):
            grown = np.empty(2 * len(sep) + n, np.int64)
            grown[:begin] = sep[:begin]
            sep = grown
        stamp[t] = t
        g = head[t]
        while g >= 0:
            for a in range(scope_start[g], scope_start[g + 1]):
                if stamp[scopes[a]] != t:
                    stamp[scopes[a]] = t
                    sep[end] = scopes[a]
                    end += 1
            g = follow[g]
        c = child[t]
        while c >= 0:
            for a in range(sep_start[c], sep_start[c + 1]):
                if stamp[sep[a]] != t:
                    stamp[sep[a]] = t
                    sep[end] = sep[a]
                    end += 1
            c = sibling[c]
        _sort(sep, begin, end)
        sep_start[t + 1] = end
        if end > begin:
            parent[t] = sep[begin]
            sibling[t] = child[parent[t]]
            child[parent[t]] = t
    return np.arange(n), parent, sep_start, sep[: sep_start[n]].copy()


@kernel
def _assemble(  # type: ignore[no-untyped-def]
    cards, scope_start, scopes, sizes, variable, parent, sep_start, sep
):
    """Operands of every node; small operands of a large clique get a grouping node of their own."""
    n, f = len(cards), len(sizes)
    size = np.ones(n, np.int64)
    for t in range(n):
        for a in range(sep_start[t], sep_start[t + 1]):
            size[t] *= cards[sep[a]]
    # operands: factors 0..f-1 then messages of buckets f..f+n-1, then of grouping nodes
    limit = f + n
    home = np.full(limit, -1, np.int64)  # the bucket each operand belongs to
    for g in range(f):
        if scope_start[g + 1] > scope_start[g]:
            home[g] = scopes[scope_start[g]]
    for t in range(n):
        home[f + t] = parent[t]
    count = np.zeros(n + 1, np.int64)
    for o in range(limit):
        if home[o] >= 0:
            count[home[o] + 1] += 1
    start = np.cumsum(count)
    members = np.empty(start[n], np.int64)
    place = start[:-1].copy()
    for o in range(limit):
        if home[o] >= 0:
            members[place[home[o]]] = o
            place[home[o]] += 1

    # every operand is in at most one group, so there are at most len(members) // 2 groups
    most = n + len(members) // 2 + 1
    total_scope = len(scopes) + len(sep)
    out_variable = np.full(most, -1, np.int64)
    out_size = np.empty(most, np.int64)
    out_clique = np.empty(most, np.int64)
    out_paired = np.zeros(most, np.bool_)
    out_sep_start = np.zeros(most + 1, np.int64)
    out_sep = np.empty(len(sep) + total_scope, np.int64)
    nodes = np.empty(most, np.int64)
    op_start = np.zeros(most + 1, np.int64)
    op_most = len(members) + most
    op_data = np.empty(op_most, np.int64)
    op_scope = np.empty(op_most, np.int64)
    op_arity = np.empty(op_most, np.int64)
    op_child = np.empty(op_most, np.int64)
    all_scopes = np.empty(total_scope + len(out_sep), np.int64)
    factor_data = np.zeros(f, np.int64)

    filled = 0
    for g in range(f):
        factor_data[g] = filled
        filled += sizes[g]
    all_scopes[: len(scopes)] = scopes
    written = len(scopes)
    message = np.empty(most, np.int64)
    node_of = np.empty(n, np.int64)  # node number of each bucket
    made = 0
    ops = 0
    stamp = np.full(n, -1, np.int64)
    label = 0
    group_of = np.full(len(members), -1, np.int64)  # group of each operand within its clique
    scope_at = np.empty(limit, np.int64)
    for g in range(f):
        scope_at[g] = scope_start[g]

    for t in range(n):
        clique = size[t] * cards[t]
        begin, end = start[t], start[t + 1]
        groups = 0
        paired = False
        if clique >= PAIRED and end - begin > 1:
            paired, groups = _pair(
                members[begin:end], group_of[begin:end], cards, t,
                sep[sep_start[t] : sep_start[t + 1]], clique, f, sizes, size, scope_start, scopes,
                sep_start, sep,
            )  # fmt: skip
        if clique > LARGE and end - begin > 2 and not paired:
            # greedy: open a group with the first small operand left, add what keeps it small
            bound = min(GROUP, clique // 16)
            grouped = np.zeros(end - begin, np.bool_)
            for a in range(begin, end):
                o = members[a]
                operand = sizes[o] if o < f else size[o - f]
                if grouped[a - begin] or operand > bound:
                    continue
                label += 1
                product = 1
                joined = 0
                for b in range(a, end):
                    q = members[b]
                    if grouped[b - begin]:
                        continue
                    if (sizes[q] if q < f else size[q - f]) > bound:
                        continue
                    grown = product
                    lo = scope_start[q] if q < f else sep_start[q - f]
                    hi = scope_start[q + 1] if q < f else sep_start[q - f + 1]
                    source = scopes if q < f else sep
                    for c in range(lo, hi):
                        if stamp[source[c]] != label:
                            grown *= cards[source[c]]
                    if grown <= bound:
                        for c in range(lo, hi):
                            stamp[source[c]] = label
                        product = grown
                        grouped[b - begin] = True
                        group_of[b] = groups
                        joined += 1
                if joined == 1:
                    for b in range(a, end):
                        if group_of[b] == groups:
                            group_of[b] = -2  # stays an operand of the clique itself
                elif joined > 1:
                    groups += 1

        first_group = made
        for g in range(groups):
            node = made
            made += 1
            nodes[node] = node
            out_variable[node] = -1
            label += 1
            low = out_sep_start[node]
            high = low
            for b in range(begin, end):
                if group_of[b] != g:
                    continue
                q = members[b]
                ops = _operand(
                    q, f, scope_start, sep_start, factor_data, scope_at, node_of, message,
                    ops, op_data, op_scope, op_arity, op_child,
                )  # fmt: skip
                for c in range(op_scope[ops - 1], op_scope[ops - 1] + op_arity[ops - 1]):
                    if stamp[all_scopes[c]] != label:
                        stamp[all_scopes[c]] = label
                        out_sep[high] = all_scopes[c]
                        high += 1
            _sort(out_sep, low, high)
            out_sep_start[node + 1] = high
            entries = 1
            for c in range(low, high):
                entries *= cards[out_sep[c]]
            out_size[node] = entries
            out_clique[node] = entries
            message[node] = filled
            filled += entries
            op_start[node + 1] = ops

        node = made
        made += 1
        nodes[node] = node
        node_of[t] = node
        out_variable[node] = variable[t]
        low = out_sep_start[node]
        width = sep_start[t + 1] - sep_start[t]
        out_sep[low : low + width] = sep[sep_start[t] : sep_start[t + 1]]
        out_sep_start[node + 1] = low + width
        out_size[node] = size[t]
        out_clique[node] = clique
        out_paired[node] = paired
        message[node] = filled
        filled += size[t]
        for b in range(begin, end):
            if group_of[b] >= 0:
                continue
            ops = _operand(
                members[b], f, scope_start, sep_start, factor_data, scope_at, node_of, message,
                ops, op_data, op_scope, op_arity, op_child,
            )  # fmt: skip
        for g in range(first_group, first_group + groups):
            op_data[ops] = message[g]
            op_scope[ops] = written
            op_arity[ops] = out_sep_start[g + 1] - out_sep_start[g]
            op_child[ops] = g
            all_scopes[written : written + op_arity[ops]] = out_sep[
                out_sep_start[g] : out_sep_start[g + 1]
            ]
            written += op_arity[ops]
            ops += 1
        op_start[node + 1] = ops
        # the separator is the scope of this node's message at its parent
        scope_at[f + t] = written
        all_scopes[written : written + width] = sep[sep_start[t] : sep_start[t + 1]]
        written += width
    return (
        nodes[:made], out_variable[:made], out_sep_start[: made + 1], out_sep, out_size[:made],
        out_clique[:made], out_paired[:made], message[:made], op_start[: made + 1], op_data[:ops],
        op_scope[:ops], op_arity[:ops], op_child[:ops], all_scopes[:written], factor_data,
    )  # fmt: skip


@kernel
def _pair(  # type: ignore[no-untyped-def]
    members, group_of, cards, t, outer, clique, f, sizes, size, scope_start, scopes, sep_start, sep
):
    """Whether the operands of a clique are better multiplied into two tables, that are contracted.

    Returns that and the number of tables with a node of their own; `group_of` says which operand
    belongs to which of them, −2 for one that is such a table alone. Tried are two greedy divisions,
    where operands join, largest first, the table that grows least, and all those that give the
    second table what has none of the slowest axes: its own axes are then the fastest, in long runs.
    """
    count, m = len(members), len(outer)
    if m > 62:
        return False, 0
    entries = np.empty(count, np.int64)
    axes = np.zeros(count, np.int64)  # of each operand, as bits; all of them have that of t
    for k in range(count):
        o = members[k]
        entries[k] = sizes[o] if o < f else size[o - f]
        if PAIR_SHARE * entries[k] > clique:
            return False, 0
        low = scope_start[o] if o < f else sep_start[o - f]
        high = scope_start[o + 1] if o < f else sep_start[o - f + 1]
        at = 0
        for b in range(low, high):
            v = scopes[b] if o < f else sep[b]
            if v != t:
                while outer[at] != v:
                    at += 1
                axes[k] |= 1 << at
    ranked = np.argsort(-entries)
    side, best_side = np.zeros(count, np.int64), np.zeros(count, np.int64)
    large = 0
    for k in range(count):
        large += entries[k] > min(GROUP, clique // 16)
    # small ones are multiplied into a few tables before a sweep
    best = clique * (SWEEP + SWEEP_EACH * min(large + 2, count))
    found = False
    for c in range(-1, m):
        one, two, ones, twos = 0, 0, 0, 0
        for k in ranked:
            if c > 0:
                into = 1 if axes[k] != 0 and axes[k] & ((1 << c) - 1) == 0 else 0
            else:
                joined = 1.0 if c < 0 else 3.0
                a, b = _table(one, cards, t, outer), _table(two, cards, t, outer)
                a_with = _table(one | axes[k], cards, t, outer)
                b_with = _table(two | axes[k], cards, t, outer)
                cost_one = a_with * (joined if ones > 0 else 1.0) - a * (
                    joined if ones > 1 else 1.0
                )
                cost_two = b_with * (joined if twos > 0 else 1.0) - b * (
                    joined if twos > 1 else 1.0
                )
                into = 1 if ones > 0 and cost_two < cost_one else 0
            side[k] = into
            if into == 0:
                one |= axes[k]
                ones += 1
            else:
                two |= axes[k]
                twos += 1
        if ones == 0 or twos == 0:
            continue
        a, b = _table(one, cards, t, outer), _table(two, cards, t, outer)
        if PAIR_SHARE * max(a, b) > clique:
            continue
        run = 1  # entries of the fastest axes that belong to the same tables
        for v in range(m - 1, -1, -1):
            if (one >> v) & 1 != (one >> (m - 1)) & 1 or (two >> v) & 1 != (two >> (m - 1)) & 1:
                break
            run *= cards[outer[v]]
        cost = clique * (PAIR + PAIR_RUN / run)
        cost += a * (1.0 if ones == 1 else 1.0 + 2.0 * ones)
        cost += b * (1.0 if twos == 1 else 1.0 + 2.0 * twos)
        if cost < best:
            best, found = cost, True
            best_side[:] = side
    if not found:
        return False, 0
    groups = 0
    for h in range(2):
        several = np.sum(best_side == h) > 1
        for k in range(count):
            if best_side[k] == h:
                group_of[k] = groups if several else -2
        groups += several
    return True, groups


@kernel
def _table(axes, cards, t, outer):  # type: ignore[no-untyped-def]
    """Entries of a table over some axes of a clique, given as bits, and that of t."""
    entries = float(cards[t])
    for v in range(len(outer)):
        if (axes >> v) & 1:
            entries *= cards[outer[v]]
    return entries


@kernel
def _operand(  # type: ignore[no-untyped-def]
    q, f, scope_start, sep_start, factor_data, scope_at, node_of, message,
    ops, op_data, op_scope, op_arity, op_child,
):  # fmt: skip
    op_scope[ops] = scope_at[q]
    if q < f:
        op_data[ops] = factor_data[q]
        op_arity[ops] = scope_start[q + 1] - scope_start[q]
        op_child[ops] = -1
    else:
        op_data[ops] = message[node_of[q - f]]
        op_arity[ops] = sep_start[q - f + 1] - sep_start[q - f]
        op_child[ops] = node_of[q - f]
    return ops + 1


@kernel
def swept(tree, node):  # type: ignore[no-untyped-def]
    """Whether a clique is swept in blocks; lone variables of many states and groups are not."""
    return (
        tree.clique[node] > LARGE
        and tree.size[node] > 1
        and tree.variable[node] >= 0
        and not tree.paired[node]
    )


@kernel
def _needs(tree):  # type: ignore[no-untyped-def]
    """Entries of scratch, of what sweeps hold, of the largest formed clique, of all cliques."""
    scratch, room, formed, total, largest = 0, 0, 1, 0.0, 1
    for node in range(len(tree.nodes)):
        total += tree.clique[node]
        largest = max(largest, tree.clique[node])
        if tree.paired[node]:
            scratch = max(scratch, pair_scratch(tree, node))
            continue
        if swept(tree, node):
            scratch = max(scratch, shares(tree, node)[1])
            last = tree.cards[tree.sep[tree.sep_start[node + 1] - 1]]
            length = max(last, LONGEST)
            held = max(HELD, length)
            ops = tree.op_start[node + 1] - tree.op_start[node]
            room = max(room, held + length * (3 + ops // 2 + 1))
            continue
        formed = max(formed, tree.clique[node])
        for o in range(tree.op_start[node], tree.op_start[node + 1]):
            if tree.op_child[o] >= 0:
                scratch = max(scratch, tree.size[tree.op_child[o]])
    return scratch, HALVES * room, formed, total, largest


@kernel
def _axes(  # type: ignore[no-untyped-def]
    cards, variable, sep_start, sep, size, clique, paired, op_start, op_scope, op_arity, scopes
):
    """Axes of the operands of cliques that are formed, neighbouring ones joined where possible."""
    start = np.zeros(op_start[-1] + 1, np.int32)
    most = 16
    for node in range(len(op_start) - 1):
        m = sep_start[node + 1] - sep_start[node] + 1
        for o in range(op_start[node], op_start[node + 1]):
            most += min(m, 2 * op_arity[o] + 1)  # joined axes are the operand's, and gaps
    dim, step = np.empty(most, np.int32), np.empty(most, np.int32)
    k = 0
    for node in range(len(op_start) - 1):
        low = sep_start[node]
        m = sep_start[node + 1] - low
        own = variable[node] >= 0
        for o in range(op_start[node], op_start[node + 1]):
            start[o + 1] = k
            if paired[node] or (own and clique[node] > LARGE and size[node] > 1):
                continue  # contracted or swept
            first = k
            stride = 1
            for a in range(op_scope[o], op_scope[o] + op_arity[o]):
                stride *= cards[scopes[a]]
            b = op_scope[o]
            for a in range(-1 if own else 0, m):
                t = variable[node] if a < 0 else sep[low + a]
                has = b < op_scope[o] + op_arity[o] and scopes[b] == t
                if has:
                    stride //= cards[t]
                    b += 1
                if cards[t] == 1:
                    continue
                if k > first and has == (step[k - 1] > 0):
                    dim[k - 1] *= cards[t]
                    step[k - 1] = stride if has else 0
                else:
                    dim[k], step[k] = cards[t], stride if has else 0
                    k += 1
            if k == first:
                dim[k], step[k] = 1, 0
                k += 1
            start[o + 1] = k
    return start, dim[:k].copy(), step[:k].copy()


@kernel
def load_tables(  # type: ignore[no-untyped-def]
    cards, time, scope_start, scope, table_start, values, factor_data, store, log
):
    """Copy tables with sorted axes, divided by their largest entry; return Σ log of these."""
    shift = 0.0
    digits = np.zeros(64, np.int64)
    strides = np.zeros(64, np.int64)
    for f in range(len(scope_start) - 1):
        begin, arity = scope_start[f], scope_start[f + 1] - scope_start[f]
        top = -np.inf
        for e in range(table_start[f], table_start[f + 1]):
            top = max(top, values[e])
        shift += top
        if arity == 0:
            store[factor_data[f]] = 0.0
            continue
        # stride, in the sorted table, of each axis in file order
        for a in range(arity):
            strides[a] = 1
            digits[a] = 0
            for b in range(arity):
                if time[scope[begin + b]] > time[scope[begin + a]]:
                    strides[a] *= cards[scope[begin + b]]
        index = factor_data[f]
        for e in range(table_start[f], table_start[f + 1]):
            value = values[e] - top if top > -np.inf else -np.inf
            store[index] = value if log else np.exp(value)
            a = arity - 1
            while a >= 0:
                digits[a] += 1
                index += strides[a]
                if digits[a] < cards[scope[begin + a]]:
                    break
                index -= strides[a] * digits[a]
                digits[a] = 0
                a -= 1
    return shift
