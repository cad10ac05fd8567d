"""Multiply tables into a range of neighbouring sites and truncate the bonds inside it.

One sweep from the right collects what lies right of every bond, one from the left truncates. Both
the plain norm of the train and its overlap with an environment train count, the latter λ times.
A gauge is kept as a gram (`qr=False`, fast) or as a triangular factor (`qr=True`, twice the
digits).
"""

import numpy as np

from icgi.kernels import kernel
from icgi.tt.contract import (
    absorb_left,
    dense_site,
    dot_all,
    gram_left,
    gram_right,
    open_site,
    overlap_left,
    overlap_right,
    scaled,
    summed,
    unit_trace,
)
from icgi.tt.truncate import by_gram, by_svd, triangle


@kernel
def gauge_right(core, table, gauge, qr):  # type: ignore[no-untyped-def]
    """Gauge at the left bond of a site from that at its right bond, and the log of its scale."""
    if not qr:
        return unit_trace(gram_right(core, table, gauge))
    h = dense_site(core, table)
    d, left, _ = h.shape
    rows = gauge.shape[0]
    stacked = np.empty((d * rows, left))
    for x in range(d):
        stacked[x * rows : (x + 1) * rows] = np.dot(gauge, h[x].T)
    return scaled(triangle(stacked))


@kernel
def gauge_left(core, gauge, qr):  # type: ignore[no-untyped-def]
    """Gauge at the right bond of a site from that at its left bond, and the log of its scale."""
    if not qr:
        return unit_trace(gram_left(core, gauge))
    d, _, right = core.shape
    rows = gauge.shape[0]
    stacked = np.empty((d * rows, right))
    for x in range(d):
        stacked[x * rows : (x + 1) * rows] = np.dot(gauge, core[x])
    return scaled(triangle(stacked))


@kernel
def _through(matrix, gauge, qr):  # type: ignore[no-untyped-def]
    """Gauge of a right bond seen through a matrix (left bond, right bond)."""
    if qr:
        return scaled(triangle(np.dot(gauge, matrix.T)))
    return unit_trace(np.dot(matrix, np.dot(gauge, matrix.T)))


@kernel
def _log_norm(core, left, right, qr):  # type: ignore[no-untyped-def]
    """Log of the norm of a train of which all but one core is in the gauges."""
    total = 0.0
    for x in range(core.shape[0]):
        if qr:
            part = np.dot(np.dot(left, core[x]), right.T)
            total += np.sum(part * part)
        else:
            total += np.sum(np.dot(left, core[x]) * np.dot(core[x], right))
    return 0.5 * np.log(total) if total > 0.0 else -np.inf


@kernel
def _projectors(left, right, over_left, over_right, rank, weight, tolerance, qr):  # type: ignore[no-untyped-def]
    size = over_left.shape[0]
    if not qr and size <= rank:
        return np.eye(size), np.eye(size), 0.0
    if qr:
        la, ra = left, right
        if weight > 0.0:
            la = triangle(np.concatenate((left, weight * np.ascontiguousarray(over_left.T))))
            ra = triangle(np.concatenate((right, weight * np.ascontiguousarray(over_right.T))))
        return by_svd(la, ra, rank, tolerance)
    return by_gram(
        _with_overlap(left, over_left, weight), _with_overlap(right, over_right, weight), rank
    )


@kernel
def _with_overlap(gram, overlap, weight):  # type: ignore[no-untyped-def]
    """Gram of a gauge stacked with λ times the overlap."""
    out = np.dot(overlap, np.ascontiguousarray(overlap.T))
    square = weight * weight
    for i in range(len(gram)):
        for j in range(len(gram)):
            out[i, j] = gram[i, j] + square * out[i, j]
    return out


@kernel
def compress(  # type: ignore[no-untyped-def]
    cores, tables, envs, gone, weights, opened,
    gauge, overlap, end_gauge, end_overlap, ranks, env_weight, tolerance, qr,
):  # fmt: skip
    """Train of the range after multiplying the tables, with all inner bonds truncated.

    Parameters
    ----------
    gone : site that is summed out with `weights` and has no environment core, or −1
    opened : site whose marginal with the environment is wanted, or −1
    gauge, overlap, end_gauge, end_overlap : of everything left of the range, and right of it
    ranks : largest bond allowed right of every site

    Returns
    -------
    New cores (an empty one at `gone`), gauges and overlaps after each site, log of the scale taken
    out, marginal at `opened` and the log of its scale, largest and summed squared discarded share,
    summed change of log overlap, log of the norm of the whole train in units of both end gauges,
    logs of the scales of the gauges after each site.
    """
    m = len(cores)
    right_gauge = [end_gauge] * m
    right_overlap = [end_overlap] * m
    right_log = np.zeros(m)
    bridge = np.empty((0, 0))
    if gone >= 0:
        bridge = summed(cores[gone], tables[gone], weights)
    for q in range(m - 1, 0, -1):
        if q == gone:
            right_gauge[q - 1] = _through(bridge, right_gauge[q], qr)[0]
            moved = np.dot(bridge, right_overlap[q])
        else:
            right_gauge[q - 1] = gauge_right(cores[q], tables[q], right_gauge[q], qr)[0]
            moved = overlap_right(cores[q], tables[q], envs[q], right_overlap[q])
        right_overlap[q - 1], log = scaled(moved)
        right_log[q - 1] = right_log[q] + log

    out = [np.empty((0, 0, 0))] * m
    gauges = [np.empty((0, 0))] * m
    overlaps = [np.empty((0, 0))] * m
    overlap_logs, gauge_logs = np.zeros(m), np.zeros(m)
    log_scale, log_left, log_gauge, log_norm = 0.0, 0.0, 0.0, 0.0
    marginal, marginal_log = np.empty(0), 0.0
    worst, discarded, drift = 0.0, 0.0, 0.0
    last = m - 2 if gone == m - 1 else m - 1
    carried = np.eye(cores[0].shape[1])
    for q in range(last + 1):
        if q == gone:
            carried = np.dot(carried, bridge)
            continue
        core = absorb_left(carried, cores[q], tables[q])
        if q == opened:
            marginal = open_site(core, envs[q], overlap, right_overlap[q])
            marginal_log = log_scale + log_left + right_log[q]
        if q == last:
            if gone == m - 1:
                moved_core = np.empty((core.shape[0], core.shape[1], bridge.shape[1]))
                for x in range(core.shape[0]):
                    moved_core[x] = np.dot(core[x], bridge)
                core = moved_core
            out[q], log = scaled(core)
            log_norm = log_gauge + log_scale + _log_norm(core, gauge, end_gauge, qr)
            log_scale += log
            break
        gauge, log = gauge_left(core, gauge, qr)
        log_gauge += log
        overlap = overlap_left(core, envs[q], overlap)
        overlap, log = scaled(overlap)
        log_left += log
        a, b, lost = _projectors(
            gauge, right_gauge[q], overlap, right_overlap[q], ranks[q], env_weight, tolerance, qr
        )
        worst = max(worst, lost)
        discarded += lost * lost
        before = dot_all(overlap, right_overlap[q])
        overlap = np.dot(a.T, overlap)
        after = dot_all(overlap, np.dot(b, right_overlap[q]))
        if before * after > 0.0:
            drift += np.log(after / before)
        overlap, log = scaled(overlap)
        log_left += log
        d, bond, wide = core.shape
        new = np.dot(core.reshape((d * bond, wide)), a)
        out[q], log = scaled(new.reshape((d, bond, a.shape[1])))
        log_scale += log
        log_left -= log
        log_gauge -= log
        if qr:
            gauge, log = scaled(triangle(np.dot(gauge, a)))
        else:
            gauge, log = unit_trace(np.dot(a.T, np.dot(gauge, a)))
        log_gauge += log
        gauges[q], overlaps[q] = gauge, overlap
        gauge_logs[q], overlap_logs[q] = log_gauge, log_left
        carried = b
    return (
        out, gauges, overlaps, overlap_logs, log_scale, marginal, marginal_log,
        worst, discarded, drift, log_norm, gauge_logs,
    )  # fmt: skip
