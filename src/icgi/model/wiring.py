"""A model as flat arrays, the form that compiled kernels read: any cardinality, any arity."""

from dataclasses import dataclass
from itertools import chain, pairwise
from operator import attrgetter
from weakref import WeakKeyDictionary

import numpy as np

from icgi.model.graph import FactorGraph, FloatArray, IntArray, assembled

_KEPT_FACTORS, _KEPT_ENTRIES = 10_000, 16  # from so many factors, up to so many entries of each
_kept: WeakKeyDictionary[FactorGraph, "Wiring"] = WeakKeyDictionary()
_SIZE = attrgetter("size")  # no Python frame per factor: batches wire thousands of models


@dataclass(frozen=True, eq=False, slots=True)
class Wiring:
    """Scopes and tables of all factors, one after the other; offsets say where each begins."""

    cards: IntArray  # n
    scope_start: IntArray  # f+1      where each factor's scope begins in `scope`
    scope: IntArray  # e        variables of all scopes
    table_start: IntArray  # f+1      where each factor's table begins in `values`
    values: FloatArray  # all entries of all log tables, last scope variable fastest


def wiring(model: FactorGraph) -> Wiring:
    """Flat copy of a model; of many small factors, where it takes longest, one for all callers."""
    if model.n_factors < _KEPT_FACTORS:
        return _wiring(model)
    kept = _kept.get(model)
    if kept is None:
        kept = _wiring(model)
        if len(kept.values) <= _KEPT_ENTRIES * model.n_factors:  # no larger than the model itself
            _kept[model] = kept
    return kept


def _wiring(model: FactorGraph) -> Wiring:
    f = model.n_factors
    arity = np.fromiter(map(len, model.scopes), np.int64, f)
    sizes = np.fromiter(map(_SIZE, model.log_tables), np.int64, f)
    scope = np.fromiter(chain.from_iterable(model.scopes), np.int64, int(arity.sum()))
    values = np.concatenate(model.log_tables, axis=None) if f else np.empty(0)
    return Wiring(model.cards, _starts(arity), scope, _starts(sizes), values)


def unwire(wired: Wiring, like: FactorGraph) -> FactorGraph:
    """Turn flat arrays of our own into a `FactorGraph`, tables being views into the flat array.

    The flat array is read-only from here on. Names are kept from `like`, names of states are not.
    """
    return assembled(wired.cards, *parts(wired), names=like.names)


def parts(wired: Wiring) -> tuple[tuple[tuple[int, ...], ...], tuple[FloatArray, ...]]:
    """Scopes and tables, the tables being read-only views into the flat array."""
    wired.values.flags.writeable = False
    cards = wired.cards.tolist()
    scope = wired.scope.tolist()
    ends = wired.scope_start.tolist()
    cuts = wired.table_start.tolist()
    scopes = tuple([tuple(scope[a:b]) for a, b in pairwise(ends)])
    tables = tuple(
        [
            wired.values[a:b].reshape([cards[i] for i in s])
            for a, b, s in zip(cuts[:-1], cuts[1:], scopes, strict=True)
        ]
    )
    return scopes, tables


def _starts(lengths: IntArray) -> IntArray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
