"""Cost of `ttve`: CPU seconds of one forward and backward pass, on one core.

python benchmarks/ttve.py run [--prototype DIR]  measure what is missing, append lines, then render
python benchmarks/ttve.py                        print tables, write docs/figures/ttve_cost.png

DIR holds a plain numpy version of the same passes (modules ttve2 and models), measured alongside.
quimb's boundary contraction gives log Z of lattices at equal bond, without marginals.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from icgi.data.families import FAMILIES
from icgi.elimination.orders import find_layout
from icgi.elimination.passes import Cut
from icgi.elimination.potentials import potentials
from icgi.elimination.run import both_passes
from icgi.model.ising import as_ising, ising_model

LINES = Path(__file__).parent / "results" / "ttve.jsonl"
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "ttve_cost.png"
PASSES = [  # name, family, parameters, rank, times as fast as numpy it should be
    ("SK n=50", "sk", {"n": 50}, 16, 10),
    ("SK n=50", "sk", {"n": 50}, 32, 3),
    ("SK n=50", "sk", {"n": 50}, 64, 3),
    ("SK n=100", "sk", {"n": 100}, 16, 10),
    ("EA 3D L=6", "ea3d", {"L": 6}, 16, 10),
    ("EA 3D L=8", "ea3d", {"L": 8}, 16, 10),
]
LATTICES = [(20, 16), (20, 32), (50, 16), (50, 32)]  # L, bond
GROWTH_N = [("ea2d", {"L": L}, 16) for L in (8, 12, 16, 24, 32, 48)] + [
    ("sk", {"n": n}, 16) for n in (20, 30, 40, 60, 80)
]
GROWTH_R = [("ea3d", {"L": 6}, r) for r in (4, 8, 16, 32, 48)] + [
    ("sk", {"n": 40}, r) for r in (4, 8, 16, 32, 64)
]


def passes(model, rank: int, qr: bool, repeats: int = 2):
    """Least CPU seconds of a pair of passes that knows its environment, and log Z."""
    pots = potentials(model)
    layout = find_layout(model, pots, rank, np.random.default_rng(0))
    cut = Cut(rank, 3.0, 1e-12, qr)
    env = both_passes(pots, layout, cut._replace(qr=False)).backward
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        done = both_passes(pots, layout, cut, env)
        seconds.append(time.process_time() - began)
    return min(seconds), done, layout


def numpy_passes(folder: str, model, layout, rank: int) -> float:
    """CPU seconds of the same pair of passes in numpy, with the same order and positions."""
    sys.path.insert(0, folder)
    from models import Ising
    from ttve2 import TTVE2

    spins = as_ising(model)
    theirs = Ising(model.n_variables, spins.edges, spins.couplings, -spins.fields)
    trains = TTVE2(theirs, layout.order.tolist(), layout.position.tolist(), rank)
    trains.forward()
    trains.backward()
    began = time.process_time()
    trains.forward()
    trains.backward()
    return time.process_time() - began


def lattice(size: int):
    """Gaussian couplings and field 0.1 on a square lattice: the model, and J as quimb wants it."""
    rng = np.random.default_rng(1000)
    at = np.arange(size * size).reshape(size, size)
    edges = np.concatenate(
        [
            np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1),
            np.stack([at[:-1].ravel(), at[1:].ravel()], 1),
        ]
    )
    values = rng.standard_normal(len(edges))
    named = {
        (divmod(int(a), size), divmod(int(b), size)): float(j)
        for (a, b), j in zip(edges, values, strict=True)
    }
    return ising_model((edges, values), np.full(size * size, 0.1)), named


def quimb_contraction(size: int, bond: int, couplings: dict) -> tuple[float, float]:
    """CPU seconds and log Z of quimb's boundary contraction."""
    import quimb.tensor as qtn

    network = qtn.TN2D_classical_ising_partition_function(
        size, size, beta=1.0, h=0.1,
        j=lambda a, b: couplings[a, b] if (a, b) in couplings else couplings[b, a],
    )  # fmt: skip
    seconds = []
    for _ in range(2):
        began = time.process_time()
        mantissa, exponent = network.contract_boundary(max_bond=bond, strip_exponent=True)
        seconds.append(time.process_time() - began)
    return min(seconds), float(np.log(abs(mantissa)) + exponent * np.log(10.0))


def measure(prototype: str | None) -> None:
    done = {(x["kind"], x["name"], x["rank"]) for x in stored()}
    passes(FAMILIES["sk"].sample(np.random.default_rng(0), n=12), 4, True)  # compile
    for name, family, parameters, rank, goal in PASSES:
        if ("pass", name, rank) in done:
            continue
        model = FAMILIES[family].sample(np.random.default_rng(1000), **parameters)
        gram, _, layout = passes(model, rank, False)
        qr, _, _ = passes(model, rank, True, 1)
        plain = numpy_passes(prototype, model, layout, rank) if prototype else None
        add("pass", name, rank, gram=gram, qr=qr, numpy=plain, goal=goal)
    for size, bond in LATTICES:
        if ("lattice", f"L={size}", bond) in done:
            continue
        model, couplings = lattice(size)
        gram, fast, _ = passes(model, bond, False)
        qr, fine, _ = passes(model, bond, True, 1)
        seconds, log_z = quimb_contraction(size, bond, couplings)
        add(
            "lattice", f"L={size}", bond, gram=gram, qr=qr, quimb=seconds,
            log_z=fine.log_z, log_z_gram=fast.log_z, log_z_quimb=log_z,
        )  # fmt: skip
    for kind, cells in (("n", GROWTH_N), ("r", GROWTH_R)):
        for family, parameters, rank in cells:
            name = family + " " + " ".join(f"{k}={v}" for k, v in parameters.items())
            if (kind, name, rank) in done:
                continue
            model = FAMILIES[family].sample(np.random.default_rng(1000), **parameters)
            seconds, _, layout = passes(model, rank, False)
            add(
                kind, name, rank, family=family, n=model.n_variables, gram=seconds,
                predicted=layout.cost,
            )  # fmt: skip


def add(kind: str, name: str, rank: int, **values) -> None:
    line = {"kind": kind, "name": name, "rank": rank, **values}
    print(line, flush=True)
    LINES.parent.mkdir(exist_ok=True)
    with LINES.open("a") as out:
        out.write(json.dumps(line) + "\n")


def stored() -> list[dict]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def render() -> None:
    lines = stored()
    print("| one forward and backward pass | r | grams, s | factors, s | numpy, s | times | goal |")
    print("|---|---|---|---|---|---|---|")
    for x in (x for x in lines if x["kind"] == "pass"):
        numpy = "–" if x["numpy"] is None else f"{x['numpy']:.2f}"
        times = "–" if x["numpy"] is None else (
            f"{x['numpy'] / x['gram']:.1f} / {x['numpy'] / x['qr']:.1f}"
        )  # fmt: skip
        print(
            f"| {x['name']} | {x['rank']} | {x['gram']:.3f} | {x['qr']:.3f} | {numpy} | {times} | "
            f"{x['goal']} |"
        )
    print("\n| lattice | bond | ours (log Z, all marginals), s | quimb (log Z), s | Δ log Z |")
    print("|---|---|---|---|---|")
    for x in (x for x in lines if x["kind"] == "lattice"):
        print(
            f"| {x['name']} | {x['rank']} | {x['gram']:.2f} grams, {x['qr']:.2f} factors | "
            f"{x['quimb']:.2f} | {abs(x['log_z'] - x['log_z_quimb']):.1e} |"
        )
    plot(lines)


def plot(lines: list[dict]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for axis, kind, key, label in zip(
        axes, "nr", ("n", "rank"), ("variables", "rank"), strict=True
    ):
        for family in sorted({x["family"] for x in lines if x["kind"] == kind}):
            some = [x for x in lines if x["kind"] == kind and x["family"] == family]
            x = np.array([line[key] for line in some], float)
            y = np.array([line["gram"] for line in some])
            late = x >= np.median(x)  # the exponent is that of the larger half
            power, shift = np.polyfit(np.log(x[late]), np.log(y[late]), 1)
            print(f"{family}: seconds ~ {label}^{power:.2f}")
            (dots,) = axis.loglog(x, y, "o", label=f"{family}: {label}$^{{{power:.1f}}}$")
            axis.loglog(x[late], np.exp(shift) * x[late] ** power, color=dots.get_color())
        axis.set_xlabel(label)
        axis.legend()
    ranks = sorted({x["rank"] for x in lines if x["kind"] == "r"})
    axes[1].set_xticks(ranks, ranks)
    axes[1].minorticks_off()
    axes[0].set_ylabel("CPU seconds of a forward and backward pass")
    axes[0].set_title("rank 16")
    figure.savefig(FIGURE, dpi=110)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        measure(sys.argv[3] if sys.argv[2:3] == ["--prototype"] else None)
    render()
