"""What the second pass of `icgi:fast` gains over the first, without and with training.

    python benchmarks/passes.py [SET ...]     print the table; by default the sets of SK models

The models and references are those of `networks.py`; one order, a core of 12.
"""

import sys

import numpy as np
import torch
from networks import models, reference

from icgi.neural.engine import concentrations, require_ising, spins_from
from icgi.neural.fast import FastNetwork
from icgi.neural.weights import shipped

CORE = 12


@torch.no_grad()
def row(name: str) -> str:
    drawn = models(name)
    exact = [reference(m)[0][:, 1] for m in drawn]
    spins = spins_from([require_ising(m) for m in drawn], "cpu")
    trained = shipped("icgi-fast")
    torch.manual_seed(0)
    found = {"first": 0.5 * (1.0 + spins.mean)}
    for key, network in {"untrained": FastNetwork(trained.config), "trained": trained}.items():
        alpha = concentrations(network, spins, CORE, torch.zeros(0, *spins.fields.shape))
        found[key] = alpha[..., 0] / alpha.sum(-1)
    cells = [
        np.mean(
            [2 * np.abs(p[: len(e)].numpy() - e).mean() for p, e in zip(up, exact, strict=True)]
        )
        for up in found.values()
    ]
    return f"| {name} ({len(drawn)}) | " + " | ".join(f"{c:.4f}" for c in cells) + " |"


if __name__ == "__main__":
    names = sys.argv[1:] or ["SK N=50 β=1 h=0.1", "SK N=100 β=1 h=0.1"]
    print("| models | first pass | second, untrained | second, trained |\n|---|---|---|---|")
    for name in names:
        print(row(name), flush=True)
