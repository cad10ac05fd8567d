"""Mean and variance of a sum of terms over factors, exactly, in one pass towards the root.

Given a separator, the terms below it are independent of those above, so messages carry the mean
and the variance of what is below: at a product they add up, at a sum they are those of a mixture.
"""

import math
from collections.abc import Sequence

import numpy as np

from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.exact.logpasses import _sum_clique
from icgi.exact.tree import Plan, fill_store
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, assembled

STORES = 3  # of the size of that of the junction tree: weights, means and variances


def moments(
    model: FactorGraph, terms: Sequence[FloatArray], made: Plan, deadline: Deadline
) -> tuple[float, float, float]:
    """(log Z, mean, variance) of Σ_f a_f(x_f); `terms` are finite and shaped as the tables."""
    carried = assembled(model.cards, model.scopes, tuple(map(np.asarray, terms)))
    store, shift = fill_store(model, made, log=True)
    mean, centre = fill_store(carried, made, log=True)
    variance = np.zeros_like(mean)
    buffers = np.empty((STORES, made.largest_clique))
    with deadline.flag() as stop:
        found = _collect(made.tree, store, mean, variance, buffers, stop)
    if math.isnan(found[0]):
        raise BudgetError("the seconds were over before an exact pass was done; give more seconds")
    return float(found[0]) + shift, float(found[1]) + centre, float(found[2])


@kernel
def _collect(tree, store, mean, variance, buffers, stop):  # type: ignore[no-untyped-def]
    dims, strides = np.empty(512, np.int64), np.empty(512, np.int64)
    mdims, mstrides = np.empty(512, np.int64), np.empty(512, np.int64)
    log, e, v = buffers[0], buffers[1], buffers[2]
    log_z, total_mean, total_variance = 0.0, 0.0, 0.0
    for node in tree.nodes:
        _sum_clique(tree, node, store, log, dims, strides, mdims, mstrides, stop)
        _sum_clique(tree, node, mean, e, dims, strides, mdims, mstrides, stop)
        _sum_clique(tree, node, variance, v, dims, strides, mdims, mstrides, stop)
        if stop[0]:
            return np.nan, 0.0, 0.0
        size, base = tree.size[node], tree.message[node]
        states = tree.clique[node] // size
        for j in range(size):
            top = -np.inf
            for x in range(states):
                top = max(top, log[x * size + j])
            store[base + j], mean[base + j], variance[base + j] = top, 0.0, 0.0
            if not top > -np.inf:
                continue
            weight, first = 0.0, 0.0
            for x in range(states):
                w = np.exp(log[x * size + j] - top)
                weight += w
                first += w * e[x * size + j]
            first /= weight
            second = 0.0
            for x in range(states):
                w = np.exp(log[x * size + j] - top)
                second += w * (v[x * size + j] + (e[x * size + j] - first) ** 2)
            store[base + j] = top + np.log(weight)
            mean[base + j] = first
            variance[base + j] = second / weight
        if tree.sep_start[node + 1] == tree.sep_start[node] and tree.variable[node] >= 0:
            log_z += store[base]
            total_mean += mean[base]
            total_variance += variance[base]
    return log_z, total_mean, total_variance
