"""Tempering on a CUDA device: instances and site updates per second, and agreement with exact.

PYTHONPATH=src python benchmarks/gpu.py
"""

import time

import numpy as np

from icgi.data.families import FAMILIES
from icgi.sampling import gpu
from icgi.sampling.gpu import GpuTempering, IsingBatch, temper_dense


def dense_row(n: int, count: int, settings: GpuTempering, sweeps: int) -> None:
    import cupy as cp

    rng = np.random.default_rng(n)
    upper = np.triu(rng.normal(0, 1 / np.sqrt(n), (count, n, n)), 1).astype(np.float32)
    batch = IsingBatch(cp.asarray(upper + upper.transpose(0, 2, 1)), cp.full((count, n), 0.1, "f4"))
    temper_dense(batch, settings, 100, 1)
    cp.cuda.Device().synchronize()
    began = time.perf_counter()
    temper_dense(batch, settings, sweeps, 2)
    report(f"SK N={n} β=1", n, count, settings, sweeps, time.perf_counter() - began)


def sparse_row(name: str, models: list, settings: GpuTempering, sweeps: int) -> None:
    gpu._launch_sparse(models, settings, 100, 1)
    began = time.perf_counter()
    gpu._launch_sparse(models, settings, sweeps, 2)
    n = models[0].n_variables
    report(name, n, len(models), settings, sweeps, time.perf_counter() - began)


def report(name: str, n: int, count: int, s: GpuTempering, sweeps: int, seconds: float) -> None:
    updates = n * count * s.replicas * s.ensembles * sweeps
    print(
        f"{name:<22}{count:>8} instances  {s.replicas}×{s.ensembles} replicas  {sweeps:>6} sweeps  "
        f"{seconds:7.2f} s  {count / seconds:10.1f} instances/s  {updates / seconds:.2e} updates/s",
        flush=True,
    )


def main() -> None:
    if not gpu.available():
        raise SystemExit("no CUDA device")
    labels = GpuTempering(replicas=16, ensembles=2, hottest=0.2)
    dense_row(64, 16384, labels, 4000)
    dense_row(200, 2048, GpuTempering(replicas=24, ensembles=2), 4000)
    dense_row(500, 128, GpuTempering(replicas=30, ensembles=4), 4000)
    dense_row(1000, 64, GpuTempering(replicas=30, ensembles=4), 2000)
    rng = np.random.default_rng(0)
    cubes = [FAMILIES["ea3d"].sample(rng, L=12, beta=1.0) for _ in range(64)]
    sparse_row("EA 3D L=12 β=1", cubes, GpuTempering(replicas=24, ensembles=4), 2000)
    squares = [FAMILIES["ea2d"].sample(rng, L=20, beta=1.0) for _ in range(256)]
    sparse_row("EA 2D L=20 β=1", squares, GpuTempering(replicas=24, ensembles=4), 2000)
    potts = [FAMILIES["potts"].sample(rng) for _ in range(256)] if "potts" in FAMILIES else []
    if potts:
        sparse_row("Potts (default)", potts, GpuTempering(replicas=16, ensembles=4), 2000)


if __name__ == "__main__":
    main()
