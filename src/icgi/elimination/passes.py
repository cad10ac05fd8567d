"""The two passes: eliminate all variables, then walk the steps back for every marginal.

F_t is what elimination has made of the past, B_t what the rest of the model will make of it:
F_t = Σ_v ω_v ψ_t F'_t with F'_t = F_{t−1} Π ℓ_new, B'_t = B_t ω_v ψ_t, B_{t−1} = Σ_new ℓ_new B'_t,
Z = ⟨F_t, B_t⟩ at every t, and p_v = ⟨F'_t, B'_t⟩ open at v. ℓ·ω is the unary potential, shared
between the two. Each pass is truncated with the other's cores as environment, read from a tape.
"""

from typing import NamedTuple

import numpy as np

from icgi.kernels import kernel
from icgi.model.graph import FloatArray, IntArray
from icgi.tt.contract import overlap_left, overlap_right, scaled
from icgi.tt.sweep import compress, gauge_left, gauge_right


class Tape(NamedTuple):
    """Cores of the range of every step, site by site, at `data[start:start + d·left·right]`."""

    data: FloatArray
    start: IntArray  # per site of the layout
    left: IntArray
    right: IntArray


class Steps(NamedTuple):
    """What the compiled passes need to know of a layout."""

    variable: IntArray  # s
    site_start: IntArray  # s+1
    site: IntArray
    fresh: IntArray
    before: IntArray  # s
    cards: IntArray  # n
    frontier: int


class Weights(NamedTuple):
    """Numbers of the model along a layout."""

    leg: FloatArray  # n k      ℓ
    omega: FloatArray  # n k      ω
    table_start: IntArray  # per site of the layout
    table_left: IntArray
    table_right: IntArray
    table: FloatArray
    log_constant: float


class Cut(NamedTuple):
    """How bonds are truncated."""

    rank: int
    env_weight: float  # λ
    tolerance: float  # of singular values, with qr
    qr: bool


@kernel
def _grown(data, needed):  # type: ignore[no-untyped-def]
    if needed <= len(data):
        return data
    more = np.empty(max(needed, len(data) + len(data) // 2))
    more[: len(data)] = data
    return more


@kernel
def unary_tape(steps, omega):  # type: ignore[no-untyped-def]
    """Environment of the first pass: every site sees only its own ω, a train of bond one."""
    n, k = omega.shape
    start = steps.site * k
    ones = np.ones(len(steps.site), np.int64)
    return Tape(omega.copy().reshape(n * k), start, ones, ones.copy())


@kernel
def _bond_caps(act, count, cards, rank, caps):  # type: ignore[no-untyped-def]
    """Largest useful bond right of each frontier site: rank, and the states on either side."""
    left = 1.0
    for j in range(count):
        left = min(left * cards[act[j]], float(rank))
        caps[j] = int(left)
    right = 1.0
    for j in range(count - 1, -1, -1):
        caps[j] = min(caps[j], int(right))
        right = min(right * cards[act[j]], float(rank))


@kernel
def _remove(act, count, j):  # type: ignore[no-untyped-def]
    for i in range(j, count - 1):
        act[i] = act[i + 1]


@kernel
def _insert(act, count, j, v):  # type: ignore[no-untyped-def]
    for i in range(count, j, -1):
        act[i] = act[i - 1]
    act[j] = v


@kernel
def _fresh_core(card, bond, vector):  # type: ignore[no-untyped-def]
    core = np.zeros((card, bond, bond))
    for x in range(card):
        for a in range(bond):
            core[x, a, a] = vector[x]
    return core


@kernel
def _env_core(tape, e, card):  # type: ignore[no-untyped-def]
    a, b = tape.left[e], tape.right[e]
    return tape.data[tape.start[e] : tape.start[e] + card * a * b].reshape((card, a, b))


@kernel
def _table(w, e, card):  # type: ignore[no-untyped-def]
    a, b = w.table_left[e], w.table_right[e]
    return w.table[w.table_start[e] : w.table_start[e] + a * card * b].reshape((a, card, b))


@kernel
def _gauge_to(  # type: ignore[no-untyped-def]
    act, count, low, high, valid, slot, cores, env, tape, cards, one,
    gl, ol, gr, or_, logl, logr, norml, normr, qr,
):  # fmt: skip
    """Move the cached gauges and overlaps up to the range [low, high] from both sides."""
    for j in range(valid[0], low):
        u = act[j]
        s = slot[u]
        core = cores[s]
        e = _env_core(tape, env[u], cards[u])
        before, over, log, norm = one, one, 0.0, 0.0
        if j > 0:
            p = slot[act[j - 1]]
            before, over, log, norm = gl[p], ol[p], logl[p], norml[p]
        gl[s], more = gauge_left(core, before, qr)
        norml[s] = norm + more
        ol[s], more = scaled(overlap_left(core, e, over))
        logl[s] = log + more
    valid[0] = max(valid[0], low)
    for j in range(count - 1 - valid[1], high, -1):
        u = act[j]
        s = slot[u]
        core = cores[s]
        e = _env_core(tape, env[u], cards[u])
        after, over, log, norm = one, one, 0.0, 0.0
        if j < count - 1:
            p = slot[act[j + 1]]
            after, over, log, norm = gr[p], or_[p], logr[p], normr[p]
        table = np.ones((1, cards[u], 1))
        gr[s], more = gauge_right(core, table, after, qr)
        normr[s] = norm + more
        or_[s], more = scaled(overlap_right(core, table, e, over))
        logr[s] = log + more
    valid[1] = max(valid[1], count - 1 - high)


@kernel
def forward(steps, w, tape, cut, stop):  # type: ignore[no-untyped-def]
    """Eliminate everything; `tape` holds B_t. Returns the tape of F'_t, its logs, and the errors.

    Errors per step: largest discarded share, summed squared share, drift of the log overlap, and
    the log of the norm of F'_t. A pass that is stopped has the sign 0 and is of no use.
    """
    cards = steps.cards
    total = len(steps.site)
    count_steps = len(steps.variable)
    data = np.empty(max(1024, 4 * total))
    start = np.zeros(total, np.int64)
    left = np.zeros(total, np.int64)
    right = np.zeros(total, np.int64)
    used = 0
    logs = np.zeros(count_steps)  # log scale of F'_t
    errors = np.zeros((count_steps, 4))
    slots = steps.frontier + 1
    act = np.empty(slots, np.int64)
    caps = np.empty(slots, np.int64)
    slot = np.full(len(cards), -1, np.int64)
    free = np.arange(slots)
    n_free = slots
    empty3 = np.empty((0, 0, 0))
    empty2 = np.empty((0, 0))
    cores = [empty3] * slots
    gl, ol = [empty2] * slots, [empty2] * slots
    gr, or_ = [empty2] * slots, [empty2] * slots
    logl, logr = np.zeros(slots), np.zeros(slots)
    norml, normr = np.zeros(slots), np.zeros(slots)
    env = np.full(len(cards), -1, np.int64)
    valid = np.zeros(2, np.int64)
    one = np.ones((1, 1))
    plain = np.ones((1, np.max(cards), 1))
    count = 0
    log_f, log_norm, sign = 0.0, 0.0, 1.0
    for t in range(count_steps):
        if stop[0]:
            sign = 0.0
            break
        v = steps.variable[t]
        first, end = steps.site_start[t], steps.site_start[t + 1]
        low, m = steps.before[t], end - first
        gone = -1
        for q in range(m):
            u = steps.site[first + q]
            if steps.fresh[first + q]:
                j = low + q
                bond = 1
                if j > 0:
                    bond = cores[slot[act[j - 1]]].shape[2]
                elif count > 0:
                    bond = cores[slot[act[0]]].shape[1]
                n_free -= 1
                slot[u] = free[n_free]
                cores[slot[u]] = _fresh_core(cards[u], bond, w.leg[u])
                log_norm += 0.5 * np.log(np.sum(w.leg[u] * w.leg[u]))
                _insert(act, count, j, u)
                count += 1
            if u == v:
                gone = q
            env[u] = first + q
        high = low + m - 1
        valid[0] = min(valid[0], low)
        valid[1] = min(valid[1], count - 1 - high)
        _gauge_to(
            act, count, low, high, valid, slot, cores, env, tape, cards, one,
            gl, ol, gr, or_, logl, logr, norml, normr, cut.qr,
        )  # fmt: skip
        logs[t], errors[t, 3] = log_f, log_norm
        for q in range(m):
            core = cores[slot[steps.site[first + q]]]
            data = _grown(data, used + core.size)
            data[used : used + core.size] = core.ravel()
            start[first + q], left[first + q], right[first + q] = (
                used, core.shape[1], core.shape[2],
            )  # fmt: skip
            used += core.size
        if m == 1:
            core = cores[slot[v]]
            z = 0.0
            for x in range(cards[v]):
                z += core[x, 0, 0] * w.omega[v, x]
            sign = 1.0 if z > 0.0 else -1.0
            log_f += np.log(abs(z)) if z != 0.0 else -np.inf
            log_norm = log_f
            free[n_free] = slot[v]
            n_free += 1
            count = 0
            valid[:] = 0
            continue
        range_cores = [cores[slot[steps.site[first + q]]] for q in range(m)]
        tables = [_table(w, first + q, cards[steps.site[first + q]]) for q in range(m)]
        envs = [plain] * m
        for q in range(m):
            if q != gone:
                envs[q] = _env_core(tape, first + q, cards[steps.site[first + q]])
        g0, o0, g1, o1 = one, one, one, one
        log_left, norm_left, norm_right = 0.0, 0.0, 0.0
        if low > 0:
            p = slot[act[low - 1]]
            g0, o0, log_left, norm_left = gl[p], ol[p], logl[p], norml[p]
        if high < count - 1:
            p = slot[act[high + 1]]
            g1, o1, norm_right = gr[p], or_[p], normr[p]
        weights = w.omega[v] if v >= 0 else w.omega[0]
        if gone >= 0:
            _remove(act, count, low + gone)
            count -= 1
        _bond_caps(act, count, cards, cut.rank, caps)
        ranks = np.ones(m, np.int64)
        j = low
        for q in range(m):
            if q != gone:
                ranks[q] = caps[j]
                j += 1
        out, gauges, overlaps, more, log, _, _, worst, discarded, drift, norm, norms = compress(
            range_cores, tables, envs, gone, weights, -1, g0, o0, g1, o1,
            ranks, cut.env_weight, cut.tolerance, cut.qr,
        )  # fmt: skip
        log_norm = log_f + norm_left + norm + norm_right
        log_f += log
        errors[t, 0], errors[t, 1], errors[t, 2] = worst, discarded, drift
        for q in range(m):
            u = steps.site[first + q]
            s = slot[u]
            if q == gone:
                free[n_free] = s
                n_free += 1
                cores[s] = empty3
                continue
            cores[s], gl[s], ol[s] = out[q], gauges[q], overlaps[q]
            logl[s], norml[s] = log_left + more[q], norm_left + norms[q]
        kept = m - 1 if gone >= 0 else m
        valid[0] = low + kept - 1
        valid[1] = count - (low + kept)
    return Tape(data[:used].copy(), start, left, right), logs, log_f, sign, errors


@kernel
def backward(steps, w, tape, logs, cut, record, stop):  # type: ignore[no-untyped-def]
    """Walk back; `tape` holds F'_t. Returns masses n k, log Z_t per step, B's tape, errors.

    Errors as in the forward pass, with the norm of B'_t. With `record` false no tape is kept. A
    pass that is stopped says that log Z is NaN and is of no use.
    """
    cards = steps.cards
    total = len(steps.site)
    count_steps = len(steps.variable)
    data = np.empty(max(1024, 4 * total) if record else 1)
    start = np.zeros(total, np.int64)
    left = np.zeros(total, np.int64)
    right = np.zeros(total, np.int64)
    used = 0
    errors = np.zeros((count_steps, 4))
    log_z = np.full(count_steps, np.nan)
    mass = np.zeros(w.omega.shape)
    slots = steps.frontier + 1
    act = np.empty(slots, np.int64)
    caps = np.empty(slots, np.int64)
    slot = np.full(len(cards), -1, np.int64)
    free = np.arange(slots)
    n_free = slots
    empty3 = np.empty((0, 0, 0))
    empty2 = np.empty((0, 0))
    cores = [empty3] * slots
    gl, ol = [empty2] * slots, [empty2] * slots
    gr, or_ = [empty2] * slots, [empty2] * slots
    logl, logr = np.zeros(slots), np.zeros(slots)
    norml, normr = np.zeros(slots), np.zeros(slots)
    env = np.full(len(cards), -1, np.int64)
    valid = np.zeros(2, np.int64)
    one = np.ones((1, 1))
    count = 0
    log_b = 0.0
    for t in range(count_steps - 1, -1, -1):
        if stop[0]:
            log_b = np.nan
            break
        v = steps.variable[t]
        first, end = steps.site_start[t], steps.site_start[t + 1]
        low, m = steps.before[t], end - first
        high = low + m - 1
        pivot = -1
        for q in range(m):
            u = steps.site[first + q]
            env[u] = first + q
            if u == v:
                pivot = q
            elif record:
                core = cores[slot[u]]
                data = _grown(data, used + core.size)
                data[used : used + core.size] = core.ravel()
                start[first + q], left[first + q], right[first + q] = (
                    used, core.shape[1], core.shape[2],
                )  # fmt: skip
                used += core.size
        valid[0] = min(valid[0], low)
        valid[1] = min(valid[1], count - (low + m - (1 if pivot >= 0 else 0)))
        if pivot >= 0:
            j = low + pivot
            bond = 1
            if j > 0:
                bond = cores[slot[act[j - 1]]].shape[2]
            elif count > 0:
                bond = cores[slot[act[0]]].shape[1]
            n_free -= 1
            slot[v] = free[n_free]
            cores[slot[v]] = _fresh_core(cards[v], bond, w.omega[v])
            _insert(act, count, j, v)
            count += 1
        _gauge_to(
            act, count, low, high, valid, slot, cores, env, tape, cards, one,
            gl, ol, gr, or_, logl, logr, norml, normr, cut.qr,
        )  # fmt: skip
        g0, o0, g1, o1 = one, one, one, one
        log_left, log_right, norm_left, norm_right = 0.0, 0.0, 0.0, 0.0
        if low > 0:
            p = slot[act[low - 1]]
            g0, o0, log_left, norm_left = gl[p], ol[p], logl[p], norml[p]
        if high < count - 1:
            p = slot[act[high + 1]]
            g1, o1, log_right, norm_right = gr[p], or_[p], logr[p], normr[p]
        range_cores = [cores[slot[steps.site[first + q]]] for q in range(m)]
        tables = [_table(w, first + q, cards[steps.site[first + q]]) for q in range(m)]
        envs = [_env_core(tape, first + q, cards[steps.site[first + q]]) for q in range(m)]
        _bond_caps(act, count, cards, cut.rank, caps)
        ranks = caps[low : low + m].copy()
        (
            out, gauges, overlaps, more, log, p_v, p_log, worst, discarded, drift, norm, norms,
        ) = compress(
            range_cores, tables, envs, -1, w.omega[0], pivot, g0, o0, g1, o1,
            ranks, cut.env_weight, cut.tolerance, cut.qr,
        )  # fmt: skip
        errors[t, 0], errors[t, 1], errors[t, 2] = worst, discarded, drift
        errors[t, 3] = log_b + norm_left + norm + norm_right
        if pivot >= 0:
            z = np.sum(p_v)
            mass[v, : cards[v]] = p_v / z
            if z > 0.0:
                log_z[t] = np.log(z) + p_log + log_left + log_right + log_b + logs[t]
        log_b += log
        for q in range(m):
            s = slot[steps.site[first + q]]
            cores[s], gl[s], ol[s] = out[q], gauges[q], overlaps[q]
            logl[s], norml[s] = log_left + more[q], norm_left + norms[q]
        valid[0] = low + m - 1
        valid[1] = count - (low + m)
        length = m
        q = 0
        for k in range(m):
            u = steps.site[first + k]
            if not steps.fresh[first + k]:
                q += 1
                continue
            s = slot[u]
            core = cores[s]
            matrix = np.zeros((core.shape[1], core.shape[2]))
            for x in range(cards[u]):
                matrix += w.leg[u, x] * core[x]
            j = low + q
            if length == 1:  # the range never loses its last site unless the train ends here
                z = matrix[0, 0]
                log_b += np.log(abs(z)) if z != 0.0 else -np.inf
            elif q + 1 < length:
                p = slot[act[j + 1]]
                old = cores[p]
                new = np.empty((old.shape[0], matrix.shape[0], old.shape[2]))
                for x in range(old.shape[0]):
                    new[x] = np.dot(matrix, old[x])
                cores[p], log = scaled(new)
                log_b += log
                valid[0] = min(valid[0], j)
            else:
                p = slot[act[j - 1]]
                old = cores[p]
                new = np.empty((old.shape[0], old.shape[1], matrix.shape[1]))
                for x in range(old.shape[0]):
                    new[x] = np.dot(old[x], matrix)
                cores[p], log = scaled(new)
                log_b += log
                valid[0] = min(valid[0], j - 1)
            _remove(act, count, j)
            count -= 1
            length -= 1
            free[n_free] = s
            n_free += 1
            cores[s] = empty3
        valid[1] = count - (low + length)
    return mass, log_z, log_b, Tape(data[:used].copy(), start, left, right), errors
