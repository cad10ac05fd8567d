"""Many models of 16 spins at once: arrays against a list of models, in processor seconds.

    python benchmarks/arrays.py [--models 5000]

Couplings of a 4 × 4 grid and fields are normal, with deviations 1 and ½. The first batch of each
engine, which loads compiled code, is not counted.
"""

import argparse
import time

import numpy as np

import icgi

EDGES = np.array([(i, i + 1) for i in range(16) if i % 4 < 3] + [(i, i + 4) for i in range(12)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=5000)
    count = parser.parse_args().models
    rng = np.random.default_rng(0)
    J, h = rng.normal(size=(count, len(EDGES))), 0.5 * rng.normal(size=(count, 16))
    models = [icgi.from_ising((EDGES, J[m]), h[m]) for m in range(count)]
    print(f"{count} models, processor seconds (answers agree to)")
    for engine in ("jt", "lbp", "lbp:restarts=0"):
        icgi.marginals_batch(icgi.ising_batch(J[:4], h[:4], edges=EDGES), engine=engine)
        icgi.marginals_batch(models[:4], engine=engine)
        began = time.process_time()
        batch = icgi.ising_batch(J, h, edges=EDGES)
        found = icgi.marginals_batch(batch, engine=engine)
        arrays = time.process_time() - began
        began = time.process_time()
        listed = icgi.marginals_batch(models, engine=engine)
        objects = time.process_time() - began
        worst = max(np.abs(a.probs - found.probs[m]).max() for m, a in enumerate(listed))
        print(f"{engine:16s} arrays {arrays:6.2f}   list {objects:6.2f}   ({worst:.1e})")


if __name__ == "__main__":
    main()
