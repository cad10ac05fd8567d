"""How fast tempering sweeps: site updates per second on one core, and peers in the same run.

    python benchmarks/sampling.py [--seconds 3] [--out benchmarks/results/sampling.jsonl]
    python benchmarks/sampling.py --families      seconds for 10,000 models of 64 variables
    python benchmarks/sampling.py --clusters      accuracy of cluster moves at equal time

Ours are the sweeps of the engine on one thread, with swaps and with the record that marginals and
log Z are made from. The peer is the Gibbs mode of dwave-samplers on the same spins at the same
inverse temperatures, as many sweeps at each. Time is processor time, so that other work on the
machine does not count; runs of both alternate, the best of each counts. Goals: SK N=500 with 30
replicas 30 million updates per second, 3D L=8 40 million, and no peer faster.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from icgi.data.families import FAMILIES
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ising import as_ising
from icgi.sampling.ensembles import Ensembles, room
from icgi.sampling.targets import target
from icgi.sampling.tempering import ParallelTempering

REPLICAS = 30
ROUNDS = 3
GOALS = {"SK N=500 β=1": 30e6, "EA 3D L=8 β=1": 40e6}
INSTANCES = {
    "SK N=64 β=1": ("sk", {"n": 64, "beta": 1.0}),
    "SK N=500 β=1": ("sk", {"n": 500, "beta": 1.0}),
    "SK N=500 β=3": ("sk", {"n": 500, "beta": 3.0}),
    "EA 2D L=20 β=1": ("ea2d", {"L": 20, "beta": 1.0}),
    "EA 3D L=8 β=1": ("ea3d", {"L": 8, "beta": 1.0}),
    "EA 3D L=8 β=3": ("ea3d", {"L": 8, "beta": 3.0}),
    "Potts q=3 L=20": ("potts", {"L": 20, "q": 3}),
    "ternary n=200": ("factor", {"n": 200, "states": 3}),
}

Run = Callable[[int], float]  # sweeps of all replicas → seconds of processor time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="about, per run")
    parser.add_argument("--out", type=Path, help="file to append JSON lines to")
    parser.add_argument(
        "--families", action="store_true", help="time the drawing of models instead"
    )
    parser.add_argument("--clusters", action="store_true", help="compare cluster moves instead")
    given = parser.parse_args()
    rows = drawing() if given.families else sweeping(given.seconds)
    if given.clusters:
        rows = cluster_moves(given.seconds)
    for row in rows:
        print(row.pop("line"), flush=True)
        if given.out:
            with given.out.open("a") as file:
                file.write(json.dumps({**row, **machine()}) + "\n")


def sweeping(seconds: float) -> Iterator[dict]:
    with ThreadPoolExecutor(1) as pool:
        for name, (family, parameters) in INSTANCES.items():
            model = FAMILIES[family].sample(np.random.default_rng(1), **parameters)
            aim = target(model)
            ensembles = Ensembles(
                aim, np.random.default_rng(0), pool, room(aim, Budget(), 1, 2, REPLICAS),
                levels=REPLICAS,
            )  # fmt: skip
            ensembles.start_record()
            peers: dict[str, Run] = {"icgi": ours(ensembles)}
            if as_ising(model) is not None:
                peers["dwave-samplers"] = dwave_gibbs(model, ensembles.ladder)
            yield from compare(name, peers, model.n_variables * REPLICAS, seconds)


def compare(name: str, peers: dict[str, Run], updates: int, seconds: float) -> Iterator[dict]:
    sweeps = {peer: calibrated(run, seconds) for peer, run in peers.items()}
    best = dict.fromkeys(peers, np.inf)
    for _ in range(ROUNDS):
        for peer, run in peers.items():
            best[peer] = min(best[peer], run(sweeps[peer]) / sweeps[peer])
    for peer, each in best.items():
        rate = updates / each
        goal = GOALS.get(name) if peer == "icgi" else None
        verdict = "" if goal is None else f"  goal {goal / 1e6:.0f}"
        yield {
            "instance": name, "solver": peer, "version": version(peer), "replicas": REPLICAS,
            "sweeps": sweeps[peer], "updates_per_second": rate, "goal": goal,
            "line": f"{name:18s}{peer:16s}{rate / 1e6:9.1f} million updates/s{verdict}",
        }  # fmt: skip


def ours(ensembles: Ensembles) -> Run:
    """Two ensembles, half the sweeps each."""

    def run(sweeps: int) -> float:
        half = max(1, sweeps // 2)
        began = time.process_time()
        ensembles.sweep(half, recording=True)
        return (time.process_time() - began) * sweeps / (2 * half)

    run(20)  # compiles
    return run


def dwave_gibbs(model: FactorGraph, ladder: FloatArray) -> Run:
    """One chain that takes every inverse temperature in turn, as many sweeps at each."""
    import dimod
    from dwave.samplers import SimulatedAnnealingSampler

    arrays = as_ising(model)
    assert arrays is not None
    pairs = map(tuple, arrays.edges.tolist())
    couplings = dict(zip(pairs, (-arrays.couplings).tolist(), strict=True))
    bqm = dimod.BinaryQuadraticModel.from_ising(dict(enumerate(-arrays.fields)), couplings)

    def run(sweeps: int) -> float:
        began = time.process_time()
        SimulatedAnnealingSampler().sample(
            bqm, num_reads=1, beta_schedule_type="custom", beta_schedule=ladder,
            num_sweeps_per_beta=sweeps, proposal_acceptance_criteria="Gibbs", seed=1,
        )  # fmt: skip
        return time.process_time() - began

    return run


def calibrated(run: Run, seconds: float) -> int:
    """Sweeps that take about the given time."""
    sweeps = 40
    while (took := run(sweeps)) < 0.2:
        sweeps *= 4
    return max(40, int(sweeps * seconds / took))


def cluster_moves(seconds: float) -> Iterator[dict]:
    """Error of tempering with and without cluster moves at equal processor time, against exact."""
    cases = [("ea2d", {"L": 16, "beta": beta}) for beta in (1.0, 2.0, 3.0)]
    cases += [("ea3d", {"L": 4, "beta": beta}) for beta in (1.0, 3.0)]
    for family, parameters in cases:
        for clusters in ("none", "swendsen-wang", "houdayer"):
            found = [one_cluster_run(family, parameters, clusters, k, seconds) for k in range(4)]
            error, gap, rhat, sweeps = np.array(found).T
            name = f"{family} " + " ".join(f"{k}={v}" for k, v in parameters.items())
            yield {
                "instance": name, "clusters": clusters, "seconds": seconds,
                "mae": float(error.mean()), "log_z_gap": float(gap.mean()),
                "rhat_max": float(rhat.max()), "sweeps": float(sweeps.mean()),
                "line": f"{name:20s}{clusters:16s} MAE {error.mean():.4f}  |ΔlogZ| {gap.mean():.3f}"
                f"  largest R-hat {rhat.max():.3f}  {sweeps.mean():.0f} sweeps",
            }  # fmt: skip


def one_cluster_run(
    family: str, parameters: dict, clusters: str, k: int, seconds: float
) -> tuple[float, float, float, float]:
    model = FAMILIES[family].sample(np.random.default_rng(k), **parameters)
    exact = JunctionTree()(model, Budget(), np.random.default_rng(0))
    engine = ParallelTempering(clusters=clusters, threads=1)
    engine(model, Budget(iterations=200), np.random.default_rng(k))  # compiles
    began = time.process_time()
    engine(model, Budget(iterations=200), np.random.default_rng(k))
    sweeps = int(200 * seconds / (time.process_time() - began))
    found = engine(model, Budget(iterations=sweeps), np.random.default_rng(k))
    mae = float(np.abs(found.probs - exact.probs).sum(1).mean())
    gap = np.inf if found.log_z is None else abs(found.log_z - exact.log_z)
    return mae, gap, found.stats["rhat"], found.stats["sweeps"]


def drawing(count: int = 10_000) -> Iterator[dict]:
    """Seconds for 10,000 random models of 64 variables, from a tenth of them."""
    sizes = {
        "grid": {"rows": 8, "columns": 8}, "tree": {"n": 64}, "er": {"n": 64}, "ba": {"n": 64},
        "ws": {"n": 64}, "sk": {"n": 64}, "ea2d": {"L": 8}, "ea3d": {"L": 4}, "potts": {"L": 8},
        "factor": {"n": 64}, "csp": {"n": 64},
    }  # fmt: skip
    for name, parameters in sizes.items():
        sample, rng = FAMILIES[name].sample, np.random.default_rng(0)
        model = sample(rng, **parameters)
        began = time.process_time()
        for _ in range(count // 10):
            sample(rng, **parameters)
        seconds = 10 * (time.process_time() - began)
        yield {
            "family": name, "models": count, "variables": model.n_variables, "seconds": seconds,
            "line": f"{name:8s}{model.n_factors:6d} factors each {seconds:8.1f} s for {count}",
        }  # fmt: skip


def machine() -> dict:
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return {"cpu": names[0] if names else "", "cores": os.cpu_count(), "load": os.getloadavg()[0]}


if __name__ == "__main__":
    main()
