"""Accuracy of `ttve` at fixed rank, family by family: run cells, append lines, print the table.

python benchmarks/ttve_accuracy.py              print the table from the stored lines
python benchmarks/ttve_accuracy.py run [CELL]   run what is missing (or one cell), then print
python benchmarks/ttve_accuracy.py uai [run]    the same for published models, 60 s per engine
UNTIMED=1 ...                                   on a busy machine: leave the seconds out
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numba
import numpy as np

from icgi.data.families import FAMILIES
from icgi.elimination.engine import TensorTrainElimination
from icgi.elimination.run import distance
from icgi.exact.junction_tree import solve
from icgi.inference import Budget
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising
from icgi.model.ordering import find_order

LINES = Path(__file__).parent / "results" / "ttve_accuracy.jsonl"
SEEDS = (42, 123, 456, 789, 1024)
FRESH = (5042, 5123, 5456, 5789, 6024)  # for cells whose first seeds were seen during development
EXACT_TABLE = 24  # log₂ entries up to which the junction tree gives the reference


@dataclass(frozen=True)
class Cell:
    """A family at fixed parameters and rank; `reference`: exact, (a larger) rank or tempering."""

    name: str
    family: str
    parameters: dict
    rank: int
    goal: float
    reference: str
    seconds: float = 1200.0  # wall clock, at most
    reference_rank: int = 64
    seeds: tuple[int, ...] = SEEDS


def cell(name, family, rank, goal, reference, seeds=SEEDS, **parameters):
    return Cell(name, family, parameters, rank, goal, reference, seeds=seeds)


CELLS = [
    cell("EA 2D L=20 β=1", "ea2d", 8, 3e-4, "exact", L=20),
    cell("EA 2D L=50 β=1", "ea2d", 16, 1e-4, "rank", L=50),
    cell("EA 2D L=50 β=3", "ea2d", 32, 1e-3, "rank", L=50, beta=3.0),
    cell("EA 3D L=4 β=1", "ea3d", 16, 1e-4, "exact", L=4),
    cell("EA 3D L=6 β=1", "ea3d", 32, 1e-2, "tempering", L=6),
    cell("WS n=100 k=6", "ws", 16, 1e-3, "exact", n=100, k=6),
    cell("BA n=100 m=3", "ba", 16, 1e-2, "tempering", FRESH, n=100, m=3),
    cell("ER n=100 p=0.05", "er", 16, 2e-3, "tempering", FRESH, n=100, p=0.05),
    cell("SK n=50 β=1 h=0.1", "sk", 32, 5e-3, "tempering", n=50, beta=1.0, h=0.1),
    cell("SK n=50 β=3 h=0.5", "sk", 32, 5e-3, "tempering", n=50, beta=3.0, h=0.5),
    cell("SK n=100 β=2 h=0.5", "sk", 32, 1e-2, "tempering", n=100, beta=2.0, h=0.5),
]


def instance(c: Cell, seed: int) -> FactorGraph:
    return FAMILIES[c.family].sample(np.random.default_rng(seed), **c.parameters)


def engine(c: Cell, rank: int) -> TensorTrainElimination:
    """Return trains only, never dense tables, at no more than the rank."""
    return TensorTrainElimination(
        rank, max_rank=rank, exact_entries=0, samples=0, escalate=rank == c.rank,
        halving=rank == c.rank,
    )  # fmt: skip


def run(c: Cell, seed: int) -> dict:
    model = instance(c, seed)
    began = time.process_time()
    answer = engine(c, c.rank)(model, Budget(seconds=c.seconds), np.random.default_rng(0))
    seconds = time.process_time() - began
    probs, error, how = reference(c, model, seed)
    keep = (
        "spread",
        "halving",
        "eps_sum",
        "eps_max",
        "negative",
        "change",
        "drift",
        "branches",
        "unsound",
    )
    return {
        "cell": c.name, "rank": c.rank, "seed": seed, "goal": c.goal,
        "error": distance(answer.probs, probs), "reference": how, "reference_error": error,
        "status": answer.status.value,
        "cpu_seconds": None if os.environ.get("UNTIMED") else round(seconds, 3),
        "engine": repr(engine(c, c.rank)),
        **{k: answer.stats.get(k) for k in keep},
    }  # fmt: skip


def reference(c: Cell, model: FactorGraph, seed: int):
    """Reference marginals, the mean L1 error they carry themselves, and how they were made."""
    if c.reference == "rank":
        better = engine(c, c.reference_rank)(model, Budget(), np.random.default_rng(1))
        return better.probs, better.stats["spread"], f"rank {c.reference_rank} (its spread)"
    order = find_order(model, np.random.default_rng(0), seconds=5.0)
    if order.log2_table <= EXACT_TABLE:
        return solve(model, order, Budget()).probs, 0.0, "junction tree"
    if c.reference == "exact":
        raise SystemExit(f"{c.name}: largest table 2^{order.log2_table:.0f}, no exact reference")
    return tempered(model, seed)


def tempered(model: FactorGraph, seed: int, seconds: float = 40.0, chains: int = 8):
    """Parallel tempering of spins, Rao–Blackwellised; error from the spread between chains."""
    spins = as_ising(model)
    n = model.n_variables
    both = np.concatenate([spins.edges, spins.edges[:, ::-1]])
    order = np.argsort(both[:, 0], kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0], minlength=n))])
    neighbour = both[order, 1]
    coupling = np.concatenate([spins.couplings] * 2)[order]
    ladder = np.linspace(0.05, 1.0, int(8 + 1.5 * np.sqrt(n)))
    args = (start, neighbour, coupling, spins.fields, ladder)
    _temper(*args, 2, 1, 0)
    began = time.process_time()
    _temper(*args, 50, 0, 0)
    sweeps = max(200, int(50 * seconds / chains / (time.process_time() - began) / 1.25))
    runs = np.array([_temper(*args, sweeps, sweeps // 4, seed * 100 + k) for k in range(chains)])
    mean = runs.mean(0)
    error = runs.std(0, ddof=1).mean() / np.sqrt(chains)  # of m = p(+) − p(−), so of ‖p − q‖₁
    return (
        np.stack([1 - mean, 1 + mean], 1) / 2,
        float(error),
        f"tempering, {sweeps} sweeps × {chains}",
    )


@numba.njit(cache=True, fastmath=True)
def _temper(start, neighbour, coupling, field, ladder, sweeps, burn, seed):
    np.random.seed(seed)  # noqa: NPY002 - numba kernels keep their own state
    n, levels = len(field), len(ladder)
    spin = np.empty((levels, n))
    local = np.zeros((levels, n))
    at = np.arange(levels)
    energy = np.empty(levels)
    total = np.zeros(n)
    for r in range(levels):
        for i in range(n):
            spin[r, i] = 1.0 if np.random.random() < 0.5 else -1.0  # noqa: NPY002
        for i in range(n):
            for e in range(start[i], start[i + 1]):
                local[r, i] += coupling[e] * spin[r, neighbour[e]]
    for t in range(sweeps + burn):
        for k in range(levels):
            r = at[k]
            for i in range(n):
                p = 1.0 / (1.0 + np.exp(-2 * ladder[k] * (local[r, i] + field[i])))
                if k == levels - 1 and t >= burn:
                    total[i] += 2 * p - 1
                new = 1.0 if np.random.random() < p else -1.0  # noqa: NPY002
                if new != spin[r, i]:
                    spin[r, i] = new
                    for e in range(start[i], start[i + 1]):
                        local[r, neighbour[e]] += 2 * new * coupling[e]
            energy[k] = 0.0
            for i in range(n):
                energy[k] -= spin[r, i] * (0.5 * local[r, i] + field[i])
        for k in range(t % 2, levels - 1, 2):
            gain = (ladder[k + 1] - ladder[k]) * (energy[k + 1] - energy[k])
            if gain >= 0 or np.random.random() < np.exp(gain):  # noqa: NPY002
                at[k], at[k + 1] = at[k + 1], at[k]
                energy[k], energy[k + 1] = energy[k + 1], energy[k]
    return total / sweeps


def stored() -> list[dict]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def table() -> str:
    rows = [
        "| instances | r | goal | error, mean ± sd | worst | reference's error | sound | CPU s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in CELLS:
        lines = [x for x in stored() if x["cell"] == c.name and x["rank"] == c.rank]
        if not lines:
            continue
        error = np.array([x["error"] for x in lines])
        own = np.mean([x["reference_error"] for x in lines])
        sound = sum(x["status"] in ("converged", "exact") for x in lines)
        rows.append(
            f"| {c.name} ({len(lines)}) | {c.rank} | {c.goal:.0e} | {error.mean():.1e} ± "
            f"{error.std():.1e} | {error.max():.1e} | {own:.1e} | {sound}/{len(lines)} | "
            f"{_mean([x['cpu_seconds'] for x in lines])} |"
        )
    return "\n".join(rows)


def _mean(seconds: list) -> str:
    known = [x for x in seconds if x is not None]
    return f"{np.mean(known):.1f}" if known else "–"


def main() -> None:
    if sys.argv[1:2] == ["uai"]:
        import ttve_uai

        if sys.argv[2:] == ["run"]:
            ttve_uai.run()
        print(ttve_uai.table())
        return
    if sys.argv[1:2] == ["run"]:
        done = {(x["cell"], x["rank"], x["seed"]) for x in stored()}
        LINES.parent.mkdir(exist_ok=True)
        for k in range(len(SEEDS)):
            for c in CELLS:
                seed = c.seeds[k]
                if (c.name, c.rank, seed) in done or (sys.argv[2:] and sys.argv[2] not in c.name):
                    continue
                line = run(c, seed)
                print(line["cell"], seed, f"{line['error']:.1e}", line["status"], flush=True)
                with LINES.open("a") as out:
                    out.write(json.dumps(line) + "\n")
    print(table())


if __name__ == "__main__":
    main()
