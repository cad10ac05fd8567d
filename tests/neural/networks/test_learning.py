"""Every baseline can learn: it fits a few models much better than any answer that ignores them."""

import numpy as np
import pytest
import torch
from laws import built, every_state, spins, varied

import zoo
from icgi.exact.enumeration import Enumerate
from icgi.model.graph import FactorGraph
from icgi.neural.batch import collate, prepared
from icgi.neural.losses import graph_mean, kl


def target(models: list[FactorGraph], shape: tuple[int, int, int]) -> torch.Tensor:
    found = np.zeros(shape, np.float32)
    found[:, :, 0] = 1.0
    for b, model in enumerate(models):
        found[b, : model.n_variables, : model.max_states] = zoo.run(Enumerate(), model).probs
    return torch.from_numpy(found)


LEARNERS = {
    "direct-gnn": ({"features": 64, "layers": 3}, 3e-3),
}


@pytest.mark.parametrize("mix", ["spins", "varied"])
@pytest.mark.parametrize("name", LEARNERS)
def test_it_fits_a_few_models(name: str, mix: str) -> None:
    settings, rate = LEARNERS[name]
    rng = np.random.default_rng(11)
    models = [spins(rng, 6) if mix == "spins" else varied(rng) for _ in range(32)]
    batch = collate([prepared(m, every_state(m)) for m in models])
    reference = target(models, batch.sizes)
    uniform = batch.states / batch.states.sum(-1, keepdim=True)
    constant = graph_mean(kl(uniform, reference), batch.real).item()
    net = built(name, **settings)
    form = net.prepare(batch)
    optimiser = torch.optim.Adam(net.parameters(), rate)
    for _ in range(150):
        loss = graph_mean(kl(net(form), reference), batch.real)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
    assert loss.item() < 0.1 * constant
