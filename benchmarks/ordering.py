"""How good elimination orders are, and how long they take: greedy rules against the search.

    python benchmarks/ordering.py [--seconds 10] [--seed 0] [--manifest]

Made-up models, and those of the data folder where ICGI_DATA names it; `--manifest` takes every
instance of its manifest.csv and compares the largest table with the published one. Columns: log₂ of
all table entries and of the largest table (width in brackets), and the time after a first call,
since that call loads (or, once per machine, compiles) the kernels.
"""

import argparse
import csv
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import numpy as np

from icgi.model.condition import condition
from icgi.model.formats.uai import parse_evidence, parse_model
from icgi.model.graph import FactorGraph
from icgi.model.ordering import HEURISTICS, Order, cost, find_order, greedy_order

INSTANCES = (
    "Grids_11", "DBN_11", "Segmentation_11", "ObjectDetection_11", "Promedus_11", "Alchemy_11",
    "CSP_13", "Pedigree_11", "linkage_11", "relational_5",
)  # fmt: skip
HEAD = f"{'model':22s} {'n':>6s}  {'greedy':>24s} {'ms':>8s}   {'search':>24s} {'s':>7s}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--manifest", action="store_true")
    given = parser.parse_args()
    warm_up()
    print(HEAD)
    if given.manifest:
        compare_with_manifest(given.seconds, given.seed)
        return
    for name, model in made_up():
        report(name, model, given.seconds, given.seed)
    for row, model in published(INSTANCES):
        report(row["name"], model, given.seconds, given.seed)
    large(given.seconds, given.seed)


def warm_up() -> None:
    started = time.perf_counter()
    for model in (
        pairwise(nx.gnp_random_graph(80, 0.08, seed=0)),
        pairwise(nx.grid_graph((50, 50))),
    ):
        find_order(model, np.random.default_rng(0), restarts=10)
        for heuristic in HEURISTICS:
            greedy_order(model, heuristic)
        cost(model, np.arange(model.n_variables))
    print(f"kernels: {time.perf_counter() - started:.1f} s\n")


def report(name: str, model: FactorGraph, seconds: float, seed: int) -> Order:
    greedy, greedy_time = timed(model, seconds, seed, restarts=0)
    found, found_time = timed(model, seconds, seed, restarts=1_000_000)
    print(
        f"{name:22s} {model.n_variables:6d}  {shown(greedy)} {1e3 * greedy_time:8.2f}   "
        f"{shown(found)} {found_time:7.3f}",
        flush=True,
    )
    return found


def timed(model: FactorGraph, seconds: float, seed: int, restarts: int) -> tuple[Order, float]:
    started = time.perf_counter()
    order = find_order(model, np.random.default_rng(seed), seconds, restarts)
    return order, time.perf_counter() - started


def shown(order: Order) -> str:
    return f"{order.log2_entries:8.2f} {order.log2_table:8.2f} ({order.width:4d})"


def made_up() -> Iterator[tuple[str, FactorGraph]]:
    yield "grid 10×10", pairwise(nx.grid_graph((10, 10)))
    yield "grid 20×20", pairwise(nx.grid_graph((20, 20)))
    yield "lattice 6×6×6", pairwise(nx.grid_graph((6, 6, 6)))
    yield "Erdős–Rényi 100 p=.05", pairwise(nx.gnp_random_graph(100, 0.05, seed=0))


def large(seconds: float, seed: int) -> None:
    print(f"\n{'large model':22s} {'n':>6s}  {'rule':>22s} {'entries':>9s} {'width':>6s} {'s':>7s}")
    models = (
        ("grid 224×224", pairwise(nx.grid_graph((224, 224)))),
        ("tree", pairwise(nx.random_labeled_tree(50_000, seed=seed))),
        ("small world k=4", pairwise(nx.watts_strogatz_graph(10_000, 4, 0.05, seed=seed))),
        ("hubs, m=2", pairwise(nx.barabasi_albert_graph(20_000, 2, seed=seed))),
        ("3-regular", pairwise(nx.random_regular_graph(3, 50_000, seed=seed))),
    )
    for name, model in models:
        for rule in (*HEURISTICS, "find_order", "cost of 0, 1, 2, …"):
            started = time.perf_counter()
            if rule == "find_order":
                order = find_order(model, np.random.default_rng(seed), seconds)
            elif rule in HEURISTICS:
                order = greedy_order(model, rule)
            else:
                order = cost(model, np.arange(model.n_variables))
            print(
                f"{name:22s} {model.n_variables:6d}  {rule:>22s} {order.log2_entries:9.1f} "
                f"{order.width:6d} {time.perf_counter() - started:7.3f}",
                flush=True,
            )


def compare_with_manifest(seconds: float, seed: int) -> None:
    gains = []
    for row, model in published(None):
        found = report(row["name"], model, seconds, seed)
        gains.append(float(row["log2_max_clique_after_zero_pruning"]) - found.log2_table)
        if gains[-1] < -0.01:
            print(f"{'':22s} above the manifest by {-gains[-1]:.2f}")
    above = sum(gain < -0.01 for gain in gains)
    print(
        f"{len(gains)} instances, {above} above; largest table lower by {np.mean(gains):.2f} bits"
    )


def published(names: tuple[str, ...] | None) -> Iterator[tuple[dict[str, str], FactorGraph]]:
    """Rows of the manifest with their models, evidence entered and impossible states removed."""
    folder = Path(os.environ.get("ICGI_DATA", ""))
    if not (folder / "manifest.csv").is_file():
        print("set ICGI_DATA to the folder of manifest.csv for published models")
        return
    with open(folder / "manifest.csv", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if names is None or row["name"] in names]
    for archive_name in dict.fromkeys(row["archive"] for row in rows):
        with tarfile.open(folder / archive_name) as archive:
            members = {member.name: member for member in archive}
            for row in rows:
                if row["archive"] != archive_name:
                    continue
                text, observed = (
                    archive.extractfile(members[f"{row['name']}.uai{suffix}"]).read()
                    for suffix in ("", ".evid")
                )
                model = parse_model(text, row["name"])
                evidence = parse_evidence(observed, row["name"], model)
                yield row, condition(model, evidence).model


def pairwise(graph: nx.Graph) -> FactorGraph:
    numbered = nx.convert_node_labels_to_integers(graph)
    scopes = tuple(numbered.edges)
    table = np.zeros((2, 2))
    return FactorGraph(np.full(len(numbered), 2), scopes, (table,) * len(scopes))


if __name__ == "__main__":
    main()
