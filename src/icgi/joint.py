"""Joint distributions of several variables: asked of an engine, and held by a person."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from icgi.chained import chained_joints
from icgi.errors import BudgetError, IcgiError, UnsupportedModelError
from icgi.inference import (
    EXACT_RESOLUTION,
    UNUSABLE_RESOLUTION,
    Budget,
    Engine,
    Joints,
    JointTables,
    Scope,
    Status,
)
from icgi.lookup import state_number, variable_number
from icgi.model.condition import Conditioned, Evidence, condition
from icgi.model.graph import FactorGraph, FloatArray, IntArray, state_names, variable_name
from icgi.model.precision import extent_of, resolution, shifted
from icgi.units import readable_bytes
from icgi.wording import some

MOST_AXES = 32  # variables of a joint: of two states each they make 2^32 entries
_DRAWS = 400  # tables drawn around an estimate, for the error of what is computed from it


@dataclass(frozen=True, eq=False)
class Joint:
    """Joint distribution of a few variables; indexed by their states, by name or number."""

    model: FactorGraph
    variables: Scope
    probs: FloatArray  # one axis per variable; entries sum to one; read-only
    status: Status
    std_error: FloatArray | None = None  # of every entry, where the engine knows it
    note: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables, their numbers where the model has no names."""
        return tuple(variable_name(self.model, i) for i in self.variables)

    def __getitem__(self, states: int | str | tuple[int | str, ...]) -> Any:
        """Probability of one state of each variable; of fewer states, the table that is left."""
        given = states if isinstance(states, tuple) else (states,)
        if len(given) > len(self.variables):
            raise IndexError(f"{len(given)} states for {len(self.variables)} variables")
        at = tuple(
            state_number(self.model, i, x) for i, x in zip(self.variables, given, strict=False)
        )
        found = self.probs[at]
        return float(found) if len(given) == len(self.variables) else found

    def marginal(self, *variables: int | str) -> "Joint":
        """Joint distribution of some of the variables, in the order given.

        Errors of what is summed are added up, which is an upper bound.
        """
        axes = self._axes(variables)
        gone = tuple(a for a in range(len(self.variables)) if a not in axes)
        rank = np.argsort(np.argsort(axes))

        def reduced(table: FloatArray) -> FloatArray:
            return _locked(np.transpose(table.sum(gone), rank))

        return replace(
            self,
            variables=tuple(self.variables[a] for a in axes),
            probs=reduced(self.probs),
            std_error=None if self.std_error is None else reduced(self.std_error),
        )

    def given(self, *variables: int | str) -> FloatArray:
        """Conditional table p(others | variables), axes as in `probs`.

        It sums to one over the others; NaN where the condition has probability zero.
        """
        axes = self._axes(variables)
        others = tuple(a for a in range(len(self.variables)) if a not in axes)
        total = self.probs.sum(others, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.probs / total)

    def mutual_information(self) -> tuple[float, float | None]:
        """Mutual information of two variables in bits, and its standard error.

        The error is None where the engine knows none, zero where the answer is exact. It is that
        of tables drawn around the estimate, and includes how far they are above it on average.
        """
        if len(self.variables) != 2:
            raise IcgiError(
                f"mutual information is that of two variables, this joint has "
                f"{len(self.variables)}; take `marginal` of two of them"
            )
        value = float(_information(self.probs))
        if self.status is Status.EXACT:
            return value, 0.0
        if self.std_error is None:
            return value, None
        rng = np.random.default_rng(0)
        drawn = rng.normal(self.probs, self.std_error, (_DRAWS, *self.probs.shape)).clip(min=0.0)
        drawn /= np.maximum(drawn.sum((1, 2), keepdims=True), 1e-300)
        others = _information(drawn)
        return value, float(np.sqrt(np.mean((others - value) ** 2)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {
            "variables": list(self.names),
            "states": [list(state_names(self.model, i)) for i in self.variables],
            "status": self.status.value,
            "probabilities": self.probs.tolist(),
            "std_errors": None if self.std_error is None else self.std_error.tolist(),
        }

    def __repr__(self) -> str:
        return f"Joint({', '.join(self.names)}: {self.status.value})"

    def _axes(self, variables: Sequence[int | str]) -> list[int]:
        wanted = [variable_number(self.model, v) for v in variables]
        missing = [v for v, i in zip(variables, wanted, strict=True) if i not in self.variables]
        if missing:
            raise KeyError(f"this joint is of {some(self.names)}, not of {missing[0]!r}")
        return [self.variables.index(i) for i in wanted]


def _information(tables: FloatArray) -> FloatArray:
    """Mutual information in bits of tables … a b."""
    rows, columns = tables.sum(-1, keepdims=True), tables.sum(-2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = tables * np.log2(tables / (rows * columns))
    return np.asarray(np.maximum(np.where(tables > 0, terms, 0.0).sum((-2, -1)), 0.0))


def _locked(array: FloatArray) -> FloatArray:
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array


def ask_joints(
    model: FactorGraph,
    evidence: Evidence,
    scopes: Sequence[Scope],
    engine: Engine,
    budget: Budget,
    rng: Generator,
) -> list[Joint]:
    """`infer_joints` as distributions that know their model."""
    found = infer_joints(model, evidence, scopes, engine, budget, rng)
    errors = found.std_errors or [None] * len(scopes)
    return [
        Joint(
            model,
            scope,
            _locked(table),
            found.status,
            None if e is None else _locked(e),
            found.note,
        )
        for scope, table, e in zip(scopes, found.tables, errors, strict=True)
    ]


def infer_joints(
    model: FactorGraph,
    evidence: Evidence,
    scopes: Sequence[Scope],
    engine: Engine,
    budget: Budget,
    rng: Generator,
) -> JointTables:
    """Joint marginals of p(x | evidence) over scopes, over all states of the model.

    Observed variables are left out before the engine is asked, and come back certain.
    """
    deadline = budget.deadline()
    for scope in scopes:
        check_joint_size(model, scope, budget)
    conditioned = condition(model, evidence, budget.table_bytes)
    extent = extent_of(conditioned.model)
    small, log_scale = shifted(conditioned.model, extent)
    free = [tuple(i for i in scope if small.cards[i] > 1) for scope in scopes]
    wanted = tuple(dict.fromkeys(scope for scope in free if scope))
    found = _asked_for(small, wanted, engine, budget.until(deadline), rng)
    precision = resolution(extent)
    if found.status is Status.EXACT and precision > EXACT_RESOLUTION:
        status = Status.DIVERGED if precision > UNUSABLE_RESOLUTION else Status.CONVERGED
        errors = tuple(np.where(t > 0, min(precision, 1.0), 0.0) for t in found.tables)
        found = replace(found, status=status, std_errors=errors)
    at = {scope: k for k, scope in enumerate(wanted)}

    def whole(given: tuple[FloatArray, ...], certain: float) -> tuple[FloatArray, ...]:
        parts = zip(scopes, free, strict=True)
        return tuple(
            _lifted(given[at[f]] if f else np.array(certain), s, conditioned, model.cards)
            for s, f in parts
        )

    return replace(
        found,
        tables=whole(found.tables, 1.0),
        std_errors=None if found.std_errors is None else whole(found.std_errors, 0.0),
        log_z=None if found.log_z is None else found.log_z + log_scale,
    )


def _asked_for(
    model: FactorGraph, scopes: Sequence[Scope], engine: Engine, budget: Budget, rng: Generator
) -> JointTables:
    """Joint marginals as the engine knows them; those that it does not know, by conditioning."""
    deadline = budget.deadline()
    if isinstance(engine, Joints):
        try:
            return engine.joints(model, scopes, budget, rng)
        except UnsupportedModelError:  # variables that no factor or region has together
            pass
    return chained_joints(model, scopes, engine, budget.until(deadline), rng)


def _lifted(
    table: FloatArray, scope: Scope, conditioned: Conditioned, cards: IntArray
) -> FloatArray:
    """Table over all states of the original model; removed states get zero."""
    rows = [np.flatnonzero(conditioned.alive[i]) for i in scope]
    full = np.zeros([int(cards[i]) for i in scope])
    full[np.ix_(*rows)] = table.reshape([len(row) for row in rows])
    return full


def check_joint_size(model: FactorGraph, scope: Scope, budget: Budget) -> None:
    """Raise `BudgetError` for a joint whose table alone would be beyond the memory."""
    entries = math.prod(float(model.cards[i]) for i in scope)
    if 3 * 8 * entries > budget.table_bytes or len(scope) > MOST_AXES:
        named = some(variable_name(model, i) for i in scope)
        raise BudgetError(
            f"the joint of {named} has {entries:.3g} entries ({readable_bytes(8 * entries)}), held "
            f"three times, and the budget is {readable_bytes(budget.table_bytes)}; ask for fewer "
            "variables, or give a larger memory budget"
        )
