"""Message passing: one compiled sweep for any cardinality, arity and reweighting.

    m_{f→i}(x_i) ∝ Σ_{x_f∖x_i} exp(θ_f / ρ_f) Π_{j∈f∖i} b_j(x_j) / m_{f→j}(x_j),
    b_i(x_i)     ∝ exp(θ_i) Π_f m_{f→i}(x_i)^ρ_f,

ρ = 1 being loopy belief propagation (Kschischang et al. 2001) and ρ < 1 the tree-reweighted one
(Wainwright, Jaakkola, Willsky 2005). Messages are log ratios (`flat.py`); within a factor the sums
are linear, one exp per incoming and one log per outgoing state, and where that would underflow
the factor is summed again in logarithms. `stop[0]` becomes 1 when the time is over: a factor whose
sums are not complete by then keeps its messages, and beliefs always agree with the messages.
"""

import math
from typing import Literal, TypeAlias

import numpy as np

from icgi.approx.fixed_point import Stop, fixed_points
from icgi.approx.flat import FLOOR, FlatModels, State
from icgi.clock import Deadline
from icgi.kernels import kernel
from icgi.model.graph import IntArray

Schedule: TypeAlias = Literal["sequential", "flooding", "residual"]
FLOODING, SEQUENTIAL, RESIDUAL = 0, 1, 2
NUMBER = {"sequential": SEQUENTIAL, "flooding": FLOODING, "residual": RESIDUAL}
POLL = 10  # innermost axes of a large table, between whose ends the stop flag is not looked at
TINY = 1e-100  # linear sums below it are repeated in logarithms
_KNOWN = 0.1  # of the tolerance: a log ratio that changed by less is no news
_SAFE = {"contract", "reassoc", "nsz"}  # fast mathematics that keeps infinities and NaN honest


def sweep(
    flat: FlatModels,
    state: State,
    schedule: Schedule,
    damping: float,
    tolerance: float,
    limit: IntArray,
    deadline: Deadline,
    threads: int | None = None,
) -> None:
    """Sweep each model until it is at rest, to its limit of sweeps, or the deadline."""
    number = NUMBER[schedule]

    def some(count: int, first: int, last: int, stop: Stop) -> None:
        advance(flat, state, number, damping, tolerance, limit, count, first, last, stop)

    work = np.diff(flat.model_factor)
    fixed_points(some, work, state.sweeps, state.residual, limit, deadline, tolerance, threads)


@kernel
def advance(c, s, schedule, damping, tolerance, limit, count, first, last, stop):  # type: ignore[no-untyped-def]
    """Sweep the models first ≤ m < last, each until it is at rest, its limit, or `count` sweeps.

    At rest means that no undamped message would change by more than the tolerance, measured
    with all messages as they are, whatever the schedule. Forests are swept in sequence without
    damping: once backward and once forward solves them, whatever the messages were before.
    """
    work = workspace(c)
    for m in range(first, last):
        order, share = (np.int64(SEQUENTIAL), 0.0) if c.forest[m] else (np.int64(schedule), damping)
        for _ in range(count):
            if s.residual[m] <= tolerance or s.sweeps[m] >= limit[m] or stop[0]:
                break
            if order != FLOODING and s.sweeps[m] % 8 == 7:
                _gather(c, s, m)  # beliefs that are kept up to date collect rounding errors
            if order == RESIDUAL:
                residual = _residual_sweep(c, s, m, share, tolerance, work, stop)
            else:
                residual = _sweep(c, s, m, order, share, work, stop)
            if stop[0]:
                _gather(c, s, m)  # flooding: some messages are ahead of the beliefs
                break
            s.sweeps[m] += 1
            if c.forest[m] and s.sweeps[m] == 1 and limit[m] > 1 and residual > 0.0:
                continue  # only half of a solution, however little it changed
            done = residual <= tolerance or s.sweeps[m] == limit[m]
            if done and order != FLOODING:
                residual = _sweep(c, s, m, np.int64(FLOODING), 1.0, work, stop)
                if stop[0]:  # not measured to the end
                    _gather(c, s, m)
                    break
            s.residual[m] = residual


@kernel(no_cpython_wrapper=True)
def _sweep(c, s, m, schedule, damping, work, stop):  # type: ignore[no-untyped-def]
    """Every factor once: flooding reads the beliefs of before, sequential those of now."""
    f0, f1 = c.model_factor[m], c.model_factor[m + 1]
    v, w = c.ratio_start[c.model_variable[m]], c.ratio_start[c.model_variable[m + 1]]
    begin, end, stride, carry, write = f0, f1, np.int64(1), 1.0, s.belief
    if schedule == FLOODING:
        carry, write = 0.0, s.spare
        for r in range(v, w):
            write[r] = c.field[r]
    elif s.sweeps[m] % 2 == 0:
        begin, end, stride = f1 - 1, f0 - 1, np.int64(-1)
    nobody = np.int64(-1)  # a plain −1 would be a type of its own, and compiled once more
    worst = renew(
        c, c.numbers, begin, end, stride, s.messages, s.belief, write, carry, damping, nobody,
        work, stop,
    )  # fmt: skip
    if schedule == FLOODING and not stop[0]:
        for r in range(v, w):
            s.belief[r] = write[r]
    return worst


@kernel(no_cpython_wrapper=True)
def _residual_sweep(c, s, m, damping, tolerance, work, stop):  # type: ignore[no-untyped-def]
    """As many turns as the model has variables, each of the one with most to tell.

    It renews the messages of its factors to the others, and they remember by how much those
    changed. No message is computed only to learn its residual, unlike in Elidan et al. 2006. A
    factor for which nothing has changed, such as the one that brought the news, is left out.
    """
    v0, v1 = c.model_variable[m], c.model_variable[m + 1]
    heap, place, pending, one = s.heap[v0:v1], s.place, s.pending, np.int64(1)
    if v0 == v1:
        return 0.0
    if pending[heap[0]] <= tolerance:
        # the measurement after the last sweep found what accumulated changes did not show
        for i in range(v0, v1):
            pending[i] = 1.0 if c.touching_start[i + 1] > c.touching_start[i] else 0.0
        for k in range((v1 - v0) // 2, -1, -1):
            _sift_down(heap, place, pending, k)
    for _ in range(v1 - v0):
        i = heap[0]
        if pending[i] <= tolerance or stop[0]:
            break
        largest = 0.0
        for t in range(c.touching_start[i], c.touching_start[i + 1]):
            f = c.touching[t]
            if not _news(c, s, f, i, _KNOWN * tolerance) and damping == 0.0 and c.rho[f] == 1.0:
                continue
            e0, e1 = c.edge_start[f], c.edge_start[f + 1]
            for k in range(c.message_start[e0], c.message_start[e1]):
                s.old[k] = s.messages[k]
            renew(
                c, c.touching, t, t + 1, one, s.messages, s.belief, s.belief, 1.0, damping, i,
                work, stop,
            )  # fmt: skip
            for e in range(e0, e1):
                j, begin = c.variable[e], c.message_start[e]
                if j != i:
                    count = c.message_start[e + 1] - begin
                    change = _distance(s.messages, begin, s.old, begin, count, c.rho[f])
                    largest = max(largest, change)
                    pending[j] += change
                    _sift_up(heap, place, pending, place[j])
        # damping has held back this much of what the variable had to tell
        pending[i] = min(largest * damping / max(1.0 - damping, 1e-9), 1.0)
        _sift_down(heap, place, pending, place[i])
    return pending[heap[0]]


@kernel(no_cpython_wrapper=True)
def _news(c, s, f, i, most):  # type: ignore[no-untyped-def]
    """Whether a variable's belief without a factor has changed since that factor answered it."""
    for e in range(c.edge_start[f], c.edge_start[f + 1]):
        if c.variable[e] == i:
            begin, end = c.message_start[e], c.message_start[e + 1]
            shift = c.ratio[e] - begin
            low, high = 0.0, 0.0
            never = False
            for k in range(begin, end):
                change = s.belief[shift + k] - s.messages[k] - s.told[k]
                never = never or change != change
                low, high = min(low, change), max(high, change)
            if high - low <= most and not never:
                return False
            for k in range(begin, end):
                s.told[k] = s.belief[shift + k] - s.messages[k]
    return True


@kernel(no_cpython_wrapper=True)
def _sift_up(heap, place, pending, k):  # type: ignore[no-untyped-def]
    i = heap[k]
    while k > 0:
        parent = (k - 1) // 2
        if pending[heap[parent]] >= pending[i]:
            break
        heap[k] = heap[parent]
        place[heap[k]] = k
        k = parent
    heap[k], place[i] = i, k


@kernel(no_cpython_wrapper=True)
def _sift_down(heap, place, pending, k):  # type: ignore[no-untyped-def]
    i = heap[k]
    while 2 * k + 1 < len(heap):
        child = 2 * k + 1
        if child + 1 < len(heap) and pending[heap[child + 1]] > pending[heap[child]]:
            child += 1
        if pending[i] >= pending[heap[child]]:
            break
        heap[k] = heap[child]
        place[heap[k]] = k
        k = child
    heap[k], place[i] = i, k


@kernel(no_cpython_wrapper=True)
def _gather(c, s, m):  # type: ignore[no-untyped-def]
    """Set the beliefs of a model from its messages: field + Σ_f ρ_f log m_{f→i}."""
    v, w = c.ratio_start[c.model_variable[m]], c.ratio_start[c.model_variable[m + 1]]
    for r in range(v, w):
        s.belief[r] = c.field[r]
    for f in range(c.model_factor[m], c.model_factor[m + 1]):
        rho = c.rho[f]
        for e in range(c.edge_start[f], c.edge_start[f + 1]):
            begin = c.message_start[e]
            r = c.ratio[e] - begin
            for k in range(begin, c.message_start[e + 1]):
                s.belief[r + k] += rho * s.messages[k]


@kernel(no_cpython_wrapper=True)
def log_weight(c, f, k):  # type: ignore[no-untyped-def]
    """(θ − top) / ρ of one entry, −inf for true zeros only."""
    value = c.values[c.value_start[f] + k]
    if value == -np.inf:
        return value
    return max(value - c.top[f], FLOOR) / c.rho[f]


@kernel
def workspace(c):  # type: ignore[no-untyped-def]
    """Scratch of one thread: a vector per axis of the largest factor, in and out, and counters."""
    states, arity = c.largest
    return np.empty((4, states)), np.empty((2, arity + 1)), np.empty((3, arity + 1), np.int64)


@kernel(inline="always")
def outgoing(c, f, messages, belief, work, stop):  # type: ignore[no-untyped-def]
    """Unnormalised messages of a factor into work[0][1]: all states of its first axis, and so on.

    Returns whether they are logarithms, because some would be too small otherwise, and the sum of
    the largest cavity log ratios, which messages that are not logarithms lack. The cavity log
    ratios are left in work[0][2], their exponentials, largest 1, in work[0][0]. Once stop[0] is
    set, the messages may be incomplete.
    """
    into, out, cavity = work[0][0], work[0][1], work[0][2]
    offset, card = work[2][0], work[2][1]
    e0, k = c.edge_start[f], c.weight_start[f]
    arity = c.edge_start[f + 1] - e0
    position, lowest, scale = 0, 1.0, 0.0
    for a in range(arity):
        begin = c.message_start[e0 + a]
        end, shift = c.message_start[e0 + a + 1], c.ratio[e0 + a] - begin
        offset[a], card[a] = position, end - begin + 1
        cavity[position], top = 0.0, 0.0
        for x in range(begin, end):
            value = belief[shift + x] - messages[x]
            cavity[position + 1 + x - begin] = value
            top = max(top, value)
        for x in range(position, position + end - begin + 1):
            into[x] = math.exp(cavity[x] - top)
            lowest = min(lowest, into[x])
            out[x] = 0.0
        position += end - begin + 1
        scale += top
    if arity == 2:
        _contract_pair(c.weights, k, card[0], card[1], into, out)
    elif arity == 3:
        _contract_triple(c.weights, k, card[0], card[1], card[2], into, out)
    elif lowest >= TINY:  # only here what was multiplied is divided again
        _contract(c.weights, k, arity, into, out, work[1], work[2], stop)
    for x in range(position):
        lowest = min(lowest, out[x]) if x > 0 else out[0]
    by_logs = lowest < TINY
    if by_logs:
        _sum_logs(c, f, arity, work, stop)
    return by_logs, scale


@kernel(no_cpython_wrapper=True, fastmath=_SAFE)
def _contract_pair(weights, begin, rows, columns, into, out):  # type: ignore[no-untyped-def]
    for x in range(rows):
        total, factor = 0.0, into[x]
        for y in range(columns):
            w = weights[begin + y]
            total += w * into[rows + y]
            out[rows + y] += w * factor
        out[x] = total
        begin += columns


@kernel(no_cpython_wrapper=True, fastmath=_SAFE)
def _contract_triple(weights, k, first, second, third, into, out):  # type: ignore[no-untyped-def]
    last = first + second
    for x in range(first):
        sum_x, factor = 0.0, into[x]
        for y in range(first, last):
            both, total = factor * into[y], 0.0
            for z in range(last, last + third):
                total += weights[k] * into[z]
                out[z] += weights[k] * both
                k += 1
            out[y] += total * factor
            sum_x += total * into[y]
        out[x] = sum_x


@kernel(no_cpython_wrapper=True, fastmath=_SAFE)
def _contract(weights, begin, arity, into, out, partial, counters, stop):  # type: ignore[no-untyped-def]
    """All outgoing messages in one pass: rows along the last axis, partial sums carried upwards."""
    prefix, carried = partial[0], partial[1]
    offset, card, digit = counters[0], counters[1], counters[2]
    last = arity - 1
    inner, width = offset[last], card[last]
    prefix[0] = 1.0
    for a in range(last):
        digit[a], carried[a] = 0, 0.0
        prefix[a + 1] = prefix[a] * into[offset[a]]
    a = 0
    while a >= 0:
        scale, total = prefix[last], 0.0
        for y in range(width):
            t = weights[begin + y] * scale
            out[inner + y] += t
            total += t * into[inner + y]
        begin += width
        a = last - 1
        while a >= 0:
            out[offset[a] + digit[a]] += total
            carried[a] += total
            digit[a] += 1
            if digit[a] < card[a]:
                break
            total, carried[a], digit[a] = carried[a], 0.0, 0
            a -= 1
        if a < last - POLL and stop[0]:
            break
        for b in range(max(a, 0), last):
            prefix[b + 1] = prefix[b] * into[offset[b] + digit[b]]
    for x in range(inner):
        out[x] /= into[x]


@kernel(no_cpython_wrapper=True)
def _sum_logs(c, f, arity, work, stop):  # type: ignore[no-untyped-def]
    """The same messages by running log-sum-exp: slow, and right at any range."""
    top, out, cavity = work[0][3], work[0][1], work[0][2]
    offset, card, digit = work[2][0], work[2][1], work[2][2]
    digit[:arity] = 0
    for x in range(offset[arity - 1] + card[arity - 1]):
        top[x], out[x] = -np.inf, 0.0
    for k in range(c.weight_start[f + 1] - c.weight_start[f]):
        value = log_weight(c, f, k)
        if value != -np.inf:
            for a in range(arity):
                value += cavity[offset[a] + digit[a]]
            for a in range(arity):
                x = offset[a] + digit[a]
                term = value - cavity[x]
                if term > top[x]:
                    out[x] = out[x] * math.exp(top[x] - term) + 1.0
                    top[x] = term
                else:
                    out[x] += math.exp(term - top[x])
        _count_up(digit, card, arity)
        if stop[0]:
            break
    for x in range(offset[arity - 1] + card[arity - 1]):
        out[x] = top[x] + math.log(out[x])


@kernel(inline="always")
def _count_up(digit, card, arity):  # type: ignore[no-untyped-def]
    """States of a factor's next table entry, the last one fastest."""
    a = arity - 1
    while a >= 0:
        digit[a] += 1
        if digit[a] < card[a]:
            break
        digit[a] = 0
        a -= 1


@kernel(no_cpython_wrapper=True)
def _log_add(a, b):  # type: ignore[no-untyped-def]
    high, low = max(a, b), min(a, b)
    return high if low == -np.inf else high + math.log1p(math.exp(low - high))


@kernel(inline="always")
def _binary_message(w00, w01, w10, w11, h):  # type: ignore[no-untyped-def]
    """Log ratio to the rows of a 2×2 table from log ratio h of the columns; NaN if too small."""
    t = math.exp(-abs(h))
    first, second = (t, 1.0) if h > 0.0 else (1.0, t)
    up, down = w10 * first + w11 * second, w00 * first + w01 * second
    return math.log(up / down) if min(up, down) >= TINY else math.nan


@kernel(no_cpython_wrapper=True)
def _binary_message_by_logs(c, f, across, h):  # type: ignore[no-untyped-def]
    """The same in logarithms, to the columns if `across`."""
    one, two = np.int64(2 if across else 1), np.int64(1 if across else 2)
    up = _log_add(log_weight(c, f, two), log_weight(c, f, np.int64(3)) + h)
    new = up - _log_add(log_weight(c, f, np.int64(0)), log_weight(c, f, one) + h)
    return min(max(new, FLOOR), -FLOOR)


@kernel(fastmath=_SAFE)
def renew(c, order, first, last, stride, messages, read, write, carry, damping, keep, work, stop):  # type: ignore[no-untyped-def]
    """Renew the messages of some factors and the beliefs they change; return the residual.

    The factors are order[first:last:stride]; beliefs are read from `read`, and `write` gains the
    new messages less `carry` (0 or 1) times the old ones. The residual is the largest change of
    a message without damping, as it enters the belief: to the power ρ and normalised. The message
    to the variable `keep` is left alone (−1: none). Damping is geometric; damping 1 only measures.
    Factors that `stop` leaves no time for keep their messages.
    """
    worst, undamped = 0.0, 1.0 - damping
    for number in range(first, last, stride):
        if stop[0]:
            return np.inf
        f = order[number]
        e0 = c.edge_start[f]
        arity = c.edge_start[f + 1] - e0
        p, k, rho = c.message_start[e0], c.weight_start[f], c.rho[f]
        if arity == 2 and c.weight_start[f + 1] - k == 4:
            i, j, a, b = c.variable[e0], c.variable[e0 + 1], c.ratio[e0], c.ratio[e0 + 1]
            old_i, old_j = messages[p], messages[p + 1]
            h_i, h_j = read[a] - old_i, read[b] - old_j
            w00, w01, w10, w11 = c.weights[k], c.weights[k + 1], c.weights[k + 2], c.weights[k + 3]
            if keep != i:
                new = _binary_message(w00, w01, w10, w11, h_j)
                if new != new:
                    new = _binary_message_by_logs(c, f, np.bool_(False), h_j)
                change = new - old_i
                if 0.25 * rho * abs(change) > worst:  # |Δp| ≤ |Δ log ratio| / 4: mostly settled
                    worst = max(worst, _binary_distance(rho * new, rho * old_i))
                messages[p] = old_i + undamped * change
                write[a] += rho * (messages[p] - carry * old_i)
                if rho != 1.0:  # else there is no need to wait for the first message
                    h_i += carry * (rho - 1.0) * (messages[p] - old_i)
            if keep != j:
                new = _binary_message(w00, w10, w01, w11, h_i)
                if new != new:
                    new = _binary_message_by_logs(c, f, np.bool_(True), h_i)
                change = new - old_j
                if 0.25 * rho * abs(change) > worst:
                    worst = max(worst, _binary_distance(rho * new, rho * old_j))
                messages[p + 1] = old_j + undamped * change
                write[b] += rho * (messages[p + 1] - carry * old_j)
            continue
        # reweighted messages of one factor depend on each other: one at a time in a sequence
        rounds = arity if rho != 1.0 and carry == 1.0 else 1
        for turn in range(rounds):
            by_logs, _ = outgoing(c, f, messages, read, work, stop)
            if stop[0]:
                return np.inf
            out = work[0][1]
            position = 0
            for e in range(e0, e0 + arity):
                begin, count = c.message_start[e], c.message_start[e + 1] - c.message_start[e]
                r, base = c.ratio[e], out[position]
                if keep != c.variable[e] and (rounds == 1 or turn == e - e0):
                    low, high = 0.0, 0.0
                    for x in range(count):
                        value = out[position + 1 + x]
                        if by_logs:
                            value = min(max(value - base, FLOOR), -FLOOR)
                        else:
                            value = math.log(value / base)
                        out[position + 1 + x] = value
                        change = value - messages[begin + x]
                        low, high = min(low, change), max(high, change)
                    if 0.25 * rho * (high - low) > worst:  # |Δp| ≤ spread of Δ log p / 4
                        change = _distance(out, position + 1, messages, begin, count, rho)
                        worst = max(worst, change)
                    for x in range(count):
                        old = messages[begin + x]
                        messages[begin + x] = old + undamped * (out[position + 1 + x] - old)
                        write[r + x] += rho * (messages[begin + x] - carry * old)
                position += count + 1
    return worst


@kernel(no_cpython_wrapper=True)
def _binary_distance(a, b):  # type: ignore[no-untyped-def]
    return abs(1.0 / (1.0 + math.exp(-a)) - 1.0 / (1.0 + math.exp(-b)))


@kernel(no_cpython_wrapper=True)
def _distance(a, a0, b, b0, count, rho):  # type: ignore[no-untyped-def]
    """Largest difference of two messages, runs of log ratios, to the power ρ and normalised."""
    if count == 1:
        return _binary_distance(rho * a[a0], rho * b[b0])
    top_a, top_b = 0.0, 0.0
    for x in range(count):
        top_a, top_b = max(top_a, a[a0 + x]), max(top_b, b[b0 + x])
    sum_a, sum_b = math.exp(-rho * top_a), math.exp(-rho * top_b)
    worst = 0.0
    for x in range(count):
        sum_a += math.exp(rho * (a[a0 + x] - top_a))
        sum_b += math.exp(rho * (b[b0 + x] - top_b))
    for x in range(-1, count):
        p, q = (0.0, 0.0) if x < 0 else (a[a0 + x], b[b0 + x])
        p, q = math.exp(rho * (p - top_a)) / sum_a, math.exp(rho * (q - top_b)) / sum_b
        worst = max(worst, abs(p - q))
    return worst


@kernel
def log_partitions(c, s, stop):  # type: ignore[no-untyped-def]
    """Reweighted Bethe log Z of every model: Σ_i log Z_i + Σ_f ρ_f (log Z_f − Σ_{i∈f} log Z_i).

    Z_i and Z_f are the sums of the unnormalised beliefs; the value is stationary at fixed points.
    NaN where there was no time for it.
    """
    work = workspace(c)
    log_z = c.constant.copy()
    for m in range(len(log_z)):
        for i in range(c.model_variable[m], c.model_variable[m + 1]):
            share = 1.0
            for t in range(c.touching_start[i], c.touching_start[i + 1]):
                share -= c.rho[c.touching[t]]
            log_z[m] += share * _log_sum(s.belief[c.ratio_start[i] : c.ratio_start[i + 1]])
        for f in range(c.model_factor[m], c.model_factor[m + 1]):
            by_logs, shift = outgoing(c, f, s.messages, s.belief, work, stop)
            if stop[0]:
                log_z[m:] = np.nan
                return log_z
            card = work[2][1][0]
            into, out, cavity = work[0][0][:card], work[0][1][:card], work[0][2][:card]
            if by_logs:
                out += cavity
                top = out.max()  # not that of state 0, which the sum may not know
                log_z[m] += c.rho[f] * (top + math.log(np.exp(out - top).sum()))
            else:
                log_z[m] += c.rho[f] * (math.log((out * into).sum()) + shift)
    return log_z


@kernel(no_cpython_wrapper=True)
def _log_sum(ratios):  # type: ignore[no-untyped-def]
    """log(1 + Σ exp ratio)."""
    top = 0.0
    for k in range(len(ratios)):
        top = max(top, ratios[k])
    total = math.exp(-top)
    for k in range(len(ratios)):
        total += math.exp(ratios[k] - top)
    return top + math.log(total)


@kernel
def informations(c, s, stop):  # type: ignore[no-untyped-def]
    """I_f = Σ_{i∈f} H(b_i) − H(b_f) for every factor, at a fixed point; unfinished if stopped."""
    f_count, n = len(c.rho), len(c.ratio_start) - 1
    entropy = np.zeros(n)
    for i in range(n):
        begin, end = c.ratio_start[i], c.ratio_start[i + 1]
        top = 0.0
        for k in range(begin, end):
            top = max(top, s.belief[k])
        total, mean = math.exp(-top), -top * math.exp(-top)
        for k in range(begin, end):
            p = math.exp(s.belief[k] - top)
            total += p
            mean += p * (s.belief[k] - top)
        entropy[i] = math.log(total) - mean / total
    found = np.zeros(f_count)
    work = workspace(c)
    for f in range(f_count):
        outgoing(c, f, s.messages, s.belief, work, stop)
        if stop[0]:
            break
        cavity, offset, card, digit = work[0][2], work[2][0], work[2][1], work[2][2]
        arity = c.edge_start[f + 1] - c.edge_start[f]
        digit[:arity] = 0
        top, total, mean = -np.inf, 0.0, 0.0
        for k in range(c.weight_start[f + 1] - c.weight_start[f]):
            value = log_weight(c, f, k)
            if value != -np.inf:
                for a in range(arity):
                    value += cavity[offset[a] + digit[a]]
                if value > top:
                    if top > -np.inf:
                        mean = (mean + total * (top - value)) * math.exp(top - value)
                        total *= math.exp(top - value)
                    top = value
                p = math.exp(value - top)
                total += p
                mean += p * (value - top)
            _count_up(digit, card, arity)
            if stop[0]:
                break
        found[f] = mean / total - math.log(total)
        for e in range(c.edge_start[f], c.edge_start[f + 1]):
            found[f] += entropy[c.variable[e]]
    return found
