"""How good a network is: fixed test sets, tempered long, and a table of errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
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
from icgi.neural.spin_engine import concentrations, orders_of
from icgi.train.labels import Labelled, context, label
from icgi.train.mixture import Dense, Range, dense, draw_many

LONG_ENSEMBLES = 8
SEED = 777  # of all test sets; training seeds are spawned from other numbers


def _family(name: str, **parameters: Any) -> Callable[[Generator], FactorGraph]:
    return lambda rng: FAMILIES[name].sample(rng, **parameters)


TESTS: Mapping[str, Callable[[Generator], FactorGraph]] = {
    "SK N=50 β=1 h=0.1": _family("sk", n=50, beta=1.0, h=0.1),
    "SK N=100 β=1 h=0.1": _family("sk", n=100, beta=1.0, h=0.1),
    "SK N=100 β=2 h=0.5": _family("sk", n=100, beta=2.0, h=0.5),
    "EA 2D L=8 β=1": _family("ea2d", L=8, beta=1.0),
    "EA 3D L=4 β=1": _family("ea3d", L=4, beta=1.0),
    "BA N=100 m=3 β=1": _family("ba", n=100, m=3, beta=1.0, field=0.3),
    "WS N=100 k=6 β=1": _family("ws", n=100, k=6, p=0.1, beta=1.0, field=0.3),
    "ER N=60 p=0.1 β=1": _family("er", n=60, p=0.1, beta=1.0, field=0.3),
    "ER N=100 p=0.1 β=1": _family("er", n=100, p=0.1, beta=1.0, field=0.3),
}


def test_sets(count: int) -> dict[str, Dense]:
    """The models of every test set."""
    made = {}
    for name, make in TESTS.items():
        rng = np.random.default_rng([SEED, *name.encode()])
        models = [make(rng) for _ in range(count)]
        made[name] = dense(models, max(m.n_variables for m in models))
    return made


def validation_models(mixture: str, count: int = 512, pool: Executor | None = None) -> Dense:
    """Return the validation mix: 10 to 32 variables, β up to 2.5, seeds apart from training."""
    return draw_many(10_000 + SEED, mixture, Range(10, 32, 2.5), count, pool)


def long_labels(models: Dense, device: torch.device | str) -> Labelled:
    """Reference marginals of standard error below 0.003 for all but the coldest models."""
    return label(models, 20_000, (), SEED, device, ensembles=LONG_ENSEMBLES)


@dataclass(frozen=True, slots=True, eq=False)
class Quality:
    """How wrong answers are, and whether they know."""

    mae: Tensor  # b    of every graph
    rank: float  # Spearman's correlation of the stated deviation with the error, over variables
    covered: float  # share of variables whose error is within two stated deviations


@torch.no_grad()
def quality(
    network: FastNetwork, data: Labelled, core: int, orders: int = 1, batch: int = 64
) -> Quality:
    """Measure a network; references' own errors count as the network's."""
    found, stated, wrong = [], [], []
    for part, noise in _parts(data, orders, batch):
        alpha = concentrations(network, part.spins, core, noise)
        reference = torch.stack([part.up, 1.0 - part.up], -1)
        error = losses.l1(alpha, reference)
        real = part.spins.real
        total = alpha.sum(-1)
        found.append((error * real).sum(1) / real.sum(1))
        deviation = (alpha[..., 0] * alpha[..., 1] / (total + 1.0)).sqrt() / total
        stated.append(deviation[real > 0])
        wrong.append(0.5 * error[real > 0])
    sd, gap = torch.cat(stated), torch.cat(wrong)
    covered = float((gap <= 2.0 * sd).double().mean())
    return Quality(torch.cat(found), float(rank_correlation(sd, gap)), covered)


@torch.no_grad()
def calibrate(network: FastNetwork, sets: Sequence[Labelled], core: int) -> None:
    """Fit `network.precision` on held-out models, for one order and for four."""
    for row, orders in enumerate((1, 4)):
        signs, error, noise = [], [], []
        for data in sets:
            for part, draws in _parts(data, orders, 64):
                alphas = orders_of(network, part.spins, core, draws)
                together = alphas.mean(0)
                real = part.spins.real > 0
                signs.append(signs_of_error(alphas, part.spins.mean, part.spins.real)[real])
                error.append((together[..., 0] / together.sum(-1) - part.up)[real])
                noise.append(part.spread[real] / LONG_ENSEMBLES**0.5)
        with torch.enable_grad():
            found = fit(torch.cat(signs), torch.cat(error), torch.cat(noise))
        network.precision.coefficients[row] = found


def _parts(data: Labelled, orders: int, batch: int) -> Iterator[tuple[Labelled, Tensor]]:
    """Pieces of a set, each with the noise of all orders but the first."""
    for k in range(0, len(data.up), batch):
        part = data[k : k + batch]
        rng = torch.Generator().manual_seed(k)
        yield part, torch.randn((orders - 1, *part.up.shape), generator=rng)


def with_context(data: Labelled, models: Dense, sweeps: int) -> tuple[Labelled, float]:
    """Same data with a short tempering run as context, and the MAE of that run alone."""
    estimate, sure = context(models, sweeps, SEED + sweeps)
    estimate, sure = estimate.to(data.up.device), sure.to(data.up.device)
    real = data.spins.real
    raw = (2.0 * (torch.sigmoid(2.0 * estimate) - data.up).abs() * real).sum(1) / real.sum(1)
    told = replace(data.spins, estimate=estimate * real, reliability=sure * real)
    return replace(data, spins=told), float(raw.mean())


def rank_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Spearman's correlation of two rows of numbers."""
    ranks = [x.argsort().argsort().double() for x in (a, b)]
    return torch.corrcoef(torch.stack(ranks))[0, 1]
