"""The factor graph: a bag of read-only arrays that every room of the package shares."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icgi.errors import ModelFormatError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FactorGraph:
    """p(x) ∝ exp Σ_f θ_f(x_f) over n discrete variables (eq. joint of the paper, in logarithms).

    Zero potentials are true −inf. A factor with an empty scope is a constant of log Z.
    """

    cards: IntArray  # n        states of each variable
    scopes: tuple[tuple[int, ...], ...]  # f        variables of each factor, in file order
    log_tables: tuple[FloatArray, ...]  # f        θ_f, shape = cards[scope]; read-only
    names: tuple[str, ...] | None = None  # n        where the source has them
    states: tuple[tuple[str, ...], ...] | None = None  # n        names of each variable's states

    def __post_init__(self) -> None:
        cards = np.array(self.cards, dtype=np.int64)
        if cards.ndim != 1 or (cards.size and cards.min() < 1):
            raise ModelFormatError(
                "every variable needs at least one state; give `cards` as a list of positive counts"
            )
        if len(self.scopes) != len(self.log_tables):
            raise ModelFormatError(
                f"{len(self.scopes)} scopes but {len(self.log_tables)} tables; give one per scope"
            )
        _check_factors(cards, self.scopes, self.log_tables)
        for table in self.log_tables:
            table.flags.writeable = False
        for what, given in (("names", self.names), ("states", self.states)):
            if given is not None and len(given) != len(cards):
                raise ModelFormatError(
                    f"{len(given)} {what} for {len(cards)} variables; give one per variable"
                )
        cards.flags.writeable = False
        object.__setattr__(self, "cards", cards)

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.cards)

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self.scopes)

    @property
    def max_states(self) -> int:
        """Largest number of states of a variable (0 for a model without variables)."""
        return int(self.cards.max(initial=0))

    def __repr__(self) -> str:
        return (
            f"FactorGraph({self.n_variables} variables of up to {self.max_states} states, "
            f"{self.n_factors} factors of up to {max(map(len, self.scopes), default=0)} variables)"
        )


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
        _name_mistake(f, variables, table, cards.tolist())


def _name_mistake(f: int, scope: tuple[int, ...], table: FloatArray, counts: list[int]) -> None:
    n = len(counts)
    for i in scope:
        if not 0 <= i < n:
            raise ModelFormatError(
                f"factor {f} names variable {i}, but the model has variables 0 to {n - 1}"
            )
    if len(set(scope)) != len(scope):
        raise ModelFormatError(f"factor {f} names a variable twice in its scope {scope}")
    expected = tuple([counts[i] for i in scope])
    if table.shape != expected:
        raise ModelFormatError(
            f"factor {f} has a table of shape {table.shape}, but its scope {scope} needs {expected}"
        )


def log_of(potentials: Any, what: str) -> FloatArray:
    """Logarithm of non-negative finite potentials, zeros to −inf; `what` names the place."""
    values = np.asarray(potentials, dtype=np.float64)
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
