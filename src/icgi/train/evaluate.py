"""Evaluation of a network: fixed sets of models that no training draws, and a table of errors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from icgi.data.families import FAMILIES
from icgi.model.graph import FactorGraph
from icgi.neural import losses
from icgi.neural.fast import FastNetwork
from icgi.neural.precision import fit, signs_of_error
from icgi.neural.spin_engine import orders_of
from icgi.train.examples import Examples, Recipe, made, of_models, read, write
from icgi.train.kinds import Limits
from icgi.train.labels import ENSEMBLES, label
from icgi.train.task import answers

SEED = 777  # of all test sets; training seeds are spawned from other numbers
VALIDATION = 10_777
BATCH = 64
MIX = Limits(10, 24, 2.5)
ANY = Limits(8, 16, fewest=2, most=4, ternary=2, variables=20, states=4)
BROAD = Limits(25, 48, 2.5)
DENSE = Limits(33, 100, 2.5)
HELD_OUT = {"any": ANY, "broad": BROAD, "dense": DENSE}

Table = dict[str, dict[str, float]]


def _family(name: str, **parameters: Any) -> Callable[[Generator], FactorGraph]:
    return partial(FAMILIES[name].sample, **parameters)


TESTS: Mapping[str, Callable[[Generator], FactorGraph]] = {
    "SK N=50 β=1 h=0.1": _family("sk", n=50, beta=1.0, h=0.1),
    "SK N=100 β=1 h=0.1": _family("sk", n=100, beta=1.0, h=0.1),
    "SK N=100 β=2 h=0.5": _family("sk", n=100, beta=2.0, h=0.5),
    "EA 2D L=8 β=1": _family("ea2d", L=8, beta=1.0),
    "EA 2D L=8 β=3": _family("ea2d", L=8, beta=3.0),
    "EA 3D L=4 β=1": _family("ea3d", L=4, beta=1.0),
    "BA N=60 m=3 β=1": _family("ba", n=60, m=3, beta=1.0, field=0.3),
    "BA N=100 m=3 β=1": _family("ba", n=100, m=3, beta=1.0, field=0.3),
    "WS N=100 k=6 β=1": _family("ws", n=100, k=6, p=0.1, beta=1.0, field=0.3),
    "ER N=60 p=0.1 β=1": _family("er", n=60, p=0.1, beta=1.0, field=0.3),
    "ER N=100 p=0.1 β=1": _family("er", n=100, p=0.1, beta=1.0, field=0.3),
}
"""Families and sizes that networks are measured on; the last rows are of no training family."""


def validation_sets(
    mixture: str, count: int, pairwise: bool, device: torch.device | str, cache: Path | None
) -> dict[str, Examples]:
    """Sets that decide which weights are kept: the mix, and for models of any kind theirs."""
    kinds = {mixture: HELD_OUT.get(mixture, MIX)}
    return {
        name: made(Recipe(name, limits, count, VALIDATION), pairwise, device=device, cache=cache)
        for name, limits in kinds.items()
    }


def test_set(name: str, count: int, pairwise: bool, cache: Path | None) -> Examples:
    """The first models of a test set with references: exact where quick, tempered elsewhere."""
    path = None if cache is None else cache / f"test-{name.encode().hex()}-{count}-{pairwise}.npz"
    if path is not None and path.exists():
        return read(path)
    rng = np.random.default_rng([SEED, *name.encode()])
    models = [TESTS[name](rng) for _ in range(count)]
    found = of_models(models, [label(model, rng) for model in models], pairwise)
    if path is not None:
        write(path, found)
    return found


@torch.no_grad()
def fit_precision(network: FastNetwork, sets: Sequence[Examples]) -> None:
    """Fit how sure `icgi:fast` is, for one order and for four, on models it was not trained on."""
    for row, orders in enumerate((1, 4)):
        signs, error, noise = [], [], []
        for data in sets:
            for k in range(0, len(data), BATCH):
                part = data[k : k + BATCH]
                spins = network.prepare(part.batch)
                rng = torch.Generator().manual_seed(k)
                draws = torch.randn((orders - 1, *spins.real.shape), generator=rng)
                alphas = orders_of(network, spins, network.config.core, draws)
                together = alphas.mean(0)
                real = spins.real > 0
                signs.append(signs_of_error(alphas, spins.mean, spins.real)[real])
                p = together[..., 0] / together.sum(-1)
                error.append((p - part.reference[..., 0])[real])
                noise.append(part.spread[real] / ENSEMBLES**0.5)
        with torch.enable_grad():
            found = fit(torch.cat(signs), torch.cat(error), torch.cat(noise))
        network.precision.coefficients[row] = found


@dataclass(frozen=True, slots=True)
class Quality:
    """How wrong answers are, and whether they know."""

    mae: Tensor  # b    of every graph
    rank: float  # Spearman's correlation of the stated deviation with the error, over variables
    covered: float  # share of variables whose error is within two stated deviations

    def row(self) -> dict[str, float]:
        """One line of a table."""
        error = float(self.mae.std()) / max(len(self.mae), 1) ** 0.5 if len(self.mae) > 1 else 0.0
        return {
            "mae": float(self.mae.mean()),
            "error": error,
            "rank": self.rank,
            "covered": self.covered,
            "models": float(len(self.mae)),
        }


@torch.no_grad()
def quality(network: Any, data: Examples, batch: int = 64) -> Quality:
    """Measure a network; references' own errors count as the network's."""
    alpha = answers(network, data, batch)
    error = losses.l1(alpha, data.reference)
    asked = data.asked > 0
    total = alpha.sum(-1)
    p = alpha / total[..., None]
    deviation = (p * (1.0 - p)).sum(-1).div(total + 1.0).sqrt()
    gap = (p - data.reference).square().sum(-1).sqrt()
    covered = float((gap <= 2.0 * deviation)[asked].double().mean())
    mae = (error * data.asked).sum(1) / data.asked.sum(1)
    return Quality(mae, float(rank_correlation(deviation[asked], gap[asked])), covered)


def rank_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Spearman's correlation of two rows of numbers."""
    ranks = [x.argsort().argsort().double() for x in (a, b)]
    return torch.corrcoef(torch.stack(ranks))[0, 1]
