"""Variables and states as people write them, by name or number, found in a model."""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from icgi.errors import IcgiError
from icgi.model.graph import FactorGraph, FloatArray, state_names, variable_name
from icgi.wording import did_you_mean, some

Scope = tuple[int, ...]


class Row(np.ndarray[Any, np.dtype[np.float64]]):
    """Marginal of one variable: an array that also knows the names of its states."""

    names: Sequence[str] = ()
    variable: str = ""

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, str):
            return super().__getitem__(at)
        return float(self.view(np.ndarray)[_named(self.names, at, self.variable)])


def row_of(model: FactorGraph, i: int, probs: FloatArray) -> Row:
    """Marginal of a variable from its row among those of all variables."""
    row = probs[: model.cards[i]].view(Row)
    row.names, row.variable = state_names(model, i), variable_name(model, i)
    return row


def _named(names: Sequence[str], state: str, variable: str) -> int:
    if state in names:
        return names.index(state)
    raise KeyError(
        f"variable {variable} has no state {state!r}{did_you_mean(state, names)}; its states are: "
        f"{some(names)}"
    )


def variable_number(model: FactorGraph, variable: int | str) -> int:
    """Number of a variable given by number or name; `KeyError` or `IndexError` where unknown."""
    if isinstance(variable, str):
        if model.names is not None and variable in model.names:
            return model.names.index(variable)
        if not variable.isdigit():
            raise KeyError(unknown_variable(model, variable))
        variable = int(variable)
    variable = index(variable)
    if not 0 <= variable < model.n_variables:
        raise IndexError(
            f"there is no variable {variable}: the model has {model.n_variables}, counted from 0"
        )
    return variable


def unknown_variable(model: FactorGraph, name: str) -> str:
    """What to say about a name that no variable has."""
    if model.names is None:
        return f"no variable {name!r}: this model has no names, only numbers"
    return f"no variable {name!r}{did_you_mean(name, model.names)}; there are: {some(model.names)}"


def state_number(model: FactorGraph, i: int, state: int | str) -> int:
    """Number of a state given by number or name; `KeyError` or `IndexError` where unknown."""
    if isinstance(state, str):
        return _named(state_names(model, i), state, variable_name(model, i))
    if not 0 <= state < model.cards[i]:
        raise IndexError(
            f"state {state} of variable {variable_name(model, i)}, which has {model.cards[i]}"
        )
    return int(state)


def chosen_variables(model: FactorGraph, variables: Sequence[int | str]) -> Scope:
    """Numbers of variables that a person chose; `IcgiError` says which is unknown or twice."""
    try:
        scope = tuple(variable_number(model, v) for v in variables)
    except (KeyError, IndexError) as error:
        raise IcgiError(str(error.args[0])) from error
    if not scope:
        raise IcgiError("no variables were given; name those whose joint is wanted")
    if len(set(scope)) < len(scope):
        raise IcgiError(f"a variable is named twice in {some(map(str, variables))}; name each once")
    return scope
