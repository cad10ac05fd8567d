"""The shipped networks as engines: models in, Dirichlet concentrations and marginals out."""

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.errors import IcgiError
from icgi.inference import Budget, Marginals, Status, require_device
from icgi.model.graph import FactorGraph
from icgi.model.ising import IsingArrays, as_ising

NEEDED = ("torch", "safetensors")
PER_FACTOR = {"fast": 1e-6, "paper": 6e-6}  # seconds to read one; too many are not read
WORTH_THREADS = 2000  # variables of a batch; below, handing work to threads takes longer than it


@dataclass(frozen=True, slots=True)
class IcgiNetwork:
    """Networks that eliminate: `fast` in closed form, `paper` with predicted factors.

    Milliseconds to seconds, many models at once with `batch`. `fast` is exact (to single precision)
    where elimination meets no variable with more than two neighbours before `core` are left.
    Models of more than 512 variables are cut into patches, each with the messages of belief
    propagation at its border; `patches` in the stats says how many.
    """

    variant: Literal["fast", "paper"] = "fast"
    core: int = 16  # fast: variables left at the end, whose 2^core states are all summed
    orders: int = 4  # fast: elimination orders; their mean is the answer, their spread a warning
    steps: int | None = None  # paper: most variables to eliminate; none: as trained
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.core < 1 or self.orders < 1 or (self.steps is not None and self.steps < 0):
            raise IcgiError(
                f"core={self.core}, orders={self.orders}, steps={self.steps}; give 1 or more "
                "for core and orders, 0 or more for steps"
            )
        require_extra()
        require_device(self.device)
        # torch and weights are loaded here: this is start-up, no part of anybody's seconds
        from icgi.neural.weights import is_shipped, shipped

        for name in ("paper",) if self.variant == "paper" else ("fast", "general"):
            if is_shipped(f"icgi-{name}"):
                shipped(f"icgi-{name}")

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Marginals of one model; a batch of one."""
        return self.batch([model], budget, [rng])[0]

    def batch(
        self,
        models: Sequence[FactorGraph],
        budget: Budget,
        rngs: Sequence[Generator],
        threads: int | None = None,
    ) -> list[Marginals]:
        """Marginals of many models, in batches as large as time and memory of the budget allow.

        Answers are those of one by one up to rounding; models of many states that share a batch
        also share the size of the core. The seconds are those of an answer on average.
        """
        if not models:
            return []
        deadline = Deadline.after(budget.seconds * len(models))
        size = sum(m.n_variables for m in models)
        with torch_threads(1 if size < WORTH_THREADS else threads):
            return self._batch(models, budget, deadline, rngs)

    def _batch(
        self,
        models: Sequence[FactorGraph],
        budget: Budget,
        deadline: Deadline,
        rngs: Sequence[Generator],
    ) -> list[Marginals]:
        from icgi.neural.weights import is_shipped, shipped

        if PER_FACTOR[self.variant] * sum(m.n_factors for m in models) >= deadline.left:
            return [unread(model) for model in models]
        if self.variant == "paper":
            from icgi.neural.paper_engine import paper_marginals

            # one stream for all: the shipped network draws nothing
            return paper_marginals(
                shipped("icgi-paper"), models, budget, rngs[0], self.steps, self.device, deadline
            )
        arrays = {k: a for k, model in enumerate(models) if (a := as_ising(model)) is not None}
        others = [k for k in range(len(models)) if k not in arrays]
        found: dict[int, Marginals] = {}
        if others:
            if not is_shipped("icgi-general"):
                from icgi.neural.spin_engine import require_ising

                require_ising(models[others[0]])  # refuses
            from icgi.neural.general_engine import general_marginals

            answers = general_marginals(
                shipped("icgi-general").to(self.device), [models[k] for k in others], self.orders,
                [rngs[k] for k in others], table_bytes=budget.table_bytes, device=self.device,
                deadline=deadline.share(len(others) / len(models)) if arrays else deadline,
            )  # fmt: skip
            found |= zip(others, answers, strict=True)
        if arrays:
            found |= zip(arrays, self._spins(models, arrays, budget, deadline, rngs), strict=True)
        return [found[k] for k in range(len(models))]

    def _spins(
        self,
        models: Sequence[FactorGraph],
        arrays: dict[int, IsingArrays],
        budget: Budget,
        deadline: Deadline,
        rngs: Sequence[Generator],
    ) -> list[Marginals]:
        """Binary pairwise models without zeros."""
        from icgi.neural.spin_engine import Settings, spin_marginals
        from icgi.neural.weights import shipped

        return spin_marginals(
            shipped("icgi-fast").to(self.device),
            [models[k] for k in arrays],
            list(arrays.values()),
            Settings(self.core, self.orders, self.device),
            budget.table_bytes,
            deadline,
            [rngs[k] for k in arrays],
        )


def require_extra() -> None:
    """Refuse at once where the networks' libraries are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise IcgiError(
            f"the networks need PyTorch and safetensors, {' and '.join(missing)} not found; "
            "install the extra `nn`: pip install 'icgi[nn]', or in a checkout: "
            "pip install -e '.[nn]'"
        )


def unread(model: FactorGraph) -> Marginals:
    """What single-variable factors say, for a model that there is no time to read."""
    from icgi.neural.pace import UNKNOWN, unary_beliefs

    p = unary_beliefs(model)
    error = np.where((p > 0) & (model.cards > 1)[:, None], UNKNOWN, 0.0)
    stats = {"answered": 0.0}
    return Marginals(p, Status.BUDGET_SPENT, concentration=p.copy(), std_error=error, stats=stats)


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads inside, as many as before if absent."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
