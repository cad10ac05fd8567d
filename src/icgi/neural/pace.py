"""Deadlines inside the networks: where a run may stop, and its answer when it does."""

from typing import Any

import numpy as np
from torch.overrides import TorchFunctionMode

from icgi.clock import Deadline
from icgi.model.graph import BoolArray, FactorGraph, FloatArray

TRACE = 1e-300  # belief of a possible state at least


class OutOfTime(Exception):
    """A run that was left because its deadline had passed; engines catch it."""


def check(deadline: Deadline | None) -> None:
    """Leave the run where the deadline has passed; training gives none."""
    if deadline is not None and deadline.passed:
        raise OutOfTime


class Watched(TorchFunctionMode):
    """Within it, every operation of torch looks at the clock first: `OutOfTime` once it has passed.

    Steps of a network look by themselves; on large models a step has seconds of operations.
    """

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the operation unless the time is over."""
        check(self._deadline)
        return func(*args, **(kwargs or {}))


def unary_beliefs(model: FactorGraph, alive: BoolArray | None = None) -> FloatArray:
    """What the factors of single variables alone say (n k), zero outside `alive`."""
    k = model.max_states
    log = np.where(np.arange(k) < model.cards[:, None], 0.0, -np.inf)
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if len(scope) == 1:
            log[scope[0], : table.size] += table
    if alive is not None:
        log = np.where(alive, log, -np.inf)
    top = log.max(1, initial=-np.inf, keepdims=True)
    weight = np.exp(log - np.where(np.isfinite(top), top, 0.0))
    return traced(weight / weight.sum(1, keepdims=True), log > -np.inf)


def traced(beliefs: FloatArray, possible: BoolArray) -> FloatArray:
    """Beliefs (n k) that are zero where a state is impossible, and nowhere else.

    Others may be too small for a number; as zeros they would pass for known.
    """
    return np.asarray(np.where(possible, np.maximum(beliefs, TRACE), beliefs))
