"""Join graphs: clusters of mini-buckets, and arcs along which they agree on what they hand on.

An elimination order puts every factor into the bucket of its first variable; a bucket is cut into
mini-buckets of few variables, and each hands its scope without the bucket's variable on. With one
mini-bucket per bucket this is a junction tree; with more it has loops, and clusters as small as
asked for (Mateescu, Kask, Gogate, Dechter 2010, Join-graph propagation algorithms, JAIR 37).
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from icgi.approx.reading import NEVER, watched
from icgi.approx.regions import Region, RegionGraph, junction_tree, maximal
from icgi.clock import Deadline
from icgi.model.graph import FactorGraph
from icgi.model.ordering import greedy_order


class MiniBuckets(NamedTuple):
    """Clusters of mini-buckets in the order of their buckets, and where scopes are placed."""

    clusters: list[Region]
    variables: list[int]  # whose bucket each cluster is a part of
    placed: dict[Region, int]  # cluster that took in a scope, a factor's or one handed on


def mini_buckets(model: FactorGraph, ibound: int, deadline: Deadline = NEVER) -> MiniBuckets:
    """Clusters of up to ibound + 1 variables, from buckets along a min-fill order.

    Each bucket is cut into parts greedily, large scopes first, and each part hands its scope
    without the bucket's variable on (Dechter, Kask, Mateescu 2002). A factor larger than the bound
    stays whole, a variable without factors stays alone. From ibound = induced width on, the
    clusters are those of a junction tree.
    """
    order = greedy_order(model, "min-fill").variables.tolist()
    position = np.empty(model.n_variables, np.int64)
    position[order] = np.arange(len(order))
    buckets: list[set[Region]] = [set() for _ in order]
    for scope in watched(model.scopes, deadline):
        if scope:
            buckets[min(position[i] for i in scope)].add(tuple(sorted(scope)))
    parts: list[set[int]] = []
    variables: list[int] = []
    placed: dict[Region, int] = {}
    for at, variable in watched(enumerate(order), deadline):
        first = len(parts)
        for scope in sorted(buckets[at] or {(variable,)}, key=lambda s: (-len(s), s)):
            new = set(scope)
            fitting = (
                a
                for a in range(first, len(parts))
                if new <= parts[a] or len(parts[a] | new) <= ibound + 1
            )
            best = max(fitting, key=lambda a: len(parts[a] & new), default=None)
            if best is None:
                best = len(parts)
                parts.append(set())
                variables.append(variable)
            parts[best] |= new
            placed[scope] = best
        for part in parts[first:]:
            rest = _handed_on(part, variable)
            if rest:
                buckets[min(position[i] for i in rest)].add(rest)
    return MiniBuckets([tuple(sorted(p)) for p in parts], variables, placed)


def join_graph(model: FactorGraph, ibound: int, deadline: Deadline = NEVER) -> RegionGraph:
    """Clusters of mini-buckets that agree along arcs, each arc an inner region with c = −1.

    Stationary points of its free energy are the fixed points of iterative join-graph propagation.
    Arcs lead from a mini-bucket to the one that takes in what it hands on, and between the
    mini-buckets of one bucket, in a chain, about the bucket's variable alone. So the arcs with
    any one variable are a tree of the clusters that contain it: it counts once.
    """
    found = mini_buckets(model, ibound, deadline)
    # Arcs may close a loop around clusters that have a junction tree without it.
    tree = junction_tree(model, maximal(found.clusters, deadline), deadline)
    if tree is not None:
        return tree
    near, into = merged(found.clusters, _arcs(found))
    kept = [a for a, target in enumerate(into) if a == target]
    number = {a: k for k, a in enumerate(kept)}
    # Clusters speak to later ones in the order of their buckets, and back in the next sweep.
    arcs = sorted(
        (number[a], number[b], label) for a in kept for b, label in near[a].items() if a < b
    )
    homes = [
        number[into[found.placed[tuple(sorted(scope))]]] if scope else -1 for scope in model.scopes
    ]
    return RegionGraph(
        [found.clusters[a] for a in kept],
        [label for _, _, label in arcs],
        np.full(len(arcs), -1.0),
        [[a, b] for a, b, _ in arcs],
        [[] for _ in arcs],  # a label within another one is not made to agree with it
        homes,
        False,
    )


def _handed_on(part: Region | set[int], variable: int) -> Region:
    return tuple(sorted(i for i in part if i != variable))


def _arcs(found: MiniBuckets) -> dict[tuple[int, int], Region]:
    """Label of the arc between two clusters."""
    arcs: dict[tuple[int, int], Region] = {}
    for a, (cluster, variable) in enumerate(zip(found.clusters, found.variables, strict=True)):
        rest = _handed_on(cluster, variable)
        if rest:
            arcs[a, found.placed[rest]] = rest
    for (a, variable), (b, other) in pairwise(enumerate(found.variables)):
        if variable == other:
            arcs[a, b] = (variable,)
    return arcs


def merged(
    clusters: list[Region], arcs: dict[tuple[int, int], Region]
) -> tuple[list[dict[int, Region]], list[int]]:
    """Labels between neighbours, and the cluster that each cluster is merged into.

    A cluster that is the label of one of its arcs joins its neighbour there, which says the same
    with fewer tables. Where that makes two arcs between the same clusters, they become one:
    they have no variable in common, and agreeing on all is more than agreeing on both.
    """
    near: list[dict[int, Region]] = [{} for _ in clusters]
    for (a, b), label in arcs.items():
        near[a][b] = near[b][a] = label
    into = list(range(len(clusters)))
    waiting = list(arcs)[::-1]
    while waiting:
        small, large = sorted(waiting.pop(), key=lambda a: len(clusters[a]))
        if near[small].get(large) != clusters[small]:
            continue
        into[small] = large
        for c, label in near[small].items():
            del near[c][small]
            if c != large:
                near[large][c] = near[c][large] = tuple(sorted({*label, *near[large].get(c, ())}))
                waiting.append((large, c))
        near[small] = {}
    return near, [_end(into, a) for a in range(len(into))]


def _end(into: list[int], a: int) -> int:
    while into[a] != a:
        a = into[a]
    return a
