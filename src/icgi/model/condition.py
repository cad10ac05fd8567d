"""Evidence: states that are observed or impossible leave the model, and come back as zeros.

Observed variables shrink to one state and ids never change, so no engine knows the word evidence.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from icgi.errors import BudgetError, EvidenceError
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, state_names, variable_name
from icgi.model.reduce import all_states, propagate, restrict
from icgi.units import readable_bytes
from icgi.wording import did_you_mean, shown, some

if TYPE_CHECKING:
    from icgi.inference import Marginals

Evidence: TypeAlias = Mapping[int, int]
"""Observed state of each observed variable, both counted from zero."""


@dataclass(frozen=True, eq=False, slots=True)
class Conditioned:
    """A model without its impossible states, and the map back."""

    model: FactorGraph
    alive: BoolArray  # n k  states of the original model that are left


def condition(model: FactorGraph, evidence: Evidence, table_bytes: float = math.inf) -> Conditioned:
    """Enter evidence, remove states that zeros exclude, drop one-state variables from scopes.

    Raises `BudgetError` where the answer alone would take more than `table_bytes`: its rows are as
    long as the largest number of states, and it is held twice while removed states are put back.
    """
    needed = 2 * 8 * model.n_variables * model.max_states
    if needed > table_bytes:
        raise BudgetError(
            f"the marginals alone need {readable_bytes(needed)} ({model.n_variables} variables, "
            f"one of them with {model.max_states} states), the budget is "
            f"{readable_bytes(table_bytes)}; give a larger memory budget, or observe the variables "
            "of most states"
        )
    alive = propagate(model, observe(model, evidence))
    return Conditioned(restrict(model, alive), alive)


def observe(model: FactorGraph, evidence: Evidence) -> BoolArray:
    """Mask of states that agree with the evidence."""
    alive = all_states(model)
    if not evidence:
        return alive
    cards = model.cards.tolist()
    for i, x in evidence.items():
        if not 0 <= i < len(cards):
            raise EvidenceError(
                f"evidence names variable {i}, but the model has variables 0 to {len(cards) - 1}"
            )
        if not 0 <= x < cards[i]:
            raise EvidenceError(
                f"evidence gives variable {shown(variable_name(model, i))} the state {x}, but it "
                f"has states 0 to {cards[i] - 1}{_named_states(model, i)}"
            )
    observed = list(evidence)
    alive[observed] = False
    alive[observed, list(evidence.values())] = True
    return alive


def resolve_evidence(
    model: FactorGraph, given: Mapping[int | str, int | str] | Mapping[int, int] | None
) -> Evidence:
    """Evidence by number from evidence by name or number, for variables and for states."""
    numbers = {name: i for i, name in enumerate(model.names or ())}
    resolved: dict[int, int] = {}
    if given is not None and not isinstance(given, Mapping):
        raise EvidenceError(f"evidence={given!r}: give a dictionary of variables and states")
    for key, value in (given or {}).items():
        if type(key) is int and type(value) is int:  # most are, and some questions have hundreds
            resolved[key] = value
            continue
        i = numbers.get(key, -1) if isinstance(key, str) else _whole(key, f"evidence on {key!r}")
        if i == -1 and isinstance(key, str):
            if not key.lstrip("-").isdigit():
                raise EvidenceError(_unknown_variable(model, key))
            i = int(key)
        resolved[i] = _state_number(model, i, value)
    return resolved


def _state_number(model: FactorGraph, i: int, value: int | str) -> int:
    if not isinstance(value, str):
        what = f"evidence gives variable {i} the state {value!r}"
        if 0 <= i < model.n_variables:
            names = state_names(model, i)
            what = f"evidence gives variable {shown(variable_name(model, i))} the state {value!r}"
            if isinstance(value, bool | np.bool_) and model.states is not None:
                raise EvidenceError(f"{what}; its states are: {some(names)}, give one of these")
        return _whole(value, what)
    names = list(state_names(model, i)) if 0 <= i < model.n_variables else []
    if value in names:
        return names.index(value)
    if value.isdigit():
        return int(value)
    if not 0 <= i < model.n_variables:
        return 0  # `observe` says what is wrong with the variable
    raise EvidenceError(
        f"evidence gives variable {shown(variable_name(model, i))} the unknown state {value!r}"
        f"{did_you_mean(value, names)}; its states are: {some(names)}"
    )


def _whole(value: Any, what: str) -> int:
    """Whole number that something is, 1.0 as well as 1."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value:
        raise EvidenceError(f"{what}: give a name, or a whole number counted from 0")
    return number


def _unknown_variable(model: FactorGraph, name: str) -> str:
    if model.names is None:
        return (
            f"evidence names the unknown variable {name!r}; this model has no names, its "
            f"variables are the numbers 0 to {model.n_variables - 1}"
        )
    return (
        f"evidence names the unknown variable {name!r}{did_you_mean(name, model.names)}; there "
        f"are: {some(model.names)}"
    )


def _named_states(model: FactorGraph, i: int) -> str:
    return "" if model.states is None else f" ({some(state_names(model, i))})"


def lift(marginals: "Marginals", alive: BoolArray) -> "Marginals":
    """Marginals over all states of the original model: removed states get probability zero."""
    cards = alive.sum(1)
    left = np.arange(marginals.probs.shape[1]) < cards[:, None]  # n k  states the engine saw
    if left.shape == alive.shape and (left == alive).all():
        return marginals
    return replace(
        marginals,
        probs=_spread(marginals.probs, left, alive),
        concentration=_spread_optional(marginals.concentration, left, alive),
        std_error=_spread_optional(marginals.std_error, left, alive),
        ess=_spread_optional(marginals.ess, left, alive),
        rhat=_spread_optional(marginals.rhat, left, alive),
        pairs=None
        if marginals.pairs is None
        else {
            (i, j): _spread_pair(table, alive[i], alive[j])
            for (i, j), table in marginals.pairs.items()
        },
    )


def _spread(values: FloatArray, left: BoolArray, alive: BoolArray) -> FloatArray:
    full = np.zeros(alive.shape)
    full[alive] = values[left]  # both masks list states in the same order, row by row
    return full


def _spread_optional(
    values: FloatArray | None, left: BoolArray, alive: BoolArray
) -> FloatArray | None:
    return None if values is None else _spread(values, left, alive)


def _spread_pair(table: FloatArray, rows: BoolArray, columns: BoolArray) -> FloatArray:
    full = np.zeros((rows.size, columns.size))
    full[np.ix_(rows, columns)] = table
    return full
