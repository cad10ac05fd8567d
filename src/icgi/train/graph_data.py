"""Labelled factor graphs of any kind to train on: many states, large factors, zeros, and spins."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from icgi.data.families import FAMILIES
from icgi.errors import BudgetError, EvidenceError
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.reduce import all_states, propagate, restrict
from icgi.neural.graphs import Graphs, Shape, from_couplings, make_batch
from icgi.train.labels import Labelled
from icgi.train.mixture import Range

CHUNK = 128  # models that one worker draws from one stream
MOST_STATES = 8
MOST_ARITY = 3
MOST_LARGE = 24  # factors of three variables
BUDGET = Budget(table_bytes=2**24)  # of the junction tree that labels

Draw = Callable[[Generator, int, float], FactorGraph]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What a step reads."""

    graphs: Graphs
    reference: Tensor  # b n k
    spread: Tensor  # b n    ŝ of the reference, 0 where it is exact


class SpinExamples:
    """Labelled Ising models; tables are made from couplings when a batch is taken."""

    def __init__(self, data: Labelled) -> None:
        self.data = data
        self.size, self.variables = data.up.shape
        self.device = data.up.device

    def __getitem__(self, index: Tensor | slice) -> Batch:
        part = self.data[index]
        spins = part.spins
        graphs = from_couplings(spins.couplings, spins.fields, spins.real, spins.distances)
        reference = torch.stack([part.up, 1.0 - part.up], -1)
        return Batch(graphs, reference, part.spread)

    def context(self, index: Tensor, kind: Tensor) -> tuple[Tensor, Tensor] | None:
        """Short tempering runs as estimates (b n k) and reliabilities (b n), if there are any."""
        if not len(self.data.estimates):
            return None
        half = self.data.estimates[kind, index]
        both = torch.nn.functional.logsigmoid(2.0 * torch.stack([half, -half], -1))
        return both + float(np.log(2.0)), self.data.reliabilities[kind, index]


class GraphExamples:
    """Labelled factor graphs of any kind."""

    def __init__(self, graphs: Graphs, reference: Tensor) -> None:
        self.graphs, self.reference = graphs, reference
        self.size, self.variables = reference.shape[:2]
        self.device = reference.device

    def __getitem__(self, index: Tensor | slice) -> Batch:
        reference = self.reference[index]
        return Batch(self.graphs[index], reference, torch.zeros_like(reference[..., 0]))

    def context(self, index: Tensor, kind: Tensor) -> tuple[Tensor, Tensor] | None:
        """No estimates are kept for these."""
        return None

    def to(self, device: torch.device | str) -> "GraphExamples":
        """Same examples elsewhere."""
        return GraphExamples(self.graphs.to(device), self.reference.to(device))


Examples = SpinExamples | GraphExamples


def start_drawing(seed: int, limits: Range, count: int, pool: Executor | None) -> "Drawing":
    """Begin to draw and label models in other processes; `Drawing.result` waits for them."""
    streams = np.random.SeedSequence(seed).spawn(-(-count // CHUNK))
    sizes = [min(CHUNK, count - CHUNK * k) for k in range(len(streams))]
    if pool is None:
        parts = [_chunk(limits, *pair) for pair in zip(streams, sizes, strict=True)]
        return Drawing([], [x for part in parts for x in part], limits)
    futures = [pool.submit(_chunk, limits, *pair) for pair in zip(streams, sizes, strict=True)]
    return Drawing(futures, [], limits)


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """Models that are being drawn."""

    futures: list["Future[list[tuple[FactorGraph, FloatArray]]]"]
    done: list[tuple[FactorGraph, FloatArray]]
    limits: Range

    def result(self) -> GraphExamples:
        """Padded batch of all of them; the same for any number of workers."""
        found = self.done or [x for future in self.futures for x in future.result()]
        return examples(found, self.limits.largest)


def examples(found: list[tuple[FactorGraph, FloatArray]], largest: int) -> GraphExamples:
    """Models and their exact marginals as tensors."""
    models = [model for model, _ in found]
    tight = Shape.of(models)
    shape = Shape(largest, tight.states, tight.factors)
    reference = np.zeros((len(found), largest, shape.states), np.float32)
    for row, (model, probs) in enumerate(found):
        reference[row, : model.n_variables, : model.max_states] = probs
    return GraphExamples(make_batch(models, shape=shape), torch.from_numpy(reference))


def draw(rng: Generator, limits: Range) -> FactorGraph:
    """One model of a family drawn evenly."""
    n = int(rng.integers(limits.smallest, limits.largest + 1))
    beta = float(rng.uniform(limits.least_beta, limits.most_beta))
    return DRAWS[int(rng.integers(len(DRAWS)))](rng, n, beta)


def label_all(
    make: Callable[[Generator], FactorGraph], rng: Generator, count: int, largest: int
) -> GraphExamples:
    """So many models that can be labelled, of up to `largest` variables."""
    return examples(_labelled(make, rng, count), largest)


def _chunk(
    limits: Range, stream: np.random.SeedSequence, count: int
) -> list[tuple[FactorGraph, FloatArray]]:
    rng = np.random.default_rng(stream)
    return _labelled(lambda source: draw(source, limits), rng, count)


def _labelled(
    make: Callable[[Generator], FactorGraph], rng: Generator, count: int
) -> list[tuple[FactorGraph, FloatArray]]:
    """Models without impossible states, and their exact marginals."""
    found: list[tuple[FactorGraph, FloatArray]] = []
    while len(found) < count:
        model = make(rng)
        try:
            model = restrict(model, propagate(model, all_states(model)))
            if sum(len(s) > 2 for s in model.scopes) <= MOST_LARGE:
                found.append((model, JunctionTree()(model, BUDGET, rng).probs))
        except (BudgetError, EvidenceError):  # too wide to label, or without a solution
            continue
    return found


def _states(rng: Generator) -> int:
    return int(rng.integers(2, MOST_STATES + 1))


def _potts(rng: Generator, n: int, beta: float) -> FactorGraph:
    largest = int(n**0.5)
    q = min(_states(rng), 5 if largest > 3 else MOST_STATES)  # exact labels stay cheap
    return FAMILIES["potts"].sample(rng, L=max(2, largest), q=q, beta=1.5 * beta, field=0.3)


def _tree(rng: Generator, n: int, beta: float) -> FactorGraph:
    arity = int(rng.integers(2, MOST_ARITY + 1))
    return FAMILIES["tree"].sample(rng, n=n, arity=arity, states=_states(rng), beta=beta)


def _pairs(rng: Generator, n: int, beta: float) -> FactorGraph:
    density = float(rng.uniform(0.8, 1.4))
    return FAMILIES["factor"].sample(
        rng, n=n, density=density, arity=2, states=_states(rng), beta=beta
    )


def _triples(rng: Generator, n: int, beta: float) -> FactorGraph:
    density = float(rng.uniform(0.5, 1.1))
    return FAMILIES["factor"].sample(
        rng, n=n, density=density, arity=MOST_ARITY, states=int(rng.integers(2, 5)), beta=beta
    )


def _constraints(rng: Generator, n: int, beta: float) -> FactorGraph:
    return FAMILIES["csp"].sample(
        rng,
        n=n,
        density=float(rng.uniform(0.6, 1.1)),
        arity=int(rng.integers(2, MOST_ARITY + 1)),
        states=int(rng.integers(2, 5)),
        tightness=float(rng.uniform(0.1, 0.4)),
        beta=float(rng.choice([0.0, beta])),
    )


DRAWS: tuple[Draw, ...] = (_potts, _tree, _pairs, _triples, _constraints)
