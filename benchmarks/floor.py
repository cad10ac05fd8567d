"""Passes of the junction tree against the time that moving their tables takes at the least.

    ICGI_DATA=… python benchmarks/floor.py [NAME …]     the lines of results/floor.txt

Cliques are never stored; messages and factors are. On the way up a message is written once, and
read once by its parent; on the way down it is read by its own node, and read and written again
where the parent divides. That is five times 8 bytes an entry, and twice for an entry of a factor.
The floor is these bytes over the speed at which numpy copies arrays that are larger than any cache,
measured just before in the same process. Processor time of one thread along the order that `jt`
takes, the best of several runs; filling the store with the tables is not part of it.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from exact import cpu, load
from icgi.exact.forecast import forecast
from icgi.exact.junction_tree import both_passes
from icgi.exact.tree import fill_store
from icgi.inference import Budget
from icgi.model.condition import condition
from icgi.model.wiring import entries_of

RESULTS = Path(__file__).parent / "results" / "floor.txt"
NAMES = ("ising-20x20", "er-100-0.05", "DBN_16", "ObjectDetection_14")
RUNS = 5
PER_MESSAGE, PER_FACTOR = 5, 2


def copy_speed() -> float:
    """Bytes a second that are read or written while an array is copied."""
    source, target = np.ones(2**25), np.zeros(2**25)
    spent = []
    for _ in range(RUNS):
        began = time.thread_time()
        np.copyto(target, source)
        spent.append(time.thread_time() - began)
    return 2 * source.nbytes / min(spent)


def line(name: str) -> str:
    model, evidence = load(name)
    small = condition(model, evidence).model
    ahead = forecast(small, Budget(table_bytes=2**34), np.random.default_rng(0))
    if ahead.plan is None:
        return f"{name:20} does not fit"
    tables, _ = fill_store(small, ahead.plan, log=False)
    mass = np.zeros((small.n_variables, small.max_states))
    stop = np.zeros(1, np.uint8)
    speed = copy_speed()
    spent, store = [], tables.copy()
    for _ in range(RUNS):
        np.copyto(store, tables)
        began = time.thread_time()
        both_passes(ahead.plan, store, mass, 1, stop)
        spent.append(time.thread_time() - began)
    messages = int(ahead.plan.tree.size.sum())
    floor = 8 * (PER_MESSAGE * messages + PER_FACTOR * entries_of(small)) / speed
    each = 1e9 * min(spent) / (2 * ahead.plan.clique_entries)
    return (
        f"{name:20}{min(spent):9.3f}{floor:9.3f}{min(spent) / floor:8.1f}"
        f"{messages / 1e6:12.1f}{ahead.plan.clique_entries / 1e6:12.1f}{each:8.2f}"
        f"{speed / 1e9:8.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    options = parser.parse_args()
    head = f"{'instance':20}{'passes s':>9}{'floor s':>9}{'ratio':>8}{'messages M':>12}"
    rows = [cpu(), head + f"{'cliques M':>12}{'ns each':>8}{'GB/s':>8}"]
    print("\n".join(rows))
    for name in options.names:
        rows.append(line(name))
        print(rows[-1], flush=True)
    if tuple(options.names) == NAMES:
        RESULTS.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
