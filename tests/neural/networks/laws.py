"""Helpers of the tests of networks: models, batches in double precision, networks as if trained."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import zoo
from icgi.model.graph import FactorGraph
from icgi.neural.batch import Batch, collate, prepared
from icgi.neural.networks import network_class

torch.set_num_threads(1)


def every_state(model: FactorGraph) -> np.ndarray:
    return np.arange(model.max_states) < model.cards[:, None]


def double(batch: Batch) -> Batch:
    groups = tuple(replace(g, log_tables=g.log_tables.double()) for g in batch.factors)
    arrays = {name: getattr(batch, name).double() for name in ("states", "unary", "real", "own")}
    return Batch(**arrays, factors=groups)


def batch_of(models: Sequence[FactorGraph], *, pairwise: bool = False, **sizes: int) -> Batch:
    lists = [prepared(m, every_state(m), pairwise) for m in models]
    return double(collate(lists, **sizes))


def trained(net: Any, size: float = 0.1) -> Any:
    """Same network with random changes of every parameter, in double precision."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(size * torch.randn(p.shape, generator=generator))
    return net.double().eval()


def built(name: str, **settings: object) -> Any:
    torch.manual_seed(3)
    kind: Any = network_class(name)
    if name == "paper":
        settings = {"core_states": 0, **settings}  # or small models are summed, and all is exact
    return kind(kind.settings(**settings))


def takes(net: Any, model: FactorGraph) -> bool:
    arity = max([1, *map(len, model.scopes)])
    largest = max([1, *(table.size for table in model.log_tables)])
    return not net.refuse(largest, model.max_states, model.n_variables, arity)


@torch.no_grad()
def answers(net: Any, models: Sequence[FactorGraph], **sizes: int) -> list[np.ndarray]:
    alpha = net(net.prepare(batch_of(models, pairwise=net.pairwise, **sizes)))
    probs = (alpha / alpha.sum(-1, keepdim=True)).numpy()
    return [probs[b, : m.n_variables, : m.max_states] for b, m in enumerate(models)]


def spins(rng: np.random.Generator, n: int, p: float = 0.4) -> FactorGraph:
    """Spin glass with fields on a random graph."""
    pairs = [(i, j) for i in range(n) for j in range(i) if rng.random() < p]
    return zoo.random_model(rng, [2] * n, [(i,) for i in range(n)] + pairs)


def varied(rng: np.random.Generator) -> FactorGraph:
    """Variables of one to four states, and factors of up to four."""
    cards = [3, 2, 1, 4, 2, 2, 3]
    scopes = [
        (0,),
        (3,),
        (0, 1),
        (1, 2),
        (3, 1),
        (4, 5, 6),
        (0, 5, 3),
        (2, 6),
        (0, 4, 5, 6),
        (1, 6),
    ]
    return zoo.random_model(rng, cards, scopes)


def models(rng: np.random.Generator) -> list[FactorGraph]:
    return [spins(rng, 7), varied(rng), zoo.MODELS["zeros"]]
