"""The shipped networks as engines: models in, Dirichlet concentrations and marginals out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.random import Generator

from icgi.errors import BudgetError, IcgiError, UnsupportedModelError
from icgi.inference import Budget, Marginals, Status, require_device
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ising import IsingArrays, as_ising

if TYPE_CHECKING:
    from torch import Tensor

    from icgi.neural.fast import FastNetwork
    from icgi.neural.patches import Patch
    from icgi.neural.spins import Spins

MOST_VARIABLES = 512  # of a model solved whole; larger ones are cut into patches
SINGLE = 4  # bytes
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
        """Marginals of many models, in batches as large as the memory of the budget allows.

        Answers are those of one by one up to rounding; models of many states that share a batch
        also share the size of the core.
        """
        if not models:
            return []
        require_device(self.device)
        size = sum(m.n_variables for m in models)
        with torch_threads(1 if size < WORTH_THREADS else threads):
            return self._batch(models, budget, rngs)

    def _batch(
        self, models: Sequence[FactorGraph], budget: Budget, rngs: Sequence[Generator]
    ) -> list[Marginals]:
        if self.variant == "paper":
            from icgi.neural.paper_engine import paper_marginals
            from icgi.neural.weights import shipped

            network = shipped("icgi-paper")
            # one stream for all: the shipped network draws nothing
            return paper_marginals(network, models, budget, rngs[0], self.steps, self.device)
        spins = [k for k, model in enumerate(models) if as_ising(model) is not None]
        others = [k for k in range(len(models)) if k not in set(spins)]
        found: dict[int, Marginals] = {}
        for part, solve in ((spins, self._spins), (others, self._others)):
            streams = [rngs[k] for k in part]
            found |= zip(part, solve([models[k] for k in part], budget, streams), strict=True)
        return [found[k] for k in range(len(models))]

    def _others(
        self, models: Sequence[FactorGraph], budget: Budget, rngs: Sequence[Generator]
    ) -> list[Marginals]:
        """Models of many states, large factors or zeros, where the network for them is there."""
        from icgi.neural.weights import is_shipped, shipped

        if not models:
            return []
        if not is_shipped("icgi-general"):
            require_ising(models[0])  # refuses
        from icgi.neural.general_engine import general_concentrations

        network = shipped("icgi-general").to(self.device)
        found = general_concentrations(
            network, models, self.orders, rngs, table_bytes=budget.table_bytes, device=self.device
        )
        stats = {"orders": float(self.orders)}
        return [
            Marginals(a / a.sum(1, keepdims=True), Status.ESTIMATED, concentration=a, stats=stats)
            for a in found
        ]

    def _spins(
        self, models: Sequence[FactorGraph], budget: Budget, rngs: Sequence[Generator]
    ) -> list[Marginals]:
        """Binary pairwise models without zeros."""
        if not models:
            return []
        import torch

        from icgi.neural.patches import cut, whole
        from icgi.neural.weights import shipped

        network = shipped(f"icgi-{self.variant}").to(self.device)
        parts: list[tuple[int, Patch]] = []
        for k, model in enumerate(models):
            arrays = require_ising(model)
            small = len(arrays.fields) <= MOST_VARIABLES
            parts += [(k, part) for part in ([whole(arrays)] if small else cut(arrays))]
        found = [np.ones((model.n_variables, 2)) for model in models]
        for chosen in self._batches([len(part.members) for _, part in parts], budget):
            now = [parts[c] for c in chosen]
            spins = spins_from([part.arrays for _, part in now], self.device)
            core = min(self.core, spins.fields.shape[1])
            sizes = [len(part.members) for _, part in now]
            noise = order_noise([rngs[k] for k, _ in now], sizes, self.orders - 1)
            with torch.no_grad():
                answers = concentrations(network, spins, core, noise)
                if any(part.said.any() for _, part in now):
                    answers = doubted(answers, spins, [part for _, part in now])
            for (k, part), answer in zip(now, answers.double().cpu().numpy(), strict=True):
                own = part.members[part.answered]
                found[k][own] = answer[: len(part.members)][part.answered]
        pieces = np.bincount([k for k, _ in parts], minlength=len(models))
        return [
            self._answer(model, alpha, int(count))
            for model, alpha, count in zip(models, found, pieces, strict=True)
        ]

    def bytes_needed(self, n: int) -> int:
        """Predict the memory of one model of n variables: the largest step and the core."""
        step = 24 * 4 * n * n + 64 * 8 * n * n  # quadrature of every pair, attention
        kept = n * n * 4 + n * (n + 256)
        return int(SINGLE * (step + kept + 3 * 2 ** min(self.core, n)))

    def _batches(self, sizes: list[int], budget: Budget) -> list[list[int]]:
        """Models of similar size together, each batch within the budget's memory."""
        groups: list[list[int]] = []
        for k in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
            need = self.bytes_needed(sizes[k])
            if need > budget.table_bytes:
                raise BudgetError(
                    f"icgi:{self.variant} needs {need / 1e6:.0f} MB for a model of {sizes[k]} "
                    f"variables, the budget is {budget.table_bytes / 1e6:.0f} MB; raise --memory, "
                    "lower `core`, or use --engine lbp"
                )
            first = sizes[groups[-1][0]] if groups else 0
            fits = groups and (len(groups[-1]) + 1) * self.bytes_needed(first) < budget.table_bytes
            if fits and len(groups[-1]) < 256 and sizes[k] >= 0.75 * first:
                groups[-1].append(k)
            else:
                groups.append([k])
        return groups

    def _answer(self, model: FactorGraph, found: FloatArray, patches: int) -> Marginals:
        n, k = model.n_variables, model.max_states
        alpha = np.zeros((n, k))
        alpha[:, : min(k, 2)] = found[:n, ::-1][:, : min(k, 2)]  # state 0 is spin −1
        fixed = model.cards == 1
        alpha[fixed] = 0.0
        alpha[fixed, :1] = found[:n].sum(1)[fixed, None]
        total = alpha.sum(1, keepdims=True)
        return Marginals(
            alpha / total,
            Status.ESTIMATED,
            concentration=alpha,
            stats={"orders": self.orders, "core": min(self.core, n), "patches": patches},
        )


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


def require_ising(model: FactorGraph) -> IsingArrays:
    """Couplings and fields, or a refusal that says what to use instead."""
    arrays = as_ising(model)
    if arrays is None:
        raise UnsupportedModelError(
            "icgi:fast takes models of two-state variables, factors of at most two variables and "
            f"no zeros, this is {model!r}; use --engine jt for an exact answer, or lbp or pt"
        )
    return arrays


def spins_from(arrays: Sequence[IsingArrays], device: str, largest: int = 1) -> "Spins":
    """Batch of models without context, padded to the largest, or `largest` variables."""
    import torch

    from icgi.neural.spins import make_spins

    n = max([largest, *(len(a.fields) for a in arrays)])
    couplings = np.zeros((len(arrays), n, n), np.float32)
    fields = np.zeros((len(arrays), n), np.float32)
    real = np.zeros((len(arrays), n), np.float32)
    for b, a in enumerate(arrays):
        i, j = a.edges.T
        couplings[b, i, j] = couplings[b, j, i] = a.couplings
        fields[b, : len(a.fields)] = a.fields
        real[b, : len(a.fields)] = 1.0
    arrays_there = (torch.from_numpy(x).to(device) for x in (couplings, fields, real))
    return make_spins(*arrays_there)


def doubted(alpha: "Tensor", spins: "Spins", patches: Sequence["Patch"]) -> "Tensor":
    """Concentrations (b n 2) that also doubt what was said at the patches' borders.

    How far the first pass moves when the border is silent is one more deviation; without it most
    stated deviations are too small (docs/log.md).
    """
    import torch

    from icgi.neural.precision import LEAST_SUM

    silent = spins_from(
        [replace(p.arrays, fields=p.arrays.fields - p.said) for p in patches],
        str(alpha.device),
        spins.fields.shape[1],
    )
    total = alpha.sum(-1)
    p = alpha[..., 0] / total
    moved = 0.5 * (spins.mean - silent.mean)
    variance = p * (1.0 - p) / (total + 1.0) + moved * moved
    sure = (p * (1.0 - p) / variance - 1.0).clamp(min=LEAST_SUM)
    return alpha * (torch.minimum(sure, total) / total)[..., None]


def order_noise(rngs: Sequence[Generator], sizes: Sequence[int], orders: int) -> "Tensor":
    """Normal draws (o b n) that make further elimination orders, from each model's own stream."""
    import torch

    noise = np.zeros((orders, len(sizes), max([1, *sizes])), np.float32)
    for b, (rng, n) in enumerate(zip(rngs, sizes, strict=True)):
        noise[:, b, :n] = rng.standard_normal((orders, n))
    return torch.from_numpy(noise)


def concentrations(network: "FastNetwork", spins: "Spins", core: int, noise: "Tensor") -> "Tensor":
    """Dirichlet concentrations (b n 2) of several elimination orders together."""
    found = orders_of(network, spins, core, noise)
    alpha: Tensor = network.precision(found, spins.mean, spins.real)
    return alpha


def orders_of(network: "FastNetwork", spins: "Spins", core: int, noise: "Tensor") -> "Tensor":
    """Concentrations (1+o b n 2) that each elimination order finds.

    The first order is the best by cost; the others come from costs times e^{z/2} with the given
    noise z (o b n).
    """
    import torch

    size = min(core, spins.fields.shape[1])
    found = [network(spins, size)]
    found += [network(spins, size, torch.exp(0.5 * draw)) for draw in noise.to(spins.fields)]
    return torch.stack(found)
