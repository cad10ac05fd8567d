"""A model as flat arrays, the form that compiled kernels read: any cardinality, any arity."""

from dataclasses import dataclass

from icgi.model.graph import FactorGraph, Flat, FloatArray, IntArray, flattened, of_flat


@dataclass(frozen=True, eq=False, slots=True)
class Wiring:
    """Scopes and tables of all factors, one after the other; offsets say where each begins."""

    cards: IntArray  # n
    scope_start: IntArray  # f+1      where each factor's scope begins in `scope`
    scope: IntArray  # e        variables of all scopes
    table_start: IntArray  # f+1      where each factor's table begins in `values`
    values: FloatArray  # all entries of all log tables, last scope variable fastest


def wiring(model: FactorGraph) -> Wiring:
    """Flat form of a model; `values` are the caller's own, the rest is for reading only."""
    flat = model.flat or flattened(model.scopes, model.log_tables)
    values = flat.values
    if not values.flags.writeable:  # a type of its own for compiled code
        values = values.copy()
    return Wiring(model.cards, flat.scope_start, flat.scope, flat.table_start, values)


def entries_of(model: FactorGraph) -> int:
    """Number of entries of all tables."""
    if model.flat is not None:
        return len(model.flat.values)
    return sum([table.size for table in model.log_tables])


def unwire(wired: Wiring, like: FactorGraph | None = None) -> FactorGraph:
    """Turn flat arrays of our own into a `FactorGraph`, tables being views into the flat array.

    The flat array is read-only from here on. Names are kept from `like`, names of states are not.
    """
    flat = Flat(wired.scope_start, wired.scope, wired.table_start, wired.values)
    return of_flat(wired.cards, flat, None if like is None else like.names)


def parts(wired: Wiring) -> tuple[tuple[tuple[int, ...], ...], tuple[FloatArray, ...]]:
    """Scopes and tables, the tables being read-only views into the flat array."""
    flat = Flat(wired.scope_start, wired.scope, wired.table_start, wired.values)
    return flat.parts(wired.cards)
