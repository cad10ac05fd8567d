"""Compiled sweeps of generalised belief propagation over the tables of regions.

One inner region β with n_β parents α is solved at a time, all else held fixed:

    log M_αβ = log Σ_{x_α∖x_β} b_α − λ_αβ                 what α says about β, parent to child,
    log b_β  = (Σ_α log M_αβ − (c_β − κ_β) log b̂_β) / (n_β + κ_β),   λ_αβ = log b_β − log M_αβ,

with the counting number c, the part κ of it that is kept, and the rest linearised at the anchor b̂
(`gbp.py` says why). `stop[0]` becomes 1 when the time is over: regions that are not reached keep
the beliefs they have, which are distributions at any time.
"""

import math
from typing import NamedTuple

import numpy as np

from icgi.approx.region_tables import Tables
from icgi.kernels import kernel
from icgi.model.graph import FloatArray, IntArray

TINY = 1e-100  # linear marginals below it are summed again in logarithms
SOLVED = 0.1  # disagreement, in steps from the anchor, below which the inner loop is solved
RUNAWAY = 1e-3  # weight of disagreement in logarithms: a belief may vanish, but not move on
LONGEST = 16.0  # leap of an anchor, in steps
LIMIT = 1e12  # of log messages: even a run that diverges stays finite
INNER = 100  # sweeps at most between two anchors of the double loop


class State(NamedTuple):
    """What a run changes; everything is written in place by the sweeps."""

    messages: FloatArray  # λ_αβ, laid out by `Tables.message_start`
    joint: FloatArray  # b_α, laid out by `Tables.entry_start`
    log_belief: FloatArray  # log b_β, laid out by `Tables.state_start`
    belief: FloatArray  # b_β
    anchor: FloatArray  # log b̂_β
    counter: IntArray  # sweeps made, sweeps since the anchor moved, moves since extrapolating
    earlier: FloatArray  # 2 ·   anchors of the double loop: two moves ago, and without the leap
    leap: FloatArray  # Kikuchi log Z before the last extrapolation, and how far the next may go
    work: FloatArray  # 2 ·   marginals of all parents of one region, and their logarithms
    line: FloatArray  # 3 ·   one region's states
    logs: FloatArray  # log table of one maximal region


def initial_state(t: Tables) -> State:
    """Messages of one, uniform beliefs."""
    states, entries = np.diff(t.state_start), np.diff(t.entry_start)
    log_belief = np.repeat(-np.log(np.maximum(states, 1)), states)
    width = int((states * np.diff(t.link_start)).max(initial=1))
    return State(
        np.zeros(t.message_start[-1]),
        np.repeat(1.0 / np.maximum(entries, 1), entries),
        log_belief,
        np.exp(log_belief),
        log_belief.copy(),
        np.zeros(3, np.int64),
        np.empty((2, len(log_belief))),
        np.array([-np.inf, LONGEST]),
        np.empty((2, width)),
        np.empty((3, int(states.max(initial=1)))),
        np.empty(int(entries.max(initial=1))),
    )


def restart(t: Tables, s: State) -> None:
    """Back to the initial state, sweeps counted on."""
    states = np.diff(t.state_start)
    s.messages[:] = 0.0
    s.log_belief[:] = np.repeat(-np.log(np.maximum(states, 1)), states)
    s.belief[:] = np.exp(s.log_belief)
    s.anchor[:] = s.log_belief
    s.leap[:] = -np.inf, LONGEST
    s.counter[1:] = 0


@kernel
def advance(t, s, kept, damping, double, tolerance, count, stop):  # type: ignore[no-untyped-def]
    """Make up to `count` sweeps, alternating in direction; how many, and the last residual."""
    residual = np.inf
    for done in range(count):
        refresh(t, s, stop)
        gap, drift, moved, runaway = _sweep(
            t, s, kept, damping, not double, s.counter[0] % 2 == 0, stop
        )
        if stop[0]:
            return done, residual
        residual = max(gap, drift, RUNAWAY * runaway)
        s.counter[0] += 1
        s.counter[1] += 1
        if double and (gap <= SOLVED * moved or s.counter[1] >= INNER):
            _move_anchor(t, s, stop)
        if residual <= tolerance:
            # the sweep has met every region before its last update: look again at the end
            refresh(t, s, stop)
            residual = max(residual, consistency(t, s, stop))
            if residual <= tolerance:
                return done + 1, residual
    return count, residual


@kernel
def _move_anchor(t, s, stop):  # type: ignore[no-untyped-def]
    """Bring the anchor to the beliefs; every second time, beyond them (Varadhan, Roland 2008).

    The double loop creeps where many regions anchor one belief. A leap that lowers log Z is taken
    back, and the next one is shorter.
    """
    s.counter[1] = 0
    log_z = kikuchi(t, s, stop)
    if s.counter[2] == 2:
        s.counter[2] = 0
        if log_z < s.leap[0] - 1e-7 * max(abs(s.leap[0]), 1.0):
            s.leap[1] = max(1.0, s.leap[1] / 4)
            s.anchor[:] = s.earlier[1]
            return
        s.leap[1] = min(LONGEST, 2 * s.leap[1])
    s.counter[2] += 1
    if s.counter[2] == 1:
        s.earlier[0] = s.anchor
        s.anchor[:] = s.log_belief
        return
    first, bend = 0.0, 0.0
    for x in range(len(s.anchor)):
        r = s.anchor[x] - s.earlier[0, x]
        v = s.log_belief[x] - s.anchor[x] - r
        first, bend = first + s.belief[x] * r * r, bend + s.belief[x] * v * v
    length = min(max(math.sqrt(first / max(bend, 1e-300)), 1.0), s.leap[1])
    s.leap[0] = log_z
    s.earlier[1] = s.log_belief
    for b in range(len(t.counting)):
        top = -np.inf
        for x in range(t.state_start[b], t.state_start[b + 1]):
            r = s.anchor[x] - s.earlier[0, x]
            v = s.log_belief[x] - s.anchor[x] - r
            s.anchor[x] = s.earlier[0, x] + 2 * length * r + length * length * v
            top = max(top, s.anchor[x])
        mass = 0.0
        for x in range(t.state_start[b], t.state_start[b + 1]):
            mass += math.exp(s.anchor[x] - top)
        for x in range(t.state_start[b], t.state_start[b + 1]):
            s.anchor[x] -= top + math.log(mass)


@kernel
def _sweep(t, s, kept, damping, moving, forward, stop):  # type: ignore[no-untyped-def]
    """Update every inner region once.

    Largest disagreement of parents with beliefs; distance of beliefs to anchors, in units of an
    undamped step and as it is; largest disagreement in logarithms, where vanishing beliefs show.
    """
    gap, drift, moved, runaway = 0.0, 0.0, 0.0, 0.0
    regions = len(t.counting)
    for step in range(regions):
        if stop[0]:
            break
        b = step if forward else regions - 1 - step
        begin, size = t.state_start[b], t.state_start[b + 1] - t.state_start[b]
        first, n = t.link_start[b], t.link_start[b + 1] - t.link_start[b]
        total = s.line[0]
        for x in range(size):
            total[x] = (kept[b] - t.counting[b]) * s.anchor[begin + x]
        for p in range(n):
            _marginal(t, s, first + p, size, p * size)
            at = t.message_start[first + p]
            for x in range(size):
                total[x] += s.work[1, p * size + x] - s.messages[at + x]
        top = -np.inf
        for x in range(size):
            total[x] /= n + kept[b]
            top = max(top, total[x])
        mass = 0.0
        for x in range(size):
            s.line[1, x] = math.exp(total[x] - top)
            mass += s.line[1, x]
        shift = top + math.log(mass)
        # damping must not pass for convergence
        scale = (n + kept[b]) / max(abs(n + t.counting[b]), 1.0)
        for x in range(size):
            value, log_value = s.line[1, x] / mass, total[x] - shift
            if kept[b] != t.counting[b]:
                step_made = abs(value - math.exp(s.anchor[begin + x]))
                moved, drift = max(moved, step_made), max(drift, scale * step_made)
                runaway = max(runaway, abs(log_value - s.anchor[begin + x]))
            s.belief[begin + x], s.log_belief[begin + x] = value, log_value
            if moving:
                s.anchor[begin + x] = log_value
        for p in range(n):
            a, at = t.link_outer[first + p], t.message_start[first + p]
            ratio, unsafe = s.line[2], False
            for x in range(size):
                linear = s.work[0, p * size + x]
                gap = max(gap, abs(linear - s.belief[begin + x]))
                change = s.log_belief[begin + x] - s.work[1, p * size + x]
                runaway = max(runaway, abs(change))
                change *= 1.0 - damping
                s.messages[at + x] = min(max(s.messages[at + x] + change, -LIMIT), LIMIT)
                unsafe = unsafe or linear < TINY
                ratio[x] = math.exp(min(change, 600.0))
            if unsafe:
                _refresh_one(t, s, a)
                continue
            shift_map = t.map_start[first + p] - t.entry_start[a]
            for k in range(t.entry_start[a], t.entry_start[a + 1]):
                s.joint[k] *= ratio[t.maps[shift_map + k]]
    return gap, drift, moved, runaway


@kernel
def _marginal(t, s, link, size, at):  # type: ignore[no-untyped-def]
    """Belief of a link's parent about the inner region into work[0], its logarithm into work[1]."""
    linear, logs = s.work[0, at : at + size], s.work[1, at : at + size]
    a = t.link_outer[link]
    begin, end = t.entry_start[a], t.entry_start[a + 1]
    shift = t.map_start[link] - begin
    linear[:] = 0.0
    for k in range(begin, end):
        linear[t.maps[shift + k]] += s.joint[k]
    mass, lowest = 0.0, np.inf
    for x in range(size):
        mass += linear[x]
        lowest = min(lowest, linear[x])
    if lowest >= TINY and mass < 1e100:
        for x in range(size):
            linear[x] /= mass
            logs[x] = math.log(linear[x])
        return
    _log_table(t, s, a)
    logs[:] = -np.inf
    for k in range(begin, end):
        x = t.maps[shift + k]
        logs[x] = max(logs[x], s.logs[k - begin])
    linear[:] = 0.0
    for k in range(begin, end):
        x = t.maps[shift + k]
        linear[x] += math.exp(s.logs[k - begin] - logs[x])
    top = -np.inf
    for x in range(size):
        logs[x] += math.log(linear[x])
        top = max(top, logs[x])
    mass = 0.0
    for x in range(size):
        mass += math.exp(logs[x] - top)
    top += math.log(mass)
    for x in range(size):
        logs[x] -= top
        linear[x] = math.exp(logs[x])


@kernel
def _log_table(t, s, a):  # type: ignore[no-untyped-def]
    """θ_α + Σ_β λ_αβ into `logs`; the largest entry."""
    begin, end = t.entry_start[a], t.entry_start[a + 1]
    for k in range(begin, end):
        s.logs[k - begin] = t.theta[k]
    for e in range(t.outer_start[a], t.outer_start[a + 1]):
        link = t.outer_link[e]
        at, shift = t.message_start[link], t.map_start[link]
        for k in range(end - begin):
            s.logs[k] += s.messages[at + t.maps[shift + k]]
    top = -np.inf
    for k in range(end - begin):
        top = max(top, s.logs[k])
    return top


@kernel
def _refresh_one(t, s, a):  # type: ignore[no-untyped-def]
    top = _log_table(t, s, a)
    begin, mass = t.entry_start[a], 0.0
    for k in range(t.entry_start[a + 1] - begin):
        s.joint[begin + k] = math.exp(s.logs[k] - top)
        mass += s.joint[begin + k]
    for k in range(begin, t.entry_start[a + 1]):
        s.joint[k] /= mass


@kernel
def refresh(t, s, stop):  # type: ignore[no-untyped-def]
    """Set b_α ∝ exp(θ_α + Σ_β λ_αβ) for all maximal regions; products alone would drift."""
    for a in range(len(t.entry_start) - 1):
        if stop[0]:
            break
        _refresh_one(t, s, a)


@kernel
def consistency(t, s, stop):  # type: ignore[no-untyped-def]
    """Largest difference between a region's belief and what a parent says; infinite: no time."""
    gap = 0.0
    for b in range(len(t.counting)):
        if stop[0]:
            return np.inf
        begin, size = t.state_start[b], t.state_start[b + 1] - t.state_start[b]
        for link in range(t.link_start[b], t.link_start[b + 1]):
            _marginal(t, s, link, size, 0)
            for x in range(size):
                gap = max(gap, abs(s.work[0, x] - s.belief[begin + x]))
    return gap


@kernel
def kikuchi(t, s, stop):  # type: ignore[no-untyped-def]
    """Energy and entropy of all regions, each as often as it counts; NaN: no time."""
    log_z = t.constant
    for a in range(len(t.entry_start) - 1):
        if stop[0]:
            return np.nan
        for k in range(t.entry_start[a], t.entry_start[a + 1]):
            if s.joint[k] > 0.0:
                log_z += s.joint[k] * (t.theta[k] - math.log(s.joint[k]))
    for b in range(len(t.counting)):
        for x in range(t.state_start[b], t.state_start[b + 1]):
            if s.belief[x] > 0.0:
                log_z -= t.counting[b] * s.belief[x] * s.log_belief[x]
    return log_z


@kernel
def read_marginals(t, s, cards, choice, stride, probs):  # type: ignore[no-untyped-def]
    """Marginal of each variable from region `choice`, inner if ≥ 0, maximal −1 − choice if not."""
    for i in range(len(cards)):
        b = choice[i]
        if b >= 0:
            for x in range(t.state_start[b], t.state_start[b + 1]):
                probs[i, t.state_code[x] // stride[i] % cards[i]] += s.belief[x]
        else:
            for k in range(t.entry_start[-1 - b], t.entry_start[-b]):
                probs[i, t.code[k] // stride[i] % cards[i]] += s.joint[k]
        probs[i] /= probs[i].sum()


@kernel
def smallest_regions(start, scope, inner, cards):  # type: ignore[no-untyped-def]
    """For `read_marginals`: the smallest region around each variable, and its stride there.

    The first `inner` regions are inner ones; of regions of the same size the first is taken.
    """
    n = len(cards)
    choice, stride = np.zeros(n, np.int64), np.ones(n, np.int64)
    size = np.full(n, np.iinfo(np.int64).max)
    for r in range(len(start) - 1):
        step, length = 1, start[r + 1] - start[r]
        for k in range(start[r + 1] - 1, start[r] - 1, -1):
            i = scope[k]
            if length < size[i]:
                size[i], stride[i] = length, step
                choice[i] = r if r < inner else -1 - (r - inner)
            step *= cards[i]
    return choice, stride
