"""States that can occur: others are kept from the network and get probability zero."""

import numpy as np

from icgi.clock import Deadline
from icgi.errors import EvidenceError
from icgi.model.graph import BoolArray, FactorGraph
from icgi.model.reduce import all_states, has_zeros, propagate

NEVER = Deadline()
PROBING = 2 * 10**7  # table entries that probing may read


def possible_states(model: FactorGraph, deadline: Deadline = NEVER) -> BoolArray:
    """Mask (n k) of the states left by arc consistency and, as far as effort goes, by probing.

    Probing assumes one state after the other and removes those whose assumption leaves some
    variable without a state (singleton arc consistency). Raises `EvidenceError` where nothing is
    possible.
    """
    if not has_zeros(model):
        return all_states(model)
    alive = propagate(model, all_states(model))
    entries = sum(table.size for table in model.log_tables)
    constrained = {
        i
        for scope, table in zip(model.scopes, model.log_tables, strict=True)
        if np.isneginf(table).any()
        for i in scope
    }
    spent, changed = 0, bool(constrained)
    while changed and spent < PROBING and not deadline.passed:
        changed = False
        for i in sorted(constrained):
            for x in np.flatnonzero(alive[i]):
                if alive[i].sum() == 1 or spent >= PROBING or deadline.passed:
                    break
                spent += entries
                assumed = alive.copy()
                assumed[i] = False
                assumed[i, x] = True
                try:
                    propagate(model, assumed)
                except EvidenceError:
                    alive[i, x] = False
                    alive = propagate(model, alive)
                    changed = True
    return alive
