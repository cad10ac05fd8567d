"""The shipped networks as engines: models in, Dirichlet concentrations and marginals out."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.errors import CheckpointError, IcgiError
from icgi.extras import require_extra
from icgi.inference import UNKNOWN_ERROR, Budget, Marginals, Status, require_device
from icgi.model.graph import FactorGraph
from icgi.model.ising import IsingArrays, as_ising

NEEDED = ("torch", "safetensors")
PER_FACTOR = 1e-6  # seconds to read one; too many are not read
CORE, ORDERS = 16, 4  # of `fast`
# Of `paper`: with more encodings large models get worse, and what it learned on spins moves means
# of other models away from the truth (docs/log.md).
ENCODINGS, TRAINED_STATES = 3, 2
WORTH_THREADS = 2000  # variables of a batch; below, handing work to threads takes longer than it


Variant = Literal[
    "fast", "paper", "paper-short", "paper-star", "paper-static", "paper-random-order",
    "paper-no-distribute", "paper-free",
]  # fmt: skip
"""Which network; those after `paper` are ablations of it, of 700 steps as `paper-short` is."""


@dataclass(frozen=True, slots=True)
class IcgiNetwork:
    """Networks that eliminate: `fast` in closed form, `paper` with predicted tensor trains.

    Milliseconds to seconds, many models at once with `batch`. `fast` eliminates approximately only
    until what is left has a junction tree with tables of at most 2^(core+4) entries, and is exact
    where a tree of the whole model costs no more than one elimination; `rest=sum` goes on until
    `core` variables are left, as it was trained.
    Models of more than 512 variables are cut into patches, each with the messages of belief
    propagation at its border; `patches` in the stats says how many.
    """

    variant: Variant = "fast"
    core: int | None = None  # variables left at the end, all of whose states are summed
    rest: Literal["tree", "sum", None] = None  # of `fast`: what is left, by a tree once one fits
    steps: int | None = None  # of `paper`: most variables to eliminate; none: all of them
    orders: int | None = None  # elimination orders; their mean is the answer; 4, and 1 for `paper`
    order: Literal["least-loss", "min-degree", "learned", "random", None] = None  # of `paper`
    factors: Literal["train", "star", "free", None] = None  # of `paper`: what elimination leaves
    positions: Literal["spd", "static", "none", None] = None  # of `paper`: what the bias reads
    distribute: bool | None = (
        None  # of `paper`: whether eliminated variables get anything back from the rest
    )
    encodings: int | None = None  # of `paper`: most encodings of what is left; 3
    near: float | None = None  # of `paper`: effective neighbours beyond which corrections fade
    seed: int | None = None  # of `paper`: which of the shipped five; the first if none
    weights: str | None = None  # file of `icgi train`; its network answers instead of the shipped
    device: str = "cpu"

    def __post_init__(self) -> None:
        given = (self.core, self.orders, None if self.steps is None else self.steps + 1)
        if any(value is not None and value < 1 for value in given):
            raise IcgiError(
                f"core={self.core}, orders={self.orders}, steps={self.steps}; give 1 or more for "
                "core and orders, 0 or more for steps"
            )
        require_libraries()
        require_device(self.device)
        # torch and weights are loaded here: this is start-up, no part of anybody's seconds
        self._network()

    def _network(self) -> Any:
        """Network that answers, with the switches that were asked for."""
        from icgi.neural.weights import is_shipped, load_weights, shipped, shipped_seeds

        if self.weights is not None:
            found = load_weights(Path(self.weights))
        elif self.variant != "fast":
            found = shipped(seed_of(shipped_seeds(self.variant), self.seed))
        else:
            if is_shipped("icgi-general"):
                shipped("icgi-general")
            found = shipped("icgi-fast")
        wanted = {
            "order": self.order, "factors": self.factors, "positions": self.positions,
            "distribute": self.distribute, "core": self.core, "steps": self.steps,
            "most_near": self.near, "encodings": self.encodings,
        }  # fmt: skip
        changes = {key: value for key, value in wanted.items() if value is not None}
        if self.variant != "fast" and self.weights is None:
            changes = {"encodings": ENCODINGS, "most_states": TRAINED_STATES, **changes}
        if self.variant == "fast" and self.weights is None:
            changes.pop("core", None)
        elif self.core is not None and hasattr(found.config, "core_states"):
            changes["core_states"] = 0
        return switched(found, changes)

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
        return _timed(models, budget, threads, lambda d: self._batch(models, budget, d, rngs))

    def _batch(
        self,
        models: Sequence[FactorGraph],
        budget: Budget,
        deadline: Deadline,
        rngs: Sequence[Generator],
    ) -> list[Marginals]:
        from icgi.neural.weights import is_shipped, shipped

        if self.variant != "fast" or self.weights is not None:
            from icgi.neural.network_engine import network_marginals

            name = "icgi:paper" if self.weights is None else self.weights
            return network_marginals(
                self._network(), name, models, budget, rngs, deadline, self.orders or 1,
                self.device,
            )  # fmt: skip
        arrays = {k: a for k, model in enumerate(models) if (a := as_ising(model)) is not None}
        others = [k for k in range(len(models)) if k not in arrays]
        found: dict[int, Marginals] = {}
        if others:
            if not is_shipped("icgi-general"):
                from icgi.neural.spin_engine import require_ising

                require_ising(models[others[0]])  # refuses
            from icgi.neural.general_engine import general_marginals
            from icgi.neural.rest import SHARE, ExactRest

            until = deadline.share(len(others) / len(models)) if arrays else deadline
            exact = None
            if self.rest != "sum":
                exact = ExactRest(CORE, until.share(SHARE), budget.table_bytes)
            answers = general_marginals(
                shipped("icgi-general").to(self.device), [models[k] for k in others],
                self.orders or ORDERS,
                [rngs[k] for k in others], table_bytes=budget.table_bytes, device=self.device,
                deadline=until, exact=exact,
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
            Settings(
                self.core or CORE,
                self.orders or ORDERS,
                self.device,
                budget.table_bytes,
                self.rest or "tree",
            ),
            deadline,
            [rngs[k] for k in arrays],
        )


@dataclass(frozen=True, slots=True)
class TrainedNetwork:
    """One of the networks that the paper compares with, trained on the same terms as ours."""

    network: str  # which; the engine's name says it
    variant: str = ""  # `published` of gnn-bp: the form of the original, for spins only
    seed: int | None = None  # which of the shipped five; the first if none
    weights: str | None = None  # file of `icgi train`, instead of the shipped weights
    device: str = "cpu"

    def __post_init__(self) -> None:
        require_libraries()
        require_device(self.device)
        self._network()

    def _network(self) -> Any:
        from icgi.neural.networks import network_name
        from icgi.neural.weights import load_weights, shipped, shipped_seeds

        if self.weights is None:
            kind = f"{self.network}-{self.variant}" if self.variant else self.network
            return shipped(seed_of(shipped_seeds(kind), self.seed))
        found = load_weights(Path(self.weights))
        if (name := network_name(found)) != self.network:
            raise CheckpointError(
                f"{self.weights} holds a network {name}, not {self.network}; use it as "
                f"the engine icgi:weights={self.weights}"
            )
        return found

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
        """Marginals of many models; the seconds are those of an answer on average."""
        from icgi.neural.network_engine import network_marginals

        network = self._network()
        return _timed(
            models, budget, threads,
            lambda deadline: network_marginals(
                network, self.network, models, budget, rngs, deadline, device=self.device
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Networks of one kind that differ by their seeds: the mean, and how far they are apart.

    Deep ensembles take the spread between networks for the standard error; here it is the sign of
    error from which that is read, because five networks of one kind share their mistakes.
    """

    variant: Literal["direct-gnn", "icgi"] = "direct-gnn"
    device: str = "cpu"

    def __post_init__(self) -> None:
        require_libraries()
        require_device(self.device)
        from icgi.neural.weights import shipped, shipped_seeds

        for name in shipped_seeds(self._kind):
            shipped(name)

    @property
    def _kind(self) -> str:
        return "paper" if self.variant == "icgi" else self.variant

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
        """Marginals of many models; the seconds are those of an answer on average."""
        from icgi.neural.network_engine import network_marginals
        from icgi.neural.weights import shipped, shipped_seeds

        networks = [shipped(name) for name in shipped_seeds(self._kind)]

        def members(deadline: Deadline) -> list[Marginals]:
            each = [
                network_marginals(
                    network, self._kind, models, budget, rngs,
                    deadline.share(1.0 / (len(networks) - k)), device=self.device,
                )
                for k, network in enumerate(networks)
            ]  # fmt: skip
            answers = zip(*each, strict=True)
            return [_mean(model, own) for model, own in zip(models, answers, strict=True)]

        return _timed(models, budget, threads, members)


def _timed(
    models: Sequence[FactorGraph],
    budget: Budget,
    threads: int | None,
    answers: Callable[[Deadline], list[Marginals]],
) -> list[Marginals]:
    """Answers by a deadline; those of fields alone where there is no time to read the models."""
    if not models:
        return []
    deadline = Deadline.after(budget.seconds * len(models))
    if PER_FACTOR * sum(m.n_factors for m in models) >= deadline.left:
        return [unread(model) for model in models]
    size = sum(m.n_variables for m in models)
    with torch_threads(1 if size < WORTH_THREADS else threads):
        return answers(deadline)


def _mean(model: FactorGraph, members: Sequence[Marginals]) -> Marginals:
    """The members' mean, what their spread says of its error, the worst status."""
    from icgi.neural import doubt

    probs = np.stack([m.probs for m in members])
    p = probs.mean(0)
    worst = max((m.status for m in members), key=list(Status).index)
    if worst is Status.BUDGET_SPENT:
        alpha, error = doubt.unknown(p)
    else:
        spread = probs.std(0, ddof=1) if len(members) > 1 else np.zeros_like(p)
        alphas = [m.concentration for m in members if m.concentration is not None]
        claimed = np.mean(np.stack(alphas), 0).sum(1, keepdims=True) * p
        signs = doubt.Signs(claimed, spread, np.zeros_like(p), *doubt.strengths_of(model))
        alpha, error = doubt.stated(doubt.kind_of("ensemble", len(members)), signs)
    stats = {"members": float(len(members))}
    return Marginals(p, worst, concentration=alpha, std_error=error, stats=stats)


def seed_of(names: list[str], seed: int | None) -> str:
    """Name of the weights that a seed was trained to; the first of them if none is given."""
    if seed is None:
        return names[0]
    for name in names:
        if name.endswith(f"-seed{seed}"):
            return name
    seeds = ", ".join(name.rpartition("-seed")[2] for name in names)
    raise IcgiError(f"no weights of seed {seed} are shipped; there are: {seeds}")


def switched(network: Any, changes: dict[str, Any]) -> Any:
    """Same weights under a configuration whose switches are changed; the network itself if none."""
    if not changes:
        return network
    known = {f.name for f in dataclasses.fields(network.config)}
    if unknown := set(changes) - known:
        raise IcgiError(f"this network has no setting {', '.join(sorted(unknown))}")
    other = copy.copy(network)
    other.config = dataclasses.replace(network.config, **changes)
    return other


def require_libraries() -> None:
    """Refuse at once where the networks' libraries are not installed."""
    for name in NEEDED:
        require_extra(name, "nn", "a network")


def unread(model: FactorGraph) -> Marginals:
    """What single-variable factors say, for a model that there is no time to read."""
    from icgi.neural.pace import unary_beliefs

    p = unary_beliefs(model)
    error = np.where((p > 0) & (model.cards > 1)[:, None], UNKNOWN_ERROR, 0.0)
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
