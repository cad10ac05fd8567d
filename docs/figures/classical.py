"""Residual and error of the iterative engines over sweeps on a frustrated grid.

python docs/figures/classical.py        writes docs/figures/classical.png
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import icgi
from icgi.data.families import FAMILIES

SWEEPS = np.unique(np.geomspace(1, 1000, 25).astype(int))
ENGINES = {
    "lbp": "lbp",
    "lbp, damping 0.5": "lbp:damping=0.5",
    "lbp, flooding": "lbp:schedule=flooding",
    "trbp": "trbp",
    "mf": "mf:restarts=0",
    "tap": "tap",
    "gbp": "gbp",
}


def main() -> None:
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, layout="constrained")
    for column, beta in enumerate((0.3, 1.0)):
        model = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=12, beta=beta)
        exact = icgi.marginals(model, engine="jt").probs
        for label, engine in ENGINES.items():
            runs = [
                icgi.marginals(model, engine=engine, budget=icgi.Budget(iterations=int(k)))
                for k in SWEEPS
            ]
            residual = [max(run.stats["residual"], 1e-16) for run in runs]
            error = [np.abs(run.probs - exact).sum(1).mean() for run in runs]
            axes[0, column].loglog(SWEEPS, residual, label=label)
            axes[1, column].loglog(SWEEPS, error, label=label)
        axes[0, column].axhline(1e-6, color="0.7", lw=1, ls="--")
        axes[0, column].set_title(f"Edwards–Anderson 12×12, β = {beta}")
        axes[1, column].set_xlabel("sweeps")
    axes[0, 0].set_ylabel("residual (dashed: tolerance)")
    axes[1, 0].set_ylabel("mean L1 error of a marginal")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=7)
    figure.savefig(Path(__file__).with_name("classical.png"), dpi=110)


if __name__ == "__main__":
    main()
