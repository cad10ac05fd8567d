"""A frontier train moving over a lattice, and the error of `ttve` against its rank.

python docs/figures/ttve.py        writes docs/figures/ttve.png and docs/figures/ttve_rank.png
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from icgi.data.families import FAMILIES
from icgi.elimination.orders import find_layout
from icgi.elimination.potentials import potentials

HERE = Path(__file__).parent
LINES = HERE.parent.parent / "benchmarks" / "results" / "ttve_study.jsonl"
SIZE = 7
MOMENTS = (5, 17, 31)  # steps to show


def frontier_at(layout, step: int) -> tuple[list[int], list[int], list[int]]:
    """Eliminated variables, frontier in order of position, and range, when a step begins."""
    gone, live = [], set()
    for t in range(step + 1):
        first, last = layout.site_start[t], layout.site_start[t + 1]
        sites = layout.site[first:last].tolist()
        live |= set(sites)
        if t < step:
            gone.append(int(layout.step_variable[t]))
            live.discard(gone[-1])
    return gone, sorted(live, key=lambda u: layout.position[u]), sites


def picture() -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=SIZE)
    layout = find_layout(model, potentials(model), 8, np.random.default_rng(0))
    figure, axes = plt.subplots(1, len(MOMENTS), figsize=(11, 4.2), layout="constrained")
    x, y = np.arange(SIZE * SIZE) % SIZE, SIZE - 1 - np.arange(SIZE * SIZE) // SIZE
    pairs = [s for s in model.scopes if len(s) == 2]
    for axis, step in zip(axes, MOMENTS, strict=True):
        gone, front, sites = frontier_at(layout, step)
        v = int(layout.step_variable[step])
        for i, j in pairs:
            faint = i in gone or j in gone
            axis.plot(x[[i, j]], y[[i, j]], color="0.9" if faint else "0.6", lw=1, zorder=0)
        axis.plot(x[front], y[front], color="tab:blue", lw=5, alpha=0.35, zorder=1)
        axis.plot(x[sites], y[sites], color="tab:orange", lw=5, alpha=0.7, zorder=1)
        axis.scatter(x[gone], y[gone], s=45, color="0.85", zorder=2)
        rest = [i for i in range(SIZE * SIZE) if i not in gone and i not in front]
        axis.scatter(x[rest], y[rest], s=70, facecolor="white", edgecolor="0.4", zorder=2)
        axis.scatter(x[front], y[front], s=90, color="tab:blue", zorder=3)
        axis.scatter(x[v], y[v], s=160, color="tab:red", zorder=4)
        axis.set_title(f"step {step}: {len(gone)} eliminated, {len(front)} in the train", size=10)
        axis.set_aspect("equal")
        axis.axis("off")
    figure.legend(
        handles=[
            plt.Line2D([], [], marker="o", ls="", color=c, label=text, markeredgecolor=e)
            for c, e, text in (
                ("0.85", "0.85", "eliminated"),
                ("tab:red", "tab:red", "being eliminated"),
                ("tab:blue", "tab:blue", "site of the train"),
                ("white", "0.4", "not touched yet"),
            )
        ]
        + [
            plt.Line2D([], [], color="tab:blue", lw=5, alpha=0.35, label="bonds of the train"),
            plt.Line2D([], [], color="tab:orange", lw=5, alpha=0.7, label="range of the step"),
        ],
        loc="outside lower center",
        ncols=6,
    )
    figure.savefig(HERE / "ttve.png", dpi=110)


def error_against_rank() -> None:
    lines = [json.loads(line) for line in LINES.read_text().splitlines()]
    cells: dict[str, dict[int, list[float]]] = {}
    for x in lines:
        name = f"{x['family']} {x['parameters']}"
        cells.setdefault(name, {}).setdefault(x["rank"], []).append(x["error"])
    figure, axis = plt.subplots(figsize=(8, 4.6), layout="constrained")
    shapes = "osv^Dp*hPX<>"
    for (name, by_rank), shape in zip(sorted(cells.items()), shapes, strict=False):
        ranks = sorted(by_rank)
        middle = [max(np.median(by_rank[r]), 1e-13) for r in ranks]
        axis.loglog(ranks, middle, marker=shape, label=name)
    axis.set_xticks([2, 4, 8], ["2", "4", "8"])
    axis.minorticks_off()
    axis.set_xlabel("rank")
    axis.set_ylabel("mean L1 error of a marginal, median over models")
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(HERE / "ttve_rank.png", dpi=110)


if __name__ == "__main__":
    picture()
    error_against_rank()
