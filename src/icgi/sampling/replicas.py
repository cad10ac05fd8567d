"""What every kind of model can do with its replicas, chosen by type when a kernel is compiled.

`sweep`, `refresh`, `weigh` and `assign` exist once per kind (`spins`, `pairs`, `tables`); the
drivers call them under one name, and each driver is compiled once per kind.
"""

from typing import Any, TypeAlias

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from icgi.model.graph import FloatArray, IntArray
from icgi.sampling import clusters, pairs, spins, tables

Kernel: TypeAlias = spins.Spins | pairs.Pairs | tables.Tables
"""A model arranged for the compiled code."""

_KINDS: dict[type, Any] = {spins.Spins: spins, pairs.Pairs: pairs, tables.Tables: tables}


def make_state(model: Kernel, x: NDArray[np.int32]) -> Any:
    """Replicas of a model in the given states, one row each."""
    return _KINDS[type(model)].state(model, x)


def make_scratch(model: Kernel) -> Any:
    """Buffers that one thread needs for sweeps of a model."""
    return _KINDS[type(model)].scratch(model)


def drawn(state: Any, chosen: IntArray) -> Any:
    """State that holds the chosen replicas."""
    return type(state)(*(array[chosen] for array in state))


def renew(model: Kernel, state: Any, r: int) -> None:
    """Rebuild what a replica keeps besides its states, after these were changed from outside."""
    _KINDS[type(model)].refresh(model, state, r)


def reach(model: Kernel) -> FloatArray:
    """How far each slot's p(x_i | rest) can vary with the rest, at most."""
    bound: FloatArray = _KINDS[type(model)].reach(model)
    return bound


def weight_of(model: Kernel, state: Any, r: int) -> float:
    """Log weight of a replica, with penalties for zeros."""
    return float(_KINDS[type(model)].weigh(model, state, r)[0])


# What follows is only ever compiled; the bodies come from the overloads below.


def refresh(model: Any, state: Any, r: int) -> Any:
    """Rebuild what a replica keeps besides its states."""


def assign(model: Any, state: Any, r: int, i: int, value: int) -> Any:
    """Set one variable of a replica."""


def weigh(model: Any, state: Any, r: int) -> Any:
    """(log weight with penalties, number of violations) of a replica."""


def sweep(
    model: Any, state: Any, r: int, scale: float, hard: bool, stream: Any, scratch: Any,
    local: Any, record: bool,
) -> Any:  # fmt: skip
    """One heat-bath pass over a replica."""


def flip_clusters(model: Any, state: Any, r: int, scale: float, stream: Any, marks: Any) -> Any:
    """One Swendsen-Wang update of a replica, for Ising models; nothing for others."""


@overload(refresh)
def _refresh(model, state, r):  # type: ignore[no-untyped-def]
    kernel = _KINDS[model.instance_class].refresh

    def run(model, state, r):  # type: ignore[no-untyped-def]
        kernel(model, state, r)

    return run


@overload(assign)
def _assign(model, state, r, i, value):  # type: ignore[no-untyped-def]
    kernel = _KINDS[model.instance_class].assign

    def run(model, state, r, i, value):  # type: ignore[no-untyped-def]
        kernel(model, state, r, i, value)

    return run


@overload(weigh)
def _weigh(model, state, r):  # type: ignore[no-untyped-def]
    kernel = _KINDS[model.instance_class].weigh

    def run(model, state, r):  # type: ignore[no-untyped-def]
        return kernel(model, state, r)

    return run


@overload(sweep)
def _sweep(model, state, r, scale, hard, stream, scratch, local, record):  # type: ignore[no-untyped-def]
    kernel = _KINDS[model.instance_class].sweep

    def run(model, state, r, scale, hard, stream, scratch, local, record):  # type: ignore[no-untyped-def]
        kernel(model, state, r, scale, hard, stream, scratch, local, record)

    return run


@overload(flip_clusters)
def _flip_clusters(model, state, r, scale, stream, marks):  # type: ignore[no-untyped-def]
    if model.instance_class is spins.Spins:
        kernel = clusters.swendsen_wang

        def run(model, state, r, scale, stream, marks):  # type: ignore[no-untyped-def]
            kernel(model, state, r, scale, stream, marks)

    else:

        def run(model, state, r, scale, stream, marks):  # type: ignore[no-untyped-def]
            pass

    return run
