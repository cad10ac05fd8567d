"""Regions of `gbp` by their bound: all intersections of clusters, or the arcs of a join graph.

python benchmarks/regions.py    five 10×10 spin glasses (β = 1, h = 0.1), about a minute
"""

import numpy as np

import icgi
from icgi.approx.gbp import GeneralisedBP
from icgi.approx.join_graph import join_graph, mini_buckets
from icgi.approx.regions import RegionGraph, region_graph
from icgi.data.families import FAMILIES

SEEDS = range(1, 6)


def errors() -> None:
    """Print the mean L1 error by bound, and those of `lbp` and of loops."""
    glasses = [FAMILIES["ea2d"].sample(np.random.default_rng(s), L=10) for s in SEEDS]
    exact = [icgi.marginals(model, engine="jt").probs for model in glasses]
    budget = icgi.Budget(iterations=3000)

    def error(engine) -> str:
        found = [icgi.marginals(model, engine=engine, budget=budget).probs for model in glasses]
        gaps = [np.abs(p - q).sum(1).mean() for p, q in zip(found, exact, strict=True)]
        return f"{np.mean(gaps):.4f}"

    print("lbp", error("lbp"), "loops", error(GeneralisedBP()))
    for regions in ("join-graph", "clusters"):
        row = {i: error(GeneralisedBP(regions=regions, ibound=i)) for i in (2, 4, 6, 8)}
        print(regions, row)


def work() -> None:
    """Print how many entries a sweep reads on a random graph, as a ratio."""
    model = FAMILIES["er"].sample(np.random.default_rng(1), n=200, p=0.1)
    for ibound in (4, 8, 14):
        clusters = region_graph(model, mini_buckets(model, ibound).clusters)
        print("entries read, clusters / join-graph, ibound", ibound,
              f"{entries(clusters) / entries(join_graph(model, ibound)):.1f}")  # fmt: skip


def entries(graph: RegionGraph) -> int:
    return sum(2 ** len(graph.outer[a]) for parents in graph.parents for a in parents)


if __name__ == "__main__":
    errors()
    work()
