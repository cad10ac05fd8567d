"""Tempering on a CUDA device: instances and site updates per second, and agreement with exact.

    PYTHONPATH=src python benchmarks/gpu.py [--out FILE]

Takes about a minute on one device, most of it the compiler's; prints a JSON line per row, and
appends it to FILE. Goal: 2e10 site updates per second on a batch of N = 64 to 200. Rates are those
of a launch with its results copied back, without drawing and packing; the row `whole` is
everything, from models to marginals. Without a device it says so and ends with code 0.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from icgi.data.families import FAMILIES
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget
from icgi.model.graph import FactorGraph
from icgi.sampling import gpu, gpu_batches
from icgi.sampling.gpu import GpuTempering, IsingBatch, temper_dense

GOAL = 2e10
RUN = 1.5  # seconds of each timed launch, about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="file to append JSON lines to")
    given = parser.parse_args()
    if not gpu.available():
        print("no CUDA device (or no CuPy): nothing measured")
        return
    device = gpu_batches.cupy().cuda.runtime.getDeviceProperties(0)["name"].decode()
    began = time.perf_counter()
    for rows in (dense_rows(), sparse_rows(), whole_rows(), agreement_rows()):
        for row in rows:
            row |= {"device": device, "elapsed": round(time.perf_counter() - began, 1)}
            print(json.dumps(row, ensure_ascii=False), flush=True)
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")


def dense_rows() -> Iterator[dict]:
    cp = gpu_batches.cupy()
    for n, count, replicas, ensembles in (
        (64, 8192, 16, 2), (200, 2048, 24, 2), (500, 128, 30, 4), (1000, 64, 30, 4),
    ):  # fmt: skip
        settings = GpuTempering(replicas=replicas, ensembles=ensembles)
        random = cp.random.default_rng(n)
        upper = cp.triu(random.standard_normal((count, n, n), dtype=cp.float32), 1) / np.sqrt(n)
        fields = cp.full((count, n), 0.1, cp.float32)
        batch = IsingBatch(upper + upper.transpose(0, 2, 1), fields)
        yield timed(
            f"SK N={n} β=1", n, count, settings,
            lambda sweeps, batch=batch, s=settings: temper_dense(batch, s, sweeps, 1),
        )  # fmt: skip
        del upper, fields, batch
        cp.get_default_memory_pool().free_all_blocks()


def sparse_rows() -> Iterator[dict]:
    rng = np.random.default_rng(0)
    for name, family, parameters, count in (
        ("EA 3D L=12 β=1", "ea3d", {"L": 12, "beta": 1.0}, 64),
        ("EA 2D L=20 β=1", "ea2d", {"L": 20, "beta": 1.0}, 256),
        ("Potts q=3 L=10", "potts", {"L": 10, "q": 3}, 512),
    ):
        settings = GpuTempering(replicas=24, ensembles=4)
        drawn = [FAMILIES[family].sample(rng, **parameters) for _ in range(16)]
        packed = gpu_batches.pairwise_batch(drawn)
        repeat = gpu_batches.cupy().concatenate
        arrays = tuple(repeat([a] * (count // len(drawn))) for a in packed.arrays)
        batch = gpu_batches.PairwiseBatch(arrays, packed.variables, packed.states)
        yield timed(
            name, drawn[0].n_variables, count, settings,
            lambda sweeps, batch=batch, s=settings: batch.launch(s.schedule(sweeps, s.ladder()), 1),
        )  # fmt: skip


def timed(
    name: str, n: int, count: int, settings: GpuTempering, launch: Callable[[int], object]
) -> dict:
    """Rate of one launch of about RUN seconds, after one that compiles and one that paces."""
    launch(16)
    began = time.perf_counter()
    launch(64)
    sweeps = int(np.clip(RUN * 64 / (time.perf_counter() - began), 64, 8000))
    began = time.perf_counter()
    launch(sweeps)
    seconds = time.perf_counter() - began
    updates = n * count * settings.replicas * settings.ensembles * sweeps / seconds
    return {
        "row": "speed", "instance": name, "batch": count, "replicas": settings.replicas,
        "ensembles": settings.ensembles, "sweeps": sweeps, "seconds": round(seconds, 3),
        "instances_per_second_at_4000_sweeps": round(count * sweeps / seconds / 4000, 2),
        "updates_per_second": float(f"{updates:.3g}"),
        "goal": GOAL if n in (64, 200) else None,
    }  # fmt: skip


def whole_rows() -> Iterator[dict]:
    """From models to marginals: 256 models of SK N=64, adapted ladder and all."""
    rng = np.random.default_rng(1)
    models = [FAMILIES["sk"].sample(rng, n=64) for _ in range(256)]
    began = time.perf_counter()
    answers = GpuTempering(replicas=16).run(models, Budget(iterations=4000), rng)
    seconds = time.perf_counter() - began
    yield {
        "row": "whole", "instance": "SK N=64 β=1", "batch": len(models), "sweeps": 4000,
        "seconds": round(seconds, 3), "instances_per_second": round(len(models) / seconds, 1),
        "converged": sum(answer.status.value == "converged" for answer in answers),
        "swap_rate_min": min(answer.stats["swap_rate_min"] for answer in answers),
    }  # fmt: skip


def agreement_rows() -> Iterator[dict]:
    """Against the junction tree: dense and sparse spins, Potts, mixed numbers of states."""
    rng = np.random.default_rng(3)
    kinds: dict[str, list[FactorGraph]] = {
        "SK N=18 β=1.5": [FAMILIES["sk"].sample(rng, n=18, beta=1.5, h=0.3) for _ in range(16)],
        "EA 2D L=6 β=1": [FAMILIES["ea2d"].sample(rng, L=6) for _ in range(16)],
        "Potts q=4 L=4": [FAMILIES["potts"].sample(rng, L=4, q=4) for _ in range(16)],
        "trees, 2-5 states": [
            FAMILIES["tree"].sample(rng, n=20, arity=2, states=int(q)) for q in (2, 3, 4, 5) * 4
        ],
    }
    budget = Budget(iterations=20_000)
    for name, models in kinds.items():
        found = GpuTempering().run(models, budget, rng)
        exact = [JunctionTree()(model, Budget(), rng) for model in models]
        gaps = [np.abs(a.probs - b.probs) for a, b in zip(found, exact, strict=True)]
        z = np.concatenate(
            [(g / np.maximum(a.std_error, 1e-5)).max(1) for g, a in zip(gaps, found, strict=True)]
        )
        log_z = [
            (a.log_z - b.log_z) / max(a.stats["log_z_std_error"], 1e-5)
            for a, b in zip(found, exact, strict=True)
        ]
        yield {
            "row": "agreement", "instance": name, "models": len(models), "sweeps": 20_000,
            "largest_error": float(max(g.max() for g in gaps)),
            "share_beyond_3_errors": float((z > 3).mean()),
            "log_z_largest_gap": max(
                abs(a.log_z - b.log_z) for a, b in zip(found, exact, strict=True)
            ),
            "log_z_z_scores_rms": float(np.sqrt(np.mean(np.square(log_z)))),
            "converged": sum(a.status.value == "converged" for a in found),
        }  # fmt: skip
    began = time.perf_counter()
    one = GpuTempering().run(kinds["SK N=18 β=1.5"], Budget(10**9, seconds=2.0), rng)[0]
    yield {
        "row": "seconds", "asked": 2.0, "took": round(time.perf_counter() - began, 3),
        "sweeps": one.stats["sweeps"],
    }  # fmt: skip


if __name__ == "__main__":
    main()
