"""How fast UAI text becomes a model: ours against what else is at hand, in one run on one core.

    python benchmarks/parsing.py [--megabytes 50]
    python benchmarks/parsing.py --networks     Bayesian networks of ICGI_DATA/bn, in four formats

Two made-up models of pairwise tables, as programs print them: six decimals, and all 17 digits.
The first call of our reader in a process also loads (or, once per machine, compiles) the kernels;
it is printed apart. Slow peers read a smaller model; rates are per byte read.
"""

import argparse
import gzip
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

STATES = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=50.0)
    parser.add_argument("--networks", action="store_true")
    given = parser.parse_args()
    if given.networks:
        networks()
        return
    size = given.megabytes * 1e6
    started = time.perf_counter()
    from icgi.model.formats import uai

    uai.parse_model(b"MARKOV 1 1 1 1 0 1 1.0", "warm-up")
    print(f"import and kernels: {time.perf_counter() - started:.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        for digits in ("{:.6f}", "{!r}"):
            path = Path(folder, "model.uai")
            path.write_text(generate(size, digits, np.random.default_rng(0)))
            print(f"\n{path.stat().st_size / 1e6:.1f} MB, values printed with {digits}")
            rate("icgi.model.formats.uai.read_model", uai.read_model, path, repeats=3)
            print(f"{'':34s} {peak_memory(uai.read_model, path) / 1e6:8.1f} MB peak, text included")
            rate("float() of every word of split()", floats_of_split, path)
            rate("numpy.fromstring(sep=' ')", numpy_fromstring, path)
            small = Path(folder, "small.uai")
            small.write_text(generate(size / 25, digits, np.random.default_rng(0)))
            pyagrum_rate(small)


def networks() -> None:
    """Processor seconds, best of three readings of each network, unpacking included."""
    from icgi.model.formats import read, write

    folder = Path(os.environ["ICGI_DATA"], "bn")
    endings = (".bif", ".xmlbif", ".json", ".uai")
    print(f"{'network':12s} {'MB of BIF':>10s}" + "".join(f"{e:>10s}" for e in endings) + "   s")
    with tempfile.TemporaryDirectory() as home:
        for path in sorted(folder.glob("*.bif.gz")):
            name, seconds = path.name.removesuffix(".bif.gz"), []
            model = read(path)
            for ending in endings:
                copy = Path(home, f"{name}{ending}.gz")
                if ending == ".bif":
                    copy.write_bytes(path.read_bytes())
                else:
                    write(model, copy)
                times = []
                for _ in range(3):
                    started = time.process_time()
                    read(copy)
                    times.append(time.process_time() - started)
                seconds.append(min(times))
            megabytes = len(gzip.decompress(path.read_bytes())) / 1e6
            row = "".join(f"{s:10.3f}" for s in seconds)
            print(f"{name:12s} {megabytes:10.2f}{row}", flush=True)


def generate(size: float, digits: str, rng: np.random.Generator) -> str:
    """Chain of pairwise factors with as many tables as make about `size` bytes."""
    entries = STATES**2
    table = " ".join(map(digits.format, rng.random(entries).tolist()))
    m = max(1, int(size / (len(table) + 20)))
    parts = [f"MARKOV\n{m + 1}\n{' '.join([str(STATES)] * (m + 1))}\n{m}\n"]
    parts += [f"2 {i} {i + 1}\n" for i in range(m)]
    for _ in range(m):
        values = " ".join(map(digits.format, rng.random(entries).tolist()))
        parts.append(f"\n{entries}\n{values}\n")
    return "".join(parts)


def rate(name: str, read: Callable[[Path], object], path: Path, repeats: int = 1) -> None:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        read(path)
        times.append(time.perf_counter() - started)
    megabytes = path.stat().st_size / 1e6
    print(f"{name:34s} {megabytes / min(times):8.1f} MB/s   {min(times):6.2f} s")


def peak_memory(read: Callable[[Path], object], path: Path) -> int:
    tracemalloc.start()
    read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def floats_of_split(path: Path) -> list[float]:
    return [float(word) for word in path.read_bytes().split()[1:]]


def numpy_fromstring(path: Path) -> object:
    return np.fromstring(path.read_text()[len("MARKOV") :], sep=" ")


def pyagrum_rate(path: Path) -> None:
    try:
        import pyagrum
    except ImportError:
        print("pyagrum.loadMRF                    not installed")
        return
    rate(
        f"pyagrum.loadMRF ({path.stat().st_size / 1e6:.1f} MB)",
        lambda p: pyagrum.loadMRF(str(p)),
        path,
    )


if __name__ == "__main__":
    main()
