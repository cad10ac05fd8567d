"""Marginals of a published torus of spins by its transfer operator: a reference for hard models.

    ICGI_DATA=… ICGI_STUDY=… python benchmarks/torus.py [--vectors 16] [--model grid20x20.f5.wrap]

The method is `icgi.exact.transfer`: no sampling, no messages. One JSON line goes to
benchmarks/results/torus.jsonl: the eigenvalues in units of the trace, the error that is stated,
processor seconds, and how far the marginals are from those of the run before, in L1 (`before`;
of an implementation of its own in single precision for the first line). Marginals go to the folder
in ICGI_STUDY, where `python benchmarks/auto.py hard` finds them.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

import icgi
from icgi.clock import Deadline
from icgi.data.collection import data_folder, instances
from icgi.exact.rings import ring_of
from icgi.exact.transfer import gauged, solved
from icgi.model.ising import as_ising

LINES = Path(__file__).parent / "results" / "torus.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="grid20x20.f5.wrap")
    parser.add_argument("--vectors", type=int, default=16)
    options = parser.parse_args()
    folder = data_folder()
    if folder is None or "ICGI_STUDY" not in os.environ:
        raise SystemExit("set ICGI_DATA to the collection and ICGI_STUDY to a folder for results")
    study = Path(os.environ["ICGI_STUDY"])
    study.mkdir(parents=True, exist_ok=True)
    model = next(each for each in instances(folder) if each.name == options.model).model()
    spins = as_ising(model)
    ring = None if spins is None else ring_of(spins)
    if spins is None or ring is None:
        raise SystemExit(f"{options.model} is no ring of columns of spins")
    began, cpu = time.perf_counter(), time.process_time()
    columns = gauged(ring, Deadline())
    found = solved(columns, options.vectors, Deadline(), np.random.default_rng(1))
    up = np.empty(model.n_variables)
    up[ring.spins] = found.up
    probs = np.stack([1.0 - up, up], 1)
    line: dict = {"name": options.model, "vectors": options.vectors, "version": icgi.__version__}
    line |= {"cpu": round(time.process_time() - cpu, 1), "error": found.error}
    line |= {
        "seconds": round(time.perf_counter() - began, 1),
        "log_z": found.log_z + spins.constant,
    }
    line["values"] = [float(np.abs(x)) for x in found.values]
    target = study / f"{options.model}-torus.npy"
    if target.is_file():
        line["before"] = float(np.abs(probs - np.load(target)).sum(1).mean())
    np.save(target, probs)
    with LINES.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line))


if __name__ == "__main__":
    main()
