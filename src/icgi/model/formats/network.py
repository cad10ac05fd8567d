"""Bayesian networks as the formats hold them: a table P(X | parents) for every variable."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from icgi.errors import ModelFormatError
from icgi.model.graph import FactorGraph, FloatArray, state_names, variable_name

LARGEST_TABLE = 2**28  # entries that a few parents may promise
SUM_TOLERANCE = 0.01  # of a row of probabilities: files are rounded, mistakes are larger
LONGEST_SCOPE = 32  # axes that every numpy allows


@dataclass(frozen=True, slots=True, eq=False)
class Conditional:
    """One conditional table of a Bayesian network."""

    child: int
    parents: tuple[int, ...]
    table: FloatArray  # one axis for each parent, then one for the child: rows sum to one


def conditionals(model: FactorGraph, title: str) -> list[Conditional]:
    """Conditional tables of a model that is a Bayesian network, in the order of its factors.

    Going backwards from the leaves decides it: a variable in one remaining factor only has to be
    the child of that factor. Anything else is refused, as `title` could not hold it.
    """
    tables = [np.exp(table) for table in model.log_tables]
    touching: list[set[int]] = [set() for _ in range(model.n_variables)]
    for f, scope in enumerate(model.scopes):
        if not scope and abs(float(model.log_tables[f])) > SUM_TOLERANCE:
            _refuse(title, f"factor {f} is a constant other than one")
        for i in scope:
            touching[i].add(f)
    child: dict[int, int] = {}  # of each factor
    waiting = [i for i in range(model.n_variables) if len(touching[i]) == 1]
    while waiting:
        i = waiting.pop()
        if len(touching[i]) != 1:
            continue
        (f,) = touching[i]
        axis = model.scopes[f].index(i)
        if np.abs(tables[f].sum(axis) - 1).max() > SUM_TOLERANCE:
            continue  # another variable of this factor may be its child
        child[f] = i
        for j in model.scopes[f]:
            touching[j].discard(f)
            if len(touching[j]) == 1:
                waiting.append(j)
    left = [f for f, scope in enumerate(model.scopes) if scope and f not in child]
    if left:
        names = ", ".join(variable_name(model, i) for i in model.scopes[left[0]][:4])
        _refuse(title, f"factor {left[0]} over ({names}) is no conditional table of a free child")
    orphans = sorted(set(range(model.n_variables)) - set(child.values()))
    if orphans:
        _refuse(title, f"variable {variable_name(model, orphans[0])} has no table of its own")
    found = []
    for f, i in sorted(child.items()):
        scope = model.scopes[f]
        axis = scope.index(i)
        parents = scope[:axis] + scope[axis + 1 :]
        found.append(Conditional(i, parents, np.moveaxis(tables[f], axis, -1)))
    return found


def _refuse(title: str, why: str) -> None:
    raise ModelFormatError(
        f"{title} holds Bayesian networks only, one table P(X | parents) for every variable X, and "
        f"{why}; write this model as .uai or .json"
    )


def plain_words(model: FactorGraph, forbidden: str, title: str) -> None:
    """Refuse names that a format would not give back: with one of these characters, or empty."""
    for i in range(model.n_variables):
        for name in (variable_name(model, i), *state_names(model, i)):
            if not name or name != name.strip() or any(c in forbidden for c in name):
                raise ModelFormatError(
                    f"{title} cannot hold the name {name!r}; rename it, or write this model as "
                    ".json, which holds any name"
                )


def assemble(
    states: Mapping[str, Sequence[str]], factors: Iterable[tuple[Sequence[str], FloatArray]]
) -> FactorGraph:
    """Model of named variables and of factors over them, tables as potentials."""
    number = {name: i for i, name in enumerate(states)}
    pairs = list(factors)
    with np.errstate(divide="ignore"):
        tables = tuple([np.log(table) for _, table in pairs])
    return FactorGraph(
        np.array([len(found) for found in states.values()], np.int64),
        tuple([tuple([number[name] for name in scope]) for scope, _ in pairs]),
        tables,
        names=tuple(states),
        states=tuple([tuple(found) for found in states.values()]),
    )
