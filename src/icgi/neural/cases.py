"""Preparation of one model for a network: belief propagation, and the states that stay open.

A state whose belief is negligible at rest is left out of the network's model and keeps the belief,
so a protein of 81 states a variable becomes small.
"""

from dataclasses import dataclass

import numpy as np

from icgi.clock import Deadline
from icgi.errors import EvidenceError
from icgi.model.graph import BoolArray, FactorGraph, FloatArray
from icgi.model.reduce import propagate, restrict
from icgi.neural.pace import traced, unary_beliefs
from icgi.neural.possible import possible_states
from icgi.neural.sum_product import Messages, sum_product

PROBING = 0.1  # share of the time for finding impossible states
FIRST = 0.6  # share for the beliefs that say which states are worth asking
NEGLIGIBLE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A model, what belief propagation says of it, and what is left for a network."""

    model: FactorGraph
    prior: FloatArray  # n k    beliefs
    kept: BoolArray  # n k    states that the network is asked for
    reduced: FactorGraph  # with these states only
    messages: Messages | None  # on what is left; none if the time was over
    at_rest: bool  # whether the beliefs are those of messages at rest

    def spread_out(self, rows: FloatArray) -> FloatArray:
        """Distributions (n k) over all states from those (n k) over the kept ones."""
        full = spread_out(rows, self.kept) * (self.prior * self.kept).sum(1, keepdims=True)
        return np.asarray(np.where(self.kept, full, self.prior))


def prepare(model: FactorGraph, deadline: Deadline) -> Case:
    """Belief propagation on the possible states, then on those that it leaves.

    Raises `EvidenceError` where nothing is possible.
    """
    alive = possible_states(model, deadline.share(PROBING))
    reduced = model if deadline.passed else restrict(model, alive)
    first = None if deadline.passed else sum_product(reduced, deadline.share(FIRST))
    if first is None or not first.sweeps:
        return Case(model, unary_beliefs(model, alive), alive, reduced, None, False)
    prior = traced(spread_out(first.beliefs, alive), alive)
    kept = _worth_asking(model, alive, prior) if first.at_rest else alive
    if kept.sum() == alive.sum():
        return Case(model, prior, alive, reduced, first, first.at_rest)
    smaller = restrict(model, kept)
    again = sum_product(smaller, deadline)
    if not again.sweeps:
        return Case(model, prior, alive, reduced, first, True)
    return Case(model, prior, kept, smaller, again, True)


def spread_out(rows: FloatArray, mask: BoolArray) -> FloatArray:
    """Numbers (n k) of the states in a mask from rows that count these only."""
    full = np.zeros(mask.shape)
    full[mask] = rows[np.arange(rows.shape[1]) < mask.sum(1)[:, None]]
    return full


def _worth_asking(model: FactorGraph, alive: BoolArray, prior: FloatArray) -> BoolArray:
    try:
        return propagate(model, alive & (prior >= NEGLIGIBLE))
    except EvidenceError:  # beliefs that contradict each other
        return alive
