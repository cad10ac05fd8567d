"""The factor graph: a bag of read-only arrays that every room of the package shares."""

import itertools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icgi.errors import ModelFormatError
from icgi.model.names import check_names

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LARGEST_DENSE = 2**28  # variables × states; engines hold marginals as a dense array
LARGEST_LOG = 1e300  # sums of a hundred million such numbers are still finite
_SMALL = 2**12  # entries of a table that is looked at together with others
_FLAT_FACTORS, _FLAT_ENTRIES = 64, 16  # from so many factors, up to so many entries of each


@dataclass(frozen=True, eq=False, slots=True)
class Flat:
    """Scopes and tables of all factors, one after the other; offsets say where each begins."""

    scope_start: IntArray  # f+1      where each factor's scope begins in `scope`
    scope: IntArray  # e        variables of all scopes
    table_start: IntArray  # f+1      where each factor's table begins in `values`
    values: FloatArray  # all entries of all log tables, last scope variable fastest; read-only

    def parts(self, cards: IntArray) -> tuple[tuple[tuple[int, ...], ...], tuple[FloatArray, ...]]:
        """Scopes and tables one by one, the tables being read-only views into `values`."""
        self.values.flags.writeable = False
        states, scope = cards.tolist(), self.scope.tolist()
        ends, cuts = self.scope_start.tolist(), self.table_start.tolist()
        scopes = tuple([tuple(scope[a:b]) for a, b in pairwise(ends)])
        tables = tuple(
            [
                self.values[a:b].reshape([states[i] for i in s])
                for a, b, s in zip(cuts[:-1], cuts[1:], scopes, strict=True)
            ]
        )
        return scopes, tables


@dataclass(frozen=True, eq=False)
class FactorGraph:
    """p(x) ∝ exp Σ_f θ_f(x_f) over n discrete variables (eq. joint of the paper, in logarithms).

    Zero potentials are true −inf; NaN, +inf and finite numbers beyond ±1e300 are refused. A factor
    with an empty scope is a constant of log Z. Everything given is checked and converted. A table
    that someone else could still write to is copied, a read-only one is taken as it is.
    """

    cards: IntArray  # n        states of each variable
    scopes: tuple[tuple[int, ...], ...]  # f        variables of each factor, in file order
    log_tables: tuple[FloatArray, ...]  # f        θ_f, shape = cards[scope]; read-only
    names: tuple[str, ...] | None = None  # n        where the source has them
    states: tuple[tuple[str, ...], ...] | None = None  # n        names of each variable's states
    # The same once more without an object per factor, where the source had it so, or where there
    # are so many small factors that making it takes longer than most questions about them.
    flat: Flat | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        cards = _counts(self.cards)
        scopes, tables = _whole_scopes(self.scopes), _owned(self.log_tables)
        if len(scopes) != len(tables):
            raise ModelFormatError(
                f"{len(scopes)} scopes but {len(tables)} tables; give one per scope"
            )
        _check_factors(cards, scopes, tables)
        entries = sum(map(attrgetter("size"), tables))
        many = len(tables) >= _FLAT_FACTORS and entries <= _FLAT_ENTRIES * len(tables)
        flat = flattened(scopes, tables) if many else None
        if flat is not None:
            flat.values.flags.writeable = False
        _check_values(tables, flat)
        names, states = _named(self.names, self.states, cards)
        _fill(self, cards, scopes, tables, names, states, flat)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Scopes and tables of a model that was made of flat arrays, when first asked for."""
            flat = self.__dict__.get("flat")
            if flat is None or name not in ("scopes", "log_tables"):
                raise AttributeError(f"a FactorGraph has no attribute {name!r}")
            scopes, tables = flat.parts(self.cards)
            self.__dict__.setdefault("scopes", scopes)
            self.__dict__.setdefault("log_tables", tables)
            return self.__dict__[name]

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.cards)

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self.scopes) if self.flat is None else len(self.flat.scope_start) - 1

    @property
    def arity(self) -> IntArray:
        """Number of variables of each factor (f)."""
        if self.flat is not None:
            return np.diff(self.flat.scope_start)
        return np.fromiter(map(len, self.scopes), np.int64, self.n_factors)

    @property
    def touched(self) -> IntArray:
        """Variables of all scopes, one after the other."""
        if self.flat is not None:
            return self.flat.scope
        chained = itertools.chain.from_iterable(self.scopes)
        return np.fromiter(chained, np.int64, sum(map(len, self.scopes)))

    @property
    def max_states(self) -> int:
        """Largest number of states of a variable (0 for a model without variables)."""
        return int(self.cards.max(initial=0))

    def __repr__(self) -> str:
        return (
            f"FactorGraph({self.n_variables} variables of up to {self.max_states} states, "
            f"{self.n_factors} factors of up to {max(map(len, self.scopes), default=0)} variables)"
        )


def assembled(
    cards: IntArray,
    scopes: tuple[tuple[int, ...], ...],
    log_tables: tuple[FloatArray, ...],
    names: tuple[str, ...] | None = None,
    states: tuple[tuple[str, ...], ...] | None = None,
    flat: Flat | None = None,
) -> FactorGraph:
    """Model of parts that this package made itself: nothing is checked, copied or frozen.

    For readers that have checked every number, and for parts of models; tables are read-only
    arrays that nobody writes to, best views into those of `flat`. A model of millions of factors
    costs nothing here.
    """
    model = object.__new__(FactorGraph)
    cards = np.array(cards, dtype=np.int64)
    cards.flags.writeable = False
    _fill(model, cards, scopes, log_tables, names, states, flat)
    return model


def of_flat(
    cards: IntArray,
    flat: Flat,
    names: tuple[str, ...] | None = None,
    states: tuple[tuple[str, ...], ...] | None = None,
) -> FactorGraph:
    """Model of flat arrays that this package made itself; scopes and tables wait to be asked for.

    Making them takes longer than many a question, and compiled code does not read them.
    """
    model = object.__new__(FactorGraph)
    cards = np.array(cards, dtype=np.int64)
    cards.flags.writeable = False
    flat.values.flags.writeable = False
    for name, value in (("cards", cards), ("names", names), ("states", states), ("flat", flat)):
        object.__setattr__(model, name, value)  # the class is frozen
    return model


def factor_of(model: FactorGraph, f: int) -> tuple[tuple[int, ...], FloatArray]:
    """Scope and table of one factor, without making those of all others."""
    flat = model.flat
    if flat is None or "scopes" in model.__dict__:
        return model.scopes[f], model.log_tables[f]
    scope = tuple(flat.scope[flat.scope_start[f] : flat.scope_start[f + 1]].tolist())
    values = flat.values[flat.table_start[f] : flat.table_start[f + 1]]
    return scope, values.reshape(model.cards[list(scope)])


def flattened(scopes: tuple[tuple[int, ...], ...], tables: tuple[FloatArray, ...]) -> Flat:
    """Scopes and tables one after the other, in arrays of their own."""
    f = len(scopes)
    arity = np.fromiter(map(len, scopes), np.int64, f)
    sizes = np.fromiter(map(attrgetter("size"), tables), np.int64, f)
    scope = np.fromiter(itertools.chain.from_iterable(scopes), np.int64, int(arity.sum()))
    values = np.concatenate(tables, axis=None) if f else np.empty(0)
    return Flat(starts(arity), scope, starts(sizes), values)


def starts(lengths: IntArray | Sequence[int]) -> IntArray:
    """Where runs of these lengths begin, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))])


def _fill(model: FactorGraph, *values: object) -> None:
    names = ("cards", "scopes", "log_tables", "names", "states", "flat")
    for name, value in zip(names, values, strict=True):
        object.__setattr__(model, name, value)  # the class is frozen


def _counts(given: Any) -> IntArray:
    """Numbers of states as an array of its own."""
    try:
        found = np.array(given)
        cards = found.astype(np.int64)
        sound = found.ndim == 1 and (not found.size or (found.dtype.kind in "iuf" and
            bool((cards == found).all()) and cards.min() >= 1))  # fmt: skip
    except (TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise ModelFormatError(
            "every variable needs at least one state; give `cards` as a list of positive counts"
        )
    check_size(len(cards), int(cards.max(initial=0)))
    cards.flags.writeable = False
    return cards


def check_size(n: int, states: int) -> None:
    """Refuse a model for whose marginals there would be no room, before anything is allocated."""
    if n * states > LARGEST_DENSE:
        raise ModelFormatError(
            f"{n} variables of up to {states} states make more than {LARGEST_DENSE} entries of a "
            "dense array; number variables and states 0, 1, 2, …, or code the largest as several"
        )


def _whole_scopes(given: Any) -> tuple[tuple[int, ...], ...]:
    """Scopes as tuples of Python integers; nothing is made anew where they are that already."""
    if type(given) is tuple and set(map(type, given)) <= {tuple}:
        kinds = set(map(type, itertools.chain.from_iterable(given)))
        if kinds <= {int}:
            return given
    scopes = []
    for f, scope in enumerate(given):
        try:
            scopes.append(tuple([operator.index(i) for i in scope]))
        except TypeError as error:
            raise ModelFormatError(
                f"factor {f} has the scope {scope!r}; give the numbers of its variables, counted "
                "from 0"
            ) from error
    return tuple(scopes)


def _owned(given: Iterable[Any]) -> tuple[FloatArray, ...]:
    """Tables as read-only doubles; a table that several factors share is still shared."""
    given = tuple(given)
    if all(map(_is_settled, given)):
        return given
    copies: dict[int, FloatArray] = {}
    for f, table in enumerate(given):
        if id(table) not in copies:
            copies[id(table)] = table if _is_settled(table) else _copy(table, f)
    return tuple([copies[id(table)] for table in given])


def _is_settled(table: Any) -> bool:
    """Whether an array of doubles can no longer be written to, by this or another name."""
    if type(table) is not np.ndarray or table.flags.writeable or table.dtype != np.float64:
        return False
    base = table.base
    return not (isinstance(base, np.ndarray) and base.flags.writeable)


def _copy(table: Any, f: int) -> FloatArray:
    copy = np.array(real_array(table, f"the table of factor {f}"), order="C")
    copy.flags.writeable = False
    return copy


def real_array(given: Any, what: str) -> FloatArray:
    """Array of doubles from anything that holds real numbers; `what` names it in the refusal."""
    try:
        found = np.asarray(given)
        if found.size and found.dtype.kind not in "biuf":
            raise TypeError(f"its type is {found.dtype}")
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelFormatError(f"{what} is no array of real numbers: {error}") from error


def _check_values(tables: tuple[FloatArray, ...], flat: Flat | None) -> None:
    """Refuse NaN, +inf and finite numbers beyond ±1e300; small tables are looked at together."""
    if flat is not None and sound_logs(flat.values):
        return
    small = [table for table in tables if table.size < _SMALL]
    together = [np.concatenate(small, axis=None)] if small else []
    large = [table for table in tables if table.size >= _SMALL]
    if all(map(sound_logs, [*together, *large])):
        return
    for f, table in enumerate(tables):
        if not sound_logs(table):
            bad = table[~((np.abs(table) <= LARGEST_LOG) | np.isneginf(table))]
            raise ModelFormatError(
                f"factor {f} has the log potential {float(bad.flat[0])}; give numbers between "
                f"±{LARGEST_LOG:g}, and −inf for what is impossible"
            )


def sound_logs(values: FloatArray) -> bool:
    """Whether all are logarithms of potentials: no NaN, no +inf, nothing finite beyond ±1e300."""
    if not values.size:
        return True
    if not float(values.max()) <= LARGEST_LOG:  # also false for NaN
        return False
    if float(values.min()) >= -LARGEST_LOG:
        return True
    return int(np.count_nonzero(values < -LARGEST_LOG)) == np.count_nonzero(np.isneginf(values))


def _named(names: Any, states: Any, cards: IntArray) -> tuple[Any, Any]:
    """Names as tuples of text, one per variable and one per state."""
    for what, given in (("names", names), ("states", states)):
        if given is not None and len(given) != len(cards):
            raise ModelFormatError(
                f"{len(given)} {what} for {len(cards)} variables; give one per variable"
            )
    if names is not None:
        names = tuple(map(str, names))
        check_names(names, "variable")
        _check_distinct(names, "variables")
    if states is not None:
        states = tuple([tuple(map(str, row)) for row in states])
        check_names(tuple(itertools.chain.from_iterable(states)), "state")
        for i, (row, card) in enumerate(zip(states, cards.tolist(), strict=True)):
            if len(row) != card:
                raise ModelFormatError(
                    f"{len(row)} names for the {card} states of variable {i}; give one per state"
                )
            _check_distinct(row, f"states of variable {i}")
    return names, states


def _check_distinct(names: tuple[str, ...], what: str) -> None:
    """Refuse a name given twice: evidence is entered by name."""
    if len(set(names)) < len(names):
        twice = next(a for a, b in itertools.pairwise(sorted(names)) if a == b)
        raise ModelFormatError(f"two {what} are called {twice!r}; names identify them")


def _check_factors(
    cards: IntArray, scopes: tuple[tuple[int, ...], ...], tables: tuple[FloatArray, ...]
) -> None:
    """Check all scopes and shapes at once; a model may have millions of factors."""
    arity = np.fromiter(map(len, scopes), np.int64, len(scopes))
    scope = np.fromiter(itertools.chain.from_iterable(scopes), np.int64, int(arity.sum()))
    axes = np.fromiter((t.ndim for t in tables), np.int64, len(tables))
    shape = np.fromiter(
        itertools.chain.from_iterable(t.shape for t in tables), np.int64, int(axes.sum())
    )
    sound = len(scope) == 0 or (scope.min() >= 0 and scope.max() < len(cards))
    if sound and (arity == axes).all() and (shape == cards[scope]).all():
        factor = np.repeat(np.arange(len(scopes)), arity)
        key = np.sort(factor * len(cards) + scope)
        if (key[1:] != key[:-1]).all():
            return
    for f, (variables, table) in enumerate(zip(scopes, tables, strict=True)):
        _name_mistake(f, variables, table, cards)


def _name_mistake(f: int, scope: tuple[int, ...], table: FloatArray, cards: IntArray) -> None:
    n = len(cards)
    for i in scope:
        if not 0 <= i < n:
            has = f"variables 0 to {n - 1}" if n else "no variables"
            raise ModelFormatError(f"factor {f} names variable {i}, but the model has {has}")
    if len(set(scope)) != len(scope):
        raise ModelFormatError(f"factor {f} names a variable twice in its scope {scope}")
    expected = tuple([int(cards[i]) for i in scope])
    if table.shape != expected:
        raise ModelFormatError(
            f"factor {f} has a table of shape {table.shape}, but its scope {scope} needs {expected}"
        )


def log_of(potentials: Any, what: str) -> FloatArray:
    """Logarithm of non-negative finite potentials, zeros to −inf; `what` names the place."""
    values = real_array(potentials, what)
    if values.size and not (values.min() >= 0 and values.max() < np.inf):
        raise ModelFormatError(
            f"{what} has negative, infinite or NaN entries; potentials are finite and non-negative"
        )
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def variable_name(model: FactorGraph, i: int) -> str:
    """Name of a variable: the source's, or its number."""
    return model.names[i] if model.names is not None else str(i)


def state_names(model: FactorGraph, i: int) -> Sequence[str]:
    """Names of a variable's states: the source's, or their numbers."""
    if model.states is not None:
        return model.states[i]
    return [str(x) for x in range(int(model.cards[i]))]
