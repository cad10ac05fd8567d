"""Every baseline can learn: it fits a few models much better than any answer that ignores them."""

from typing import Any

import numpy as np
import pytest
import torch
from laws import built, every_state, spins, varied

import zoo
from icgi.exact.enumeration import Enumerate
from icgi.model.graph import FactorGraph
from icgi.neural.batch import collate, prepared
from icgi.neural.losses import graph_mean, kl


def strong(rng: np.random.Generator) -> FactorGraph:
    """Dense spin glass on which belief propagation does not come to rest, or far from the truth."""
    pairs = [(i, j) for i in range(6) for j in range(i)]
    return zoo.random_model(rng, [2] * 6, [(i,) for i in range(6)] + pairs, scale=1.5)


def target(models: list[FactorGraph], shape: tuple[int, int, int]) -> torch.Tensor:
    found = np.zeros(shape, np.float32)
    found[:, :, 0] = 1.0
    for b, model in enumerate(models):
        found[b, : model.n_variables, : model.max_states] = zoo.run(Enumerate(), model).probs
    return torch.from_numpy(found)


SIZES = {
    "gnn-bp": {"features": 16, "steps": 5},
    "direct-gnn": {"features": 32, "layers": 3, "heads": 4},
    "bpnn": {"iterations": 6},
}
CASES = [
    ("gnn-bp", "spins"),
    ("gnn-bp", "varied"),
    ("direct-gnn", "spins"),
    ("direct-gnn", "varied"),
]


def fitted(
    net: Any, models: list[FactorGraph], rate: float, steps: int
) -> tuple[float, float, float]:
    """Mean KL at first and in the end, and that of the uniform answer."""
    batch = collate([prepared(m, every_state(m)) for m in models])
    reference = target(models, batch.sizes)
    uniform = batch.states / batch.states.sum(-1, keepdim=True)
    form = net.prepare(batch)
    optimiser = torch.optim.Adam(net.parameters(), rate)
    losses = []
    for _ in range(steps):
        loss = graph_mean(kl(net(form), reference), batch.real)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    return losses[0], losses[-1], graph_mean(kl(uniform, reference), batch.real).item()


@pytest.mark.parametrize(("name", "mix"), CASES)
def test_it_fits_a_few_models(name: str, mix: str) -> None:
    rng = np.random.default_rng(11)
    models = (
        [spins(rng, 6) for _ in range(32)] if mix == "spins" else [varied(rng) for _ in range(4)]
    )
    _, last, constant = fitted(built(name, **SIZES[name]), models, 1e-2, 120)
    assert last < 0.1 * constant


def test_the_published_form_of_gnn_bp_fits_a_few_models() -> None:
    rng = np.random.default_rng(11)
    models = [spins(rng, 6) for _ in range(32)]
    _, last, constant = fitted(built("gnn-bp", form="node"), models, 1e-2, 300)
    assert last < 0.25 * constant


def test_bpnn_becomes_better_than_belief_propagation() -> None:
    rng = np.random.default_rng(11)
    models = [strong(rng) for _ in range(32)]
    first, last, _ = fitted(built("bpnn", **SIZES["bpnn"]), models, 1e-2, 120)
    assert last < 0.5 * first
