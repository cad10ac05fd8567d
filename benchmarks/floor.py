"""Passes of the junction tree against the time that moving their tables takes at the least.

    ICGI_DATA=… python benchmarks/floor.py [NAME …]     the lines of results/floor.txt

Cliques are never stored; messages and factors are. On the way up a message is written once, and
read once by its parent; on the way down it is read by its own node, and read and written again
where the parent divides. That is five times 8 bytes an entry, and twice for an entry of a factor.
The floor is these bytes over the speed at which numpy copies arrays that are larger than any cache,
measured just before in the same process. Processor time of one thread along the order that `jt`
takes, the best of several runs; filling the store with the tables is not part of it.

The last columns are wall-clock seconds of whole answers by `jt:threads=1` and `jt:threads=2`, and
of the search of an order, which is their serial part; they want a machine with two idle cores.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import icgi
from exact import cpu, load
from icgi.exact.forecast import forecast
from icgi.exact.junction_tree import both_passes
from icgi.exact.tree import fill_store
from icgi.inference import Budget
from icgi.model.condition import condition
from icgi.model.ordering import find_order
from icgi.model.wiring import entries_of

RESULTS = Path(__file__).parent / "results" / "floor.txt"
NAMES = ("ising-20x20", "er-100-0.05", "DBN_16", "ObjectDetection_14")
RUNS = 5
WIDTHS = (10, 9, 8, 12, 11, 9, 7, 12, 13, 10)
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
    answers = [wall(partial(ask, small, threads)) for threads in (1, 2)]
    search = wall(partial(find_order, small, np.random.default_rng(0)))
    each = 1e9 * min(spent) / (2 * ahead.plan.clique_entries)
    numbers = (min(spent), floor, min(spent) / floor, messages / 1e6)
    numbers += (ahead.plan.clique_entries / 1e6, each, speed / 1e9, *answers, search)
    return f"{name:20}" + "".join(f"{x:{w}.3g}" for x, w in zip(numbers, WIDTHS, strict=True))


def ask(model: icgi.FactorGraph, threads: int) -> None:
    icgi.marginals(model, engine=f"jt:threads={threads}", budget=Budget(table_bytes=2**34))


def wall(work: Callable[[], object]) -> float:
    """Seconds by the clock, the best of three runs."""
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    options = parser.parse_args()
    columns = ("passes s", "floor s", "ratio", "messages M", "cliques M", "ns each", "GB/s")
    columns += ("1 thread s", "2 threads s", "search s")
    head = f"{'instance':20}" + "".join(f"{c:>{w}}" for c, w in zip(columns, WIDTHS, strict=True))
    rows = [cpu(), head]
    print("\n".join(rows))
    for name in options.names:
        rows.append(line(name))
        print(rows[-1], flush=True)
    if tuple(options.names) == NAMES:
        RESULTS.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
