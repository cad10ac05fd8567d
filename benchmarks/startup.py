"""Seconds from the command to the answer: after an installation, later, and after `icgi warm`.

    python benchmarks/startup.py [--calls 5] [--no-warm]      the lines of results/startup.txt

Every call is a process of its own with the cache of compiled code in a new folder. "first" is the
first call of an installation, "later" the best of the following ones. Seconds by the clock, and of
processors (all threads and processes together), which other programs hardly change.
"""

import argparse
import os
import resource
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


Spent = tuple[float, float]  # seconds by the clock and of processors


def seconds(cache: Path, *words: str) -> Spent:
    """What one `icgi` command takes with its own cache."""
    began, before = time.perf_counter(), processors()
    subprocess.run(
        [sys.executable, "-m", "icgi", *words],
        env=os.environ | {"ICGI_CACHE": str(cache), "ICGI_INTERPRET": "1"},
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - began, processors() - before


def processors() -> float:
    """Seconds of processors that ended children have taken, and their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(name: str, *spent: Spent) -> str:
    return f"{name:24}" + "".join(f"{clock:9.2f}{own:9.2f}" for clock, own in spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--no-warm", action="store_true", help="leave out `icgi warm`")
    options = parser.parse_args()
    titles = ("first", "later") if options.no_warm else ("first", "later", "after warm")
    lines = [f"{'seconds':24}" + "".join(f"{t:>18}" for t in titles)]
    lines.append(" " * 24 + f"{'clock':>9}{'own':>9}" * len(titles))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        paths = {name: folder / f"{k}.uai" for k, name in enumerate(models())}
        for name, model in models().items():
            icgi.save(model, paths[name])
        found: dict[str, list[Spent]] = {}
        for name, path in paths.items():
            cache = folder / f"cache-{path.stem}"
            asked = [seconds(cache, "marginals", str(path)) for _ in range(options.calls)]
            found[name] = [asked[0], min(asked[1:])]
        if not options.no_warm:
            warm = folder / "warm"
            whole = seconds(warm, "warm")
            for name, path in paths.items():
                calls = [seconds(warm, "marginals", str(path)) for _ in range(options.calls)]
                found[name].append(min(calls))
        lines += [row(name, *spent) for name, spent in found.items()]
        if not options.no_warm:
            lines.append(row("icgi warm", whole))
    if not options.no_warm:
        RESULTS.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
