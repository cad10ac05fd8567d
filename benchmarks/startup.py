"""Seconds from the command to the answer: after an installation, later, and after `icgi warm`.

    python benchmarks/startup.py [--calls 5]          prints the lines of results/startup.txt

Every call is a process of its own with the cache of compiled code in a new folder. Wall clock;
"first" is the first call of an installation, "later" the best of the following ones.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import icgi
from icgi.cli.demo import travel
from icgi.data.families import FAMILIES

RESULTS = Path(__file__).parent / "results" / "startup.txt"


def models() -> dict[str, icgi.FactorGraph]:
    grid = FAMILIES["ea2d"]
    return {
        "network of 7 variables": travel(),
        "grid 6 x 6": grid.sample(np.random.default_rng(1), L=6),
        "grid 10 x 10": grid.sample(np.random.default_rng(1), L=10),
    }


def seconds(cache: Path, *words: str) -> float:
    """Wall-clock seconds of one `icgi` command with its own cache."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "icgi", *words],
        env=os.environ | {"ICGI_CACHE": str(cache), "ICGI_INTERPRET": "1"},
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=5)
    options = parser.parse_args()
    lines = [f"{'':24}{'first':>9}{'later':>9}{'after warm':>12}   seconds"]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        paths = {name: folder / f"{k}.uai" for k, name in enumerate(models())}
        for name, model in models().items():
            icgi.save(model, paths[name])
        before = {}
        for name, path in paths.items():
            cache = folder / f"cache-{path.stem}"
            asked = [seconds(cache, "marginals", str(path)) for _ in range(options.calls)]
            before[name] = asked[0], min(asked[1:])
        warm = folder / "warm"
        whole = seconds(warm, "warm")
        for name, path in paths.items():
            after = min(seconds(warm, "marginals", str(path)) for _ in range(options.calls))
            first, later = before[name]
            lines.append(f"{name:24}{first:9.2f}{later:9.2f}{after:12.2f}")
        lines.append(f"{'icgi warm':24}{whole:9.1f}")
    RESULTS.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
