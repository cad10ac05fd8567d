"""Search over the states of variables, one after the other, with every part solved only once.

A frame is a part of the model whose next variable is being decided: each of its states is entered,
what follows from zeros is entered too, and what is left falls into parts that no factor joins. A
part that was met before, with the same open states and factors that are the same functions of them,
is looked up. What is kept is a graph of decisions, from which all marginals follow in one pass.
"""

import numpy as np

from icgi.exact.restrictions import mixed
from icgi.kernels import kernel

DONE, STOPPED, FULL, EMPTY = range(4)  # how a search ended
UNSEEN, DEAD = -1, -2  # a part without a node yet; one that is impossible
STATES = 64  # an item is a variable times this, plus its state; or plus OPEN, then a mask of states
OPEN = 63
# What a frame keeps: the variable being decided and its states to come, where its trail, lists and
# parts begin, the part that it is, the next part of its edge, its last edge, variables without
# factors, and how many variables had been entered.
VARIABLE, LEFT, MARK, LISTS, PARTS, OWN, NEXT, EDGE, FREE, FREE_END, ENTERED = range(11)
BASE, LOG, TOP, SUM = range(4)  # scale at the beginning, of the edge; sum over edges so far
AT, MIDDLE, END, NODE = range(4)  # of a part: its variables, its factors, its node


@kernel
def grown(array, least):  # type: ignore[no-untyped-def]
    """Array with room for that many entries, the old ones kept."""
    larger = np.empty(max(2 * len(array), least), array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def single(mask):  # type: ignore[no-untyped-def]
    """Whether one state is left."""
    return mask & (mask - 1) == 0


@kernel
def lowest(mask):  # type: ignore[no-untyped-def]
    """Number of the first state that is left."""
    x = 0
    while (mask >> x) & 1 == 0:
        x += 1
    return x


@kernel
def bounds(scale, at, step, mask):  # type: ignore[no-untyped-def]
    """Least and greatest of the numbers at `at`, `at` + `step`, … of the states in a mask."""
    least, most, x = np.inf, -np.inf, 0
    while mask >> x != 0:
        if (mask >> x) & 1:
            value = scale[at + x * step]
            least, most = min(least, value), max(most, value)
        x += 1
    return least, most


@kernel
def propagated(  # type: ignore[no-untyped-def]
    head, top, cards, scope_start, scope, stride, scale, depends, inc_start, inc_factor, inc_at,
    domain, value, pattern, trail_variable, trail_mask, entered, count,
):  # fmt: skip
    """Enter single states from `head` of the trail on; whether all factors stay possible.

    Returns that, the new end of the trail, and the number of variables entered.
    """
    while head < top:
        v = trail_variable[head]
        head += 1
        if value[v] >= 0 or not single(domain[v]):
            continue
        x = lowest(domain[v])
        value[v] = x
        entered[count] = v
        count += 1
        for e in range(inc_start[v], inc_start[v + 1]):
            pattern[inc_factor[e]] += (x - cards[v]) * stride[inc_at[e]]
        for e in range(inc_start[v], inc_start[v + 1]):
            f = inc_factor[e]
            p = pattern[f]
            if scale[p] == -np.inf:
                return False, top, count
            left, at = depends[p], scope_start[f]
            while left != 0:
                if left & 1:
                    u = scope[at]
                    mask = domain[u]
                    for y in range(cards[u]):
                        if (mask >> y) & 1 and scale[p + (y - cards[u]) * stride[at]] == -np.inf:
                            mask &= ~(np.int64(1) << y)
                    if mask == 0:
                        return False, top, count
                    if mask != domain[u]:
                        trail_variable[top], trail_mask[top] = u, domain[u]
                        domain[u] = mask
                        top += 1
                left >>= 1
                at += 1
    return True, top, count


@kernel
def undone(  # type: ignore[no-untyped-def]
    mark, top, cards, stride, inc_start, inc_factor, inc_at, domain, value, pattern,
    trail_variable, trail_mask, count,
):  # fmt: skip
    """Take back what was entered since `mark`; the number of variables entered that are left."""
    while top > mark:
        top -= 1
        v = trail_variable[top]
        if value[v] >= 0:
            for e in range(inc_start[v], inc_start[v + 1]):
                pattern[inc_factor[e]] -= (value[v] - cards[v]) * stride[inc_at[e]]
            value[v] = -1
            count -= 1
        domain[v] = trail_mask[top]
    return count


@kernel
def probed(  # type: ignore[no-untyped-def]
    top, entries, cards, scope_start, scope, stride, scale, depends, inc_start, inc_factor, inc_at,
    domain, value, pattern, trail_variable, trail_mask, entered, stop,
):  # fmt: skip
    """Remove states that lead to a contradiction at once; whether any model is left."""
    changed = True
    while changed and not stop[0]:
        changed = False
        for v in range(len(cards)):
            for x in range(cards[v]):
                if value[v] >= 0 or stop[0] or not (domain[v] >> x) & 1:
                    continue
                trail_variable[top], trail_mask[top] = v, domain[v]
                domain[v] = np.int64(1) << x
                sound, end, entries = propagated(
                    top, top + 1, cards, scope_start, scope, stride, scale, depends, inc_start,
                    inc_factor, inc_at, domain, value, pattern, trail_variable, trail_mask,
                    entered, entries,
                )  # fmt: skip
                entries = undone(
                    top, end, cards, stride, inc_start, inc_factor, inc_at, domain, value,
                    pattern, trail_variable, trail_mask, entries,
                )  # fmt: skip
                if sound:
                    continue
                changed = True
                trail_variable[top], trail_mask[top] = v, domain[v]
                domain[v] &= ~(np.int64(1) << x)
                if domain[v] == 0:
                    return False, top, entries
                sound, top, entries = propagated(
                    top, top + 1, cards, scope_start, scope, stride, scale, depends, inc_start,
                    inc_factor, inc_at, domain, value, pattern, trail_variable, trail_mask,
                    entered, entries,
                )  # fmt: skip
                if not sound:
                    return False, top, entries
    return True, top, entries


@kernel
def busy(among, depends, joins, inc_start, inc_factor, inc_bit, pattern):  # type: ignore[no-untyped-def]
    """The variable of most factors, those of few open variables first."""
    found, best = among[0], -1.0
    for v in among:
        score = 0.0
        for e in range(inc_start[v], inc_start[v + 1]):
            p = pattern[inc_factor[e]]
            if (depends[p] >> inc_bit[e]) & 1:
                score += joins[p]
        if score > best:
            found, best = v, score
    return np.int64(found)


@kernel
def search(  # type: ignore[no-untyped-def]
    cards, weight, scope_start, scope, stride, pattern, first, second, scale, depends, joins,
    inc_start, inc_factor, inc_at, inc_bit, most_bytes, busiest, stop,
):  # fmt: skip
    """Graph of decisions: how the search ended, nodes, edges, their children and items.

    The first open variable of a part is decided next or, with `busiest`, the one that most depends
    on: in wide models with many zeros those that decide much, else those that take a tree apart.
    """
    n, count = len(cards), len(scope_start) - 1
    domain = (np.int64(1) << cards) - 1
    value = np.full(n, -1, np.int64)
    longest = cards.sum() + n + 1
    trail_variable, trail_mask = np.empty(longest, np.int64), np.empty(longest, np.int64)
    entered = np.empty(n, np.int64)
    node_log, node_edge = np.empty(1024), np.empty(1024, np.int64)
    edge_log, edge_next = np.empty(1024), np.empty(1024, np.int64)
    edge_child, edge_item = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
    children, items = np.empty(1024, np.int64), np.empty(4096, np.int64)
    nodes = edges = 0
    room, stored = 4096, 0  # parts met before
    key1, key2 = np.empty(room, np.uint64), np.empty(room, np.uint64)
    known = np.full(room, UNSEEN, np.int64)
    lists = np.empty(8 * (n + count) + 16, np.int32)  # variables and factors of parts on the way
    part, part_key = np.empty((n + 16, 4), np.int64), np.empty((n + 16, 2), np.uint64)
    frame, total = np.zeros((n + 2, 11), np.int64), np.zeros((n + 2, 4))
    seen_v, seen_f, own_f = (
        np.zeros(n, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64),
    )  # fmt: skip
    part_v, part_f = np.empty(n, np.int64), np.empty(count, np.int64)
    waiting, filled = np.empty(n + 1, np.int64), np.empty((n + 1, 2), np.int64)
    stamp = top = 0
    for v in range(n):
        mask = domain[v]
        for x in range(cards[v]):
            if weight[v, x] == -np.inf:
                mask &= ~(np.int64(1) << x)
        if mask != domain[v]:
            trail_variable[top], trail_mask[top] = v, domain[v]
            domain[v] = mask
            top += 1
    sound, top, entries = propagated(
        0, top, cards, scope_start, scope, stride, scale, depends, inc_start, inc_factor, inc_at,
        domain, value, pattern, trail_variable, trail_mask, entered, 0,
    )  # fmt: skip
    if sound:
        sound, top, entries = probed(
            top, entries, cards, scope_start, scope, stride, scale, depends, inc_start,
            inc_factor, inc_at, domain, value, pattern, trail_variable, trail_mask, entered, stop,
        )  # fmt: skip
    status = DONE if sound else EMPTY
    # The first frame decides nothing: its only edge splits the model.
    lists[:n], lists[n : n + count] = np.arange(n), np.arange(count)
    part[0, AT], part[0, MIDDLE], part[0, END], part[0, NODE] = 0, n, n + count, UNSEEN
    parts, depth = 1, 0
    frame[0, VARIABLE], frame[0, LEFT], frame[0, EDGE] = -1, 1, -1
    frame[0, LISTS], frame[0, PARTS] = n + count, 1
    total[0, TOP] = -np.inf
    deciding = True  # the next state of the deepest frame; else the next part of its edge
    while status == DONE:
        d = depth
        own = frame[d, OWN]
        if deciding:
            v = frame[d, VARIABLE]
            if v >= 0:
                entries = undone(
                    frame[d, MARK], top, cards, stride, inc_start, inc_factor, inc_at, domain,
                    value, pattern, trail_variable, trail_mask, entries,
                )  # fmt: skip
                top = frame[d, MARK]
            parts = frame[d, PARTS]
            if frame[d, LEFT] == 0:  # all states entered: the part is a node
                made = DEAD
                if total[d, TOP] > -np.inf:
                    if nodes == len(node_log):
                        node_log, node_edge = grown(node_log, 0), grown(node_edge, 0)
                    made = nodes
                    node_log[made] = total[d, TOP] + np.log(total[d, SUM])
                    node_edge[made] = frame[d, EDGE]
                    nodes += 1
                part[own, NODE] = made
                if d == 0:
                    if made == DEAD:
                        status = EMPTY
                    break
                if 2 * stored >= room:
                    old1, old2, old = key1, key2, known
                    room *= 2
                    key1, key2 = np.empty(room, np.uint64), np.empty(room, np.uint64)
                    known = np.full(room, UNSEEN, np.int64)
                    for s in range(len(old)):
                        if old[s] != UNSEEN:
                            slot = np.int64(old1[s] & np.uint64(room - 1))
                            while known[slot] != UNSEEN:
                                slot = (slot + 1) & (room - 1)
                            key1[slot], key2[slot], known[slot] = old1[s], old2[s], old[s]
                slot = np.int64(part_key[own, 0] & np.uint64(room - 1))
                while known[slot] != UNSEEN:
                    slot = (slot + 1) & (room - 1)
                key1[slot], key2[slot], known[slot] = part_key[own, 0], part_key[own, 1], made
                stored += 1
                depth -= 1
                deciding = False
                continue
            if stop[0]:
                status = STOPPED
                break
            used = 16 * len(node_log) + 32 * len(edge_log) + 8 * (len(children) + len(items))
            if used + 24 * room + 4 * len(lists) > most_bytes:
                status = FULL
                break
            frame[d, ENTERED] = entries if d > 0 else 0
            sound = True
            if v >= 0:
                bit = frame[d, LEFT] & -frame[d, LEFT]
                frame[d, LEFT] ^= bit
                mark = top
                trail_variable[top], trail_mask[top] = v, domain[v]
                domain[v] = bit
                sound, top, entries = propagated(
                    mark, top + 1, cards, scope_start, scope, stride, scale, depends, inc_start,
                    inc_factor, inc_at, domain, value, pattern, trail_variable, trail_mask,
                    entered, entries,
                )  # fmt: skip
            else:
                frame[d, LEFT] = 0
            if not sound:
                continue
            log = -total[d, BASE]
            stamp += 1
            for i in range(part[own, MIDDLE], part[own, END]):
                log += scale[pattern[lists[i]]]
                own_f[lists[i]] = stamp
            for i in range(frame[d, ENTERED], entries):
                log += weight[entered[i], value[entered[i]]]
            # Parts: variables joined by factors that depend on both.
            free = frame[d, LISTS]
            if free + 2 * (part[own, END] - part[own, AT]) > len(lists):
                lists = grown(lists, free + 2 * (part[own, END] - part[own, AT]))
            begin, made = parts, 0
            frame[d, FREE] = free
            for i in range(part[own, AT], part[own, MIDDLE]):
                v = lists[i]
                if value[v] >= 0 or seen_v[v] == stamp:
                    continue
                seen_v[v] = stamp
                part_v[v] = made
                waiting[0], head, end = v, 0, 1
                factors = 0
                while head < end:
                    u = waiting[head]
                    head += 1
                    for e in range(inc_start[u], inc_start[u + 1]):
                        f = inc_factor[e]
                        if own_f[f] != stamp or seen_f[f] == stamp:
                            continue
                        if not (depends[pattern[f]] >> inc_bit[e]) & 1:
                            continue
                        seen_f[f] = stamp
                        p = pattern[f]
                        if depends[p] == np.int64(1) << inc_bit[e]:
                            least, most = bounds(scale, p - cards[u] * stride[inc_at[e]],
                                                 stride[inc_at[e]], domain[u])  # fmt: skip
                            if least == most:  # the same for all states that are left
                                log += most - scale[p]
                                part_f[f] = -1
                                continue
                        part_f[f] = made
                        factors += 1
                        left, at = depends[pattern[f]], scope_start[f]
                        while left != 0:
                            if left & 1 and seen_v[scope[at]] != stamp:
                                seen_v[scope[at]] = stamp
                                part_v[scope[at]] = made
                                waiting[end] = scope[at]
                                end += 1
                            left >>= 1
                            at += 1
                if factors == 0:  # nothing depends on it any more
                    part_v[v] = -1
                    lists[free] = v
                    free += 1
                    highest, added = -np.inf, 0.0
                    for x in range(cards[v]):
                        if (domain[v] >> x) & 1:
                            highest = max(highest, weight[v, x])
                    for x in range(cards[v]):
                        if (domain[v] >> x) & 1:
                            added += np.exp(weight[v, x] - highest)
                    log += highest + np.log(added)
                else:
                    filled[made, 0], filled[made, 1] = end, factors
                    made += 1
            frame[d, FREE_END] = free
            total[d, LOG] = log
            while parts + made > len(part):
                larger, larger_key = (
                    np.empty((2 * len(part), 4), np.int64), np.empty((2 * len(part), 2), np.uint64),
                )  # fmt: skip
                larger[: len(part)], larger_key[: len(part)] = part, part_key
                part, part_key = larger, larger_key
            at = free
            for c in range(made):
                part[begin + c, AT], part[begin + c, MIDDLE] = at, at + filled[c, 0]
                part[begin + c, END] = at + filled[c, 0] + filled[c, 1]
                part[begin + c, NODE] = UNSEEN
                part_key[begin + c, 0], part_key[begin + c, 1] = np.uint64(3), np.uint64(5)
                filled[c, 0], filled[c, 1] = at, at + filled[c, 0]
                at = part[begin + c, END]
            parts += made
            for i in range(part[own, AT], part[own, MIDDLE]):
                v = lists[i]
                if value[v] >= 0 or part_v[v] < 0:
                    continue
                c = part_v[v]
                lists[filled[c, 0]] = v
                filled[c, 0] += 1
                word = np.uint64(v) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(domain[v])
                part_key[begin + c, 0] = mixed(part_key[begin + c, 0] ^ word)
                part_key[begin + c, 1] = mixed(part_key[begin + c, 1] + word)
            for i in range(part[own, MIDDLE], part[own, END]):
                f = lists[i]
                if seen_f[f] != stamp or part_f[f] < 0:
                    continue
                c, p = part_f[f], pattern[f]
                lists[filled[c, 1]] = f
                filled[c, 1] += 1
                word = mixed(np.uint64(f) + np.uint64(0x5851F42D4C957F2D))
                part_key[begin + c, 0] = mixed(part_key[begin + c, 0] + (word ^ first[p]))
                part_key[begin + c, 1] = mixed(part_key[begin + c, 1] ^ (word + second[p]))
            for c in range(begin, parts):
                slot = np.int64(part_key[c, 0] & np.uint64(room - 1))
                while known[slot] != UNSEEN:
                    if key1[slot] == part_key[c, 0] and key2[slot] == part_key[c, 1]:
                        part[c, NODE] = known[slot]
                        break
                    slot = (slot + 1) & (room - 1)
            frame[d, NEXT] = begin
            deciding = False
        else:
            c = frame[d, NEXT]
            while c < parts and part[c, NODE] >= 0:
                c += 1
            frame[d, NEXT] = c
            if c == parts:  # all parts have nodes: the edge is complete
                if edges + 1 >= len(edge_log):
                    edge_log, edge_next = grown(edge_log, 0), grown(edge_next, 0)
                    edge_child, edge_item = grown(edge_child, 0), grown(edge_item, 0)
                begin = frame[d, PARTS]
                at, item = edge_child[edges], edge_item[edges]
                if at + parts - begin > len(children):
                    children = grown(children, at + parts - begin)
                free = frame[d, FREE_END] - frame[d, FREE]
                if item + entries - frame[d, ENTERED] + 2 * free > len(items):
                    items = grown(items, item + entries - frame[d, ENTERED] + 2 * free)
                log = total[d, LOG]
                for c in range(begin, parts):
                    children[at] = part[c, NODE]
                    log += node_log[part[c, NODE]]
                    at += 1
                for i in range(frame[d, ENTERED], entries):
                    items[item] = entered[i] * STATES + value[entered[i]]
                    item += 1
                for i in range(frame[d, FREE], frame[d, FREE_END]):
                    items[item] = lists[i] * STATES + OPEN
                    items[item + 1] = domain[lists[i]]
                    item += 2
                edge_log[edges], edge_next[edges] = log, frame[d, EDGE]
                frame[d, EDGE] = edges
                edges += 1
                edge_child[edges], edge_item[edges] = at, item
                if log > total[d, TOP]:
                    total[d, SUM] = total[d, SUM] * np.exp(total[d, TOP] - log) + 1.0
                    total[d, TOP] = log
                else:
                    total[d, SUM] += np.exp(log - total[d, TOP])
                deciding = True
            elif part[c, NODE] == DEAD:
                deciding = True
            else:
                depth += 1
                d = depth
                chosen = np.int64(lists[part[c, AT]])
                if busiest:
                    chosen = busy(
                        lists[part[c, AT] : part[c, MIDDLE]], depends, joins, inc_start,
                        inc_factor, inc_bit, pattern,
                    )  # fmt: skip
                frame[d, VARIABLE], frame[d, LEFT], frame[d, MARK] = chosen, domain[chosen], top
                frame[d, LISTS], frame[d, PARTS] = part[parts - 1, END], parts
                frame[d, OWN], frame[d, EDGE] = c, -1
                total[d, BASE], total[d, TOP], total[d, SUM] = 0.0, -np.inf, 0.0
                for i in range(part[c, MIDDLE], part[c, END]):
                    total[d, BASE] += scale[pattern[lists[i]]]
                deciding = True
    return (
        status, node_log[:nodes], node_edge[:nodes], edge_log[:edges], edge_next[:edges],
        edge_child[: edges + 1], edge_item[: edges + 1], children[: edge_child[edges]],
        items[: edge_item[edges]],
    )  # fmt: skip


@kernel
def flows(  # type: ignore[no-untyped-def]
    node_log, node_edge, edge_log, edge_next, edge_child, edge_item, children, items, weight, probs
):  # fmt: skip
    """Add the probability of every state of every variable, from the last node, the root, down."""
    flow = np.zeros(len(node_log))
    flow[-1] = 1.0
    for node in range(len(node_log) - 1, -1, -1):
        if flow[node] == 0.0:
            continue
        e = node_edge[node]
        while e >= 0:
            p = flow[node] * np.exp(edge_log[e] - node_log[node])
            i = edge_item[e]
            while i < edge_item[e + 1]:
                v, x = items[i] // STATES, items[i] % STATES
                i += 1
                if x != OPEN:
                    probs[v, x] += p
                    continue
                mask = items[i]
                i += 1
                highest, added = -np.inf, 0.0
                for x in range(probs.shape[1]):
                    if (mask >> x) & 1:
                        highest = max(highest, weight[v, x])
                for x in range(probs.shape[1]):
                    if (mask >> x) & 1:
                        added += np.exp(weight[v, x] - highest)
                for x in range(probs.shape[1]):
                    if (mask >> x) & 1:
                        probs[v, x] += p * np.exp(weight[v, x] - highest) / added
            for c in range(edge_child[e], edge_child[e + 1]):
                flow[children[c]] += p
            e = edge_next[e]
